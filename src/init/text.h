/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Numbers, paths and lines as text, without libc's state. All pure. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A whole decimal number up to `maximum` that ends at `end`, not at a NUL. */
bool text_to_u32(const char *text, const char *end, uint32_t maximum, uint32_t *out_value);
int text_hex_digit(char digit);                            /* its value, or -1 */
bool text_to_hex64(const char *text, uint64_t *out_value); /* the whole text; no prefix */

enum { TEXT_NUMBER_SIZE = 24 };

/* Writes the number and a NUL; returns its length. */
size_t text_from_u64(uint64_t value, char text[TEXT_NUMBER_SIZE]);

/* head + tail into `out`; -1 when it does not fit. */
int text_concat(char *out, size_t size, const char *head, size_t head_length, const char *tail);

/* Whether the entries, such as an environment, have one for this name. */
bool text_has_variable(const char *const *entries, const char *name);

/* Whether they have one with the name of this variable, which is NAME=VALUE. */
bool text_has_same_variable(const char *const *entries, const char *variable);

/* The last component; `out_parent_length` is the length of the part before it, 0 when there is no
 * slash. NULL when it is empty, "." or ".." and can therefore not be made, renamed or removed.
 * Slashes at the end are ignored: out_length is the length of the name without them. */
const char *text_base_name(const char *path, size_t *out_length, size_t *out_parent_length);
