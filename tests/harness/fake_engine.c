/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/fake_engine_private.h"

#include "base/alloc.h"
#include "base/str.h"

#include <fnmatch.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { BODY_MAXIMUM = 32 * 1024 * 1024 };

/* --- answers ---------------------------------------------------------------------------------- */

static void send_text(struct fake_request *request, int status, const char *type, const char *text)
{
    request->state = REQUEST_DONE;
    http_respond_header(request->exchange, "Api-Version", "1.41");
    http_respond(request->exchange, status, *text ? type : NULL, text, strlen(text));
}

static void answer_text(struct fake_request *request, int status, char *text)
{
    if (request->has_fault && request->fault == FAULT_LOSE) {
        request->state = REQUEST_DONE;
        http_exchange_abort(request->exchange);
    } else if (request->has_fault && request->fault == FAULT_HOLD_AFTER) {
        request->state = REQUEST_ANSWERED;
        request->status = status;
        request->text = steal_ptr(&text);
    } else {
        send_text(request, status, "application/json", text);
    }
    free(text);
}

void fake_answer(struct fake_request *request, int status, json_t *body)
{
    answer_text(request, status, body ? json_dumps(body, JSON_COMPACT) : xstrdup(""));
    json_decref(body);
}

void fake_refuse(struct fake_request *request, int status, const char *cause, const char *format,
                 ...)
{
    json_t *body = json_object();
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    json_object_set_new(body, "message", json_string(text));
    if (request->engine->habits.is_podman) {
        json_object_set_new(body, "cause", json_string(cause));
        json_object_set_new(body, "response", json_integer(status));
    }
    fake_answer(request, status, body);
}

void fake_stream(struct fake_request *request, bool is_of_images)
{
    request->state = is_of_images ? REQUEST_IMAGES : REQUEST_STREAM;
    http_respond_start(request->exchange, 200, "application/json", -1);
}

/* No init of ours reads it. */
static void on_attached_data(struct http_exchange *exchange, const uint8_t *data, size_t length)
{
    struct fake_request *request = http_exchange_user(exchange);

    (void)data;
    if (length || request->state != REQUEST_ATTACHED)
        return;
    request->state = REQUEST_DONE;
    http_respond_end(exchange);
}

void fake_attach(struct fake_request *request)
{
    request->state = REQUEST_ATTACHED;
    http_respond_upgrade(request->exchange, "tcp", on_attached_data);
}

void fake_send_lines(struct fake_request *request, const char *lines)
{
    request->state = REQUEST_DONE;
    http_respond_start(request->exchange, 200, "application/json", -1);
    http_respond_write(request->exchange, lines, strlen(lines));
    http_respond_end(request->exchange);
}

void fake_event(struct fake_container *container, const char *action, const char *key,
                const char *value)
{
    struct fake_engine *engine = container->engine;
    json_t *labels = json_object_get(container->request, "Labels");
    json_t *event = json_pack("{s:s, s:s, s:{s:s, s:o}}", "Type", "container", "Action", action,
                              "Actor", "ID", container->id, "Attributes",
                              labels ? json_copy(labels) : json_object());
    scoped(free) char *line = NULL;
    struct fake_request *request;

    assert_non_null(event);
    if (key)
        json_object_set_new(json_object_get(json_object_get(event, "Actor"), "Attributes"), key,
                            json_string(value));
    line = json_dumps(event, JSON_COMPACT);
    json_decref(event);
    list_for_each (request, &engine->requests, node) {
        if (request->state != REQUEST_STREAM || engine->habits.keeps_silent)
            continue;
        http_respond_write(request->exchange, line, strlen(line));
        http_respond_write(request->exchange, "\n", 1);
    }
}

/* --- faults ----------------------------------------------------------------------------------- */

void fake_engine_fail(struct fake_engine *engine, struct fake_fault fault)
{
    assert_true(engine->fault_count < FAKE_FAULTS);
    fault.times = fault.times ? fault.times : 1;
    engine->faults[engine->fault_count++] = fault;
}

