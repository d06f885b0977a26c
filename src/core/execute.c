#include "core/execute.h"

#include "base/str.h"
#include "config/config.h"
#include "core/core.h"
#include "core/sandbox.h"
#include "wire/json.h"

#include <string.h>
#include <sys/stat.h>

enum {
    TIMEOUT_DEFAULT_MS = 60 * 1000,
    FILES_DEPTH = 8, /* how deep a run's files are looked for */
    FILES_RECORDED = 100,
    CLOCK_SLACK_US = 20 * 1000 /* time stamps of files are a bit behind the clock */
};

int64_t execute_default_timeout_ms(const struct core *core)
{
    int64_t timeout_ms = core->parts.config->exec.timeout_ms;

    return timeout_ms > 0 ? timeout_ms : TIMEOUT_DEFAULT_MS;
}

struct session *execute_session(const struct execute *execute)
{
    return map_get(&execute->core->sessions_by_id, execute->session_id);
}

static void end_session(struct execute *execute, const char *why)
{
    struct session *session = execute->made_session ? execute_session(execute) : NULL;

    if (session)
        session_end(session, END_FAILED, why, NULL, NULL);
}

/* --- files ----------------------------------------------------------------------------------- */

/* No part of its path is hidden. */
static bool is_visible(const char *path, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (path[i] == '.' && (i == 0 || path[i - 1] == '/'))
            return false;
    return length > 0;
}

/* By the time that the kernel keeps: unpacked files have older times of their own. */
static bool is_of_the_run(const struct execute *execute, const struct protocol_entry_view *entry)
{
    return entry->fixed.stat.changed_us >= execute->execution->started.wall_us - CLOCK_SLACK_US;
}

bool execute_next_file(const struct execute *execute, bool of_the_run, size_t *at,
                       struct protocol_entry_view *out_entry)
{
    while (execute->listing.loop && listing_next(&execute->listing, at, out_entry)) {
        if (S_ISREG(out_entry->fixed.stat.mode) &&
            is_visible(out_entry->path, out_entry->fixed.path_length) &&
            (!of_the_run || is_of_the_run(execute, out_entry)))
            return true;
    }
    return false;
}

/* For the history, which cannot look later. */
static void record_files(const struct execute *execute)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(256 * 1024);
    struct json_writer json = JSON_WRITER(&text);
    struct session *session = execute_session(execute);
    struct protocol_entry_view entry;
    size_t at = 0;
    unsigned count = 0;

    json_begin_object(&json, NULL);
    json_put_text(&json, "execution_id", execute->execution->id);
    json_begin_array(&json, "files");
    for (; count < FILES_RECORDED && execute_next_file(execute, true, &at, &entry); count++) {
        json_begin_object(&json, NULL);
        json_put_bytes(&json, "name", entry.path, entry.fixed.path_length);
        json_put_int(&json, "size", (int64_t)entry.fixed.stat.size);
        json_end_object(&json);
    }
    json_end_array(&json);
    json_end_object(&json);
    if (session && count > 0 && !text.overflowed)
        session_emit(session, "execution.files", buffer_text(&text));
}

/* The answer does not depend on the list: without one there are just no files in it. */
static void on_listed(struct listing *listing)
{
    struct execute *execute = container_of(listing, struct execute, listing);

    if (listing->err.code)
        buffer_clear(&listing->bytes);
    record_files(execute);
    session_use_end(&execute->use);
    execute->in_use = false;
    execute->done(execute);
}

static void on_list_ready(struct session_use *use)
{
    struct execute *execute = container_of(use, struct execute, use);

    if (use->err.code || !use->agent) {
        execute->in_use = !use->err.code;
        execute->done(execute);
        return;
    }
    listing_start(&execute->listing, execute->core->loop, use->agent, "", ".", FILES_DEPTH,
                  on_listed);
}

static void on_list_lost(struct session_use *use)
{
    struct execute *execute = container_of(use, struct execute, use);

    execute->in_use = false;
    execute->done(execute);
}

static void list_files(struct execute *execute)
{
    struct session *session = execute_session(execute);

    if (!session) {
        execute->done(execute);
        return;
    }
    execute->in_use = true;
    session_use_begin(&execute->use, session, execute->execution->generation, on_list_ready,
                      on_list_lost);
}

/* --- the run --------------------------------------------------------------------------------- */

static void on_change(struct execution_watcher *watcher)
{
    struct execute *execute = container_of(watcher, struct execute, watcher);
    struct execution *execution = execute->execution;

    if (!execution_state_is_final(execution->state))
        return;
    execution_unwatch(&execute->watcher);
    if (execution->state == EXECUTION_EXITED) {
        list_files(execute);
        return;
    }
    end_session(execute, execution_state_name(execution->state));
    execute->err = execution->start_error;
    execute->done(execute);
}

static int run(struct execute *execute, struct session *session, struct error *err)
{
    const struct execute_request *request = &execute->request;
    struct execution_request wanted = {
        .code = request->code,
        .code_length = strlen(request->code),
        .language = request->language,
        .env_json = request->env_json,
        .secrets_json = request->secrets_json,
        .cwd = request->cwd,
        .timeout_ms = request->timeout_ms,
    };

    memcpy(execute->session_id, session->id, sizeof(execute->session_id));
    execute->execution = execution_start(session, &wanted, err);
    if (!execute->execution) {
        end_session(execute, "not started");
        return -1;
    }
    execution_ref(execute->execution);
    execution_watch(execute->execution, &execute->watcher, on_change);
    return 0;
}

static void on_opened(struct session_op *op)
{
    struct execute *execute = container_of(op, struct execute, op);

    execute->is_opening = false;
    execute->made_session = op->created;
    execute->err = op->err;
    if (op->err.code || run(execute, op->session, &execute->err) < 0)
        execute->done(execute);
}

int execute_start(struct execute *execute, struct core *core, const struct execute_request *request,
                  execute_done_fn *done, struct error *err)
{
    struct session_request wanted = SESSION_REQUEST_INIT;

    execute->core = core;
    execute->request = *request;
    execute->done = done;
    if (request->session)
        return run(execute, request->session, err);
    wanted.owner = request->owner;
    wanted.on_behalf_of = request->on_behalf_of;
    wanted.key = str_is_empty(request->key) ? NULL : request->key;
    execute->is_opening = true;
    session_open(core, &wanted, &execute->op, on_opened);
    return 0;
}

void execute_fini(struct execute *execute)
{
    struct execution *execution = execute->execution;

    if (execution && !execution_state_is_final(execution->state))
        end_session(execute, "the client left");
    if (execute->is_opening)
        session_op_cancel(&execute->op);
    execution_unwatch(&execute->watcher);
    if (execution)
        execution_unref(execution);
    listing_fini(&execute->listing);
    if (execute->in_use)
        session_use_end(&execute->use);
}
