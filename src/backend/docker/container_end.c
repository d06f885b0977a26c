/* SPDX-License-Identifier: Apache-2.0 */
/* How a container ends: a sign makes it suspect, the engine is asked, and the cause is waited for. */

#include "backend/docker/docker_private.h"

#include "base/backoff.h"
#include "base/macros.h"
#include "base/str.h"
#include "bridge/bridge.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>

/* Looks at a dead container before its cause is given up: for an engine that does not answer, and
 * fewer for one that has left. */
enum {
    LOOKS_FOR_CAUSE = 6,
    LOOKS_FOR_LATE_CAUSE = 3,
    LOOKS_AT_NOBODY = 1,
    LOOK_MS = 5000,
    CHANGE_US = 100 * 1000
};

static const struct backoff look_backoff_us = { .first = 100 * 1000, .most = 5 * 1000 * 1000 };

/*
 * The same kill is a part of several acts of an engine. Docker 20.10, with SIGKILL as the signal
 * that stops a container, reports different events after it, up to 0.2 s later, and 1.2 s on a busy
 * machine:
 *
 *     docker kill         kill, die
 *     docker rm -f        kill, die, destroy; in between the container is "removing"
 *     docker stop         kill, die, stop
 *     docker restart      kill, die, stop, start, restart
 *     the engine stops    kill, die, stop, the end of the stream; before the first of them it has stopped
 *                         to listen, and serves only the connections that it has
 *
 * The patience is the time after the last of them in which another event may follow.
 */
static const int64_t patience_us[] = {
    [CAUSE_NONE] = 200 * 1000, /* of a SIGKILL: the kernel is quicker than the event */
    [CAUSE_ALONE] = 0,
    [CAUSE_KILLED] = 1000 * 1000,
    [CAUSE_STOPPED] = 3 * 1000 * 1000,
};

static struct loop *loop_of(const struct container *container)
{
    return container->docker->base.loop;
}

/* --- reporting the end --------------------------------------------------------------------- */

/* A dead init will not connect to its door. */
void container_refuse_connect(const char *id, struct backend_op *op)
{
    if (!op)
        return;
    error_set(&op->err, ERR_GONE, "sandbox %s has ended", id);
    op->done(op);
}

static void on_late(struct deferred *deferred)
{
    struct container *container = container_of(deferred, struct container, late);
    struct backend_watch *watch = steal_ptr(&container->watch);

    if (watch)
        backend_watch_end(watch, &container->end);
    container_refuse_connect(container->id, steal_ptr(&container->connecting));
}

void container_tell_end(struct container *container)
{
    loop_defer(loop_of(container), &container->late, on_late);
}

static void end(struct container *container, const struct backend_end *how)
{
    container->phase = CONTAINER_ENDED;
    container->end = *how;
    timer_stop(&container->again);
    container_tell_end(container);
}

static void end_as(struct container *container, const char *detail)
{
    const struct process_exit *exit = &container->process.exit;
    bool is_known = process_has_exited(&container->process) && exit->known;
    struct backend_end how = { .is_known = is_known, .code = exit->code, .signal = exit->signal };

    snprintf(how.detail, sizeof(how.detail), "%s", detail);
    end(container, &how);
}

/* --- asking the engine -------------------------------------------------------------------------- */

bool container_is_dead(const struct container *container)
{
    if (container->phase >= CONTAINER_DEAD || process_has_exited(&container->process))
        return true;
    return process_is_watched(&container->process) && process_is_dead(&container->process);
}

/* The engine does not answer: that says nothing about the container. Where the kernel or the engine
 * has said that it is dead, only the cause is not known. */
static void look_failed(struct container *container, const struct error *err)
{
    bool has_left = err->sys_errno == ECONNREFUSED || err->sys_errno == ENOENT;

    container->looks++;
    if (container_is_dead(container) &&
        container->looks > (has_left ? LOOKS_AT_NOBODY : LOOKS_FOR_CAUSE))
        end_as(container, "engine stopped");
    else
        timer_arm_in(&container->again, backoff_delay(&look_backoff_us, container->looks));
}

