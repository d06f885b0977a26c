/* SPDX-License-Identifier: Apache-2.0 */
#include "service/condition.h"

#include "base/macros.h"
#include "base/str.h"
#include "core/core.h"
#include "core/sandbox/sandbox.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum {
    POLL_FIRST_US = 10 * 1000, /* of ports */
    POLL_LAST_US = 200 * 1000,
    LAST_LOOK_US = 1000 * 1000, /* what init has for the answer when the time is over */
    PIECE_BYTES = 64 * 1024,
};

static const char *const stream_names[STREAM_COUNT] = { "stdout", "stderr" };

/* --- looking --------------------------------------------------------------------------------- */

/* Searches one piece; true when there may be more. The next piece begins with the last bytes of
 * this one, which may be the beginning of the text. */
static bool search_piece(struct condition *condition, unsigned stream)
{
    static uint8_t bytes[PIECE_BYTES];
    struct condition_search *search = &condition->searches[stream];
    size_t length = strlen(condition->wish.text);
    const uint8_t *match;
    uint64_t start, end;
    ssize_t count;

    if (!search->spool || !spool_extent(search->spool, search->offset, &start, &end) ||
        end - start < length)
        return false;
    count = pread(spool_fd(search->spool), bytes, (size_t)MIN(end - start, sizeof(bytes)),
                  (off_t)start);
    if (count < (ssize_t)length)
        return false;
    match = memmem(bytes, (size_t)count, condition->wish.text, length);
    search->offset = start + (match ? (uint64_t)(match - bytes) : (uint64_t)count - length + 1);
    if (match) {
        condition->stream = stream_names[stream];
        condition->offset = search->offset;
    }
    return !match;
}

static bool has_text(struct condition *condition)
{
    for (unsigned i = 0; i < STREAM_COUNT && !condition->stream; i++) {
        while (search_piece(condition, i))
            ;
    }
    return condition->stream;
}

static bool has_ended(const struct condition *condition)
{
    return !condition->execution || execution_has_ended(condition->execution);
}

static void finish(struct condition *condition, bool is_met, const char *reason)
{
    timer_stop(&condition->deadline);
    timer_stop(&condition->poll);
    condition->is_met = is_met;
    condition->reason = reason;
    condition->done(condition);
}

/* --- the text -------------------------------------------------------------------------------- */

/* True when it is over. */
static bool check_text(struct condition *condition)
{
    bool is_met = has_text(condition);

    if (!is_met && !has_ended(condition))
        return false;
    finish(condition, is_met, is_met ? NULL : "ended");
    return true;
}

/* --- the port -------------------------------------------------------------------------------- */

/* The agent of the sandbox that the execution runs in; NULL when that is gone, or cannot be reached
 * now. */
static struct agent *agent_of(const struct condition *condition)
{
    const struct execution *execution = condition->execution;
    const struct sandbox *sandbox = execution && execution_session(execution)
                                        ? session_sandbox(execution_session(execution))
                                        : NULL;

    return sandbox && str_equal(sandbox_id(sandbox), execution_facts(execution)->sandbox_id)
               ? sandbox_agent(sandbox)
               : NULL;
}

static bool is_asking(const struct condition *condition)
{
    return condition->look == LOOK_ASKED || condition->look == LOOK_AGAIN;
}

static bool has_port(const struct condition *condition)
{
    struct protocol_note_view note;
    size_t at = 0;

    while (!condition->ports.err.code && listing_next_note(&condition->ports, &at, &note))
        if (note.fixed.kind == NOTE_PORT && note.fixed.number == condition->wish.port)
            return true;
    return false;
}

/* Whether asking again is of no use. A sandbox that cannot be reached now may answer later. */
static bool cannot_tell(const struct condition *condition)
{
    return condition->ports.err.code == ERR_CONFLICT || condition->ports.sys_errno == ENOSYS;
}

static void fail_port(struct condition *condition)
{
    condition->err = condition->ports.err;
    if (condition->ports.sys_errno == ENOSYS)
        error_named(&condition->err, ERR_CONFLICT, "ports_unknown",
                    "the sandbox has no /proc and cannot tell which ports its programs serve");
    finish(condition, false, NULL);
}

static void wait_for_next_look(struct condition *condition)
{
    condition->look = LOOK_BETWEEN;
    timer_arm_in(&condition->poll, condition->poll_us);
    condition->poll_us = MIN(condition->poll_us * 3 / 2, (int64_t)POLL_LAST_US);
}

