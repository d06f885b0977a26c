/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A put or forget as bytes, and back.
 *
 * Only the fields of a record that are set are written, each behind its code in record_types, so
 * that versions can read each other's records: an unknown field is skipped, a missing one counts as
 * not set. The code of a removed field must not be reused.
 */

#include "base/buffer.h"
#include "store/record.h"

/* 0, or -1 when the buffer is full; then it may end with a part of the change. */
int change_encode(const struct change *change, struct buffer *out);

/* The change at the start of `data`, to be freed, and how many bytes it has; NULL if there is none
 * that makes sense. */
struct change *change_decode(const uint8_t *data, size_t length, size_t *out_used);

/* The fields of a record as in a change; the same for the same record. */
int record_encode(const struct record_type *type, const void *record, struct buffer *out);
