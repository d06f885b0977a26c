#include "core/session/scopes.h"
#include "core/session/session_private.h"

#include "base/alloc.h"
#include "base/id.h"
#include "base/log.h"
#include "base/str.h"
#include "core/core.h"
#include "core/session/session.h"

#include <stdlib.h>
#include <string.h>

struct scopes {
    struct core *core;  /* borrowed */
    struct list leases; /* struct scope_lease */
    struct timer grace;
    bool is_settled; /* the grace is over */
};

static const struct scope_lease *find_lease(const struct scopes *scopes, const char *owner)
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
    return scopes->is_settled && owner_is_minted(owner) && !find_lease(scopes, owner);
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
    return scopes;
}

void scopes_start(struct scopes *scopes)
{
    const struct session *session;

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
    free(scopes);
}

int scope_lease_take(struct scope_lease *lease, struct scopes *scopes, const char *owner,
                     struct error *err)
{
    if (find_lease(scopes, owner)) {
        error_named(err, ERR_CONFLICT, "scope_taken", "another scope holds the owner \"%.100s\"",
                    owner);
        return error_hint(err, "leave the owner out: every scope gets one of its own");
    }
    *lease = (struct scope_lease){ .scopes = scopes, .owner = xstrdup(owner) };
    list_append(&scopes->leases, &lease->node);
    log_info("scope opened", kv("owner", owner));
    return 0;
}

static void end_sessions(struct core *core, const char *owner)
{
    struct session *session;
    struct session *following;
    int64_t count = 0;

    list_for_each_safe (session, following, &core->sessions, node) {
        if (!str_equal(session->identity.owner, owner) || session->state == SESSION_ENDING)
            continue;
        session_end(session, END_DELETED, "scope", NULL, NULL);
        count++;
    }
    log_info("scope ended", kv("owner", owner), kv("sessions", count));
}

void scope_lease_release(struct scope_lease *lease)
{
    struct scopes *scopes = lease->scopes;

    if (!scopes)
        return;
    list_remove(&lease->node);
    lease->scopes = NULL;
    if (!scopes->core->stopping)
        end_sessions(scopes->core, lease->owner);
    free(lease->owner);
    lease->owner = NULL;
}

int scopes_check_owner(const struct scopes *scopes, const char *owner, struct error *err)
{
    if (!is_over(scopes, owner))
        return 0;
    return error_named(err, ERR_GONE, "scope_ended", "the scope of \"%.100s\" has ended", owner);
}
