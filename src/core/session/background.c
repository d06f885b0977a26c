/* SPDX-License-Identifier: Apache-2.0 */
#include "core/session/background.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "config/config.h"
#include "core/sandbox/sandbox.h"
#include "core/sandbox/usage.h"
#include "core/session/clocks.h"
#include "core/session/session_private.h"
#include "core/stamp.h"
#include "wire/json.h"

#include <stdlib.h>
#include <string.h>

/* Less processor time than this, and than this part of the time between two looks, is no work. */
enum { LEAST_CPU_US = 5 * 1000, LEAST_PART = 2000 };

/* Two looks are at least a quarter of the idle timeout apart, or this: a first look that comes late,
 * on a busy host or after a restart, must leave work the time to show. */
enum { MOST_GAP_US = 5 * 1000 * 1000 };

/* After a restart the idle clock waits this long for an init, so that a first look is possible. */
enum { MOST_SILENCE_US = 10 * 1000 * 1000 };

/* A measurement that is under way. */
struct look {
    struct core *core; /* borrowed */
    char session_id[ID_SIZE];
    uint64_t number; /* of the session's looks: a later one has taken its place otherwise */
};

static bool counts_in(const struct session *session, enum sandbox_state state)
{
    const struct core *core = session->core;

    return core->parts.config->session.background_limit_ms && session->policy.idle_timeout_ms &&
           session->slot.sandbox &&
           sandbox_backend(session->slot.sandbox)->ops->capabilities.usage &&
           sandbox_state(session->slot.sandbox) == state && session->state == SESSION_OPEN &&
           !session_is_used(session);
}

static bool can_look(const struct session *session)
{
    return counts_in(session, SANDBOX_READY);
}

int64_t background_look_us(const struct session *session)
{
    if (session->clocks.background.state != BACKGROUND_UNKNOWN || !can_look(session))
        return -1;
    return session->clocks.last_activity.boot_us + session->policy.idle_timeout_ms * 1000 / 2;
}

int64_t background_verdict_us(const struct session *session)
{
    switch (session->clocks.background.state) {
    case BACKGROUND_LOOKING:
    case BACKGROUND_JUDGING:
        return -1;
    case BACKGROUND_SEEN:
        return session->clocks.background.seen_us +
               MIN(session->policy.idle_timeout_ms * 1000 / 4, (int64_t)MOST_GAP_US);
    case BACKGROUND_UNKNOWN:
        return counts_in(session, SANDBOX_UNKNOWN)
                   ? sandbox_unknown_since_us(session->slot.sandbox) + MOST_SILENCE_US
                   : 0;
    case BACKGROUND_IDLE:
        return 0;
    }
    return 0;
}

bool background_works(const struct session *session)
{
    return session->clocks.background.working_since_us;
}

void background_write_json(const struct session *session, struct json_writer *json)
{
    const struct session_background *background = &session->clocks.background;
    const struct sandbox_process *worker = &background->worker;
    int64_t limit_us = session->core->parts.config->session.background_limit_ms * 1000;
    struct stamp since = { .boot_us = background->working_since_us, .wall_us = 1 };
    int64_t since_wall_us = stamp_wall_us(session->core, &since);

    json_put_text(json, "kind", "background");
    json_put_text(json, "process", worker->number ? worker->name : NULL);
    if (worker->number)
        json_put_double(json, "cpu_seconds", (double)worker->cpu_us / 1e6);
    else
        json_put_null(json, "cpu_seconds");
    json_put_time(json, "since", since_wall_us);
    json_put_time(json, "until", since_wall_us + limit_us);
}

void background_reset(struct session *session)
{
    session->clocks.background =
        (struct session_background){ .number = session->clocks.background.number + 1 };
}

static void see(struct session *session, const struct sandbox *sandbox)
{
    struct session_background *background = &session->clocks.background;

    background->state = BACKGROUND_SEEN;
    background->usage = *sandbox_usage(sandbox);
    background->seen_us = loop_now_us(session->core->loop);
    memcpy(background->sandbox_id, sandbox_id(sandbox), sizeof(background->sandbox_id));
}

