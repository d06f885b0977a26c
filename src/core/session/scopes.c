/* SPDX-License-Identifier: Apache-2.0 */
#include "core/session/scopes.h"
#include "core/session/scopes_private.h"
#include "core/session/session_private.h"

#include "base/alloc.h"
#include "base/id.h"
#include "base/log.h"
#include "base/str.h"
#include "core/core.h"
#include "core/session/session.h"

#include <stdlib.h>
#include <string.h>

const struct scope_lease *scopes_find_lease(const struct scopes *scopes, const char *owner)
{
    const struct scope_lease *lease;

    list_for_each (lease, &scopes->leases, node) {
        if (str_equal(lease->owner, owner))
            return lease;
    }
    return NULL;
}

bool owner_is_minted(const char *owner)
{
    const char *slash = strrchr(owner, '/');

    return id_is_valid(slash ? slash + 1 : owner, ID_SCOPE);
}

static bool is_over(const struct scopes *scopes, const char *owner)
{
    return scopes->is_settled && owner_is_minted(owner) && !scopes_find_lease(scopes, owner);
}

static void on_grace_over(struct timer *timer)
{
    struct scopes *scopes = container_of(timer, struct scopes, grace);
    struct session *session;
    struct session *following;

    scopes->is_settled = true;
    list_for_each_safe (session, following, &scopes->core->sessions, node) {
        if (is_over(scopes, session->identity.owner))
            session_end(session, END_DELETED, "scope", NULL, NULL);
    }
}

struct scopes *scopes_new(struct core *core)
{
    struct scopes *scopes = xnew(struct scopes);

    scopes->core = core;
    list_init(&scopes->leases);
    timer_init(&scopes->grace, core->loop, on_grace_over);
    scopes->claims = scope_claims_new(scopes);
    return scopes;
}

void scopes_start(struct scopes *scopes)
{
    const struct session *session;

    if (scopes->claims) {
        scope_claims_start(scopes->claims);
        return;
    }
    scopes->is_settled = true;
    list_for_each (session, &scopes->core->sessions, node) {
        if (owner_is_minted(session->identity.owner))
            scopes->is_settled = false;
    }
    if (!scopes->is_settled)
        timer_arm_in(&scopes->grace, SCOPE_GRACE_US);
}

void scopes_free(struct scopes *scopes)
{
    if (!scopes)
        return;
    timer_stop(&scopes->grace);
    scope_claims_free(scopes->claims);
    free(scopes);
}

int scope_taken_error(const char *owner, struct error *err)
{
    error_named(err, ERR_CONFLICT, "scope_taken", "another scope holds the owner \"%.100s\"",
                owner);
    return error_hint(err, "leave the owner out: every scope gets one of its own");
}

static int take(struct scope_lease *lease, struct scopes *scopes, const char *owner,
                struct error *err)
{
    if (scopes_find_lease(scopes, owner))
        return scope_taken_error(owner, err);
    *lease = (struct scope_lease){ .scopes = scopes, .owner = xstrdup(owner) };
    list_append(&scopes->leases, &lease->node);
    return 0;
}

int scope_lease_take(struct scope_lease *lease, struct scopes *scopes, const char *owner,
                     struct error *err)
{
    if (take(lease, scopes, owner, err) < 0)
        return -1;
    log_info("scope opened", kv("owner", owner));
    return 0;
}

int scope_lease_ask(struct scope_lease *lease, struct scopes *scopes, const char *owner,
                    scope_taken_fn *taken, struct error *err)
{
    if (take(lease, scopes, owner, err) < 0)
        return -1;
    lease->taken = taken;
    scope_claim_take(scopes->claims, lease);
    return 0;
}

void scopes_end_sessions(struct core *core, const char *owner, int64_t created_wall_us)
{
    struct session *session;
    struct session *following;
    int64_t count = 0;

    list_for_each_safe (session, following, &core->sessions, node) {
        if (!str_equal(session->identity.owner, owner) || session->state == SESSION_ENDING ||
            session->clocks.created.wall_us > created_wall_us)
            continue;
        session_end(session, END_DELETED, "scope", NULL, NULL);
        count++;
    }
    log_info("scope ended", kv("owner", owner), kv("sessions", count));
}

void scope_lease_release(struct scope_lease *lease)
{
    struct scopes *scopes = lease->scopes;
    bool was_held;

    if (!scopes)
        return;
    list_remove(&lease->node);
    was_held = !scopes->claims || scope_claim_end(lease);
    lease->scopes = NULL;
    if (!scopes->core->stopping && was_held)
        scopes_end_sessions(scopes->core, lease->owner, INT64_MAX);
    free(lease->owner);
    lease->owner = NULL;
}

int scope_ended_error(const char *owner, struct error *err)
{
    return error_named(err, ERR_GONE, "scope_ended", "the scope of \"%.100s\" has ended", owner);
}

bool scopes_must_ask(const struct scopes *scopes, const char *owner)
{
    const struct scope_lease *lease = scopes_find_lease(scopes, owner);

    return scopes->claims && owner_is_minted(owner) && !(lease && scope_claim_is_held(lease));
}

int scopes_check_owner(const struct scopes *scopes, const char *owner, struct error *err)
{
    if (!is_over(scopes, owner))
        return 0;
    return scope_ended_error(owner, err);
}