static void on_ports(struct listing *ports)
{
    struct condition *condition = container_of(ports, struct condition, ports);
    bool is_met = has_port(condition);
    bool is_unable = cannot_tell(condition);

    condition->look = LOOK_BETWEEN;
    if (is_unable)
        fail_port(condition);
    else if (is_met)
        finish(condition, true, NULL);
    else if (condition->is_last_look)
        finish(condition, false, has_ended(condition) ? "ended" : "timeout");
    else
        wait_for_next_look(condition);
}

/* False without a connection to init. */
static bool ask_for_ports(struct condition *condition)
{
    struct agent *agent = agent_of(condition);

    if (!agent)
        return false;
    listing_fini(&condition->ports);
    condition->look = condition->look == LOOK_NONE ? LOOK_ASKED : LOOK_AGAIN;
    listing_start_ports(&condition->ports, condition->poll.loop, agent, on_ports);
    return true;
}

static void on_poll(struct timer *timer)
{
    struct condition *condition = container_of(timer, struct condition, poll);

    if (!ask_for_ports(condition))
        wait_for_next_look(condition);
}

/* The execution has ended: a server that it left behind is found all the same. */
static void look_at_last(struct condition *condition)
{
    condition->is_last_look = true;
    timer_stop(&condition->poll);
    if (!is_asking(condition) && !ask_for_ports(condition))
        finish(condition, false, "ended");
}

/* --- waiting --------------------------------------------------------------------------------- */

static void on_change(struct execution_watcher *watcher)
{
    struct condition *condition = container_of(watcher, struct condition, watcher);

    if (condition->wish.text)
        (void)check_text(condition);
    else if (has_ended(condition) && !condition->is_last_look)
        look_at_last(condition);
}

/* However short the time is, the ports are looked at once. */
static void on_deadline(struct timer *timer)
{
    struct condition *condition = container_of(timer, struct condition, deadline);

    if (condition->wish.text) {
        if (!check_text(condition))
            finish(condition, false, "timeout");
    } else if (condition->look == LOOK_ASKED && !condition->is_last_look) {
        condition->is_last_look = true;
        timer_arm_in(&condition->deadline, LAST_LOOK_US);
    } else {
        finish(condition, false, has_ended(condition) ? "ended" : "timeout");
    }
}

static void set_search(struct condition *condition, unsigned stream, struct spool *spool)
{
    const char *wanted = condition->wish.stream;

    if (!wanted || str_equal(wanted, stream_names[stream]))
        condition->searches[stream] = (struct condition_search){ spool, condition->wish.offset };
}

static void wait_for(struct condition *condition, struct execution *execution)
{
    condition->execution = execution;
    execution_ref(execution);
    execution_watch(execution, &condition->watcher, on_change);
    set_search(condition, 0, execution_stdout(execution));
    set_search(condition, 1, execution_stderr(execution));
    if (condition->wish.text && check_text(condition))
        return;
    timer_arm_in(&condition->deadline, condition->wish.timeout_ms * 1000);
    if (condition->wish.port && has_ended(condition))
        look_at_last(condition);
    else if (condition->wish.port)
        on_poll(&condition->poll);
}

/* It has ended: its output is what it is. */
static void look_once(struct condition *condition, const struct found_execution *found)
{
    scoped(spool_free) struct spool *output =
        execution_open_output(found->core, found->record, false);
    scoped(spool_free) struct spool *errors =
        execution_open_output(found->core, found->record, true);

    set_search(condition, 0, output);
    set_search(condition, 1, errors);
    if (condition->wish.port)
        finish(condition, false, "ended");
    else
        (void)check_text(condition);
}

void condition_start(struct condition *condition, const struct found_execution *found,
                     const struct condition_wish *wish, condition_fn *done)
{
    struct loop *loop = found->core->loop;

    *condition = (struct condition){
        .done = done,
        .wish = *wish,
        .began_us = loop_now_us(loop),
        .poll_us = POLL_FIRST_US,
    };
    timer_init(&condition->deadline, loop, on_deadline);
    timer_init(&condition->poll, loop, on_poll);
    if (found->live)
        wait_for(condition, found->live);
    else
        look_once(condition, found);
}

void condition_stop(struct condition *condition)
{
    timer_stop(&condition->deadline);
    timer_stop(&condition->poll);
    listing_fini(&condition->ports);
    execution_unwatch(&condition->watcher);
    if (condition->execution)
        execution_unref(condition->execution);
}
