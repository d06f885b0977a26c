/* SPDX-License-Identifier: Apache-2.0 */
/* The first line is the Content-Type, the rest the body: read whole, and in small pieces. */

#include "wire/http/multipart.h"

#include "base/buffer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAXIMUM = 1024 * 1024 };

static void read_all(const struct multipart *fresh, const uint8_t *body, size_t length,
                     size_t piece, struct buffer *out)
{
    scoped(buffer_fini) struct buffer input = BUFFER_INIT(MAXIMUM);
    struct multipart multipart = *fresh;
    size_t given = 0;

    while (given < length) {
        enum multipart_event event;
        size_t count = MIN(piece, length - given);

        assert(buffer_append(&input, body + given, count) == 0);
        given += count;
        do {
            const uint8_t *content = NULL;
            size_t used = 0, content_length = 0;

            event = multipart_next(&multipart, input.data, input.length, &used, &content,
                                   &content_length);
            assert(used <= input.length);
            if (event == MULTIPART_BAD)
                return;
            if (event == MULTIPART_DATA)
                (void)buffer_append(out, content, content_length);
            else if (event != MULTIPART_MORE)
                (void)buffer_appendf(out, "[%d %s %s]", (int)event, multipart.name,
                                     multipart.filename);
            buffer_consume(&input, used);
        } while (event != MULTIPART_MORE);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    scoped(buffer_fini) struct buffer whole = BUFFER_INIT(4 * MAXIMUM);
    scoped(buffer_fini) struct buffer cut = BUFFER_INIT(4 * MAXIMUM);
    const uint8_t *line = memchr(data, '\n', size);
    struct multipart multipart;
    char type[256] = "";

    if (!line || (size_t)(line - data) >= sizeof(type) || size > MAXIMUM)
        return 0;
    memcpy(type, data, (size_t)(line - data));
    if (multipart_init(&multipart, type) < 0)
        return 0;
    line++;
    read_all(&multipart, line, size - (size_t)(line - data), size, &whole);
    read_all(&multipart, line, size - (size_t)(line - data), 7, &cut);
    return 0;
}
