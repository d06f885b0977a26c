/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/engine_stream.h"

#include "base/macros.h"

#include <string.h>

/* As the engine's own clients read them: input that is echoed counts as output. The last carries
 * errors of the engine. */
enum { STREAM_STDIN, STREAM_STDOUT, STREAM_STDERR, STREAM_SYSTEM };

static bool header_is_good(const uint8_t header[ENGINE_STREAM_HEADER])
{
    return header[0] <= STREAM_SYSTEM && !header[1] && !header[2] && !header[3];
}

static uint32_t header_size(const uint8_t header[ENGINE_STREAM_HEADER])
{
    return (uint32_t)header[4] << 24 | (uint32_t)header[5] << 16 | (uint32_t)header[6] << 8 |
           header[7];
}

/* Takes bytes of the header and returns their number; the frame begins when the header is
 * complete. */
static size_t take_header(struct engine_stream *stream, const uint8_t *data, size_t length)
{
    size_t piece = MIN(length, (size_t)ENGINE_STREAM_HEADER - stream->header_length);

    memcpy(stream->header + stream->header_length, data, piece);
    stream->header_length += (unsigned)piece;
    if (stream->header_length == ENGINE_STREAM_HEADER)
        stream->left = header_size(stream->header);
    return piece;
}

enum engine_stream_event engine_stream_next(struct engine_stream *stream, const void *data,
                                            size_t length, size_t *out_used,
                                            const uint8_t **out_run, size_t *out_length)
{
    const uint8_t *at = data;
    size_t used = 0;

    while (used < length) {
        size_t run;

        if (stream->header_length < ENGINE_STREAM_HEADER)
            used += take_header(stream, at + used, length - used);
        if (stream->header_length < ENGINE_STREAM_HEADER)
            break;
        if (!header_is_good(stream->header)) {
            *out_used = used;
            return ENGINE_STREAM_BAD;
        }
        run = MIN(length - used, (size_t)stream->left);
        stream->left -= (uint32_t)run;
        if (!stream->left)
            stream->header_length = 0;
        used += run;
        if (run && stream->header[0] <= STREAM_STDOUT) {
            *out_run = at + used - run;
            *out_length = run;
            *out_used = used;
            return ENGINE_STREAM_OUTPUT;
        }
    }
    *out_used = used;
    return ENGINE_STREAM_NEED_MORE;
}

bool engine_stream_is_whole(const struct engine_stream *stream)
{
    return !stream->header_length;
}
