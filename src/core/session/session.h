/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A session is what a caller owns. The sandbox behind it is an incarnation: it may crash, be
 * evicted or be torn down while the session stays, and then the generation goes up.
 *
 *     open ⇄ paused
 *       └──┬───┘
 *        ending → ended        (ending: its sandbox is being destroyed; ended: confirmed gone)
 *
 * Live sessions are in memory; ended ones only in the store, until retention. An operation
 * that needs the sandbox has a `struct session_hold`: it waits for a ready sandbox (making one if
 * there is none), and while a session is held its idle clock stands still. Reading holds nothing.
 */

#include "backend/backend.h"
#include "base/buffer.h"
#include "base/id.h"
#include "core/core.h"
#include "core/sandbox/report.h"
#include "core/session_view.h"
#include "store/store.h"

struct agent;
struct file_snapshot;
struct json_writer;
struct mask;
struct sandbox;
struct secrets;
struct session;
struct source_question;

/* "none", "open", or "host" where the backend has no wall to the host's network. */
const char *session_network_name(const struct session *session);

enum timeout_action { TIMEOUT_KILL, TIMEOUT_PAUSE };

/* A request of a caller; texts are borrowed during the call. Unset numbers are -1 (durations)
 * or 0 and take the settings' defaults. */
struct session_request {
    const char *owner;
    const char *on_behalf_of;
    const char *key;             /* NULL without one */
    const char *idempotency_key; /* NULL without one */
    const char *labels_json;     /* object of texts, or NULL */
    const char *env_json;        /* object of texts, or NULL */
    const char *secrets_json;    /* as env_json; the values are never shown */
    const char *mounts_json;     /* text of mounts_normalize(), or NULL */
    const char *face_json;       /* object of the face's own, kept with the session; or NULL */
    const char *template_name;
    const char *flavor;
    const char *backend;
    struct sandbox_limits limits;
    int network; /* enum network_mode, -1 for the default */
    int64_t timeout_ms, idle_timeout_ms, max_lifetime_ms;
    int on_timeout;   /* enum timeout_action, -1 for the default (kill) */
    int preload;      /* -1 default */
    int keep_files;   /* -1 default */
    int auto_restart; /* -1 default */
    int auto_resume;  /* -1 default (on) */
    bool is_one_shot; /* for one execution, whose caller does not get to know it */
};

/* Everything unset. */
#define SESSION_REQUEST_INIT                          \
    ((struct session_request){ .network = -1,         \
                               .timeout_ms = -1,      \
                               .idle_timeout_ms = -1, \
                               .max_lifetime_ms = -1, \
                               .on_timeout = -1,      \
                               .preload = -1,         \
                               .keep_files = -1,      \
                               .auto_restart = -1,    \
                               .auto_resume = -1 })

/* An asynchronous operation on a session; embedded by the caller, kept until done, which comes once
 * from the loop. */
struct session_op;
typedef void session_done_fn(struct session_op *op);

struct session_op {
    session_done_fn *done;
    struct error err;
    struct session *session;             /* open: the session; NULL after an end */
    const struct session_record *record; /* end: its last record, for the duration of `done` */
    bool created;                        /* open: a new one (201) or the existing one (200) */
    char id[ID_SIZE];                    /* of the session, also after its end */
    struct list node;
    struct store_ticket ticket;
    struct core *core; /* private, here and below */
    struct deferred deferred;
    enum session_state wanted;        /* pause, resume */
    struct source_question *question; /* open: while others are asked for its source */
    struct open_question *asked;      /* open: while the store is asked what other nodes know */
};

/* ERR_FORBIDDEN "sessions_disabled" where sessions.enabled says no. */
int session_check_enabled(const struct core *core, struct error *err);

/* Opens (owner, key) or makes a new session; done when it is durable. With `preload` its sandbox is
 * started meanwhile. Opening one again is activity: its idle clock begins anew, a longer timeout
 * extends its lease, and what session_patch() can change is changed; what it cannot is refused with
 * ERR_CONFLICT "parameters_differ". A repeated idempotency key gives the same session, or ERR_GONE
 * with its id when that one has ended. */
void session_open(struct core *core, const struct session_request *request, struct session_op *op,
                  session_done_fn *done);

/* By id or "key:KEY", live ones only and only the owner's; NULL otherwise. The error for that
 * case, and ended sessions, are the business of service/find.h. `any_owner` is for admins. */
