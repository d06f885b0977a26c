/* SPDX-License-Identifier: Apache-2.0 */
/* The session of a route: a handler is called with one that is live or has ended. */

#include "auth/caller.h"
#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "face/request.h"

#include <string.h>

struct caller_identity request_identity(const struct request *request)
{
    return (struct caller_identity){ .owner = request->owner,
                                     .on_behalf_of = request->on_behalf_of,
                                     .any_owner = request->any_owner };
}

/* --- ended ----------------------------------------------------------------------------------- */

struct lookup {
    struct request *request;
    struct ended_session ended;
    enum route_session kind;
    request_fn *then;
};

static void fail_lookup(struct request *request, struct error *err)
{
    if (err->code == ERR_NOT_FOUND)
        error_hint_known(err, HINT_SESSIONS);
    request_fail(request, err);
}

static void take_ended(struct lookup *lookup)
{
    struct request *request = lookup->request;
    struct ended_session *ended = &lookup->ended;
    struct error err = { 0 };

    memcpy(request->session_id, ended->id, sizeof(request->session_id));
    request->ended_json = buffer_text(&ended->record);
    request->end_reason = ended->end_reason;
    error_named(&err, ERR_GONE, "session_ended", "session %s has ended: %s", ended->id,
                ended->end_reason);
    if (lookup->kind == ROUTE_ANY_SESSION)
        lookup->then(request);
    else
        request_fail(request, &err);
    request->ended_json = request->end_reason = NULL;
}

static void on_looked_up(struct ended_session *ended)
{
    struct lookup *lookup = container_of(ended, struct lookup, ended);
    struct request *request = lookup->request;

    if (!request_finish(request)) {
        if (ended->err.code) {
            fail_lookup(request, &ended->err);
        } else {
            take_ended(lookup);
        }
    }
    ended_session_fini(ended);
    free(lookup);
}

static void look_for_ended(struct request *request, const char *reference, enum route_session kind,
                           request_fn *then)
{
    struct caller_identity identity = request_identity(request);
    struct lookup *lookup = xnew(struct lookup);

    lookup->request = request;
    lookup->kind = kind;
    lookup->then = then;
    request_begin(request);
    find_ended_session(&lookup->ended, request->core, &identity, reference, request->began_us,
                       on_looked_up);
}

/* --- all of it ------------------------------------------------------------------------------- */

/* With authentication, approvers reach every live session on the routes that are for them. */
bool request_reaches_all(const struct request *request)
{
    bool is_approver = !str_is_empty(request->principal) && request->roles & ROLE_APPROVER;

    return request->any_owner || (request->route->approvers && is_approver);
}

void request_find_session(struct request *request, const char *reference, enum route_session kind,
                          request_fn *then)
{
    struct caller_identity identity = request_identity(request);
    struct session *session;

    identity.any_owner = request_reaches_all(request);
    session = find_live_session(request->core, &identity, reference, NULL);
    if (!session) {
        look_for_ended(request, reference, kind, then);
        return;
    }
    request->session = session;
    memcpy(request->session_id, session_id(session), sizeof(request->session_id));
    then(request);
    request->session = NULL;
}
