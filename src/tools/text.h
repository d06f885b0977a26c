/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Text for a model, counted in characters: a byte that belongs to no UTF-8 character counts as one,
 * and is shown as U+FFFD. Pure functions.
 */

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

size_t text_count(const void *bytes, size_t length);

/* How many bytes the first `characters` take; all of them when there are not so many. */
size_t text_skip(const void *bytes, size_t length, size_t characters);

/* Appends it as UTF-8 without NUL. */
void text_append(struct buffer *out, const void *bytes, size_t length);

/* Lines in it; the last one counts without its line end too. */
uint64_t text_count_lines(const void *bytes, size_t length);

/* "1,234,567" */
enum { TEXT_NUMBER_SIZE = 32 };
const char *text_number(uint64_t number, char text[TEXT_NUMBER_SIZE]);

/*
 * The head and the tail of a text that comes in pieces: as long as it has no more than `limit`
 * characters all of it, then the first quarter and the last three quarters of so many.
 */
struct text_cut {
    size_t limit;
    uint64_t characters, bytes; /* of the whole text; a character that is not whole comes later */
    struct buffer head, tail;
    size_t tail_characters;
    uint8_t unfinished[4];
    size_t unfinished_length;
    bool is_cut;
};

void text_cut_init(struct text_cut *cut, size_t limit);
void text_cut_fini(struct text_cut *cut);

/* True when it is cut now and was not before: `head` and `tail` together are still all of it. */
bool text_cut_add(struct text_cut *cut, const void *bytes, size_t length);

/* Writes head and tail with a marker between them that says how much is left out. `path` is where
 * the whole text is, or NULL. No text may be added afterwards. */
void text_cut_write(struct text_cut *cut, const char *path, struct buffer *out);
