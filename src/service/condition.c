#include "service/condition.h"

#include "base/macros.h"
#include "base/str.h"
#include "core/core.h"
#include "core/run/ports.h"
#include "core/sandbox/sandbox.h"

#include <string.h>
#include <unistd.h>

enum {
    POLL_FIRST_US = 10 * 1000, /* of ports */
    POLL_LAST_US = 200 * 1000,
    PIECE_BYTES = 64 * 1024,
};

static const char *const stream_names[STREAM_COUNT] = { "stdout", "stderr" };

/* --- looking --------------------------------------------------------------------------------- */

/* One piece; true when there may be more. What may be the beginning of the text is read again. */
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

static bool has_port(const struct condition *condition)
{
    const struct execution *execution = condition->execution;
    const struct sandbox *sandbox = execution && execution_session(execution)
                                        ? session_sandbox(execution_session(execution))
                                        : NULL;

    return sandbox && str_equal(sandbox_id(sandbox), execution_facts(execution)->sandbox_id) &&
           sandbox_pid(sandbox) > 0 &&
           ports_is_listening(sandbox_pid(sandbox), condition->wish.port);
}

static bool has_ended(const struct condition *condition)
{
    return !condition->execution ||
           execution_state_is_final(execution_facts(condition->execution)->state);
}

static void finish(struct condition *condition, bool is_met, const char *reason)
{
    condition->is_met = is_met;
    condition->reason = reason;
    condition->done(condition);
}

/* True when it is over. */
static bool check(struct condition *condition)
{
    bool is_met = condition->wish.text ? has_text(condition) : has_port(condition);

    if (!is_met && !has_ended(condition))
        return false;
    finish(condition, is_met, is_met ? NULL : "ended");
    return true;
}

/* --- waiting --------------------------------------------------------------------------------- */

static void on_change(struct execution_watcher *watcher)
{
    struct condition *condition = container_of(watcher, struct condition, watcher);

    if (condition->wish.text || has_ended(condition))
        (void)check(condition);
}

static void on_poll(struct timer *timer)
{
    struct condition *condition = container_of(timer, struct condition, poll);

    if (check(condition))
        return;
    condition->poll_us = MIN(condition->poll_us * 3 / 2, (int64_t)POLL_LAST_US);
    timer_arm_in(&condition->poll, condition->poll_us);
}

static void on_deadline(struct timer *timer)
{
    struct condition *condition = container_of(timer, struct condition, deadline);

    if (!check(condition))
        finish(condition, false, "timeout");
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
    if (check(condition))
        return;
    timer_arm_in(&condition->deadline, condition->wish.timeout_ms * 1000);
    if (condition->wish.port)
        timer_arm_in(&condition->poll, condition->poll_us);
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
    (void)check(condition);
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
    execution_unwatch(&condition->watcher);
    if (condition->execution)
        execution_unref(condition->execution);
}
