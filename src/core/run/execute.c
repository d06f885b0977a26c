/* SPDX-License-Identifier: Apache-2.0 */
#include "core/run/execute.h"

#include "base/str.h"
#include "config/config.h"
#include "core/core.h"
#include "core/run/rules.h"
#include "core/sandbox/sandbox.h"
#include "wire/json.h"

#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum {
    TIMEOUT_DEFAULT_MS = 60 * 1000,
    FILES_DEPTH = 8, /* how deep a run's files are looked for */
    FILES_RECORDED = 100,
    CLOCK_SLACK_US = 20 * 1000, /* time stamps of files are a bit behind the clock */
    TICK_US = 1000,
    TICKS_MAXIMUM = 20, /* a tick of the slowest kernels takes 10 ms */
    EPHEMERAL_IDLE_MS = 60 * 1000
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

/* --- the end ---------------------------------------------------------------------------------- */

static void on_removed(struct session_op *op)
{
    struct execute *execute = container_of(op, struct execute, op);

    execute->state = EXECUTE_OVER;
    execute->done(execute);
}

/* Only a session that was made for this call. */
static void remove_session(struct execute *execute, enum end_kind kind, const char *why)
{
    struct session *session = execute->made_session ? execute_session(execute) : NULL;

    if (!session) {
        execute->state = EXECUTE_OVER;
        execute->done(execute);
        return;
    }
    execute->state = EXECUTE_REMOVING;
    execute->op = (struct session_op){ 0 };
    session_end(session, kind, why, &execute->op, on_removed);
}

/* The code has ended by itself, and its files have been looked for. */
static void finish(struct execute *execute)
{
    if (execute->request.is_ephemeral) {
        remove_session(execute, END_DELETED, "ephemeral");
        return;
    }
    execute->state = EXECUTE_OVER;
    execute->done(execute);
}

/* --- files ------------------------------------------------------------------------------------ */

/* No part of its path is hidden. */
static bool is_visible(const char *path, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (path[i] == '.' && (i == 0 || path[i - 1] == '/'))
            return false;
    return length > 0;
}

/* By the time that the kernel keeps: unpacked files have older times of their own. A start is
 * reported later than it happens, on a busy machine much later: so a file that changed since the
 * request, and is not as the run before has left it, was changed by this run. */
