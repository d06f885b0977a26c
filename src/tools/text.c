/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/text.h"

#include "base/str.h"

#include <stdio.h>
#include <string.h>

enum { TEXT_MAXIMUM = 64 * 1024 * 1024 };

/* --- characters ------------------------------------------------------------------------------ */

/* Bytes of the next character; 1 for a byte that belongs to none. */
static size_t step(const uint8_t *at, size_t left)
{
    size_t length = *at < 0x80 ? 1 : str_utf8_sequence(at, left);

    return length ? length : 1;
}

size_t text_skip(const void *bytes, size_t length, size_t characters)
{
    const uint8_t *text = bytes;
    size_t at = 0;

    for (; at < length && characters > 0; characters--)
        at += step(text + at, length - at);
    return at;
}

size_t text_count(const void *bytes, size_t length)
{
    const uint8_t *text = bytes;
    size_t count = 0;

    for (size_t at = 0; at < length; count++)
        at += step(text + at, length - at);
    return count;
}

void text_append(struct buffer *out, const void *bytes, size_t length)
{
    const uint8_t *text = bytes;
    size_t clean = 0; /* from here on it is not appended yet */
    size_t at = 0;

    while (at < length) {
        size_t sequence = str_utf8_sequence(text + at, length - at);

        if (sequence) {
            at += sequence;
            continue;
        }
        buffer_append(out, text + clean, at - clean);
        buffer_append_text(out, "\xef\xbf\xbd");
        clean = ++at;
    }
    buffer_append(out, text + clean, length - clean);
}

uint64_t text_count_lines(const void *bytes, size_t length)
{
    const uint8_t *at = bytes, *end = at + length;
    uint64_t count = 0;

    while (at < end) {
        const uint8_t *line_end = memchr(at, '\n', (size_t)(end - at));

        count++;
        at = line_end ? line_end + 1 : end;
    }
    return count;
}

const char *text_number(uint64_t number, char text[TEXT_NUMBER_SIZE])
{
    char digits[24];
    int count = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)number);
    size_t at = 0;

    for (int i = 0; i < count; i++) {
        if (i > 0 && (count - i) % 3 == 0)
            text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = '\0';
    return text;
}

/* --- head and tail --------------------------------------------------------------------------- */

void text_cut_init(struct text_cut *cut, size_t limit)
{
    *cut = (struct text_cut){ .limit = limit,
                              .head = BUFFER_INIT(TEXT_MAXIMUM),
                              .tail = BUFFER_INIT(TEXT_MAXIMUM) };
}

void text_cut_fini(struct text_cut *cut)
{
    buffer_fini(&cut->head);
    buffer_fini(&cut->tail);
}

static size_t tail_limit(const struct text_cut *cut)
{
    return cut->limit - cut->limit / 4;
}

/* Only the last characters stay. */
static void trim_tail(struct text_cut *cut)
{
    size_t limit = tail_limit(cut);

    if (cut->tail_characters <= limit)
        return;
    buffer_consume(&cut->tail,
                   text_skip(cut->tail.data, cut->tail.length, cut->tail_characters - limit));
    cut->tail_characters = limit;
}

static void split(struct text_cut *cut)
{
    size_t length = text_skip(cut->head.data, cut->head.length, cut->limit / 4);

    buffer_append(&cut->tail, cut->head.data + length, cut->head.length - length);
    cut->head.length = length;
    cut->tail_characters = (size_t)cut->characters - cut->limit / 4;
    cut->is_cut = true;
}

static bool add_whole(struct text_cut *cut, const void *bytes, size_t length)
{
    size_t characters = text_count(bytes, length);

    cut->characters += characters;
    cut->bytes += length;
    if (cut->is_cut) {
        if (cut->tail_characters > 2 * tail_limit(cut))
            trim_tail(cut);
        buffer_append(&cut->tail, bytes, length);
        cut->tail_characters += characters;
        return false;
    }
    buffer_append(&cut->head, bytes, length);
    if (cut->characters <= cut->limit)
        return false;
    split(cut);
    return true;
}

/* One byte more of a character that came in pieces. */
static bool add_byte(struct text_cut *cut, uint8_t byte)
{
    size_t length, rest;
    bool is_new;

    cut->unfinished[cut->unfinished_length++] = byte;
    length = cut->unfinished_length;
    rest = str_utf8_unfinished(cut->unfinished, length);
    if (rest == length)
        return false;
    is_new = add_whole(cut, cut->unfinished, length - rest);
    memmove(cut->unfinished, cut->unfinished + length - rest, rest);
    cut->unfinished_length = rest;
    return is_new;
}

bool text_cut_add(struct text_cut *cut, const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    bool is_new = false;
    size_t rest;

    for (; length && cut->unfinished_length; length--)
        is_new = add_byte(cut, *at++) || is_new;
    rest = str_utf8_unfinished(at, length);
    is_new = add_whole(cut, at, length - rest) || is_new;
    for (size_t i = length - rest; i < length; i++)
        cut->unfinished[cut->unfinished_length++] = at[i];
    return is_new;
}

static void write_marker(const struct text_cut *cut, const char *path, struct buffer *out)
{
    char omitted[TEXT_NUMBER_SIZE], total[TEXT_NUMBER_SIZE], first[TEXT_NUMBER_SIZE],
        last[TEXT_NUMBER_SIZE];

    buffer_appendf(
        out, "\n\n... (%s of %s characters omitted, showing the first %s and the last %s; ",
        text_number(cut->characters - cut->limit, omitted), text_number(cut->characters, total),
        text_number(cut->limit / 4, first), text_number(tail_limit(cut), last));
    if (path)
        buffer_appendf(out, "the full text is in %s, look at it with read or grep) ...\n\n", path);
    else
        buffer_append_text(out, "the full text was not kept) ...\n\n");
}

void text_cut_write(struct text_cut *cut, const char *path, struct buffer *out)
{
    (void)add_whole(cut, cut->unfinished, cut->unfinished_length);
    cut->unfinished_length = 0;
    text_append(out, cut->head.data, cut->head.length);
    if (!cut->is_cut)
        return;
    trim_tail(cut);
    write_marker(cut, path, out);
    text_append(out, cut->tail.data, cut->tail.length);
}
