/* SPDX-License-Identifier: Apache-2.0 */
#include "face/gather.h"

#include "base/alloc.h"
#include "base/str.h"
#include "cluster/cluster.h"
#include "cluster/relay.h"
#include "face/home.h"

#include <stdlib.h>
#include <string.h>

static struct cluster *cluster_of(const struct request *request)
{
    return request->faces->parts.cluster;
}

static bool is_asked(const struct cluster_node *node, const struct gather_options *options)
{
    if (options->node)
        return str_equal(options->node, node->id);
    return node->state != NODE_LOST || node->sessions > 0;
}

bool gather_is_needed(const struct request *request)
{
    const struct cluster_node *node = NULL;

    if (!cluster_of(request) || request->relay)
        return false;
    while ((node = cluster_next(cluster_of(request), node))) {
        if (node != cluster_self(cluster_of(request)) &&
            is_asked(node, &(struct gather_options){ 0 }))
            return true;
    }
    return false;
}

/* --- life ------------------------------------------------------------------------------------ */

void gather_free(struct gather *gather)
{
    timer_stop(&gather->deadline);
    timer_stop(&gather->end);
    for (size_t i = 0; i < gather->count; i++) {
        struct gather_answer *answer = &gather->answers[i];

        if (answer->call)
            http_call_cancel(answer->call);
        free(answer->node);
        buffer_fini(&answer->body);
        json_decref(answer->json);
    }
    gather->request->state = NULL;
    gather->request->on_gone = NULL;
    if (gather->release)
        gather->release(gather->user);
    free(gather->answers);
    free(gather);
}

static void on_gone(struct request *request)
{
    gather_free(request->state);
}

/* Not inside of the call that ended last. */
static void on_end(struct timer *timer)
{
    struct gather *gather = container_of(timer, struct gather, end);

    gather->done(gather);
}

static void on_deadline(struct timer *timer)
{
    struct gather *gather = container_of(timer, struct gather, deadline);

    for (size_t i = 0; i < gather->count; i++) {
        struct gather_answer *answer = &gather->answers[i];

        if (answer->call) {
            answer->status = 0;
            http_call_cancel(steal_ptr(&answer->call));
        }
    }
    timer_arm_in(&gather->end, 0);
}

/* --- one node -------------------------------------------------------------------------------- */

static void on_data(struct http_call *call, const uint8_t *data, size_t length)
{
    struct gather_answer *answer = http_call_user(call);

    (void)buffer_append(&answer->body, data, length);
}

static void on_call_end(struct http_call *call, const struct error *err)
{
    struct gather_answer *answer = http_call_user(call);
    struct gather *gather = answer->gather;

    answer->status = err || answer->body.overflowed ? 0 : http_call_status(call);
    answer->call = NULL;
    if (answer->status == 200 && answer->body.length)
        answer->json = json_read(answer->body.data, answer->body.length, NULL);
    if (--gather->open == 0)
        timer_arm_in(&gather->end, 0);
}

static bool is_left_out(const char *name, const char *const *without)
{
    for (; without && *without; without++) {
        if (str_equal(name, *without))
            return true;
    }
    return str_equal(name, "node");
}

static char *make_target(const struct request *request, const struct gather_options *options,
                         const char *node)
{
    const char *target = http_exchange_head(request->exchange)->target;
    struct buffer text = BUFFER_INIT(64 * 1024);

    buffer_append(&text, target, strcspn(target, "?"));
    buffer_append_text(&text, "?node=");
    (void)http_escape(&text, node);
    for (size_t i = 0; i < request->parameter_count; i++) {
        if (is_left_out(request->parameters[i].name, options->without))
            continue;
        buffer_append_byte(&text, '&');
        (void)http_escape(&text, request->parameters[i].name);
        buffer_append_byte(&text, '=');
        (void)http_escape(&text, request->parameters[i].value);
    }
    if (options->put_query)
        options->put_query(options->user, node, &text);
    return buffer_steal_text(&text);
}

