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

static const char *caller_of(const struct request *request)
{
    return str_is_empty(request->principal) ? request->owner : request->principal;
}

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
    size_t bytes = head->chunked ? CHUNKED_STEP : (size_t)MAX(head->content_length, 0);
    struct error err = { 0 };

    if (share_take_bytes(&request->bytes, request->core->shares, caller_of(request), SHARE_BODIES,
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

/* One thread parses all large bodies. They take turns by the bytes that their callers have sent, so
 * that a caller with many of them delays the one of another caller by one at most. */
struct parsing {
    struct job job;
    struct list waiting;     /* in faces->parsings, by `start` */
    struct request *request; /* borrowed */
    struct body_format format;
    request_json_fn *then;
    struct buffer text;
    struct share bytes; /* until the text is released, which may be after the client has left */
    uint64_t start;     /* its place in the queue, in bytes */
    json_t *document;   /* owned */
    struct error err;
};

/* On the worker's thread. */
static void parse(struct job *job)
{
    struct parsing *parsing = container_of(job, struct parsing, job);

    parsing->document = parsing->format.read(&parsing->format, &parsing->text, &parsing->err);
}

static void parsing_free(struct parsing *parsing)
{
    json_decref(parsing->document);
    buffer_fini(&parsing->text);
    share_give(&parsing->bytes);
    free(parsing);
}

/* The next one whose client is still there. */
static struct parsing *next_parsing(struct faces *faces)
{
    struct parsing *parsing;

    while ((parsing = list_first(&faces->parsings, struct parsing, waiting))) {
        list_remove(&parsing->waiting);
        if (parsing->request->exchange)
            return parsing;
        (void)request_finish(parsing->request);
        parsing_free(parsing);
    }
    return NULL;
}

static void parse_next(struct faces *faces)
{
    faces->parsing = next_parsing(faces);
    if (faces->parsing)
        worker_submit(faces->parser, &faces->parsing->job);
}

/* A request may have been answered meanwhile, by faces_refuse_open(). */
static void on_parsed(struct job *job)
{
    struct parsing *parsing = container_of(job, struct parsing, job);
    struct request *request = parsing->request;

    parse_next(request->faces);
    if (!request_finish(request) && !http_exchange_status(request->exchange)) {
        request->text = parsing->text;
        request->raw_body = &request->text;
        request->bytes = parsing->bytes;
        parsing->text = (struct buffer){ 0 };
        parsing->bytes = (struct share){ 0 };
        parsing->then(request, steal_ptr(&parsing->document), &parsing->err);
    }
    parsing_free(parsing);
}

/* Behind all of the same caller, and before what others have waiting beyond that. */
static void queue_parsing(struct faces *faces, struct parsing *parsing)
{
    const char *caller = caller_of(parsing->request);
    struct parsing *other = faces->parsing;

    parsing->start = other ? other->start : 0;
    if (other && str_equal(caller_of(other->request), caller))
        parsing->start += other->text.length;
    list_for_each (other, &faces->parsings, waiting)
        if (str_equal(caller_of(other->request), caller))
            parsing->start = MAX(parsing->start, other->start + other->text.length);
    list_for_each (other, &faces->parsings, waiting)
        if (other->start > parsing->start)
            break;
    list_append(&other->waiting, &parsing->waiting);
}

static void parse_on_thread(struct request *request, struct buffer *body,
                            const struct body_format *format, request_json_fn *then)
{
    struct faces *faces = request->faces;
    struct parsing *parsing = xnew(struct parsing);

    parsing->job = (struct job){ .run = parse, .done = on_parsed };
    parsing->request = request;
    parsing->format = *format;
    parsing->then = then;
    parsing->text = *body;
    *body = (struct buffer){ 0 };
    parsing->bytes = request->bytes;
    request->bytes = (struct share){ 0 };
    if (!faces->parser)
        faces->parser = worker_new(faces->parts.loop, 1, "parser");
    request_begin(request);
    queue_parsing(faces, parsing);
    if (!faces->parsing)
        parse_next(faces);
}

void request_parse_body_as(struct request *request, struct buffer *body,
                           const struct body_format *format, request_json_fn *then)
{
    struct error err = { 0 };

    request_body_came(request, body);
    if (body->length > HERE_MAXIMUM || (format->is_compressed && body->length)) {
        parse_on_thread(request, body, format, then);
        return;
    }
    request->raw_body = body;
    then(request, format->read(format, body, &err), &err);
}

static json_t *read_json(const struct body_format *format UNUSED, const struct buffer *text,
                         struct error *err)
{
    return text->length ? json_read_request(text->data, text->length, err) : json_object();
}

void request_parse_body(struct request *request, struct buffer *body, request_json_fn *then)
{
    request_parse_body_as(request, body, &(struct body_format){ .read = read_json }, then);
}
