/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "core/core.h"
#include "core/output/spool.h"
#include "core/run/context/context_private.h"
#include "core/run/language.h"
#include "core/stamp.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* --- the driver ------------------------------------------------------------------------------- */

static struct spool *stream_output(const struct context *context, size_t stream)
{
    return stream == 0 ? execution_stdout(context->execution)
                       : execution_stderr(context->execution);
}

static void on_change(struct execution_watcher *watcher)
{
    context_pump(container_of(watcher, struct context, watcher));
}

static void take_driver(struct context *context, struct execution *execution, bool is_skipping)
{
    context->execution = execution;
    execution_ref(execution);
    execution_watch(execution, &context->watcher, on_change);
    for (size_t i = 0; i < ARRAY_LENGTH(context->streams); i++) {
        struct context_stream *stream = &context->streams[i];

        *stream = (struct context_stream){ .context = context, .is_skipping = is_skipping };
        driver_parser_init(&stream->parser, "", CONTEXT_MESSAGE_MAXIMUM);
        stream->offset = is_skipping ? spool_length(stream_output(context, i)) : 0;
    }
}

int context_want_driver(struct context *context, struct error *err)
{
    struct execution_request request = {
        .code = context->language->driver,
        .code_length = strlen(context->language->driver),
        .language = context->language->name,
        .env_json = context->env_json,
        .cwd = context->cwd,
        .wants_stdin = true,
        .background = true,
        .context_id = context->id,
    };
    struct execution *execution;

    if (context->execution)
        return 0;
    execution = execution_start(context->session, &request, err);
    if (!execution)
        return -1;
    take_driver(context, execution, false);
    return 0;
}

void context_drop_driver(struct context *context, bool cancel, const char *cause)
{
    struct execution *execution = context->execution;

    if (!execution)
        return;
    for (size_t i = 0; i < ARRAY_LENGTH(context->streams); i++) {
        struct context_stream *stream = &context->streams[i];

        if (list_is_linked(&stream->follower.node))
            spool_unfollow(stream_output(context, i), &stream->follower);
        driver_parser_fini(&stream->parser);
    }
    execution_unwatch(&context->watcher);
    if (cancel && !execution_state_is_final(execution_facts(execution)->state))
        execution_cancel(execution);
    execution_unref(execution);
    context->execution = NULL;
    free(context->cause);
    context->cause = xstrdup(cause);
    context->replacements++;
}

void context_describe_end(const struct execution *execution, char *text, size_t size)
{
    if (execution_facts(execution)->error)
        snprintf(text, size, "%s", execution_facts(execution)->error);
    else if (execution_facts(execution)->reason)
        snprintf(text, size, "%s", execution_facts(execution)->reason);
    else if (execution_facts(execution)->signal)
        snprintf(text, size, "signal %d", execution_facts(execution)->signal);
    else if (execution_facts(execution)->state == EXECUTION_EXITED)
        snprintf(text, size, "exit %d", execution_facts(execution)->exit_code);
    else
        snprintf(text, size, "%s", execution_state_name(execution_facts(execution)->state));
}

/* --- life ------------------------------------------------------------------------------------- */

static struct context *add_context(struct session *session, const struct language *language)
{
    struct context *context = xnew(struct context);

    context->core = session_core(session);
    context->session = session;
    context->language = language;
    context->created = stamp_now(session_core(session));
    list_init(&context->runs);
    list_append(session_contexts(session), &context->node);
    return context;
}

/* Makes room for one more context: contexts whose interpreter is gone have nothing to lose but
 * their cause. */
static int check_room(struct session *session, struct error *err)
{
    struct context *context, *stopped = NULL;
    size_t count = 0;

    list_for_each (context, session_contexts(session), node) {
        count++;
        if (!stopped && !context->execution && list_is_empty(&context->runs))
            stopped = context;
    }
    if (count < CONTEXTS_MAXIMUM)
        return 0;
    if (stopped) {
        context_remove(stopped);
        return 0;
    }
    error_named(err, ERR_LIMIT, "too_many_contexts", "session %s already has %zu contexts",
                session_id(session), count);
    return error_hint(err, "remove a context of the session");
}

struct context *context_new(struct session *session, const char *language, const char *cwd,
                            const char *env_json, struct error *err)
{
    const struct language *known = language_find(language);
    struct context *context;

    if (!known) {
        error_named(err, ERR_INVALID, "unsupported_language",
                    "language \"%.32s\" is not supported for contexts", language);
        error_hint(err, "known languages: " LANGUAGE_NAMES);
        return NULL;
    }
    if (check_room(session, err) < 0)
        return NULL;
    context = add_context(session, known);
    id_make(context->id, ID_CONTEXT);
    context->cwd = cwd ? xstrdup(cwd) : NULL;
    context->env_json = env_json ? xstrdup(env_json) : NULL;
    return context;
}

struct context *context_find(const struct session *session, const char *id)
{
    struct context *context;

