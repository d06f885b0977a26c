/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the reader accepts, the table either decodes or refuses with a message, and the writer
 * turns any bytes into JSON that the reader takes back. */

#include "base/macros.h"
#include "wire/json.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct request {
    const char *text;
    bool truth;
    int64_t count;
    int64_t timeout_ms;
    uint64_t memory;
    double cpus;
    json_t *argv;
    json_t *env;
    json_t *tty;
    bool has_text;
};

static const struct json_field fields[] = {
    { .name = "text",
      .kind = JSON_KIND_TEXT,
      .offset = offsetof(struct request, text),
      .max_length = 64,
      .present_offset = offsetof(struct request, has_text) },
    { .name = "truth", .kind = JSON_KIND_BOOL, .offset = offsetof(struct request, truth) },
    { .name = "count",
      .kind = JSON_KIND_INT,
      .offset = offsetof(struct request, count),
      .minimum = 1,
      .maximum = 100 },
    { .name = "timeout",
      .kind = JSON_KIND_SECONDS,
      .offset = offsetof(struct request, timeout_ms) },
    { .name = "memory", .kind = JSON_KIND_SIZE, .offset = offsetof(struct request, memory) },
    { .name = "cpus", .kind = JSON_KIND_NUMBER, .offset = offsetof(struct request, cpus) },
    { .name = "argv", .kind = JSON_KIND_TEXT_LIST, .offset = offsetof(struct request, argv) },
    { .name = "env", .kind = JSON_KIND_TEXT_MAP, .offset = offsetof(struct request, env) },
    { .name = "tty", .kind = JSON_KIND_OBJECT, .offset = offsetof(struct request, tty) },
};

static void check_reading(const uint8_t *data, size_t size)
{
    struct error err = { 0 };
    struct request request = { 0 };
    scoped(json_decref) json_t *document = json_read(data, size, &err);

    if (document && json_decode(document, fields, ARRAY_LENGTH(fields), &request, &err) == 0) {
        assert(err.code == ERR_NONE);
        assert(request.timeout_ms >= 0);
        assert(!request.has_text || strlen(request.text) <= 64);
    } else {
        assert(err.code == ERR_INVALID && err.message[0]);
    }
}

/* NUL is what the reader never takes; the rest has to come back, bad bytes replaced. */
static void check_writing(const uint8_t *data, size_t size)
{
    scoped(buffer_fini) struct buffer buffer = BUFFER_INIT(size * 6 + 64);
    scoped(json_decref) json_t *document = NULL;
    struct json_writer writer = JSON_WRITER(&buffer);

    json_begin_object(&writer, NULL);
    json_put_bytes(&writer, "bytes", data, size);
    json_put_double(&writer, "size", (double)size / 7);
    json_end_object(&writer);
    assert(!buffer.overflowed);
    document = json_read(buffer.data, buffer.length, NULL);
    assert((document != NULL) == (size == 0 || !memchr(data, 0, size)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_reading(data, size);
    check_writing(data, size);
    return 0;
}
