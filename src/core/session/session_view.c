#include "core/session_view.h"

#include "base/str.h"
#include "core/session/clocks.h"
#include "core/session/session_private.h"

#include <assert.h>
#include <string.h>

/* --- tables -------------------------------------------------------------------------------- */

#define TO(state) (1U << SESSION_##state)

static const struct {
    const char *name;
    unsigned successors;
} states[SESSION_STATES] = {
    [SESSION_OPEN] = { "open", TO(PAUSED) | TO(ENDING) },
    [SESSION_PAUSED] = { "paused", TO(OPEN) | TO(ENDING) },
    [SESSION_ENDING] = { "ending", TO(ENDED) },
    [SESSION_ENDED] = { "ended", 0 },
};

static const char *const choices[CHOICE_KINDS] = {
    [CHOICE_AUTOMATIC] = "automatic", [CHOICE_FREE] = "free",       [CHOICE_CAPPED] = "capped",
    [CHOICE_ONCE] = "once",           [CHOICE_SESSION] = "session",
};

const char *session_choice_name(enum session_choice choice)
{
    return choices[choice];
}

const char *session_state_name(enum session_state state)
{
    return states[state].name;
}

bool session_may_become(enum session_state from, enum session_state to)
{
    return states[from].successors & (1U << to);
}

/* --- identity ------------------------------------------------------------------------------- */

struct core *session_core(const struct session *session)
{
    return session->core;
}

const char *session_id(const struct session *session)
{
    return session->id;
}

const char *session_owner(const struct session *session)
{
    return session->owner;
}

const char *session_on_behalf_of(const struct session *session)
{
    return session->on_behalf_of;
}

const char *session_labels_json(const struct session *session)
{
    return session->labels_json;
}

uint64_t session_number(const struct session *session)
{
    return session->number;
}

struct session *session_next(const struct core *core, const struct session *session)
{
    const struct list *next = session ? session->node.next : core->sessions.next;

    return next == &core->sessions ? NULL : container_of(next, struct session, node);
}

/* --- what was requested --------------------------------------------------------------------- */

const char *session_template_name(const struct session *session)
{
    return session->template_name;
}

const char *session_env_json(const struct session *session)
{
    return session->env_json;
}

enum network_mode session_network(const struct session *session)
{
    return session->network;
}

bool session_keeps_files(const struct session *session)
{
    return session->keep_files;
}

const char *session_flavor(const struct session *session)
{
    return session->flavor;
}

const struct sandbox_limits *session_limits(const struct session *session)
{
    return &session->limits;
}

enum session_choice session_choice(const struct session *session)
{
    return session->choice;
}

const char *session_base_flavor(const struct session *session)
{
    return session->base_flavor;
}

const struct sandbox_limits *session_base_limits(const struct session *session)
{
    return &session->base_limits;
}

struct secrets *session_secrets(const struct session *session)
{
    return session->secrets;
}

bool session_has_lost_secrets(const struct session *session)
{
    return session->secrets_lost;
}

/* --- its life ------------------------------------------------------------------------------- */

enum session_state session_state(const struct session *session)
{
    return session->state;
}

bool session_is_alive(const struct session *session)
{
    return session->state == SESSION_OPEN || session->state == SESSION_PAUSED;
}

const struct end_reason *session_end_reason(const struct session *session)
{
    return &session->end;
}

bool session_is_unrecorded(const struct session *session)
{
    return session->unborn;
}

int64_t session_timeout_ms(const struct session *session)
{
    return session->timeout_ms;
}

int64_t session_idle_timeout_ms(const struct session *session)
{
    return session->idle_timeout_ms;
}

int64_t session_max_lifetime_ms(const struct session *session)
{
    return session->max_lifetime_ms;
}

struct stamp session_created(const struct session *session)
{
    return session->created;
}

struct stamp session_last_activity(const struct session *session)
{
    return session->last_activity;
}

struct stamp session_expires(const struct session *session)
{
    return session->expires;
}

int64_t session_retain_until_wall_us(const struct session *session)
{
    return session->retain_until_wall_us;
}

/* --- its sandbox ---------------------------------------------------------------------------- */

struct sandbox *session_sandbox(const struct session *session)
{
    return session->sandbox;
}

uint64_t session_generation(const struct session *session)
{
    return session->generation;
}

unsigned session_active_holds(const struct session *session)
{
    return session->active_holds;
}

const struct error *session_start_error(const struct session *session)
{
    return session->start_error;
}

const struct end_reason *session_previous_end(const struct session *session)
{
    return &session->previous_end;
}

/* --- notes of the rooms below --------------------------------------------------------------- */

uint32_t session_known_oom_kills(const struct session *session, const char *sandbox_id)
{
    return str_equal(session->oom_sandbox_id, sandbox_id) ? session->oom_kills : 0;
}

void session_note_oom_kills(struct session *session, const char *sandbox_id, uint32_t kills)
{
    memcpy(session->oom_sandbox_id, sandbox_id, sizeof(session->oom_sandbox_id));
    session->oom_kills = kills;
}

struct approval *session_approval(const struct session *session)
{
    return session->approval;
}

void session_set_approval(struct session *session, struct approval *approval)
{
    session->approval = approval;
}

int64_t session_spent(const struct session *session)
{
    return session->spent;
}

void session_set_spent(struct session *session, int64_t spent)
{
    session->spent = spent;
}

/* --- reports of a reset --------------------------------------------------------------------- */

bool session_reset_is_pending(const struct session *session)
{
    return session->reset_pending;
}

const struct session_reset *session_reported_reset(const struct session *session)
{
    return &session->reset_told;
}

void session_acknowledge_reset(struct session *session)
{
    if (!session->reset_pending)
        return;
    session->reset_pending = false;
    session_changed(session);
}

void session_report_reset(struct session *session, const char *execution_id)
{
    session->reset_told.reason = session->previous_end;
    memcpy(session->reset_told.execution_id, execution_id,
           sizeof(session->reset_told.execution_id));
    session->reset_pending = false;
    session_changed(session);
}

/* --- what run/ keeps with it ----------------------------------------------------------------- */

struct list *session_executions(const struct session *session)
{
    return (struct list *)&session->executions;
}

struct list *session_contexts(const struct session *session)
{
    return (struct list *)&session->contexts;
}

/* Time moves on: a later daemon that has lost the record does not repeat a number either. */
uint64_t session_new_execution_number(struct session *session)
{
    int64_t now_us = clock_wall_us(loop_clock(session->core->loop));

    session->next_execution_number =
        MAX(session->next_execution_number + 1, now_us > 0 ? (uint64_t)now_us : 1);
    return session->next_execution_number;
}

void session_restore_execution_number(struct session *session, uint64_t number)
{
    session->next_execution_number = MAX(session->next_execution_number, number);
}

void session_count_execution(struct session *session)
{
    session->executions_started++;
}

struct file_snapshot *session_exchange_files(struct session *session, struct file_snapshot *files)
{
    struct file_snapshot *before = session->files_before;

    session->files_before = files;
    return before;
}
