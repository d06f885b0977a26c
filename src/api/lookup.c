/* The session of a route: a handler is called with one that is live or has ended. */

#include "api/request.h"
#include "auth/caller.h"
#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"

#include <string.h>

struct identity api_identity(const struct api_request *request)
{
    return (struct identity){ .owner = request->owner,
                              .on_behalf_of = request->on_behalf_of,
                              .any_owner = request->any_owner };
}

/* --- ended ----------------------------------------------------------------------------------- */

struct lookup {
    struct api_request *request;
    struct ended_session ended;
    enum api_session kind;
    api_handler_fn *then;
};

static void fail_lookup(struct api_request *request, struct error *err)
{
    if (err->code == ERR_NOT_FOUND)
        error_hint(err, "GET /api/v1/sessions lists the sessions that are yours");
    api_fail(request, err);
}

static void on_looked_up(struct ended_session *ended)
{
    struct lookup *lookup = container_of(ended, struct lookup, ended);
    struct api_request *request = lookup->request;

    if (!api_finish(request)) {
        if (ended->err.code) {
            fail_lookup(request, &ended->err);
        } else if (lookup->kind == API_LIVE_SESSION) {
            api_fail_ended(request, ended->id, ended->end_reason, buffer_text(&ended->record));
        } else {
            memcpy(request->session_id, ended->id, sizeof(request->session_id));
            request->ended_json = buffer_text(&ended->record);
            lookup->then(request);
        }
    }
    ended_session_fini(ended);
    free(lookup);
}

static void look_for_ended(struct api_request *request, const char *reference,
                           enum api_session kind, api_handler_fn *then)
{
    struct identity identity = api_identity(request);
    struct lookup *lookup = xnew(struct lookup);

    lookup->request = request;
    lookup->kind = kind;
    lookup->then = then;
    api_begin(request);
    find_ended_session(&lookup->ended, request->core, &identity, reference, request->began_us,
                       on_looked_up);
}

/* --- all of it ------------------------------------------------------------------------------- */

/* With authentication, approvers reach every live session on the routes that are for them. */
static bool reaches_all(const struct api_request *request)
{
    bool is_approver = !str_is_empty(request->principal) && request->roles & ROLE_APPROVER;

    return request->any_owner || (request->route->approvers && is_approver);
}

void api_find_session(struct api_request *request, const char *reference, enum api_session kind,
                      api_handler_fn *then)
{
    struct identity identity = api_identity(request);
    struct session *session;

    identity.any_owner = reaches_all(request);
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

struct session *api_session_again(const struct api_request *request, struct error *err)
{
    struct identity identity = api_identity(request);
    struct session *session =
        find_live_session(request->core, &identity, request->session_id, NULL);

    if (!session)
        error_named(err, ERR_GONE, "session_ended", "session %s has ended", request->session_id);
    return session;
}
