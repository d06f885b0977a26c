/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/money.h"
#include "base/str.h"
#include "wire/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define EACH_BYTE(byte) (UINT64_C(0x0101010101010101) * (byte))

/* Sets the top bit of each byte that is zero; bits above the first hit are not reliable. */
static inline uint64_t zero_bytes(uint64_t word)
{
    return (word - EACH_BYTE(0x01)) & ~word & EACH_BYTE(0x80);
}

/* Whether any of eight bytes has to be escaped or looked at: control, quote, backslash, not ASCII.
 */
static inline bool word_is_special(uint64_t word)
{
    uint64_t control = (word - EACH_BYTE(0x20)) & ~word;

    return ((control | word) & EACH_BYTE(0x80)) || zero_bytes(word ^ EACH_BYTE('"')) ||
           zero_bytes(word ^ EACH_BYTE('\\'));
}

static inline bool byte_is_special(uint8_t byte)
{
    return byte < 0x20 || byte >= 0x80 || byte == '"' || byte == '\\';
}

/* Copies the last `left` of `length` bytes, if none of them is special. They are read together with
 * bytes in front of them, which were copied before: a byte at a time costs more than all the rest.
 */
static inline bool copy_plain_end(uint8_t *to, const uint8_t *from, size_t length, size_t left)
{
    uint32_t halves[2];
    uint64_t word;

    if (length >= sizeof(word)) {
        memcpy(&word, from + length - sizeof(word), sizeof(word));
        if (word_is_special(word))
            return false;
        memcpy(to + length - sizeof(word), &word, sizeof(word));
        return true;
    }
    if (left < sizeof(halves[0]))
        return false;
    memcpy(&halves[0], from, sizeof(halves[0]));
    memcpy(&halves[1], from + length - sizeof(halves[1]), sizeof(halves[1]));
    if (word_is_special((uint64_t)halves[1] << 32 | halves[0]))
        return false;
    memcpy(to, &halves[0], sizeof(halves[0]));
    memcpy(to + length - sizeof(halves[1]), &halves[1], sizeof(halves[1]));
    return true;
}

/* Copies up to the first byte that is special; returns how many. */
static inline size_t copy_plain(uint8_t *to, const uint8_t *from, size_t length)
{
    size_t at = 0;
    uint64_t word;

    for (; length - at >= sizeof(word); at += sizeof(word)) {
        memcpy(&word, from + at, sizeof(word));
        if (word_is_special(word))
            break;
        memcpy(to + at, &word, sizeof(word));
    }
    if (at < length && length - at < sizeof(word) && copy_plain_end(to, from, length, length - at))
        return length;
    for (; at < length && !byte_is_special(from[at]); at++)
        to[at] = from[at];
    return at;
}

static void append_escape(struct buffer *buffer, uint8_t byte)
{
    static const char digits[] = "0123456789abcdef";
    static const char letters[] = { ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f',
                                    ['\r'] = 'r', ['"'] = '"',  ['\\'] = '\\' };
    const char letter = letters[byte];

    if (letter)
        buffer_append(buffer, (char[]){ '\\', letter }, 2);
    else
        buffer_append(buffer, (char[]){ '\\', 'u', '0', '0', digits[byte >> 4], digits[byte & 15] },
                      6);
}

/* One byte that plain_run() stopped at, or the whole character that it begins. */
static size_t append_special(struct buffer *buffer, const uint8_t *bytes, size_t length)
{
    size_t step;

    if (bytes[0] < 0x80) {
        append_escape(buffer, bytes[0]);
        return 1;
    }
    step = str_utf8_sequence(bytes, length);
    if (step) {
        buffer_append(buffer, bytes, step);
        return step;
    }
    buffer_append(buffer, "\xef\xbf\xbd", 3);
    return 1;
}

/* Appends the rest of a text with characters to escape, inside the quotes. */
static void append_rest(struct buffer *buffer, const uint8_t *bytes, size_t length)
{
    for (size_t at = 0; at < length;) {
        uint8_t *room = buffer_reserve(buffer, length - at);
        size_t run;

        if (!room)
            return;
        run = copy_plain(room, bytes + at, length - at);
        buffer->length += run;
        at += run;
        if (at < length)
            at += append_special(buffer, bytes + at, length - at);
    }
    buffer_append_byte(buffer, '"');
}

static void append_quoted(struct buffer *buffer, const uint8_t *bytes, size_t length)
{
    uint8_t *room = buffer_reserve(buffer, length + 2);
    size_t run;

    if (!room)
        return;
    room[0] = '"';
    run = copy_plain(room + 1, bytes, length);
    buffer->length += 1 + run;
    if (run == length)
        buffer->data[buffer->length++] = '"';
    else
        append_rest(buffer, bytes + run, length - run);
}