struct session *session_find(struct core *core, const char *owner, bool any_owner,
                             const char *reference);

/* Ends a session: executions are stopped, the sandbox is destroyed and confirmed gone, the record
 * is written; done then. Callers that come while it is ending wait for the same end and the first
 * reason stays. `op` may be NULL. An end that takes longer than 30 seconds is reported as
 * ERR_TIMEOUT, and goes on. */
void session_end(struct session *session, enum end_kind kind, const char *detail,
                 struct session_op *op, session_done_fn *done);

/* Stops waiting: `done` will not come. The operation itself goes on. */
void session_op_cancel(struct session_op *op);

/* Lease = now + timeout; never shortens unless exact. timeout_ms 0 with exact removes the lease.
 * The idle clock begins anew. */
int session_keepalive(struct session *session, int64_t timeout_ms, bool exact, struct error *err);

struct session_patch {
    const char *labels_json;  /* NULL: unchanged */
    const char *secrets_json; /* NULL: unchanged; they are replaced for programs that start later */
    int64_t timeout_ms;       /* -1: unchanged, here and below */
    int64_t idle_timeout_ms;
    int64_t max_lifetime_ms;
    int auto_restart, auto_resume, keep_files;
    int on_timeout;
};

/* Everything unchanged. */
#define SESSION_PATCH_INIT                          \
    ((struct session_patch){ .timeout_ms = -1,      \
                             .idle_timeout_ms = -1, \
                             .max_lifetime_ms = -1, \
                             .auto_restart = -1,    \
                             .auto_resume = -1,     \
                             .keep_files = -1,      \
                             .on_timeout = -1 })

int session_patch(struct session *session, const struct session_patch *patch, struct error *err);

/* `op` may be NULL in both. Done when the sandbox is really frozen or thawed; ERR_CONFLICT for
 * an operation that the opposite one has overtaken; ERR_TIMEOUT after 10 seconds: it goes on. */
void session_pause(struct session *session, struct session_op *op, session_done_fn *done);
void session_resume(struct session *session, struct session_op *op, session_done_fn *done);

/* The sandbox goes (tracked until confirmed), the session stays; the next hold makes a new one.
 * Idempotent. */
void session_teardown(struct session *session, enum end_kind why);

/* The same after a grace, unless the session is held or asked for meanwhile; of two calls the
 * first grace counts. It outlives the daemon. */
void session_teardown_soon(struct session *session, int64_t grace_ms);
void session_teardown_cancel(struct session *session);

/* A sandbox of another flavor, or with other limits, takes the place of the one there is; started
 * in the background. Whether that may be is the business of flavor_change.h. */
void session_replace(struct session *session, enum session_choice choice, const char *flavor,
                     const struct sandbox_limits *limits);

/* The idle clock begins anew. */
void session_note_activity(struct session *session);

/* ERR_GONE "session_ended" with the reason, for a session that is ending or ended. */
int session_gone_error(const struct session *session, struct error *err);

/* Starts the sandbox in the background if there is none. */
void session_preload(struct session *session);

/* It has a sandbox, or will have one without being asked again. */
bool session_expects_sandbox(const struct session *session);

/* A new sandbox may be started although the last one has crashed and auto_restart is off. */
void session_forgive_crash(struct session *session);

/* The number of a new teardown token; earlier ones are void. */
uint64_t session_new_teardown_number(struct session *session);

/* A teardown token is good for the sandbox that it was used for first, as often as it comes, and
 * never for one that was made after it. */
bool session_spend_teardown(struct session *session, uint64_t number);

/* --- holds --------------------------------------------------------------------------------- */

/* The idle clock runs, and the sandbox may be evicted, while there are only weak holds. */
enum hold_strength { HOLD_STRONG, HOLD_WEAK };

struct session_hold;
typedef void session_hold_fn(struct session_hold *hold);

struct session_hold {
    session_hold_fn
        *on_ready; /* err is ERR_NONE and sandbox, agent are set; or it failed: the hold is over */
    session_hold_fn
        *on_lost; /* after on_ready: the sandbox went away; `lost` says why; the hold is over */
    struct error err;
    struct end_reason lost;
    struct session *session;
    struct sandbox *sandbox; /* valid between on_ready and the end of the hold */
    struct agent *agent;     /* its init; NULL while the connection to it is being made again */
    struct list node;
    uint64_t generation; /* the one asked for, then the one it has */
    int64_t waits_since_us;
    bool granted;
    bool is_weak;
    bool waited; /* it had to wait: it counts as activity even if it is refused in the end */
};

