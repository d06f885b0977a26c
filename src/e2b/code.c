/* SPDX-License-Identifier: Apache-2.0 */
/* Port 49999 of a sandbox: contexts. The interpreters are those of core/run/context. */

#include "e2b/code.h"
#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "core/metrics.h"
#include "core/run/context/context.h"
#include "core/run/language.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char default_cwd[] = "/home/user";

/* --- failures -------------------------------------------------------------------------------- */

void e2b_code_fail_status(struct request *request, int status, const char *message)
{
    if (!request->exchange)
        return;
    metrics_add(request->core->metrics, METRIC_HTTP_REQUESTS, (unsigned)status / 100, 1);
    http_respond(request->exchange, status, "text/plain; charset=utf-8", message, strlen(message));
}

void e2b_code_fail(struct request *request, const struct error *err)
{
    char message[sizeof(err->message) + sizeof(err->hint) + 4];

    snprintf(message, sizeof(message), "%s%s%s", err->message, *err->hint ? "; " : "", err->hint);
    request_put_retry_after(request, err);
    e2b_code_fail_status(request, request_status_of(err), message);
}

/* --- languages ------------------------------------------------------------------------------- */

const char *e2b_language(const char *name)
{
    static const char *const names[][2] = { { "python3", "python" },
                                            { "py", "python" },
                                            { "js", "javascript" },
                                            { "node", "javascript" },
                                            { "sh", "bash" } };

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        if (str_equal(names[i][0], name))
            return names[i][1];
    return name ? name : LANGUAGE_DEFAULT;
}

struct context *e2b_default_context(struct session *session, const char *language,
                                    struct error *err)
{
    return context_open(session, language, "e2b", err);
}

/* Clients expect these two in the list, before all that they make themselves. */
static int open_defaults(struct session *session, struct error *err)
{
    return e2b_default_context(session, "python", err) &&
                   e2b_default_context(session, "javascript", err)
               ? 0
               : -1;
}

/* --- runs of ours ----------------------------------------------------------------------------- */

enum { HIDDEN_MAXIMUM = 16384 };

struct hidden {
    size_t count;
    char context_id[ID_SIZE];
};

void e2b_forget_hidden_runs(struct e2b *e2b)
{
    struct map_slot *slot;

    map_for_each (slot, &e2b->hidden_runs)
        free(slot->value);
    map_fini(&e2b->hidden_runs);
    e2b->hidden_runs = (struct map){ 0 };
}

/* A number that is forgotten shows a count that is too high, and nothing worse. */
size_t *e2b_hidden_runs(struct e2b *e2b, const char *context_id)
{
    struct hidden *hidden = map_get(&e2b->hidden_runs, context_id);

    if (hidden)
        return &hidden->count;
    if (e2b->hidden_runs.count >= HIDDEN_MAXIMUM)
        e2b_forget_hidden_runs(e2b);
    hidden = xnew(struct hidden);
    snprintf(hidden->context_id, sizeof(hidden->context_id), "%s", context_id);
    map_put(&e2b->hidden_runs, hidden->context_id, hidden);
    return &hidden->count;
}

/* --- contexts -------------------------------------------------------------------------------- */

static void write_context(const struct context *context, struct json_writer *json)
{
    json_begin_object(json, NULL);
    json_put_text(json, "id", context->id);
    json_put_text(json, "language", context->language->name);
    json_put_text(json, "cwd", context->cwd ? context->cwd : default_cwd);
    json_end_object(json);
}

/* The session may have ended since the caller was let in; answers then. */
static struct session *live_session(struct request *request)
{
    struct session *session = e2b_session(request);

    if (!session)
        e2b_fail_gone(request, request->session_id);
    return session;
}

static int read_context(const json_t *body, const char **out_language, const char **out_cwd,
                        struct error *err)
{
    const json_t *language = json_object_get(body, "language");
    const json_t *cwd = json_object_get(body, "cwd");

    if ((language && !json_is_null(language) && !json_is_string(language)) ||
        (cwd && !json_is_null(cwd) && !json_is_string(cwd)))
        return error_named(err, ERR_INVALID, "invalid_field", "language and cwd must be texts");
    *out_language = e2b_language(json_string_value(language));
    *out_cwd = json_string_value(cwd);
    return 0;
}

/* The interpreter starts while the answer is on its way. */
static void post_context(struct request *request)
{
    struct session *session = live_session(request);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);
    const char *language = NULL, *cwd = NULL;
    struct context *context;
    struct error err = { 0 };

    if (!session)
        return;
    if (read_context(request->body, &language, &cwd, &err) < 0 ||
        open_defaults(session, &err) < 0 ||
        !(context = context_new(session, language, cwd, NULL, &err))) {
        request_fail(request, &err);
        return;
    }
    write_context(context, &json);
    request_reply(request, 200, &text);
    (void)context_run_start(context, NULL, 0, -1, NULL, NULL, NULL); /* the first run tries again */
}

static void get_contexts(struct request *request)
{
    struct session *session = live_session(request);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    const struct context *context;
    struct error err = { 0 };

    if (!session)
        return;
    if (open_defaults(session, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    json_begin_array(&json, NULL);
    list_for_each (context, session_contexts(session), node)
        write_context(context, &json);
    json_end_array(&json);
    request_reply(request, 200, &text);
}

/* Answers when there is none. */
static struct context *named_context(struct request *request)
{
    struct session *session = live_session(request);
    const char *id = request_path(request, "context");
    struct context *context = session ? context_find(session, id) : NULL;
    char message[128];

    if (session && !context) {
        snprintf(message, sizeof(message), "Context %.60s not found", id);
        e2b_code_fail_status(request, 404, message);
    }
    return context;
}

static void reply_null(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(16);

    buffer_append_text(&text, "null");
    request_reply(request, 200, &text);
}

static void post_restart(struct request *request)
{
    struct context *context = named_context(request);

    if (!context)
        return;
    context_restart(context);
    reply_null(request);
}

static void delete_context(struct request *request)
{
    struct context *context = named_context(request);

    if (!context)
        return;
    context_remove(context);
    reply_null(request);
}

static void get_health(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(16);

    buffer_append_text(&text, "\"OK\"");
    request_reply(request, 200, &text);
}

#define PLAIN .answers = e2b_any_answers
#define BODY .body = ROUTE_JSON_BODY, .answers = e2b_any_answers

const struct route e2b_code_routes[] = {
    { HTTP_POST, "/contexts", post_context, "Make a context", BODY },
    { HTTP_GET, "/contexts", get_contexts, "List contexts", PLAIN },
    { HTTP_POST, "/contexts/{context}/restart", post_restart, "Restart a context", BODY },
    { HTTP_DELETE, "/contexts/{context}", delete_context, "Remove a context", PLAIN },
    { HTTP_POST, "/execute", e2b_post_execute, "Run code", BODY },
    { HTTP_GET, "/health", get_health, "Whether the interpreter is there", PLAIN },
    { 0 },
};
