/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of a server: the first byte says how the rest is cut. Every cut gives the same content. */

#include "base/buffer.h"
#include "wire/http/websocket.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* False when a frame is malformed. */
static bool feed(struct websocket_reader *reader, const uint8_t *data, size_t length,
                 struct buffer *output)
{
    for (;;) {
        const uint8_t *run;
        size_t run_length, used;
        enum websocket_event event = websocket_next(reader, data, length, &used, &run, &run_length);

        require(used <= length);
        data += used;
        length -= used;
        if (event == WEBSOCKET_BAD)
            return false;
        if (event == WEBSOCKET_NEED_MORE) {
            require(!length);
            return true;
        }
        if (event == WEBSOCKET_CONTROL)
            require(run_length <= WEBSOCKET_CONTROL_MAXIMUM);
        else
            require((event == WEBSOCKET_RUN) == (run_length > 0));
        require(buffer_append(output, run, run_length) == 0);
        if (event != WEBSOCKET_RUN)
            require(buffer_append_byte(output, (uint8_t)event) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buffer whole = BUFFER_INIT(4 << 20);
    struct buffer pieces = BUFFER_INIT(4 << 20);
    struct websocket_reader first = { 0 };
    struct websocket_reader second = { 0 };
    size_t step = size ? data[0] % 16 + 1U : 1;
    bool is_good = true;
    bool are_good = true;

    if (size > 1 && size < 1 << 20) {
        is_good = feed(&first, data + 1, size - 1, &whole);
        for (size_t at = 1; at < size && are_good; at += step)
            are_good = feed(&second, data + at, at + step < size ? step : size - at, &pieces);
        require(is_good == are_good);
        require(whole.length == pieces.length);
        require(!whole.length || memcmp(whole.data, pieces.data, whole.length) == 0);
    }
    buffer_fini(&whole);
    buffer_fini(&pieces);
    return 0;
}
