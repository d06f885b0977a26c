#pragma once

/* What the files of sandboxes share among themselves. */

#include "core/sandbox/sandbox.h"

/* Most sandboxes are at rest, and there are thousands: what is needed to ask the backend or init is
 * only there while they are asked. */
struct sandbox_op {
    struct backend_op base;
    struct sandbox *sandbox; /* borrowed */
};

struct sandbox_request {
    struct agent_request base;
    struct sandbox *sandbox; /* borrowed */
};

/* sandbox.c */

struct backend_op *sandbox_begin_op(struct sandbox *sandbox, backend_done_fn *done);

/* The backend has answered; the operation can be looked at until the end of the turn. */
struct sandbox *sandbox_end_op(struct backend_op *op);

/* At the end of the turn, what is not under way by then is given back. */
void sandbox_rest_soon(struct sandbox *sandbox);

struct sandbox *sandbox_new(struct core *core, struct session *session);
void sandbox_set_state(struct sandbox *sandbox, enum sandbox_state state);
void sandbox_emit(struct sandbox *sandbox, const char *type, const char *reason); /* or NULL */
int64_t sandbox_backoff_us(unsigned attempts);
void sandbox_note_left(struct sandbox *sandbox); /* now, unless it has left before */
void sandbox_drop_agent_soon(struct sandbox *sandbox);

/* sandbox_build.c: steps of its start */
void sandbox_take_turn(struct workflow *workflow);
void sandbox_pass_turn(struct sandbox *sandbox); /* whether it has it or not */
void sandbox_wait_to_build(struct workflow *workflow);
void sandbox_on_build_turn(struct sandbox *sandbox); /* see builds.h */
void sandbox_build(struct workflow *workflow);
bool sandbox_abort_build(struct sandbox *sandbox, const struct error *err); /* if it waits */

/* sandbox_start.c */
void sandbox_abort_step(struct sandbox *sandbox, const struct error *err); /* if it can be */
void sandbox_fail(struct sandbox *sandbox, const struct error *err);       /* not made in time */
void sandbox_on_silence(struct timer *timer);
void sandbox_stop_asking(struct sandbox *sandbox);    /* its init, which has not answered yet */
bool sandbox_has_init(const struct sandbox *sandbox); /* a connection to it, as far as is known */

/* sandbox_watch.c */
void sandbox_watch(struct sandbox *sandbox, int pidfd); /* takes it over; -1 is fine */
extern const struct agent_handler sandbox_agent_handler;
void sandbox_on_crash(struct sandbox *sandbox);
void sandbox_find_cause(struct sandbox *sandbox);
void sandbox_lose_init(struct sandbox *sandbox); /* it is unknown, and asked again soon */
void sandbox_reconnect_soon(struct sandbox *sandbox);

/* sandbox_destroy.c */
void sandbox_destroy_next(struct sandbox *sandbox); /* the next step, unless something still runs */
