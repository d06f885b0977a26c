/* The reader of server-sent events: however the text is cut, the events are the same. */

#include "base/macros.h"
#include "wire/sse.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAXIMUM = 256 };

static uint64_t hash_add(uint64_t hash, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (uint8_t)text[i]) * 1099511628211ULL;
    return hash * 31 + length;
}

static uint64_t events_hash(const uint8_t *data, size_t size, size_t step)
{
    struct sse_parser parser;
    uint64_t hash = 1;
    size_t at = 0;
    int result = 0;

    sse_parser_init(&parser, MAXIMUM);
    while (at < size && result >= 0) {
        struct sse_event event;
        size_t used;

        result = sse_parser_feed(&parser, data + at, MIN(step, size - at), &used, &event);
        at += used;
        if (result != 1)
            continue;
        assert(event.length <= MAXIMUM);
        hash = hash_add(hash, event.data, event.length);
        hash = hash_add(hash, event.event, strlen(event.event));
        hash = hash_add(hash, event.id, strlen(event.id));
    }
    sse_parser_fini(&parser);
    return result < 0 ? 0 : hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t whole = events_hash(data, size, size);

    assert(events_hash(data, size, 1) == whole);
    assert(events_hash(data, size, 5) == whole);
    return 0;
}