static const struct fake_fault *take_fault(struct fake_engine *engine, const char *line)
{
    for (size_t i = 0; i < engine->fault_count; i++) {
        struct fake_fault *fault = &engine->faults[i];

        if (!fault->times || fnmatch(fault->requests, line, 0) != 0)
            continue;
        fault->times--;
        return fault;
    }
    return NULL;
}

static void answer_fault(struct fake_request *request, const struct fake_fault *fault)
{
    json_t *body;
    scoped(free) char *text = NULL;

    if (!fault->body) {
        body = json_pack("{s:s}", "message", fault->message ? fault->message : "so it is");
        text = json_dumps(body, JSON_COMPACT);
        json_decref(body);
    }
    send_text(request, fault->status, fault->type ? fault->type : "application/json",
              fault->body ? fault->body : text);
}

void fake_engine_release(struct fake_engine *engine)
{
    struct fake_request *request;

    list_for_each (request, &engine->requests, node) {
        if (request->state == REQUEST_HELD)
            fake_serve(request);
        else if (request->state == REQUEST_ANSWERED)
            send_text(request, request->status, "application/json", request->text);
    }
}

size_t fake_engine_held(const struct fake_engine *engine)
{
    struct fake_request *request;
    size_t count = 0;

    list_for_each (request, &engine->requests, node)
        count += request->state == REQUEST_HELD || request->state == REQUEST_ANSWERED;
    return count;
}

/* --- requests --------------------------------------------------------------------------------- */

static void on_close(struct http_exchange *exchange)
{
    struct fake_request *request = http_exchange_user(exchange);

    list_remove(&request->node);
    json_decref(request->body);
    free(request->path);
    free(request->query);
    free(request->text);
    free(request);
}

static const char *without_version(const char *path)
{
    const char *rest = str_starts_with(path, "/v1.") ? strchr(path + 1, '/') : NULL;

    return rest ? rest : path;
}

static void log_line(struct fake_engine *engine, const char *line)
{
    engine->log = xrealloc(engine->log, engine->logged + 1, sizeof(*engine->log));
    engine->log[engine->logged++] = xstrdup(line);
}

static void serve(struct fake_request *request)
{
    struct http_exchange *exchange = request->exchange;
    const struct fake_fault *fault;
    scoped(free) char *line =
        xasprintf("%s %s", http_method_name(http_exchange_head(exchange)->method), request->path);

    log_line(request->engine, line);
    fault = take_fault(request->engine, line);
    request->has_fault = fault;
    request->fault = fault ? fault->kind : 0;
    if (fault && fault->kind == FAULT_ANSWER)
        answer_fault(request, fault);
    else if (fault && fault->kind == FAULT_HOLD)
        request->state = REQUEST_HELD;
    else
        fake_serve(request);
}

static void on_body(struct http_exchange *exchange, struct buffer *body)
{
    struct fake_request *request = http_exchange_user(exchange);

    request->body = json_loadb(buffer_text(body), body->length, 0, NULL);
    serve(request);
}

static void on_request(void *context, struct http_exchange *exchange)
{
    struct fake_engine *engine = context;
    struct fake_request *request = xnew(struct fake_request);
    const struct http_head *head = http_exchange_head(exchange);

    request->engine = engine;
    request->exchange = exchange;
    request->path = xstrdup(without_version(head->path));
    request->query = xstrdup(head->query);
    list_init(&request->node);
    list_append(&engine->requests, &request->node);
    http_exchange_set_user(exchange, request);
    http_exchange_on_close(exchange, on_close);
    if (head->upgrade)
        serve(request);
    else
        http_exchange_read_body(exchange, BODY_MAXIMUM, on_body);
}

unsigned fake_engine_count(const struct fake_engine *engine, const char *requests)
{
    unsigned count = 0;

    for (size_t i = 0; i < engine->logged; i++)
        count += fnmatch(requests, engine->log[i], 0) == 0;
    return count;
}

void fake_engine_cut_events(struct fake_engine *engine)
{
    struct fake_request *request;

    list_for_each (request, &engine->requests, node) {
        if (request->state != REQUEST_STREAM && request->state != REQUEST_IMAGES)
            continue;
        request->state = REQUEST_DONE;
        http_exchange_abort(request->exchange);
    }
}

