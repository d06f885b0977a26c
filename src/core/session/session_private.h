#pragma once

/* What the files of sessions, sandboxes and clocks share among themselves. */

#include "core/session/session.h"

/* --- session.c: memory, state, end ---------------------------------------------------------- */

struct session *session_new(struct core *core); /* blank; in no map yet */
void session_link(struct session *session);     /* into the maps, under its id and key */
void session_free(struct session *session);     /* now, without touching its sandbox */
void session_set_state(struct session *session, enum session_state state);

/* Goes on with an end that was recorded: as session_end() without changing the reason. */
void session_end_resume(struct session *session);
void session_finish_end(struct session *session); /* when nothing stands in its way */
void session_op_join(struct session_op *op, struct session *session, struct list *waiters,
                     session_done_fn *done);
void session_op_finish(struct session_op *op, struct session *session, const struct error *err);
void session_ops_finish(struct list *ops, struct session *session, const struct error *err);

/* Calls op->done from the loop. */
void session_op_defer(struct session_op *op, struct core *core, session_done_fn *done);

/* The error that everybody gets who comes too late. */
int session_gone_error(const struct session *session, struct error *err);

/* --- session_spec.c: what was asked for, as JSON -------------------------------------------- */

char *session_spec_text(const struct session *session); /* the caller frees it */
struct session *session_restore(struct core *core, const struct session_record *record);

/* --- session_hold.c -------------------------------------------------------------------------- */

bool session_is_used(const struct session *session); /* granted or waiting uses */
void session_serve_soon(struct session *session);    /* decides about waiting uses again */
void session_fail_waiting(struct session *session, const struct error *err);

/* Somebody asks for it without using it yet: the idle clock begins anew. */
void session_touch(struct session *session);

/* Whether its sandbox may be evicted follows from the rest. */
void session_update_idle(struct session *session);

/* It has another incarnation: the next execution is told, if it is not the first. */
void session_set_generation(struct session *session, uint64_t generation);

void session_on_overdue(struct timer *timer);

/* Makes sure that a sandbox is on its way. */
void session_want_sandbox(struct session *session);

/* --- told by the sandbox -------------------------------------------------------------------- */

void session_on_sandbox_ready(struct session *session);
void session_on_sandbox_failed(struct session *session, const struct error *err);

/* A member of the pool died while it became the session's: whether those who wait get another one.
 */
bool session_forgives_death(struct session *session);
void session_on_sandbox_agent(struct session *session); /* its agent is another, or gone */
void session_on_sandbox_leaving(struct session *session, const struct end_reason *reason);
void session_on_sandbox_gone(struct session *session);

/* Before that, of one that had become ready. */
void session_note_previous_end(struct session *session, const struct end_reason *end);

/* After it was unknown: it can be used, or it is frozen, or to be frozen. */
void session_on_sandbox_known(struct session *session);

/* It could not be destroyed this time. */
void session_on_sandbox_stuck(struct session *session, const struct error *err);
void session_on_frozen(struct session *session, const struct error *err); /* or thawed */

/* --- session_control.c ---------------------------------------------------------------------- */

/* After a restart: goes on with a teardown or replacement that had begun. */
void session_teardown_resume(struct session *session);
void session_on_teardown_due(struct timer *timer);
/* The next sandbox is again what the session began with. */
void session_revert_choice(struct session *session);

void session_on_control_overdue(struct timer *timer);

/* The sandbox went away, or is known: who waits for pause or resume may wait no longer. */
void session_control_settle(struct session *session);