/* The engine learns of the exit a moment later than our pidfd. */
static void look_found_running(struct container *container, const struct container_state *state)
{
    if (container_is_dead(container)) {
        look_failed(container, &(struct error){ 0 });
        return;
    }
    container->phase = CONTAINER_RUNNING;
    container->looks = 0;
    if (container->motion == MOTION_CHANGING)
        timer_arm_in(&container->again, CHANGE_US);
    container_note_paused(container, state->is_paused);
}

/* An engine removes no container whose process lives: it is another engine that answers. */
static bool lives_on(const struct container *container)
{
    return process_is_watched(&container->process) && !process_is_dead(&container->process);
}

static bool was_killed(const struct container *container)
{
    switch (container->cause) {
    case CAUSE_KILLED:
    case CAUSE_STOPPED:
        return true;
    case CAUSE_NONE:
    case CAUSE_ALONE:
        break;
    }
    return false;
}

static bool is_unexplained(const struct backend_end *how)
{
    return how->signal == SIGKILL && !how->oom && !*how->detail;
}

/* Whether something may follow that says more, within a time that began with the last that came. */
static bool may_say_more(struct container *container, const struct backend_end *how)
{
    int64_t now_us = loop_now_us(loop_of(container));
    int64_t until_us;

    if (how->oom || (!was_killed(container) && !is_unexplained(how)))
        return false;
    if (!container->caused_us)
        container->caused_us = now_us;
    until_us = container->caused_us + patience_us[container->cause];
    if (until_us > now_us)
        timer_arm_at(&container->again, until_us);
    return until_us > now_us;
}

/* Podman's containers stop before they are removed or restarted, and Podman reports a kill later
 * than the end. */
static bool is_cause_late(const struct container *container, const struct container_state *state,
                          const struct backend_end *how)
{
    return container->looks < LOOKS_FOR_LATE_CAUSE &&
           (state->is_settling || (is_unexplained(how) && container->docker->facts.tells_late));
}

/* The cause of a kill without a known act. */
static const char *likely_cause(const struct container *container)
{
    if (container->cause == CAUSE_ALONE)
        return "engine stopped";
    return container->docker->facts.hides_oom ? "signal 9 (perhaps memory)" : "";
}

static void end_as_told(struct container *container, const struct container_state *state)
{
    struct backend_end how = container_state_end(state, was_killed(container));

    container->phase = CONTAINER_DEAD;
    how.oom = how.oom || (container->oom_events && how.signal == SIGKILL && !was_killed(container));
    if (may_say_more(container, &how))
        return;
    if (is_cause_late(container, state, &how)) {
        timer_arm_in(&container->again, backoff_delay(&look_backoff_us, ++container->looks));
        return;
    }
    if (is_unexplained(&how))
        snprintf(how.detail, sizeof(how.detail), "%s", likely_cause(container));
    end(container, &how);
}

static void on_look(struct engine_call *call)
{
    struct container *container = container_of(call, struct container, look);
    struct container_state state;

    if (call->err.code == ERR_NOT_FOUND && !lives_on(container)) {
        end_as(container, "removed");
    } else if (call->err.code != ERR_NONE || !container_state_read(call->body, &state)) {
        look_failed(container, &call->err);
    } else if (state.was_started && !str_equal(state.started_at, container->started_at)) {
        end_as(container, "restarted");
    } else if (state.is_running) {
        look_found_running(container, &state);
    } else if (state.is_removing) {
        end_as(container, "removed");
    } else {
        end_as_told(container, &state);
    }
}

/* An earlier look is cancelled: its answer would be stale. The connection is new, since an engine
 * that is stopping still serves the old ones. */
static void look(struct container *container)
{
    char path[ENGINE_PATH_SIZE];

    engine_cancel(&container->look);
    timer_stop(&container->again);
    snprintf(path, sizeof(path), "/containers/%s/json", container->engine_id);
    engine_connect_anew(container->docker->engine);
    engine_request(container->docker->engine, &container->look, HTTP_GET, path, NULL, NULL, 0,
                   LOOK_MS, on_look);
}