static bool has_worked(const struct session *session)
{
    const struct session_background *background = &session->clocks.background;
    const struct sandbox_usage *before = &background->usage;
    const struct sandbox_usage *now = sandbox_usage(session->slot.sandbox);
    int64_t elapsed_us = loop_now_us(session->core->loop) - background->seen_us;
    int64_t least_us = MAX((int64_t)LEAST_CPU_US, elapsed_us / LEAST_PART);

    return now->cpu_us >= before->cpu_us + (uint64_t)least_us || now->pids > before->pids ||
           now->disk_bytes > before->disk_bytes;
}

static uint64_t time_before(const struct sandbox_usage *before, uint32_t number)
{
    for (size_t i = 0; i < USAGE_PROCESSES; i++)
        if (before->processes[i].number == number)
            return before->processes[i].cpu_us;
    return 0;
}

/* The process that has used most of the processor since the last look. Times are counted in ticks
 * of the kernel, so one that works little may not be known. */
static struct sandbox_process find_worker(const struct session *session)
{
    struct sandbox_process busiest = { 0 };

    for (size_t i = 0; i < USAGE_PROCESSES; i++) {
        struct sandbox_process process = sandbox_usage(session->slot.sandbox)->processes[i];
        uint64_t before = time_before(&session->clocks.background.usage, process.number);

        process.cpu_us -= MIN(before, process.cpu_us);
        if (process.number && (process.cpu_us > busiest.cpu_us || (!busiest.number && !before)))
            busiest = process;
    }
    return busiest;
}

static bool may_go_on(const struct session *session)
{
    int64_t since_us = session->clocks.background.working_since_us;
    int64_t limit_us = session->core->parts.config->session.background_limit_ms * 1000;

    return !since_us || loop_now_us(session->core->loop) - since_us < limit_us;
}

/* The next look is compared with this one. */
static void keep_alive(struct session *session)
{
    int64_t since_us = session->clocks.background.working_since_us;

    session->clocks.background.worker = find_worker(session);
    session->clocks.background.working_since_us = since_us ? since_us
                                                           : session->clocks.last_activity.boot_us;
    session->clocks.last_activity = stamp_now(session->core);
    see(session, session->slot.sandbox);
    log_debug("background work keeps a session from being idle",
              kv("session", session->identity.id),
              kv("process", session->clocks.background.worker.name));
    session_changed(session);
}

static void on_looked(void *user)
{
    struct look *look = user;
    struct session *session = map_get(&look->core->sessions_by_id, look->session_id);
    struct session_background *background = session ? &session->clocks.background : NULL;

    if (session && background->number == look->number) {
        bool judged = background->state == BACKGROUND_JUDGING;

        background->state = BACKGROUND_IDLE;
        if (can_look(session) && !judged)
            see(session, session->slot.sandbox);
        else if (can_look(session) &&
                 str_equal(background->sandbox_id, sandbox_id(session->slot.sandbox)) &&
                 has_worked(session) && may_go_on(session))
            keep_alive(session);
        else
            background->working_since_us = 0;
        session_update_idle(session);
        clocks_arm(session);
    }
    free(look);
}

static void measure(struct session *session, enum background_state state)
{
    struct usage_round *round = usage_begin(session->core);
    struct look *look = xnew(struct look);

    session->clocks.background.state = state;
    look->core = session->core;
    look->number = ++session->clocks.background.number;
    memcpy(look->session_id, session->identity.id, sizeof(look->session_id));
    usage_add(round, session->slot.sandbox);
    usage_end(round, on_looked, look);
}

void background_look(struct session *session)
{
    measure(session, BACKGROUND_LOOKING);
}

bool background_judge(struct session *session)
{
    if (session->clocks.background.state != BACKGROUND_SEEN || !can_look(session))
        return false;
    measure(session, BACKGROUND_JUDGING);
    return true;
}
