/* What a session does with the reports of its sandbox, and what it answers to its questions: the
 * table that the assembly of the core gives to core/sandbox. */

#include "core/session/session_observer.h"

#include "core/money/budget.h"
#include "core/money/flavor.h"
#include "core/session/session_private.h"

struct sandbox_order session_order(struct session *session)
{
    return (struct sandbox_order){
        .session = session,
        .session_id = session->id,
        .owner = session->owner,
        .flavor = session->flavor,
        .template_name = session->template_name,
        .limits = session->limits,
        .network = session->network,
        .gpus = flavor_gpus(session),
        .generation = session->generation + 1,
        .preloaded = session->preloads,
    };
}

/* The session had it only if it became ready: then it was of the session's generation. */
static void on_gone(struct session *session, const struct sandbox *sandbox)
{
    session->sandbox = NULL;
    if (sandbox_generation(sandbox) == session->generation)
        session_note_previous_end(session, sandbox_end(sandbox));
    session_on_sandbox_gone(session);
}

static void on_archived(struct session *session, uint64_t bytes, uint64_t generation)
{
    session->kept = (struct session_archive){
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
    return session->keep_files;
}

static bool has_archive(const struct session *session)
{
    return session->kept.bytes > 0;
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