/* `generation` 0: any; otherwise ERR_CONFLICT ("generation_moved") unless the sandbox has that one.
 * on_ready is never called inside. A paused session is resumed unless auto_resume is off. */
void session_hold_begin(struct session_hold *hold, struct session *session, uint64_t generation,
                        session_hold_fn *on_ready, session_hold_fn *on_lost);

/* For execution_restore(): the hold of a running execution that an earlier daemon began. It counts
 * from now on; sandbox and agent are set when its sandbox has been adopted, before
 * executions_on_process(); on_lost comes when the sandbox turns out to be dead. */
void session_hold_restore(struct session_hold *hold, struct session *session,
                          enum hold_strength strength, session_hold_fn *on_lost);

/* A granted hold becomes weak: the idle clock goes on and the sandbox may be evicted, but its loss
 * is reported as before. */
void session_hold_weaken(struct session_hold *hold);

/* After on_ready, or in on_lost: nothing was done with the sandbox. The hold waits for the next
 * one, or for this one to answer again, and on_ready is called again. */
void session_hold_retry(struct session_hold *hold, uint64_t generation);

/* Gives up waiting, or ends the hold: the idle clock starts again when it was the last. Safe on an
 * ended hold. */
void session_hold_end(struct session_hold *hold);

/* --- clocks, for showing ------------------------------------------------------------------- */

/* -1 where the clock is off. idle is the full timeout while something runs. */
int64_t session_lease_remaining_ms(const struct session *session);
int64_t session_idle_remaining_ms(const struct session *session);
int64_t session_lifetime_remaining_ms(const struct session *session);

/* Which clock ends it and when: END_NONE and -1 if none is running. */
enum end_kind session_next_end(const struct session *session, int64_t *out_remaining_ms);

/* The JSON object of API.md: fields, sandbox, clocks, usage. */
void session_write_fields(const struct session *session, struct json_writer *json);
void session_write_json(const struct session *session, struct json_writer *json, const char *key);

/* Has the walls of its sandbox read back, once: the document shows them from then on. It takes as
 * long as handing out a sandbox does, so it is for requests for this session alone. As
 * sandbox_read_report(); true without a sandbox. */
bool session_read_report(const struct session *session, struct report_wait *wait,
                         report_done_fn *done);

/* The same shape for an ended session, from its record. */
void session_record_write_json(const struct session_record *record, struct json_writer *json,
                               const char *key);

/* The values of secrets that are for one execution alone: from now on they are masked. */
int session_learn_secrets(struct session *session, const char *json, struct error *err);

/* The values of its secrets, to be taken out of what is shown to others than the programs in it;
 * NULL without any. Borrowed for this turn of the loop: keep it with mask_ref(). */
struct mask *session_mask(const struct session *session);

/* --- reports of a reset --------------------------------------------------------------------- */

/* Its sandbox is another one than before and has none of its files: the next execution, or the next
 * call of a tool, has to report that. */
bool session_reset_is_pending(const struct session *session);

/* That was reported by other means than an execution. */
void session_acknowledge_reset(struct session *session);

/* The execution reports it, and its record has to, too. */
void session_report_reset(struct session *session, const char *execution_id);

struct session_reset {
    char execution_id[ID_SIZE]; /* "": to none yet */
    struct end_reason reason;
};

/* The last report. */
const struct session_reset *session_reported_reset(const struct session *session);

/* --- for run/, which keeps these ------------------------------------------------------------- */

struct list *session_executions(const struct session *session); /* in memory, oldest first */
struct list *session_contexts(const struct session *session);

/* The number of a new execution: higher than all before, also than those of earlier daemons. */
uint64_t session_new_execution_number(struct session *session);
void session_restore_execution_number(struct session *session, uint64_t number);
void session_count_execution(struct session *session); /* one was started */

/* Takes the snapshot of its files after the last run of code, and leaves this one. */
struct file_snapshot *session_exchange_files(struct session *session, struct file_snapshot *files);

/* When a hold of its sandbox ended last, by the wall clock: files may have changed until then. 0: not
 * since that snapshot, as session_note_files_known() has said. */
int64_t session_files_used_us(const struct session *session);
void session_note_files_known(struct session *session);
