/* SPDX-License-Identifier: Apache-2.0 */
#include "core/session_view.h"

#include "base/str.h"
#include "config/config.h"
#include "core/backend_choice.h"
#include "core/core.h"
#include "core/sandbox/sandbox.h"
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
    return session->identity.id;
}

const char *session_owner(const struct session *session)
{
    return session->identity.owner;
}

const char *session_on_behalf_of(const struct session *session)
{
    return session->identity.on_behalf_of;
}

const char *session_labels_json(const struct session *session)
{
    return session->identity.labels_json;
}

uint64_t session_number(const struct session *session)
{
    return session->identity.number;
}

struct session *session_next(const struct core *core, const struct session *session)
{
    const struct list *next = session ? session->node.next : core->sessions.next;

    return next == &core->sessions ? NULL : container_of(next, struct session, node);
}

/* --- what was requested --------------------------------------------------------------------- */

struct backend *session_next_backend(const struct session *session)
{
    const struct core *core = session->core;
    const struct backend_wishes wishes = {
        .asked = session->setup.backend,
        .flavor = config_flavor_find(core->parts.config, session->flavor.name),
        .template_name = session->setup.template_name,
    };

    return backend_choose(core, &wishes);
}

struct backend *session_backend(const struct session *session)
{
    return session->slot.sandbox ? sandbox_backend(session->slot.sandbox)
                                 : session_next_backend(session);
}

const char *session_template_name(const struct session *session)
{
    return session->setup.template_name;
}

const char *session_asked_backend(const struct session *session)
{
    return session->setup.backend;
}

const char *session_face_json(const struct session *session)
{
    return session->setup.face_json;
}

const char *session_env_json(const struct session *session)
{
    return session->setup.env_json;
}

const struct network_policy *session_network(const struct session *session)
{
    return &session->setup.network;
}

bool session_keeps_files(const struct session *session)
{
    return session->policy.keep_files;
}

uint64_t session_kept_bytes(const struct session *session)
{
    return session->slot.archive.bytes;
}

const char *session_flavor(const struct session *session)
{
    return session->flavor.name;
}

const struct sandbox_limits *session_limits(const struct session *session)
{
    return &session->flavor.limits;
}

enum session_choice session_choice(const struct session *session)
{
    return session->flavor.choice;
}

const char *session_base_flavor(const struct session *session)
{
    return session->flavor.base_name;
}

const struct sandbox_limits *session_base_limits(const struct session *session)
{
    return &session->flavor.base_limits;
}

struct secrets *session_secrets(const struct session *session)
{
    return session->setup.secrets;
}

bool session_has_lost_secrets(const struct session *session)
{
    return session->setup.secrets_lost;
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
    return &session->ending.reason;
}

bool session_is_unrecorded(const struct session *session)
{
    return session->record.state == RECORD_REFUSED;
}

int64_t session_timeout_ms(const struct session *session)
{
    return session->policy.timeout_ms;
}

int64_t session_idle_timeout_ms(const struct session *session)
{
    return session->policy.idle_timeout_ms;
}

int64_t session_max_lifetime_ms(const struct session *session)
{
    return session->policy.max_lifetime_ms;
}

struct stamp session_created(const struct session *session)
{
    return session->clocks.created;
}

struct stamp session_last_activity(const struct session *session)
{
    return session->clocks.last_activity;
}

struct stamp session_expires(const struct session *session)
{
    return session->clocks.expires;
}

int64_t session_retain_until_wall_us(const struct session *session)
{
    return session->clocks.retain_until_wall_us;
}

/* --- its sandbox ---------------------------------------------------------------------------- */

struct sandbox *session_sandbox(const struct session *session)
{
    return session->slot.sandbox;
}

uint64_t session_generation(const struct session *session)
{
    return session->slot.generation;
}

unsigned session_active_holds(const struct session *session)
{
    return session->holds.active;
}

const struct error *session_start_error(const struct session *session)
{
    return session->slot.start_error;
}

const struct end_reason *session_previous_end(const struct session *session)
{
    return &session->slot.previous_end;
}

/* --- notes of the rooms below --------------------------------------------------------------- */

uint32_t session_known_oom_kills(const struct session *session, const char *sandbox_id)
{
    return str_equal(session->run.oom_sandbox_id, sandbox_id) ? session->run.oom_kills : 0;
}

void session_note_oom_kills(struct session *session, const char *sandbox_id, uint32_t kills)
{
    memcpy(session->run.oom_sandbox_id, sandbox_id, sizeof(session->run.oom_sandbox_id));
    session->run.oom_kills = kills;
}

struct approval *session_approval(const struct session *session)
{
    return session->money.approval;
}

void session_set_approval(struct session *session, struct approval *approval)
{
    session->money.approval = approval;
}

int64_t session_spent(const struct session *session)
{
    return session->money.spent;
}

void session_set_spent(struct session *session, int64_t spent)
{
    session->money.spent = spent;
}

/* --- reports of a reset --------------------------------------------------------------------- */

bool session_reset_is_pending(const struct session *session)
{
    return session->reset.state == RESET_PENDING;
}

const struct session_reset *session_reported_reset(const struct session *session)
{
    return &session->reset.reported;
}

void session_acknowledge_reset(struct session *session)
{
    if (session->reset.state != RESET_PENDING)
        return;
    session->reset.state = RESET_REPORTED;
    session_changed(session);
}

void session_report_reset(struct session *session, const char *execution_id)
{
    session->reset.reported.reason = session->slot.previous_end;
    memcpy(session->reset.reported.execution_id, execution_id,
           sizeof(session->reset.reported.execution_id));
    session->reset.state = RESET_REPORTED;
    session_changed(session);
}

/* --- what run/ keeps with it ----------------------------------------------------------------- */

struct list *session_executions(const struct session *session)
{
    return (struct list *)&session->run.executions;
}

struct list *session_contexts(const struct session *session)
{
    return (struct list *)&session->run.contexts;
}

/* Time moves on: a later daemon that has lost the record does not repeat a number either. */
uint64_t session_new_execution_number(struct session *session)
{
    int64_t now_us = clock_wall_us(loop_clock(session->core->loop));

    session->run.last_number = MAX(session->run.last_number + 1, now_us > 0 ? (uint64_t)now_us : 1);
    return session->run.last_number;
}

void session_restore_execution_number(struct session *session, uint64_t number)
{
    session->run.last_number = MAX(session->run.last_number, number);
}

void session_count_execution(struct session *session)
{
    session->run.started++;
}

struct file_snapshot *session_exchange_files(struct session *session, struct file_snapshot *files)
{
    struct file_snapshot *before = session->run.files_before;

    session->run.files_before = files;
    return before;
}

int64_t session_files_used_us(const struct session *session)
{
    return session->run.files_used_us;
}

void session_note_files_known(struct session *session)
{
    session->run.files_used_us = 0;
}
