/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http/gzip.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdlib.h>
#include <zlib.h>

enum { PIECE = 64 * 1024, GZIP_WINDOW = 15 + 16 };

struct gunzip {
    z_stream zlib;
    enum { GUNZIP_FIRST, GUNZIP_INSIDE, GUNZIP_BETWEEN, GUNZIP_BROKEN } state;
    uint8_t piece[PIECE];
};

struct gunzip *gunzip_new(void)
{
    struct gunzip *gunzip = xnew(struct gunzip);
    int result = inflateInit2(&gunzip->zlib, GZIP_WINDOW);

    assert(result == Z_OK);
    return gunzip;
}

void gunzip_free(struct gunzip *gunzip)
{
    if (!gunzip)
        return;
    (void)inflateEnd(&gunzip->zlib);
    free(gunzip);
}

/* One step; more input may be left after it. */
static int inflate_piece(struct gunzip *gunzip, gunzip_fn *take, void *context)
{
    size_t length;
    int result;

    gunzip->zlib.next_out = gunzip->piece;
    gunzip->zlib.avail_out = sizeof(gunzip->piece);
    gunzip->state = GUNZIP_INSIDE;
    result = inflate(&gunzip->zlib, Z_NO_FLUSH);
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
        gunzip->state = GUNZIP_BROKEN;
        return -1;
    }
    if (result == Z_STREAM_END) {
        gunzip->state = GUNZIP_BETWEEN;
        (void)inflateReset(&gunzip->zlib);
    }
    length = sizeof(gunzip->piece) - gunzip->zlib.avail_out;
    return length ? take(context, gunzip->piece, length) : 0;
}

int gunzip_add(struct gunzip *gunzip, const void *data, size_t length, gunzip_fn *take,
               void *context)
{
    int result = 0;

    if (gunzip->state == GUNZIP_BROKEN)
        return -1;
    gunzip->zlib.next_in = (uint8_t *)(uintptr_t)data;
    gunzip->zlib.avail_in = (unsigned)length;
    assert(gunzip->zlib.avail_in == length);
    do
        result = length ? inflate_piece(gunzip, take, context) : 0;
    while (result == 0 && (gunzip->zlib.avail_in > 0 ||
                           (gunzip->state == GUNZIP_INSIDE && gunzip->zlib.avail_out == 0)));
    return result;
}

bool gunzip_is_complete(const struct gunzip *gunzip)
{
    return gunzip->state == GUNZIP_BETWEEN;
}

static int append(void *context, const uint8_t *data, size_t length)
{
    return buffer_append(context, data, length);
}

int gunzip_message(const void *data, size_t length, struct buffer *out)
{
    struct gunzip *gunzip = gunzip_new();
    int result = gunzip_add(gunzip, data, length, append, out);

    if (result == 0 && !gunzip_is_complete(gunzip))
        result = -1;
    gunzip_free(gunzip);
    return result;
}