void container_look_again(struct timer *timer)
{
    look(container_of(timer, struct container, again));
}

/* --- signs of an end ---------------------------------------------------------------------------- */

void container_suspect(struct container *container)
{
    if (container->phase != CONTAINER_RUNNING)
        return;
    container->phase = CONTAINER_SUSPECT;
    container->looks = 0;
    look(container);
}

void container_look(struct container *container)
{
    if (container->phase != CONTAINER_MADE && container->phase != CONTAINER_ENDED)
        look(container);
}

/* An event says that the container has ended or is about to. */
static void suspect_now(struct container *container)
{
    if (container->phase == CONTAINER_RUNNING)
        container_suspect(container);
    else
        container_look(container);
}

static void on_die(struct container *container)
{
    container_suspect(container);
    if (container->phase == CONTAINER_SUSPECT)
        container->phase = CONTAINER_DEAD;
}

void container_on_exit(struct process *process)
{
    struct container *container = container_of(process, struct container, process);

    if (container->bridge)
        bridge_set_frozen(container->bridge, true); /* nothing is there to connect to */
    if (container->cause == CAUSE_NONE && !engine_events_are_up(&container->docker->events))
        container->cause = CAUSE_ALONE;
    container_suspect(container);
}

/* Containers that the engine killed before it left are reported as ended with it. */
void container_on_engine_left(struct docker_backend *docker)
{
    struct map_slot *slot;

    map_for_each (slot, &docker->containers) {
        struct container *container = slot->value;

        if (container->phase == CONTAINER_ENDED || !was_killed(container) ||
            !container_is_dead(container))
            continue;
        engine_cancel(&container->look);
        end_as(container, "engine stopped");
    }
}

/* --- events of the engine --------------------------------------------------------------------- */

/* Podman does not name the signal and reports it after sending: if it was deadly, the process is
 * dead. */
static bool was_deadly(const struct container *container, const char *signal)
{
    static const char *const numbers[] = { "2", "3", "9", "15" };

    for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++)
        if (str_equal(signal, numbers[i]))
            return true;
    return str_is_empty(signal) && container_is_dead(container);
}

/* An engine that comes back reports kills from the time without a connection. */
static void on_kill(struct container *container, const char *signal)
{
    if (container->cause == CAUSE_ALONE)
        return;
    container->cause = was_deadly(container, signal) ? CAUSE_KILLED : CAUSE_NONE;
    container->caused_us = 0;
}

static void on_stop(struct container *container)
{
    if (container->cause == CAUSE_ALONE)
        return;
    container->cause = CAUSE_STOPPED;
    container->caused_us = loop_now_us(loop_of(container));
    suspect_now(container);
}

/* The event of its own start may come when it is known to run. */
static void on_start(struct container *container)
{
    if (container->phase != CONTAINER_RUNNING)
        suspect_now(container);
}

/* An event of a pause may be of a change of ours, and older than the next: the engine is asked. */
void container_on_event(struct docker_backend *docker, const json_t *event)
{
    const json_t *actor = json_object_get(event, "Actor");
    const json_t *attributes = json_object_get(actor, "Attributes");
    struct container *container = container_find(docker, json_text_at(attributes, LABEL_SANDBOX));
    const char *action = json_text_at(event, "Action");

    if (!container && str_equal(action, "create"))
        late_consider(docker, json_text_at(actor, "ID"), attributes);
    if (!container || !str_equal(json_text_at(actor, "ID"), container->engine_id))
        return;
    if (str_equal(action, "oom"))
        container->oom_events++;
    else if (str_equal(action, "kill"))
        on_kill(container, json_text_at(attributes, "signal"));
    else if (str_equal(action, "die"))
        on_die(container);
    else if (str_equal(action, "stop"))
        on_stop(container);
    else if (str_equal(action, "start"))
        on_start(container);
    else if (str_equal(action, "pause") || str_equal(action, "unpause"))
        container_look(container);
    else if (str_equal(action, "destroy") || str_equal(action, "remove") ||
             str_equal(action, "restart"))
        suspect_now(container);
}
