/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A request's body for the audit log. Values whose names speak of secrets are
 * replaced: in maps of environment variables those with TOKEN, SECRET, PASSWORD, KEY or CREDENTIAL
 * in their names, elsewhere the same except KEY, which callers use for their own names; in a map of
 * `secrets` all. The values of secrets that are known are taken out wherever they stand. Code,
 * commands and input are left out unless they are wanted.
 */

#include "base/buffer.h"

#include <jansson.h>
#include <stdbool.h>

struct mask;

/* Appends the object as JSON in one line; what would be too long becomes {"bytes":N}. */
void redact_body(const json_t *body, const struct mask *secrets, bool with_code,
                 struct buffer *out);
