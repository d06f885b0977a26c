/* SPDX-License-Identifier: Apache-2.0 */
/* The session's answers to the reports of its sandbox, its budget and its approvals, and what it
 * answers to their questions: the tables that the assembly of the core gives to the rooms below. */

#include "core/session/session_observer.h"

#include "base/str.h"
#include "core/money/budget.h"
#include "core/money/flavor.h"
#include "core/session/clocks.h"
#include "core/session/flavor_change.h"
#include "core/session/session_private.h"

struct sandbox_order session_order(struct session *session)
{
    return (struct sandbox_order){
        .session = session,
        .session_id = session->identity.id,
        .owner = session->identity.owner,
        .flavor = session->flavor.name,
        .source = { SOURCE_TEMPLATE, session->setup.template_name },
        .backend = session_next_backend(session),
        .limits = session->flavor.limits,
        .network = session->setup.network,
        .gpus = flavor_gpus(session),
        .mounts_json = session->setup.mounts_json,
        .generation = session->slot.generation + 1,
        .preloaded = session_demands_preload(session),
    };
}

/* The session had it only if it became ready: then it was of the session's generation. */
static void on_gone(struct session *session, const struct sandbox *sandbox)
{
    session->slot.sandbox = NULL;
    if (sandbox_generation(sandbox) == session->slot.generation)
        session_note_previous_end(session, sandbox_end(sandbox));
    session_on_sandbox_gone(session);
}

static void on_archived(struct session *session, uint64_t bytes, uint64_t generation)
{
    session->slot.archive = (struct session_archive){
        .bytes = bytes,
        .wall_us = clock_wall_us(loop_clock(session->core->loop)),
        .generation = generation,
    };
    session_changed(session);
}

static enum sandbox_wish wish(const struct session *session)
{
    switch (session->state) {
    case SESSION_OPEN:
        return WISH_RUN;
    case SESSION_PAUSED:
        return WISH_FREEZE;
    case SESSION_ENDING:
    case SESSION_ENDED:
    case SESSION_STATES:
        break;
    }
    return WISH_END;
}

static bool keeps_files(const struct session *session)
{
    return session->policy.keep_files;
}

static bool has_archive(const struct session *session)
{
    return session->slot.archive.bytes > 0;
}

static int64_t ends_in_ms(const struct session *session)
{
    int64_t left_ms;

    return session_next_end(session, &left_ms) == END_NONE ? -1 : left_ms;
}

const struct sandbox_observer session_observer = {
    .on_made = budget_run,
    .on_agent = session_on_sandbox_agent,
    .on_ready = session_on_sandbox_ready,
    .on_failed = session_on_sandbox_failed,
    .on_known = session_on_sandbox_known,
    .on_frozen = session_on_frozen,
    .on_leaving = session_on_sandbox_leaving,
    .on_left = budget_settle,
    .on_stuck = session_on_sandbox_stuck,
    .on_gone = on_gone,
    .on_archived = on_archived,
    .on_event = session_emit,
    .on_changed = session_changed,
    .wish = wish,
    .keeps_files = keeps_files,
    .has_archive = has_archive,
    .forgives_death = session_forgives_death,
    .known_oom_kills = session_known_oom_kills,
    .ends_in_ms = ends_in_ms,
};

/* --- for core/money ---------------------------------------------------------------------------- */

static void on_exhausted(struct session *session)
{
    session_teardown(session, END_BUDGET);
}

static enum metered_sandbox metered_sandbox(const struct session *session, const char *id)
{
    const struct sandbox *sandbox = session_sandbox(session);

    if (!sandbox || !str_equal(sandbox_id(sandbox), id) || !sandbox_is_up(sandbox))
        return METERED_GONE;
    return sandbox_state(sandbox) == SANDBOX_UNKNOWN ? METERED_UNKNOWN : METERED_UP;
}

const struct money_observer session_money = {
    .on_asked = clocks_arm,
    .on_decided = session_note_activity,
    .on_approved = flavor_change_apply,
    .on_exhausted = on_exhausted,
    .metered_sandbox = metered_sandbox,
};