size_t fake_engine_event_streams(const struct fake_engine *engine)
{
    struct fake_request *request;
    size_t count = 0;

    list_for_each (request, &engine->requests, node)
        count += request->state == REQUEST_STREAM;
    return count;
}

size_t fake_engine_attached(const struct fake_engine *engine)
{
    struct fake_request *request;
    size_t count = 0;

    list_for_each (request, &engine->requests, node)
        count += request->state == REQUEST_ATTACHED;
    return count;
}

void fake_engine_say(struct fake_engine *engine, const void *bytes, size_t length)
{
    struct fake_request *request;

    list_for_each (request, &engine->requests, node)
        if (request->state == REQUEST_ATTACHED)
            http_respond_write(request->exchange, bytes, length);
}

void fake_engine_cut_attached(struct fake_engine *engine)
{
    struct fake_request *request;

    list_for_each (request, &engine->requests, node) {
        if (request->state != REQUEST_ATTACHED)
            continue;
        request->state = REQUEST_DONE;
        http_exchange_abort(request->exchange);
    }
}

/* --- the engine ------------------------------------------------------------------------------- */

void fake_engine_leave(struct fake_engine *engine)
{
    http_server_free(steal_ptr(&engine->server));
    assert_true(list_is_empty(&engine->requests));
}

void fake_engine_stop_listening(struct fake_engine *engine)
{
    assert_int_equal(unlink(engine->socket_path), 0);
}

void fake_engine_return(struct fake_engine *engine)
{
    scoped(free) char *address = xasprintf("unix:%s", engine->socket_path);
    struct error err = { 0 };

    assert_null(engine->server);
    engine->server = http_server_new(engine->loop, NULL, on_request, engine);
    if (http_server_listen(engine->server, address, &err) < 0)
        fail_msg("%s", err.message);
}

struct fake_engine *fake_engine_new(struct loop *loop, const char *socket_path)
{
    struct fake_engine *engine = xnew(struct fake_engine);

    engine->loop = loop;
    engine->socket_path = xstrdup(socket_path);
    list_init(&engine->containers);
    list_init(&engine->images);
    list_init(&engine->requests);
    fake_engine_return(engine);
    return engine;
}

struct fake_habits *fake_engine_habits(struct fake_engine *engine)
{
    return &engine->habits;
}

static void image_free(struct fake_image *image)
{
    list_remove(&image->node);
    free(image->name);
    free(image->user);
    free(image->workdir);
    free(image);
}

void fake_engine_free(struct fake_engine *engine)
{
    struct fake_container *container;
    struct fake_image *image;

    if (!engine)
        return;
    if (engine->server)
        fake_engine_leave(engine);
    while ((container = list_first(&engine->containers, struct fake_container, node)))
        fake_container_free(container);
    while ((image = list_first(&engine->images, struct fake_image, node)))
        image_free(image);
    for (size_t i = 0; i < engine->logged; i++)
        free(engine->log[i]);
    free(engine->log);
    free(engine->pull_lines);
    free(engine->socket_path);
    free(engine);
}

static void tell_of_images(struct fake_engine *engine)
{
    static const char line[] = "{\"Type\":\"image\",\"Action\":\"tag\"}\n";
    struct fake_request *request;

    list_for_each (request, &engine->requests, node)
        if (request->state == REQUEST_IMAGES)
            http_respond_write(request->exchange, line, sizeof(line) - 1);
}

void fake_engine_add_image(struct fake_engine *engine, const char *name, const char *user,
                           const char *workdir)
{
    struct fake_image *image = xnew(struct fake_image);

    image->name = xstrdup(name);
    image->user = xstrdup(user);
    image->workdir = xstrdup(workdir);
    list_init(&image->node);
    list_append(&engine->images, &image->node);
    tell_of_images(engine);
}

void fake_engine_set_pull(struct fake_engine *engine, const char *lines)
{
    free(engine->pull_lines);
    engine->pull_lines = xstrdup(lines);
}
