#include "api/sessions.h"

#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "core/sandbox/usage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAGE_DEFAULT = 100,
    PAGE_MAXIMUM = 1000,
    PAGE_BYTES = 1024 * 1024, /* a page ends behind the session that goes beyond it */
    LABELS_MAXIMUM = 16,      /* in one question */
};

/* --- filters --------------------------------------------------------------------------------- */

/* Each is name=value; the value is borrowed from the request. */
static int read_labels(struct session_filter *filter, struct error *err)
{
    const struct api_request *request = filter->request;

    filter->labels = xcalloc(request->parameter_count, sizeof(*filter->labels));
    for (size_t i = 0; i < request->parameter_count; i++) {
        const char *text = request->parameters[i].value;
        const char *equals = strchr(text, '=');

        if (!str_equal(request->parameters[i].name, "label"))
            continue;
        if (!equals || filter->label_count == LABELS_MAXIMUM)
            return error_named(err, ERR_INVALID, "invalid_parameter",
                               "parameter label must be name=value, %d at most", LABELS_MAXIMUM);
        filter->labels[filter->label_count++] =
            (struct store_label){ xstrndup(text, (size_t)(equals - text)), equals + 1 };
    }
    return 0;
}

static int read_state(struct session_filter *filter, struct error *err)
{
    const char *state = api_parameter(filter->request, "state");

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

int session_filter_init(struct session_filter *filter, const struct api_request *request,
                        struct error *err)
{
    *filter = (struct session_filter){ .request = request, .state = -1 };
    if (api_parameter(request, "owner") && !api_may_name_owner(request)) {
        error_named(err, ERR_FORBIDDEN, "forbidden",
                    "only an operator may ask for another owner's sessions");
        return error_hint(err, "the role admin may, and without authentication root and the user "
                               "that the daemon runs as");
    }
    if (read_labels(filter, err) == 0 && read_state(filter, err) == 0)
        return 0;
    session_filter_fini(filter);
    return -1;
}

void session_filter_fini(struct session_filter *filter)
{
    for (unsigned i = 0; i < filter->label_count; i++)
        free((char *)filter->labels[i].name);
    free(filter->labels);
    *filter = (struct session_filter){ 0 };
}

static bool has_labels(const struct session_filter *filter, const char *labels_json)
{
    scoped(json_decref) json_t *labels = NULL;

    if (filter->label_count && !str_is_empty(labels_json))
        labels = json_read(labels_json, strlen(labels_json), NULL);
    for (unsigned i = 0; i < filter->label_count; i++) {
        const char *value = json_string_value(json_object_get(labels, filter->labels[i].name));

        if (!str_equal(value, filter->labels[i].value))
            return false;
    }
    return true;
}

/* Whose sessions are asked for; NULL for everybody's. Also an administrator means his own, unless
 * he says otherwise. */
static const char *wanted_owner(const struct api_request *request)
{
    const char *owner = api_may_name_owner(request) ? api_parameter(request, "owner") : NULL;

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
           has_labels(filter, session->labels_json);
}

/* --- list ------------------------------------------------------------------------------------ */

struct listing {
    struct api_request *request;
    struct session_filter filter;
    struct store_query query;
    struct buffer text;
    struct json_writer json;
    const char *cursor; /* borrowed from the request; NULL: from the start */
    uint64_t limit, shown, total;
    uint64_t last_position; /* of the ended session that was shown last */
    bool has_more;
};

static bool page_is_full(const struct listing *listing)
{
    return listing->shown >= listing->limit ||
           (listing->shown && listing->text.length >= PAGE_BYTES);
}

static void listing_free(struct listing *listing)
{
    session_filter_fini(&listing->filter);
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

/*
 * Sessions that are not ended are shown in the order in which they were made. A cursor is the
 * number of the last one shown, and its id.
 */
static uint64_t number_behind(const struct listing *listing)
{
    return listing->cursor ? strtoull(listing->cursor, NULL, 10) : 0;
}

static void list_live(struct listing *listing)
{
    uint64_t after = number_behind(listing);
    const struct session *session;
    char cursor[ID_SIZE + 32] = "";

    list_for_each (session, &listing->request->core->sessions, node) {
        bool behind = session->number > after;

        if (!session_filter_matches(&listing->filter, session))
            continue;
        listing->total++;
        listing->has_more = listing->has_more || (behind && page_is_full(listing));
        if (!behind || listing->has_more)
            continue;
        listing->shown++;
        session_write_json(session, &listing->json, NULL);
        snprintf(cursor, sizeof(cursor), "%llu.%s", (unsigned long long)session->number,
                 session->id);
    }
    listing_finish(listing, listing->has_more ? cursor : NULL);
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
    uint64_t after = number_behind(listing);
    const struct session *session;
    uint64_t added = 0;

    list_for_each (session, &listing->request->core->sessions, node) {
        if (added == listing->limit)
            break;
        if (session->number <= after || !session_filter_matches(&listing->filter, session))
            continue;
        usage_add(round, session->sandbox);
        added++;
    }
    api_begin(listing->request);
    usage_end(round, on_listed_measured, listing);
}

/* The newest first. */
static void on_ended_session(struct store_query *query, const struct session_record *record)
{
    struct listing *listing = container_of(query, struct listing, query);

    listing->has_more = listing->has_more || page_is_full(listing);
    if (listing->has_more)
        return;
    listing->shown++;
    listing->last_position = query->position;
    session_record_write_json(record, &listing->json, NULL);
}

static void on_ended_done(struct store_query *query)
{
    struct listing *listing = container_of(query, struct listing, query);
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
    listing->total = query->total;
    listing->has_more = listing->has_more || query->is_cut;
    snprintf(cursor, sizeof(cursor), "%llu", (unsigned long long)listing->last_position);
    listing_finish(listing, listing->has_more ? cursor : NULL);
}

static void list_ended(struct listing *listing)
{
    struct api_request *request = listing->request;

    api_begin(request);
    listing->query = (struct store_query){
        .on_session = on_ended_session,
        .done = on_ended_done,
        .owner = wanted_owner(request),
        .state = session_state_name(SESSION_ENDED),
        .labels = listing->filter.labels,
        .label_count = listing->filter.label_count,
        .newest_first = true,
        .behind = listing->cursor ? strtoull(listing->cursor, NULL, 10) : 0,
        .limit = (uint32_t)MAX(listing->limit, (uint64_t)1),
        .limit_bytes = PAGE_BYTES,
        .count = true,
    };
    store_query(request->api->parts.store, STORE_SESSIONS, &listing->query);
}

/* What we have given as next_cursor: a position, or a number and a session. */
static int read_cursor(struct listing *listing, struct error *err)
{
    const char *text = api_parameter(listing->request, "cursor");
    size_t digits = text ? strspn(text, "0123456789") : 0;
    bool is_live = text && text[digits] == '.' && id_is_valid(text + digits + 1, ID_SESSION);

    if (!text || !*text || str_equal(text, "0"))
        return 0;
    if (digits == 0 || digits > 18 || (listing->filter.ended ? text[digits] != '\0' : !is_live))
        return error_named(err, ERR_INVALID, "invalid_parameter",
                           "parameter cursor must be the next_cursor of a page before");
    listing->cursor = text;
    return 0;
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
        read_cursor(listing, &err) < 0 || api_parameter_bool(request, "usage", &usage, &err) < 0) {
        api_fail(request, &err);
        listing_free(listing);
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
