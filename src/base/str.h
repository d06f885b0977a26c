/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Text: comparing, units, paths. Nothing here allocates unless it says so. */

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool str_is_empty(const char *text)
{
    return !text || !*text;
}

bool str_equal(const char *a, const char *b); /* NULL equals only NULL */
bool str_starts_with(const char *text, const char *prefix);
bool str_ends_with(const char *text, const char *suffix);

/* Well-formed UTF-8 without NUL. */
bool str_is_utf8(const char *text, size_t length);

/* Bytes of the well-formed UTF-8 character at `text`, of which `left` > 0 bytes may be read; 0 for
 * NUL and for anything else. */
size_t str_utf8_sequence(const unsigned char *text, size_t left);

/* How many bytes at the end may be the beginning of a character whose rest is still to come. */
size_t str_utf8_unfinished(const unsigned char *text, size_t length);

/* How many edits apart two words are, for "did you mean". */
unsigned str_distance(const char *a, const char *b);

/* A whole decimal number: no sign, no spaces, no overflow. 0 or -1. */
int str_to_u64(const char *text, uint64_t *out_value);

/* "90s", "30m", "4h", "1d", "250ms", "1.5" or "90": milliseconds. */
int str_to_duration_ms(const char *text, int64_t *out_ms, struct error *err);

/* "512m", "2g", "64k" or bytes. */
int str_to_size(const char *text, uint64_t *out_bytes, struct error *err);

enum { STR_UNIT_SIZE = 32 };

/* 29m58s, 4h0m, 250ms; always reads back. */
void str_format_duration(int64_t ms, char text[STR_UNIT_SIZE]);

/* 12 B, 1.5 KB, 3.2 GB */
void str_format_size(uint64_t bytes, char text[STR_UNIT_SIZE]);

/* One component: not empty, not "." or "..", no slash, no NUL, at most 255 bytes. */
bool path_is_plain_name(const char *name);

/* Absolute, and no component is empty, "." or "..". */
bool path_is_clean(const char *path);

/* dir + "/" + name, allocated. */
char *path_join(const char *dir, const char *name);

/* mkdir -p. */
int path_make_dirs(const char *path, unsigned mode, struct error *err);
