/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"
#include "core/money/budget.h"
#include "core/sandbox/capacity.h"
#include "core/session/session_private.h"
#include "core/session/session_recover.h"

static void on_answered(struct grant_wish *wish)
{
    struct session *session = container_of(wish, struct session, grants.wish);

    session->grants.state = wish->err.code == ERR_NONE ? GRANTS_UNASKED : GRANTS_ANSWERED;
    if (wish->err.code == ERR_UNAVAILABLE) {
        session->grants.state = GRANTS_UNASKED;
        session_on_sandbox_failed(session, &wish->err);
    }
    session_serve_soon(session);
}

/* A member of the pool can be had only with a slot: without a pool the sandbox waits for its slot by
 * itself. */
static bool asks(struct session *session)
{
    struct core *core = session->core;
    struct grant_wish *wish = &session->grants.wish;

    if (budget_ask(session, wish, on_answered))
        return true;
    return core->parts.config->pool_size &&
           capacity_ask(core->capacity, session->identity.owner, wish, on_answered);
}

bool session_may_start(struct session *session)
{
    if (!core_is_clustered(session->core))
        return true;
    switch (session->grants.state) {
    case GRANTS_UNASKED:
        if (!asks(session))
            return true;
        session->grants.state = GRANTS_ASKED;
        return false;
    case GRANTS_ASKED:
        return false;
    case GRANTS_ANSWERED:
        session->grants.state = GRANTS_UNASKED;
        return true;
    }
    return true;
}

void session_stop_asking(struct session *session)
{
    grant_wish_end(&session->grants.wish);
    session->grants.state = GRANTS_UNASKED;
}