static bool is_of_the_run(const struct execute *execute, const struct protocol_entry_view *entry)
{
    return entry->fixed.stat.changed_us >= execute->since_us &&
           !file_snapshot_has(execute->before, &entry->fixed.stat);
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

/* This run compares with the files that the run before has left, and the next run with those of
 * this one. */
static void exchange_snapshots(struct execute *execute)
{
    struct session *session = execute_session(execute);

    if (!session)
        return;
    execute->before = session_exchange_files(
        session,
        file_snapshot_new(&execute->listing,
                          execution_facts(execute->execution)->ended.wall_us - CLOCK_SLACK_US));
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
    json_put_text(&json, "execution_id", execution_facts(execute->execution)->id);
    json_begin_array(&json, "files");
    for (; count < FILES_RECORDED && execute_next_file(execute, true, &at, &entry); count++) {
        json_begin_object(&json, NULL);
        json_put_bytes(&json, "name", entry.path, entry.fixed.path_length);
        json_put_int(&json, "size_bytes", (int64_t)entry.fixed.stat.size);
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
    else
        exchange_snapshots(execute);
    record_files(execute);
    session_hold_end(&execute->hold);
    if (!listing->err.code && execute_session(execute))
        session_note_files_known(execute_session(execute));
    finish(execute);
}

static void on_list_ready(struct session_hold *hold)
{
    struct execute *execute = container_of(hold, struct execute, hold);

    if (hold->err.code || !hold->agent) {
        session_hold_end(hold);
        finish(execute);
        return;
    }
    listing_start(&execute->listing, execute->core->loop, hold->agent, "", ".", FILES_DEPTH,
                  on_listed);
}

static void on_list_lost(struct session_hold *hold)
{
    struct execute *execute = container_of(hold, struct execute, hold);

    listing_fini(&execute->listing); /* the end of its pipe comes too, a moment later */
    finish(execute);
}

static void list_files(struct execute *execute)
{
    struct session *session = execute_session(execute);

    if (!session) {
        finish(execute);
        return;
    }
    execute->state = EXECUTE_LISTING;
    session_hold_begin(&execute->hold, session, execution_facts(execute->execution)->generation,
                       on_list_ready, on_list_lost);
}

/* --- the run ---------------------------------------------------------------------------------- */

/* A program that could not be started has an exit code too, as in a shell. */
static bool was_started(const struct execution *execution)
{
    return execution_facts(execution)->started.wall_us;
}

static void check_end(struct execute *execute)
{
    struct execution *execution = execute->execution;

    if (!execution_has_ended(execution))
        return;
    execution_unwatch(&execute->watcher);
    if (execution_facts(execution)->state == EXECUTION_EXITED && was_started(execution)) {
        list_files(execute);
        return;
    }
    execute->err = execution_facts(execution)->start_error;
    remove_session(execute, END_FAILED,
                   execution_facts(execution)->state == EXECUTION_EXITED
                       ? "not started"
                       : execution_state_name(execution_facts(execution)->state));
}

static void on_change(struct execution_watcher *watcher)
{
    check_end(container_of(watcher, struct execute, watcher));
}

static struct execution_request wanted_execution(const struct execute_request *request)
{
    return (struct execution_request){
        .code = request->code,
        .code_length = strlen(request->code),
        .language = request->language,
        .env_json = request->env_json,
        .secrets_json = request->secrets_json,
        .cwd = request->cwd,
        .key = request->execution_key,
        .timeout_ms = request->timeout_ms,
    };
}

/* One that was started before, by its key: the files that changed since its start are its own. */
static void join(struct execute *execute)
{
    int64_t started_us = execution_facts(execute->execution)->started.wall_us;

    if (started_us && started_us - CLOCK_SLACK_US < execute->since_us)
        execute->since_us = started_us - CLOCK_SLACK_US;
    check_end(execute);
}

static int run(struct execute *execute, struct session *session, struct error *err)
{
    struct execution_request wanted = wanted_execution(&execute->request);

    execute->execution = execution_start(session, &wanted, err);
    if (!execute->execution)
        return -1;
    execute->state = EXECUTE_RUNNING;
    execution_ref(execute->execution);
    execution_watch(execute->execution, &execute->watcher, on_change);
    if (execute->request.execution_key)
        join(execute);
    return 0;
}

/* The kernel stamps files with the time of its last tick. */
static int64_t file_clock_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Sets the time from which on changes are those of the run. A file that was written just before, by
 * an upload for example, has the same stamp as one that the run writes at once: then the run waits
 * for the next tick, a few milliseconds. */
static bool is_settled(struct execute *execute, const struct session *session)
{
    int64_t now_us = clock_wall_us(loop_clock(execute->core->loop));
    int64_t used_us = session_files_used_us(session);

    if (used_us < now_us - CLOCK_SLACK_US || used_us > now_us) {
        execute->since_us = now_us - CLOCK_SLACK_US;
        return true;
    }
    execute->since_us = file_clock_us();
    return execute->since_us > used_us || execute->ticks == TICKS_MAXIMUM;
}

static void on_tick(struct timer *timer)
{
    struct execute *execute = container_of(timer, struct execute, tick);
    struct session *session = execute_session(execute);

    execute->ticks++;
    if (session && !is_settled(execute, session))
        timer_arm_in(&execute->tick, TICK_US);
    else if (!session)
        error_named(&execute->err, ERR_GONE, "session_ended", "session %s has ended",
                    execute->session_id);
    else if (run(execute, session, &execute->err) == 0)
        return;
    if (execute->err.code)
        remove_session(execute, END_FAILED, "not started");
}

/* With a key the execution may have ended already: that is found out from the loop. */
static int run_when_settled(struct execute *execute, struct session *session, struct error *err)
{
    memcpy(execute->session_id, session_id(session), sizeof(execute->session_id));
    if (is_settled(execute, session) && !execute->request.execution_key)
        return run(execute, session, err);
    execute->state = EXECUTE_SETTLING;
    timer_init(&execute->tick, execute->core->loop, on_tick);
    timer_arm_in(&execute->tick, TICK_US);
    return 0;
}

/* A daemon that dies meanwhile leaves it to the idle clock, which stands still during the run. */
static void shorten_idle(struct session *session)
{
    struct session_patch patch = SESSION_PATCH_INIT;
    struct error err;

    if (session_idle_timeout_ms(session) > 0 &&
        session_idle_timeout_ms(session) <= EPHEMERAL_IDLE_MS)
        return;
    patch.idle_timeout_ms = EPHEMERAL_IDLE_MS;
    (void)session_patch(session, &patch, &err); /* shorter is never refused */
}

static void on_opened(struct session_op *op)
{
    struct execute *execute = container_of(op, struct execute, op);

    execute->made_session = op->created;
    execute->err = op->err;
    if (op->err.code) {
        execute->state = EXECUTE_OVER;
        execute->done(execute);
        return;
    }
    if (execute->request.is_ephemeral)
        shorten_idle(op->session);
    if (run_when_settled(execute, op->session, &execute->err) < 0)
        remove_session(execute, END_FAILED, "not started");
}

static struct session_request wanted_session(const struct execute_request *request)
{
    struct session_request wanted = SESSION_REQUEST_INIT;

    if (request->options)
        return *request->options;
    wanted.owner = request->owner;
    wanted.on_behalf_of = request->on_behalf_of;
    wanted.key = str_is_empty(request->key) ? NULL : request->key;
    return wanted;
}

int execute_start(struct execute *execute, struct core *core, const struct execute_request *request,
                  execute_done_fn *done, struct error *err)
{
    struct execution_request execution = wanted_execution(request);
    struct session_request wanted = wanted_session(request);

    execute->core = core;
    execute->request = *request;
    execute->request.options = NULL;
    execute->done = done;
    if (session_check_enabled(core, err) < 0) {
        if (request->session || wanted.key)
            return -1;
        *err = (struct error){ 0 };
        execute->request.is_ephemeral = true;
    }
    execute->made_session = request->session && request->session_is_new;
    if (request->session)
        return run_when_settled(execute, request->session, err);
    if (execution_check_code(core, &execution, err) < 0 ||
        rules_check(core, "", request->owner, &execution, NULL, err) < 0)
        return -1;
    wanted.is_one_shot = execute->request.is_ephemeral;
    execute->state = EXECUTE_OPENING;
    session_open(core, &wanted, &execute->op, on_opened);
    return 0;
}

/* The session that no caller will know of; NULL when there is none, or it may stay. */
static struct session *find_abandoned(const struct execute *execute)
{
    if (execute->request.execution_key)
        return NULL;
    switch (execute->state) {
    case EXECUTE_OPENING:
        return execute->op.created ? execute->op.session : NULL;
    case EXECUTE_SETTLING:
    case EXECUTE_RUNNING:
        return execute->made_session ? execute_session(execute) : NULL;
    case EXECUTE_LISTING:
        return execute->request.is_ephemeral ? execute_session(execute) : NULL;
    case EXECUTE_NEW:
    case EXECUTE_REMOVING:
    case EXECUTE_OVER:
        break;
    }
    return NULL;
}

void execute_fini(struct execute *execute)
{
    struct session *abandoned = find_abandoned(execute);

    if (execute->state == EXECUTE_OPENING || execute->state == EXECUTE_REMOVING)
        session_op_cancel(&execute->op);
    if (execute->state == EXECUTE_SETTLING)
        timer_stop(&execute->tick);
    execution_unwatch(&execute->watcher);
    listing_fini(&execute->listing);
    file_snapshot_free(execute->before);
    if (execute->state == EXECUTE_LISTING)
        session_hold_end(&execute->hold);
    if (execute->state == EXECUTE_RUNNING && !execute->made_session && !execute->request.goes_on &&
        !execute->request.execution_key)
        execution_abandon(execute->execution);
    if (abandoned)
        session_end(abandoned, END_FAILED, "the client left", NULL, NULL);
    if (execute->execution)
        execution_unref(execute->execution);
}