static void append_key(struct buffer *buffer, const char *key)
{
    size_t length = strlen(key);
    uint8_t *room = buffer_reserve(buffer, length + 3);

    if (!room)
        return;
    room[0] = '"';
    if (copy_plain(room + 1, (const uint8_t *)key, length) == length) {
        room[length + 1] = '"';
        room[length + 2] = ':';
        buffer->length += length + 3;
    } else {
        append_quoted(buffer, (const uint8_t *)key, length);
        buffer_append_byte(buffer, ':');
    }
}

/* Writes the comma and the key before a value. */
static void begin_value(struct json_writer *writer, const char *key)
{
    if (writer->need_comma)
        buffer_append_byte(writer->buffer, ',');
    writer->need_comma = true;
    if (key)
        append_key(writer->buffer, key);
}

static void open_bracket(struct json_writer *writer, const char *key, char bracket)
{
    begin_value(writer, key);
    buffer_append_byte(writer->buffer, (uint8_t)bracket);
    writer->need_comma = false;
}

static void close_bracket(struct json_writer *writer, char bracket)
{
    buffer_append_byte(writer->buffer, (uint8_t)bracket);
    writer->need_comma = true;
}

void json_begin_object(struct json_writer *writer, const char *key)
{
    open_bracket(writer, key, '{');
}

void json_end_object(struct json_writer *writer)
{
    close_bracket(writer, '}');
}

void json_begin_array(struct json_writer *writer, const char *key)
{
    open_bracket(writer, key, '[');
}

void json_end_array(struct json_writer *writer)
{
    close_bracket(writer, ']');
}

void json_put_text(struct json_writer *writer, const char *key, const char *text)
{
    if (text)
        json_put_bytes(writer, key, text, strlen(text));
    else
        json_put_null(writer, key);
}

void json_put_bytes(struct json_writer *writer, const char *key, const void *bytes, size_t length)
{
    begin_value(writer, key);
    append_quoted(writer->buffer, bytes, length);
}

/* The decimal digits of `value` end at `end`; returns where they begin. */
static char *write_digits(char *end, uint64_t value)
{
    do {
        *--end = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    return end;
}

static uint64_t magnitude(int64_t value)
{
    return value < 0 ? -(uint64_t)value : (uint64_t)value;
}

void json_put_int(struct json_writer *writer, const char *key, int64_t value)
{
    char text[24];
    char *end = text + sizeof(text);
    char *start = write_digits(end, magnitude(value));

    if (value < 0)
        *--start = '-';
    begin_value(writer, key);
    buffer_append(writer->buffer, start, (size_t)(end - start));
}

static void append_thousandths(struct buffer *buffer, int64_t thousandths)
{
    char text[32];
    char *end = text + sizeof(text);
    uint64_t rest = magnitude(thousandths);
    char *start = write_digits(end, rest % 1000 + 1000);

    *start = '.';
    start = write_digits(start, rest / 1000);
    if (thousandths < 0)
        *--start = '-';
    buffer_append(buffer, start, (size_t)(end - start));
}

void json_put_double(struct json_writer *writer, const char *key, double value)
{
    begin_value(writer, key);
    if (!isfinite(value))
        buffer_append_text(writer->buffer, "null");
    else if (fabs(value) < 1e15)
        append_thousandths(writer->buffer, llround(value * 1000));
    else
        buffer_appendf(writer->buffer, "%.17g", value);
}

void json_put_bool(struct json_writer *writer, const char *key, bool value)
{
    begin_value(writer, key);
    if (value)
        buffer_append(writer->buffer, "true", 4);
    else
        buffer_append(writer->buffer, "false", 5);
}

void json_put_null(struct json_writer *writer, const char *key)
{
    begin_value(writer, key);
    buffer_append(writer->buffer, "null", 4);
}

void json_put_money(struct json_writer *writer, const char *key, int64_t amount)
{
    char text[MONEY_TEXT_SIZE];

    json_put_raw(writer, key, money_text(amount, text));
}

void json_put_time(struct json_writer *writer, const char *key, int64_t wall_us)
{
    char text[CLOCK_TEXT_SIZE];

    if (!wall_us) {
        json_put_null(writer, key);
        return;
    }
    clock_format(wall_us, text);
    json_put_text(writer, key, text);
}

void json_put_raw(struct json_writer *writer, const char *key, const char *json)
{
    begin_value(writer, key);
    buffer_append_text(writer->buffer, json);
}

void json_put_error(struct json_writer *writer, const struct error *err)
{
    json_begin_object(writer, NULL);
    json_begin_object(writer, "error");
    json_put_text(writer, "code", err->name);
    json_put_text(writer, "message", err->message);
    json_put_text(writer, "hint", *err->hint ? err->hint : NULL);
    json_put_bool(writer, "retryable", err->retryable);
    json_end_object(writer);
    json_end_object(writer);
}
