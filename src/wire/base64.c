/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/base64.h"

#include "base/alloc.h"

#include <stdint.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Up to three bytes as four digits. */
static void encode_group(const uint8_t *bytes, size_t count, char *out)
{
    uint32_t group = (uint32_t)bytes[0] << 16 | (count > 1 ? (uint32_t)bytes[1] << 8 : 0) |
                     (count > 2 ? bytes[2] : 0);

    out[0] = digits[group >> 18];
    out[1] = digits[group >> 12 & 63];
    out[2] = '=';
    out[3] = '=';
    if (count > 1)
        out[2] = digits[group >> 6 & 63];
    if (count > 2)
        out[3] = digits[group & 63];
}

char *base64_encode(const void *data, size_t length)
{
    const uint8_t *bytes = data;
    char *text = xmalloc((length + 2) / 3 * 4 + 1);
    char *at = text;

    for (size_t i = 0; i < length; i += 3, at += 4)
        encode_group(bytes + i, length - i, at);
    *at = '\0';
    return text;
}

/* The alphabets differ in the last two letters. */
static int value_of(char letter, const char *last_two)
{
    if (letter >= 'A' && letter <= 'Z')
        return letter - 'A';
    if (letter >= 'a' && letter <= 'z')
        return letter - 'a' + 26;
    if (letter >= '0' && letter <= '9')
        return letter - '0' + 52;
    return letter == last_two[0] ? 62 : letter == last_two[1] ? 63 : -1;
}

int base64_decode(const char *text, size_t length, struct buffer *out)
{
    size_t letters = 0, padding = 0;
    uint32_t bits = 0;

    if (!buffer_reserve(out, length / 4 * 3 + 3))
        return -1;
    for (size_t i = 0; i < length; i++) {
        int value = value_of(text[i], "+/");

        if (text[i] == ' ' || text[i] == '\t' || text[i] == '\r' || text[i] == '\n')
            continue;
        padding += text[i] == '=';
        if (text[i] == '=')
            continue;
        if (value < 0 || padding)
            return -1;
        bits = bits << 6 | (uint32_t)value;
        if (++letters % 4 != 1)
            buffer_append_byte(out, (uint8_t)(bits >> (6 - 2 * ((letters - 1) % 4))));
    }
    return padding < 3 && (letters + padding) % 4 == 0 && letters % 4 != 1 ? 0 : -1;
}

int base64url_decode(const char *text, size_t length, struct buffer *out)
{
    unsigned bits = 0;
    unsigned held = 0;

    for (size_t i = 0; i < length; i++) {
        int value = value_of(text[i], "-_");

        if (value < 0)
            return -1;
        bits = bits << 6 | (unsigned)value;
        held += 6;
        if (held < 8)
            continue;
        held -= 8;
        if (buffer_append_byte(out, (uint8_t)(bits >> held)) < 0)
            return -1;
        bits &= (1U << held) - 1;
    }
    return held < 6 && bits == 0 ? 0 : -1;
}