static void ask(struct gather_answer *answer, const struct cluster_node *node,
                const struct gather_options *options)
{
    static const struct http_call_handler handler = { .on_data = on_data, .on_end = on_call_end };
    struct request *request = answer->gather->request;
    const struct cluster_node *self = cluster_self(cluster_of(request));
    struct relay_identity caller = request_relay_identity(request);
    scoped(free) char *target = make_target(request, options, node->id);

    answer->call = relay_call(request->faces->parts.relay,
                              &(struct relay_ask){
                                  .from = { self->id, self->epoch, NULL },
                                  .to = { node->id, node->epoch, node->address },
                                  .caller = &caller,
                                  .method = request->route->method,
                                  .target = target,
                              },
                              &handler, answer, NULL);
    answer->gather->open += answer->call != NULL;
}

/* --- all of them ----------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
    const struct cluster_node *const *first = a, *const *second = b;

    return strcmp((*first)->id, (*second)->id);
}

static size_t choose_nodes(const struct request *request, const struct gather_options *options,
                           const struct cluster_node ***out_nodes)
{
    const struct cluster_node **nodes = NULL;
    const struct cluster_node *node = NULL;
    size_t count = 0;

    while ((node = cluster_next(cluster_of(request), node))) {
        if (!is_asked(node, options))
            continue;
        nodes = xrealloc(nodes, count + 1, sizeof(const struct cluster_node *));
        nodes[count++] = node;
    }
    if (count)
        qsort(nodes, count, sizeof(const struct cluster_node *), by_id);
    *out_nodes = nodes;
    return count;
}

struct gather *gather_start(struct request *request, const struct gather_options *options,
                            gather_fn *done)
{
    struct gather *gather = xnew(struct gather);
    const struct cluster_node **nodes;
    size_t count = choose_nodes(request, options, &nodes);

    gather->request = request;
    gather->done = done;
    gather->user = options->user;
    gather->release = options->release;
    gather->answers = xcalloc(count ? count : 1, sizeof(*gather->answers));
    gather->count = count;
    timer_init(&gather->deadline, request->faces->parts.loop, on_deadline);
    timer_init(&gather->end, request->faces->parts.loop, on_end);
    request->state = gather;
    request->on_gone = on_gone;
    for (size_t i = 0; i < count; i++) {
        gather->answers[i].gather = gather;
        gather->answers[i].node = xstrdup(nodes[i]->id);
        gather->answers[i].body = BUFFER_INIT(options->answer_maximum);
        if (nodes[i]->state != NODE_LOST)
            ask(&gather->answers[i], nodes[i], options);
    }
    free(nodes);
    if (options->deadline_ms)
        timer_arm_in(&gather->deadline, options->deadline_ms * 1000);
    if (!gather->open)
        timer_arm_in(&gather->end, 0);
    return gather;
}

/* --- answers --------------------------------------------------------------------------------- */

bool gather_is_missing(const struct gather_answer *answer)
{
    return answer->status == 0 || answer->status >= 500;
}

const struct gather_answer *gather_refusal(const struct gather *gather)
{
    for (size_t i = 0; i < gather->count; i++) {
        if (gather->answers[i].status >= 400 && gather->answers[i].status < 500)
            return &gather->answers[i];
    }
    return NULL;
}

void gather_reply_refusal(struct gather *gather, const struct gather_answer *refusal)
{
    http_respond(gather->request->exchange, refusal->status, "application/json", refusal->body.data,
                 refusal->body.length);
}

void gather_put_missing(struct gather *gather, struct json_writer *json)
{
    scoped(buffer_fini) struct buffer names = BUFFER_INIT(64 * 1024);

    for (size_t i = 0; i < gather->count; i++) {
        if (gather_is_missing(&gather->answers[i]))
            buffer_appendf(&names, "%s%s", names.length ? ", " : "", gather->answers[i].node);
    }
    if (!names.length)
        return;
    http_respond_header(gather->request->exchange, "X-Sandglass-Missing-Nodes",
                        buffer_text(&names));
    if (!json)
        return;
    json_begin_array(json, "missing_nodes");
    for (size_t i = 0; i < gather->count; i++) {
        if (gather_is_missing(&gather->answers[i]))
            json_put_text(json, NULL, gather->answers[i].node);
    }
    json_end_array(json);
}
