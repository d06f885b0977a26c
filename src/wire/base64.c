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
