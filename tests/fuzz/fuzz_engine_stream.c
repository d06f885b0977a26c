/* SPDX-License-Identifier: Apache-2.0 */
/* The output of an exec: the first byte says how the rest is cut. Every cut gives the same output. */

#include "base/buffer.h"
#include "wire/engine_stream.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* False when the stream is malformed. */
static bool feed(struct engine_stream *stream, const uint8_t *data, size_t length,
                 struct buffer *output)
{
    for (;;) {
        const uint8_t *run;
        size_t run_length, used;
        enum engine_stream_event event =
            engine_stream_next(stream, data, length, &used, &run, &run_length);

        require(used <= length);
        if (event == ENGINE_STREAM_BAD)
            return false;
        if (event == ENGINE_STREAM_NEED_MORE) {
            require(used == length);
            return true;
        }
        require(run_length > 0 && run >= data && run + run_length == data + used);
        require(buffer_append(output, run, run_length) == 0);
        data += used;
        length -= used;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buffer whole = BUFFER_INIT(1 << 20);
    struct buffer pieces = BUFFER_INIT(1 << 20);
    struct engine_stream first = { 0 };
    struct engine_stream second = { 0 };
    size_t step = size ? data[0] % 16 + 1U : 1;
    bool is_good = true;

    if (size > 1 && size < 1 << 20) {
        is_good = feed(&first, data + 1, size - 1, &whole);
        for (size_t at = 1; at < size; at += step) {
            if (!feed(&second, data + at, at + step < size ? step : size - at, &pieces)) {
                require(!is_good);
                break;
            }
        }
        require(whole.length == pieces.length);
        require(!whole.length || memcmp(whole.data, pieces.data, whole.length) == 0);
        require(!is_good || engine_stream_is_whole(&first) == engine_stream_is_whole(&second));
    }
    buffer_fini(&whole);
    buffer_fini(&pieces);
    return 0;
}