    list_for_each (context, session_contexts(session), node) {
        if (str_equal(context->id, id))
            return context;
    }
    return NULL;
}

struct context *context_open(struct session *session, const char *language, const char *name,
                             struct error *err)
{
    scoped(free) char *text = xasprintf("%s\n%s\n%s", session_id(session), language, name);
    struct context *context;
    char id[ID_SIZE];

    id_derive(id, ID_CONTEXT, text);
    context = context_find(session, id);
    if (!context && (context = context_new(session, language, NULL, NULL, err)))
        memcpy(context->id, id, sizeof(context->id));
    return context;
}

static void free_context(struct context *context)
{
    list_remove(&context->node);
    loop_undefer(context->core->loop, &context->next);
    loop_undefer(context->core->loop, &context->release);
    free(context->cwd);
    free(context->env_json);
    free(context->cause);
    free(context);
}

static void cancel_runs(struct context *context, const char *cause)
{
    struct list runs = LIST_INIT(runs);
    struct context_run *run;

    while ((run = list_first(&context->runs, struct context_run, node))) {
        list_remove(&run->node);
        list_append(&runs, &run->node);
    }
    while ((run = list_first(&runs, struct context_run, node)))
        context_run_finish(run, RUN_CANCELLED, cause);
}

static void on_release(struct deferred *deferred)
{
    free_context(container_of(deferred, struct context, release));
}

static void end_context(struct context *context, bool cancel, const char *cause)
{
    cancel_runs(context, cause);
    context_drop_driver(context, cancel, cause);
}

void context_remove(struct context *context)
{
    list_remove(&context->node);
    end_context(context, true, "the context was removed");
    loop_defer(context->core->loop, &context->release, on_release);
}

void context_restart(struct context *context)
{
    end_context(context, true, "the context was restarted");
    free(steal_ptr(&context->cause));
}

int context_interrupt(struct context *context, struct error *err)
{
    struct context_run *run = list_first(&context->runs, struct context_run, node);

    if (!context->execution || execution_facts(context->execution)->state != EXECUTION_RUNNING)
        return error_named(err, ERR_CONFLICT, "context_not_running",
                           "context %s is not running any code", context->id);
    if (run && run->state == RUN_ACTIVE)
        run->is_interrupted = true;
    return execution_signal(context->execution, SIGINT, true, err);
}

/* --- sessions and daemons that go ------------------------------------------------------------- */

void contexts_end_all(struct session *session, const struct end_reason *reason)
{
    struct context *context;
    char text[END_TEXT_SIZE];

    end_reason_text(reason, text);
    while ((context = list_first(session_contexts(session), struct context, node))) {
        list_remove(&context->node);
        end_context(context, false, text);
        loop_defer(context->core->loop, &context->release, on_release);
    }
}

static void drop_context(struct context *context)
{
    struct context_run *run;

    list_for_each (run, &context->runs, node)
        run->handler = NULL;
    end_context(context, false, "");
    free_context(context);
}

void contexts_drop_all(struct core *core)
{
    struct session *session;
    struct context *context;

    session_for_each (session, core) {
        while ((context = list_first(session_contexts(session), struct context, node)))
            drop_context(context);
    }
}

void context_restore(struct session *session, struct execution *execution)
{
    const char *text = execution_facts(execution)->request_json;
    scoped(json_decref) json_t *request = json_read(text, strlen(text), NULL);
    const char *id = json_string_value(json_object_get(request, "context"));
    const char *cwd = json_string_value(json_object_get(request, "cwd"));
    const struct language *language =
        language_find(json_string_value(json_object_get(request, "language")));
    struct context *context;

    if (!id || !id_is_valid(id, ID_CONTEXT) || !language || context_find(session, id))
        return;
    context = add_context(session, language);
    snprintf(context->id, sizeof(context->id), "%s", id);
    context->cwd = cwd ? xstrdup(cwd) : NULL;
    context->created = execution_facts(execution)->created;
    take_driver(context, execution, true);
}

/* --- as the API shows it ---------------------------------------------------------------------- */

static const char *state_name(const struct context *context)
{
    const struct context_run *run = list_first(&context->runs, struct context_run, node);

    if (run)
        return run->number > 0 ? "busy" : "starting";
    return context->execution ? "idle" : "stopped";
}

void context_write_json(const struct context *context, struct json_writer *json, const char *key)
{
    json_begin_object(json, key);
    json_put_text(json, "id", context->id);
    json_put_text(json, "session_id", session_id(context->session));
    json_put_text(json, "language", context->language->name);
    json_put_text(json, "state", state_name(context));
    json_put_text(json, "cwd", context->cwd);
    json_put_text(json, "execution_id",
                  context->execution ? execution_facts(context->execution)->id : NULL);
    json_put_int(json, "replacements", context->replacements);
    json_put_text(json, "cause", context->cause);
    json_put_time(json, "created_at", context->created.wall_us);
    json_end_object(json);
}
