#include "api/sessions.h"

#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "core/usage.h"

#include <stdio.h>
#include <string.h>

enum { PAGE_DEFAULT = 100, PAGE_MAXIMUM = 1000 };

/* --- filters --------------------------------------------------------------------------------- */

int session_filter_init(struct session_filter *filter, const struct api_request *request,
                        struct error *err)
{
    const char *state = api_parameter(request, "state");

    *filter = (struct session_filter){ .request = request, .state = -1 };
    if (api_parameter(request, "owner") && !request->any_owner)
        return error_named(err, ERR_FORBIDDEN, "forbidden",
                           "only an administrator may ask for another owner's sessions");
    for (size_t i = 0; i < request->parameter_count; i++) {
        if (str_equal(request->parameters[i].name, "label") &&
            !strchr(request->parameters[i].value, '='))
            return error_named(err, ERR_INVALID, "invalid_parameter",
                               "parameter label must be name=value");
    }
    for (int i = 0; state && i < SESSION_STATES; i++) {
        if (str_equal(state, session_state_name((enum session_state)i)))
            filter->state = i;
    }
    if (state && *state && filter->state < 0)
        return error_named(err, ERR_INVALID, "invalid_parameter",
                           "parameter state must be open, paused, ending or ended");
    filter->ended = filter->state == SESSION_ENDED;
    return 0;
}

bool session_filter_matches_labels(const struct session_filter *filter, const char *labels_json)
{
    const struct api_request *request = filter->request;
    scoped(json_decref) json_t *labels =
        str_is_empty(labels_json) ? NULL : json_read(labels_json, strlen(labels_json), NULL);

    for (size_t i = 0; i < request->parameter_count; i++) {
        const char *text = request->parameters[i].value;
        const char *equals;
        scoped(free) char *name = NULL;

        if (!str_equal(request->parameters[i].name, "label"))
            continue;
        equals = strchr(text, '=');
        name = xstrndup(text, (size_t)(equals - text));
        if (!str_equal(json_string_value(json_object_get(labels, name)), equals + 1))
            return false;
    }
    return true;
}

/* Whose sessions are asked for; NULL for everybody's. Also an administrator means his own, unless
 * he says otherwise. */
static const char *wanted_owner(const struct api_request *request)
{
    const char *owner = request->any_owner ? api_parameter(request, "owner") : NULL;

    if (!owner)
        return request->owner;
    return str_equal(owner, "*") ? NULL : owner;
}

static bool is_callers(const struct api_request *request, const struct session *session)
{
    const char *owner = wanted_owner(request);

    return !owner || str_equal(session->owner, owner);
}

bool session_filter_matches(const struct session_filter *filter, const struct session *session)
{
    return is_callers(filter->request, session) &&
           (filter->state < 0 || session->state == (enum session_state)filter->state) &&
           session_filter_matches_labels(filter, session->labels_json);
}

/* --- list ------------------------------------------------------------------------------------ */

struct listing {
    struct api_request *request;
    struct session_filter filter;
    struct store_query query;
    struct buffer text;
    struct json_writer json;
    uint64_t limit, skip, shown, total;
};

static void listing_free(struct listing *listing)
{
    buffer_fini(&listing->text);
    free(listing);
}

static void listing_finish(struct listing *listing, const char *cursor)
{
    struct json_writer *json = &listing->json;

    json_end_array(json);
    json_put_text(json, "next_cursor", cursor);
    json_put_int(json, "total", (int64_t)listing->total);
    json_put_int(
        json, "max_sessions",
        shares_cap(listing->request->core->shares, listing->request->owner, SHARE_SESSIONS));
    json_end_object(json);
    api_reply(listing->request, 200, &listing->text);
    listing_free(listing);
}

/* A cursor is the creation time of the last one shown: new ones come behind it. */
static void list_live(struct listing *listing)
{
    const char *given = api_parameter(listing->request, "cursor");
    const struct session *session;
    int64_t after_us = 0;
    char cursor[32] = "";

    if (given)
        (void)str_to_i64(given, &after_us);
    list_for_each (session, &listing->request->core->sessions, node) {
        if (!session_filter_matches(&listing->filter, session))
            continue;
        listing->total++;
        if (session->created.wall_us <= after_us)
            continue;
        if (listing->shown++ < listing->limit) {
            session_write_json(session, &listing->json, NULL);
            if (listing->shown == listing->limit)
                snprintf(cursor, sizeof(cursor), "%lld", (long long)session->created.wall_us);
        }
    }
    listing_finish(listing, listing->shown > listing->limit ? cursor : NULL);
}

static void on_listed_measured(void *user)
{
    struct listing *listing = user;

    if (api_finish(listing->request))
        listing_free(listing);
    else
        list_live(listing);
}

/* Measures those that will be shown before they are. */
static void measure_listed(struct listing *listing)
{
    struct usage_round *round = usage_begin(listing->request->core);
    const struct session *session;
    uint64_t added = 0;

    list_for_each (session, &listing->request->core->sessions, node) {
        if (added == listing->limit)
            break;
        if (session->created.wall_us <= (int64_t)listing->skip ||
            !session_filter_matches(&listing->filter, session))
            continue;
        usage_add(round, session->sandbox);
        added++;
    }
    api_begin(listing->request);
    usage_end(round, on_listed_measured, listing);
}

static void on_ended_session(struct store_query *query, const struct session_record *record)
{
    struct listing *listing = container_of(query, struct listing, query);

    if (!session_filter_matches_labels(&listing->filter, record->labels_json))
        return;
    listing->total++;
    if (listing->total <= listing->skip || listing->shown >= listing->limit)
        return;
    listing->shown++;
    session_record_write_json(record, &listing->json, NULL);
}

static void on_ended_done(struct store_query *query)
{
    struct listing *listing = container_of(query, struct listing, query);
    uint64_t next = listing->skip + listing->shown;
    char cursor[32];

    if (api_finish(listing->request)) {
        listing_free(listing);
        return;
    }
    if (query->err.code) {
        api_fail(listing->request, &query->err);
        listing_free(listing);
        return;
    }
    snprintf(cursor, sizeof(cursor), "%llu", (unsigned long long)next);
    listing_finish(listing, next < listing->total ? cursor : NULL);
}

static void list_ended(struct listing *listing)
{
    struct api_request *request = listing->request;

    listing->query = (struct store_query){
        .on_session = on_ended_session,
        .done = on_ended_done,
        .owner = wanted_owner(request),
        .state = session_state_name(SESSION_ENDED),
        .newest_first = true,
    };
    api_begin(request);
    store_query(request->api->parts.store, STORE_SESSIONS, &listing->query);
}

void api_list_sessions(struct api_request *request)
{
    struct listing *listing = xnew(struct listing);
    struct error err = { 0 };
    bool usage = false;

    listing->request = request;
    listing->limit = PAGE_DEFAULT;
    if (session_filter_init(&listing->filter, request, &err) < 0 ||
        api_parameter_u64(request, "limit", PAGE_MAXIMUM, &listing->limit, &err) < 0 ||
        api_parameter_u64(request, "cursor", INT64_MAX, &listing->skip, &err) < 0 ||
        api_parameter_bool(request, "usage", &usage, &err) < 0) {
        api_fail(request, &err);
        free(listing);
        return;
    }
    listing->text = BUFFER_INIT(API_REPLY_MAXIMUM);
    listing->json = JSON_WRITER(&listing->text);
    json_begin_object(&listing->json, NULL);
    json_begin_array(&listing->json, "sessions");
    if (listing->filter.ended)
        list_ended(listing);
    else if (usage)
        measure_listed(listing);
    else
        list_live(listing);
}
