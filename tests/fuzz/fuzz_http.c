/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP codec: the first byte chooses requests (even) or responses (odd), the rest is the input.
 * However it is cut, the outcome has to be the same, and small limits have to hold.
 */

#include "base/alloc.h"
#include "base/macros.h"
#include "base/str.h"
#include "wire/http/http.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct http_limits limits = {
    .line_bytes = 256,
    .head_bytes = 2048,
    .header_count = 8,
    .body_bytes = 4096,
};

struct outcome {
    uint64_t hash;
    uint64_t body_bytes;
    unsigned messages;
    int status;
};

static void hash_add(struct outcome *outcome, const void *data, size_t length)
{
    const uint8_t *bytes = data;

    for (size_t i = 0; i < length; i++)
        outcome->hash = (outcome->hash ^ bytes[i]) * 1099511628211ULL;
}

static void query_read(const char *query)
{
    struct buffer name = BUFFER_INIT(512);
    struct buffer value = BUFFER_INIT(512);
    int result;

    while ((result = http_query_next(&query, &name, &value)) > 0)
        assert(name.length + value.length <= 512);
    assert(result == 0);
    buffer_fini(&name);
    buffer_fini(&value);
}

static void head_check(struct outcome *outcome, enum http_kind kind, const struct http_head *head)
{
    assert(head->header_count <= limits.header_count);
    assert(!(head->chunked && head->content_length >= 0));
    for (size_t i = 0; i < head->header_count; i++) {
        const struct http_header *header = &head->headers[i];

        assert(*header->name && !strpbrk(header->name, " \t\r\n:"));
        assert(!strpbrk(header->value, "\r\n"));
        assert(str_is_utf8(header->value, strlen(header->value)));
        hash_add(outcome, header->name, strlen(header->name));
        hash_add(outcome, header->value, strlen(header->value));
    }
    if (kind == HTTP_KIND_RESPONSE)
        return;
    assert(head->minor_version == 0 || http_head_header(head, "host"));
    assert(head->path[0] == '/' || strcmp(head->path, "*") == 0);
    assert(str_is_utf8(head->path, strlen(head->path)));
    hash_add(outcome, head->path, strlen(head->path));
    query_read(head->query);
}

static bool piece_feed(struct http_parser *parser, enum http_kind kind, const uint8_t *data,
                       size_t length, struct outcome *outcome)
{
    for (size_t at = 0;;) {
        const uint8_t *body;
        size_t body_length;
        size_t used;

        switch (http_parser_feed(parser, data + at, length - at, &used, &body, &body_length)) {
        case HTTP_NEED_MORE:
            assert(at + used == length);
            return true;
        case HTTP_HEAD_DONE:
            head_check(outcome, kind, http_parser_head(parser));
            outcome->body_bytes = 0;
            break;
        case HTTP_BODY:
            assert(body >= data && body + body_length <= data + length && body_length);
            outcome->body_bytes += body_length;
            assert(outcome->body_bytes <= limits.body_bytes);
            hash_add(outcome, body, body_length);
            break;
        case HTTP_DONE:
            outcome->messages++;
            http_parser_next(parser);
            break;
        case HTTP_BAD:
            outcome->status = http_parser_status(parser);
            assert(outcome->status >= 400 && http_parser_reason(parser));
            return false;
        }
        at += used;
    }
}

/* Each piece is in memory of its own, so that a sanitizer sees a read past its end. */
static struct outcome input_read(enum http_kind kind, const uint8_t *data, size_t size, size_t step)
{
    struct http_parser *parser = http_parser_new(kind, &limits);
    struct outcome outcome = { .hash = 1 };
    bool going = true;

    for (size_t at = 0; going && at < size; at += MIN(step, size - at)) {
        size_t length = MIN(step, size - at);
        uint8_t *piece = xmalloc(length);

        memcpy(piece, data + at, length);
        going = piece_feed(parser, kind, piece, length, &outcome);
        free(piece);
    }
    if (going)
        (void)http_parser_eof(parser);
    http_parser_free(parser);
    return outcome;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t steps[] = { 1, 7, 64 };
    struct outcome whole;
    enum http_kind kind;

    if (!size)
        return 0;
    kind = data[0] & 1 ? HTTP_KIND_RESPONSE : HTTP_KIND_REQUEST;
    whole = input_read(kind, data + 1, size - 1, size);
    for (size_t i = 0; i < ARRAY_LENGTH(steps); i++) {
        struct outcome pieces = input_read(kind, data + 1, size - 1, steps[i]);

        assert(pieces.hash == whole.hash && pieces.messages == whole.messages &&
               pieces.status == whole.status);
    }
    return 0;
}
