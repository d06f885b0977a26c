#include "api/request.h"
#include "auth/caller.h"
#include "base/alloc.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

/* A session that is not there and one of somebody else are told at the same moment after the
 * question, so that nobody learns from the time which of them it is: the store takes a little
 * longer for one that it has to look at. */
enum { NOT_FOUND_US = 2 * 1000 };

/* A session that is not live may be one that has ended: the store knows. */
struct lookup {
    struct api_request *request;
    struct store_query query;
    enum api_session kind;
    api_handler_fn *then;
    char *reference; /* owned */
    char *owner;     /* owned; borrowed by the query */
    bool found;
    struct timer timer;
    char session_id[ID_SIZE];
    char *end_reason;     /* owned */
    struct buffer record; /* as JSON */
};

static void lookup_free(struct lookup *lookup)
{
    timer_stop(&lookup->timer);
    free(lookup->reference);
    free(lookup->owner);
    free(lookup->end_reason);
    buffer_fini(&lookup->record);
    free(lookup);
}

static void on_session(struct store_query *query, const struct session_record *record)
{
    struct lookup *lookup = container_of(query, struct lookup, query);
    struct json_writer json = JSON_WRITER(&lookup->record);

    if (lookup->found || !str_equal(record->state, session_state_name(SESSION_ENDED)))
        return;
    lookup->found = true;
    lookup->end_reason = xstrdup(record->end_reason ? record->end_reason : "");
    memcpy(lookup->session_id, record->id, sizeof(lookup->session_id));
    session_record_write_json(record, &json, NULL);
}

static void fail_unknown(struct api_request *request, const char *reference)
{
    struct error err = { 0 };

    error_named(&err, ERR_NOT_FOUND, "session_not_found", "session \"%.80s\" not found", reference);
    error_hint(&err, "GET /api/v1/sessions lists the sessions that are yours");
    api_fail(request, &err);
}

static void on_not_found(struct timer *timer)
{
    struct lookup *lookup = container_of(timer, struct lookup, timer);

    if (!api_finish(lookup->request))
        fail_unknown(lookup->request, lookup->reference);
    lookup_free(lookup);
}

static void on_looked_up(struct store_query *query)
{
    struct lookup *lookup = container_of(query, struct lookup, query);
    struct api_request *request = lookup->request;

    if (!query->err.code && !lookup->found) {
        timer_arm_at(&lookup->timer, request->began_us + NOT_FOUND_US);
        return;
    }
    if (api_finish(request)) {
        lookup_free(lookup);
        return;
    }
    if (query->err.code) {
        api_fail(request, &query->err);
    } else if (lookup->kind == API_LIVE_SESSION) {
        api_fail_ended(request, lookup->session_id, lookup->end_reason,
                       buffer_text(&lookup->record));
    } else {
        memcpy(request->session_id, lookup->session_id, sizeof(request->session_id));
        request->ended_json = buffer_text(&lookup->record);
        lookup->then(request);
    }
    lookup_free(lookup);
}

static void ask_store(struct api_request *request, const char *reference, enum api_session kind,
                      api_handler_fn *then)
{
    struct lookup *lookup = xnew(struct lookup);
    bool by_key = str_starts_with(reference, "key:");

    lookup->request = request;
    timer_init(&lookup->timer, request->core->loop, on_not_found);
    lookup->kind = kind;
    lookup->then = then;
    lookup->reference = xstrdup(reference);
    lookup->owner = xstrdup(request->owner);
    lookup->record = BUFFER_INIT(API_REPLY_MAXIMUM);
    lookup->query = (struct store_query){
        .on_session = on_session,
        .done = on_looked_up,
        .id = by_key ? NULL : lookup->reference,
        .key = by_key ? lookup->reference + 4 : NULL,
        .owner = request->any_owner ? NULL : lookup->owner,
        .newest_first = true,
        .limit = by_key ? 8 : 1,
    };
    api_begin(request);
    store_query(request->api->parts.store, STORE_SESSIONS, &lookup->query);
}

/* Whether sessions of others are found, too. Without authentication nobody is known as an approver.
 */
static bool finds_all(const struct api_request *request)
{
    bool is_approver = !str_is_empty(request->principal) && request->roles & ROLE_APPROVER;

    return request->any_owner || (request->route->approvers && is_approver);
}

void api_find_session(struct api_request *request, const char *reference, enum api_session kind,
                      api_handler_fn *then)
{
    struct session *session =
        session_find(request->core, request->owner, finds_all(request), reference, NULL);

    if (session) {
        request->session = session;
        memcpy(request->session_id, session->id, sizeof(request->session_id));
        then(request);
        request->session = NULL;
    } else if (str_starts_with(reference, "key:") ? reference[4] != '\0'
                                                  : id_is_valid(reference, ID_SESSION)) {
        ask_store(request, reference, kind, then);
    } else {
        fail_unknown(request, reference);
    }
}

struct session *api_session_again(const struct api_request *request, struct error *err)
{
    struct session *session =
        session_find(request->core, request->owner, request->any_owner, request->session_id, NULL);

    if (!session)
        error_named(err, ERR_GONE, "session_ended", "session %s has ended", request->session_id);
    return session;
}
