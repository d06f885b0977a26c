#pragma once

/*
 * A put or forget as bytes, and back.
 *
 * Of each record only the fields that are set are written, each behind its code in record_types,
 * so that what one version has written another one can read: a field that it does not know is
 * skipped, one that is not there counts as not set. That holds as long as the code of a field that
 * is gone is not given to another one.
 */

#include "base/buffer.h"
#include "store/record.h"

/* 0, or -1 when the buffer is full; then there may be half of it. */
int change_encode(const struct change *change, struct buffer *out);

/* The change at the start of `data`, to be freed, and how many bytes it has; NULL if there is none
 * that makes sense. */
struct change *change_decode(const uint8_t *data, size_t length, size_t *out_used);

/* The fields of a record as in a change; the same for the same record. */
int record_encode(const struct record_type *type, const void *record, struct buffer *out);
