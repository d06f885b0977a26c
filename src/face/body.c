/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies that are read as a whole: how many bytes of them a principal may send at a time, and their
 * JSON. */

#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "face/request.h"
#include "loop/worker.h"

#include <stdlib.h>

enum {
    HERE_MAXIMUM = 32 * 1024,  /* bytes that are parsed on the loop */
    CHUNKED_STEP = 256 * 1024, /* counted ahead of a body whose length is not known */
};

/* --- reading --------------------------------------------------------------------------------- */

/* Of a body in chunks. */
static void on_chunk(struct http_exchange *exchange, const uint8_t *data, size_t length)
{
    struct request *request = http_exchange_user(exchange);
    struct buffer *chunks = &request->chunks;
    struct error err = { 0 };

    if (length == 0)
        request->on_chunks(exchange, chunks);
    else if (buffer_append(chunks, data, length) < 0)
        error_set(&err, ERR_TOO_LARGE, "the body is larger than %zu bytes", chunks->maximum);
    else if (chunks->length > share_amount(&request->bytes))
        (void)share_grow(&request->bytes, chunks->length + CHUNKED_STEP, &err);
    if (err.code)
        request_fail(request, &err);
}

void request_read_body(struct request *request, size_t maximum, http_body_fn *on_body)
{
    const struct http_head *head = http_exchange_head(request->exchange);
    const char *caller = str_is_empty(request->principal) ? request->owner : request->principal;
    size_t bytes = head->chunked ? CHUNKED_STEP : (size_t)MAX(head->content_length, 0);
    struct error err = { 0 };

    if (share_take_bytes(&request->bytes, request->core->shares, caller, SHARE_BODIES,
                         MIN(bytes, maximum), &err) < 0) {
        request_fail(request, &err);
    } else if (head->chunked) {
        request->chunks = BUFFER_INIT(maximum);
        request->on_chunks = on_body;
        http_exchange_stream_body(request->exchange, on_chunk);
    } else {
        http_exchange_read_body(request->exchange, maximum, on_body);
    }
}

void request_body_came(struct request *request, const struct buffer *body)
{
    share_shrink(&request->bytes, body->length);
}

/* --- parsing --------------------------------------------------------------------------------- */

struct parsing {
    struct job job;
    struct request *request; /* borrowed */
    request_json_fn *then;
    struct buffer text;
    json_t *document; /* owned */
    struct error err;
};

/* On the worker's thread. */
static void parse(struct job *job)
{
    struct parsing *parsing = container_of(job, struct parsing, job);

    parsing->document = json_read_request(parsing->text.data, parsing->text.length, &parsing->err);
}

static void on_parsed(struct job *job)
{
    struct parsing *parsing = container_of(job, struct parsing, job);
    struct request *request = parsing->request;

    if (request_finish(request)) {
        json_decref(parsing->document);
        buffer_fini(&parsing->text);
    } else {
        request->text = parsing->text;
        request->raw_body = &request->text;
        parsing->then(request, parsing->document, &parsing->err);
    }
    free(parsing);
}

static void parse_on_thread(struct request *request, struct buffer *body, request_json_fn *then)
{
    struct faces *faces = request->faces;
    struct parsing *parsing = xnew(struct parsing);

    parsing->job = (struct job){ .run = parse, .done = on_parsed };
    parsing->request = request;
    parsing->then = then;
    parsing->text = *body;
    *body = (struct buffer){ 0 };
    if (!faces->parser)
        faces->parser = worker_new(faces->parts.loop, 1, "parser");
    request_begin(request);
    worker_submit(faces->parser, &parsing->job);
}

void request_parse_body(struct request *request, struct buffer *body, request_json_fn *then)
{
    struct error err = { 0 };

    request_body_came(request, body);
    if (body->length > HERE_MAXIMUM) {
        parse_on_thread(request, body, then);
        return;
    }
    request->raw_body = body;
    then(request, body->length ? json_read(body->data, body->length, &err) : json_object(), &err);
}
