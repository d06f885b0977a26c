/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A session as other rooms see it: facts to read, and notes that the rooms below session/ leave
 * with it. struct session is opaque; session/session.h has what can be done with one.
 *
 * This header stands in the root of the core, below all rooms, so that money/ can know whose budget
 * it manages without knowing session/. Texts and pointers are borrowed and stay
 * valid until the session changes.
 */

#include "backend/backend.h"
#include "core/end_reason.h"
#include "store/store.h"

#include <stdbool.h>
#include <stdint.h>

struct approval;
struct core;
struct list;
struct sandbox;
struct secrets;
struct session;

enum session_state { SESSION_OPEN, SESSION_PAUSED, SESSION_ENDING, SESSION_ENDED, SESSION_STATES };

const char *session_state_name(enum session_state state);
bool session_may_become(enum session_state from, enum session_state to);

/* How the flavor of a session's sandbox was chosen. */
enum session_choice {
    CHOICE_AUTOMATIC, /* not at all: it is the flavor that the session began with */
    CHOICE_FREE,      /* requested; it needs no approval */
    CHOICE_CAPPED,    /* as long as it fits under the caps */
    CHOICE_ONCE,      /* approved, for one sandbox */
    CHOICE_SESSION,   /* approved, for all sandboxes of this session */
    CHOICE_KINDS
};

const char *session_choice_name(enum session_choice choice);

/* --- identity ------------------------------------------------------------------------------- */

struct core *session_core(const struct session *session);
const char *session_id(const struct session *session); /* ID_SIZE bytes */
const char *session_owner(const struct session *session);
const char *session_on_behalf_of(const struct session *session);
const char *session_labels_json(const struct session *session); /* NULL without labels */
uint64_t
session_number(const struct session *session); /* order of creation, independent of clocks */

/* The session that was created next; the first one for NULL. */
struct session *session_next(const struct core *core, const struct session *session);

#define session_for_each(session, core)                             \
    for ((session) = session_next((core), NULL); (session) != NULL; \
         (session) = session_next((core), (session)))

/* The body may end `session`, which frees it later, but no other. */
#define session_for_each_safe(session, following, core)                   \
    for ((session) = session_next((core), NULL),                          \
        (following) = (session) ? session_next((core), (session)) : NULL; \
         (session) != NULL; (session) = (following),                      \
        (following) = (session) ? session_next((core), (session)) : NULL)

/* --- what was requested --------------------------------------------------------------------- */

const char *session_template_name(const struct session *session);
const char *session_asked_backend(const struct session *session); /* NULL when none was named */
const char *session_env_json(const struct session *session);      /* NULL without variables */
const char *session_face_json(const struct session *session);     /* NULL: no face left anything */
const struct network_policy *session_network(const struct session *session);
bool session_keeps_files(const struct session *session);
uint64_t session_kept_bytes(const struct session *session); /* of its archive; 0 without one */

const char *session_flavor(const struct session *session);
const struct sandbox_limits *session_limits(const struct session *session);
enum session_choice session_choice(const struct session *session);

/* The flavor and the limits that it has again when a choice ends. */
const char *session_base_flavor(const struct session *session);
const struct sandbox_limits *session_base_limits(const struct session *session);

struct secrets *session_secrets(const struct session *session); /* NULL without secrets */

/* It had secrets, and the key that they were sealed with is gone. */
bool session_has_lost_secrets(const struct session *session);

/* --- its life ------------------------------------------------------------------------------- */

enum session_state session_state(const struct session *session);
bool session_is_alive(const struct session *session); /* open or paused */
const struct end_reason *session_end_reason(const struct session *session);

/* Its creation could not be recorded: it leaves no record. */
bool session_is_unrecorded(const struct session *session);

int64_t session_timeout_ms(const struct session *session);
int64_t session_idle_timeout_ms(const struct session *session);
int64_t session_max_lifetime_ms(const struct session *session);
struct stamp session_created(const struct session *session);
struct stamp session_last_activity(const struct session *session);
struct stamp session_expires(const struct session *session);
int64_t session_retain_until_wall_us(const struct session *session);

/* --- its sandbox ---------------------------------------------------------------------------- */

/* The backend of its sandbox, or of the next one while the slot is empty. */
struct backend *session_backend(const struct session *session);
struct sandbox *session_sandbox(const struct session *session); /* NULL when the slot is empty */
uint64_t session_generation(const struct session *session); /* of that or the last; 0 before one */
unsigned session_active_holds(const struct session *session); /* the idle clock stands still */

/* Why the last sandbox could not be made; NULL if it could. */
const struct error *session_start_error(const struct session *session);

/* How the sandbox before this one ended; END_NONE without one. */
const struct end_reason *session_previous_end(const struct session *session);

/* --- notes of the rooms below --------------------------------------------------------------- */

/* run/: OOM kills in this sandbox that executions have been charged with. */
uint32_t session_known_oom_kills(const struct session *session, const char *sandbox_id);
void session_note_oom_kills(struct session *session, const char *sandbox_id, uint32_t kills);

/* money/: the approval that it waits for, or NULL; micro-dollars, once its account is closed. */
struct approval *session_approval(const struct session *session);
void session_set_approval(struct session *session, struct approval *approval);
int64_t session_spent(const struct session *session);
void session_set_spent(struct session *session, int64_t spent);

/* --- its record ----------------------------------------------------------------------------- */

/* The state of the session goes to the store at the end of the turn (no commit): a transaction
 * committed in this turn contains it. */
void session_changed(struct session *session);

/* An event of this session with its next sequence number; `data_json` is an object or NULL. */
void session_emit(struct session *session, const char *type, const char *data_json);
