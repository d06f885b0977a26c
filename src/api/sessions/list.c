/* SPDX-License-Identifier: Apache-2.0 */
#include "api/sessions/sessions.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "core/shares.h"

#include <stdlib.h>

enum {
    PAGE_DEFAULT = 100,
    PAGE_MAXIMUM = 1000,
    PAGE_BYTES = 1024 * 1024, /* a page ends behind the session that goes beyond it */
};

/* --- filters --------------------------------------------------------------------------------- */

static int read_labels(const struct request *request, struct session_filter *filter,
                       struct error *err)
{
    for (size_t i = 0; i < request->parameter_count; i++) {
        if (str_equal(request->parameters[i].name, "label") &&
            session_filter_add_label(filter, request->parameters[i].value) < 0)
            return error_named(err, ERR_INVALID, "invalid_parameter",
                               "parameter label must be name=value, %d at most",
                               SESSION_FILTER_LABELS);
    }
    return 0;
}

static int read_state(const struct request *request, struct session_filter *filter,
                      struct error *err)
{
    const char *state = request_parameter(request, "state");

    for (unsigned i = 0; state && i < SESSION_STATES; i++) {
        if (str_equal(state, session_state_name((enum session_state)i)))
            filter->states = 1u << i;
    }
    if (!str_is_empty(state) && !filter->states)
        return error_named(err, ERR_INVALID, "invalid_parameter",
                           "parameter state must be open, paused, ending or ended");
    return 0;
}

static int read_ids(const struct request *request, struct session_filter *filter, struct error *err)
{
    const char *ids = request_parameter(request, "ids");

    if (!ids || session_filter_set_ids(filter, ids) == 0)
        return 0;
    return error_named(err, ERR_INVALID, "invalid_parameter",
                       "parameter ids must be ids of sessions with commas between them, %d at most",
                       SESSION_FILTER_IDS);
}

/* The owner of the sessions; NULL for those of all owners. Without a parameter an administrator
 * gets their own sessions, too. */
static const char *wanted_owner(const struct request *request)
{
    const char *owner = request_may_name_owner(request) ? request_parameter(request, "owner")
                                                        : NULL;

    if (!owner)
        return request->owner;
    return str_equal(owner, "*") ? NULL : owner;
}

int api_read_filter(const struct request *request, struct session_filter *filter, struct error *err)
{
    *filter = (struct session_filter){ .owner = wanted_owner(request) };
    if (request_parameter(request, "owner") && !request_may_name_owner(request)) {
        error_named(err, ERR_FORBIDDEN, "forbidden",
                    "only an operator may list another owner's sessions");
        return error_hint(err, "operators are callers with the role admin or, without "
                               "authentication, root and the user of the daemon");
    }
    if (read_labels(request, filter, err) == 0 && read_state(request, filter, err) == 0 &&
        read_ids(request, filter, err) == 0)
        return 0;
    session_filter_fini(filter);
    return -1;
}

/* --- list ------------------------------------------------------------------------------------ */

struct listing {
    struct request *request;
    struct session_page page;
    struct buffer text;
    struct json_writer json;
};

static void listing_free(struct listing *listing)
{
    session_page_fini(&listing->page);
    buffer_fini(&listing->text);
    free(listing);
}

static bool on_session(struct session_page *page, const struct found_session *found)
{
    struct listing *listing = container_of(page, struct listing, page);

    if (page->shown && listing->text.length >= PAGE_BYTES)
        return false;
    found_session_write_json(found, &listing->json, NULL);
    return true;
}

static void reply(struct listing *listing)
{
    struct request *request = listing->request;
    const struct session_page *page = &listing->page;
    struct json_writer *json = &listing->json;

    json_end_array(json);
    json_put_text(json, "next_cursor", page->has_more ? page->next : NULL);
    json_put_int(json, "total", (int64_t)page->total);
    json_put_int(json, "max_sessions",
                 shares_cap(request->core->shares, request->owner, SHARE_SESSIONS));
    json_end_object(json);
    request_reply(request, 200, &listing->text);
}

static void on_page(struct session_page *page)
{
    struct listing *listing = container_of(page, struct listing, page);

    if (!request_finish(listing->request)) {
        if (page->err.code)
            request_fail(listing->request, &page->err);
        else
            reply(listing);
    }
    listing_free(listing);
}

/* A node that joins the pages of all nodes asks those before its cursor for the total alone. */
static int read_limit(const struct request *request, uint64_t *limit, struct error *err)
{
    return request->relay ? request_parameter_u64(request, "limit", PAGE_MAXIMUM, limit, err)
                          : request_parameter_limit(request, PAGE_MAXIMUM, limit, err);
}

static int read_page(struct request *request, struct session_page *page, struct error *err)
{
    *page = (struct session_page){ .cursor = request_parameter(request, "cursor"),
                                   .limit = PAGE_DEFAULT,
                                   .limit_bytes = PAGE_BYTES,
                                   .on_session = on_session,
                                   .done = on_page };
    if (api_read_filter(request, &page->filter, err) < 0 ||
        read_limit(request, &page->limit, err) < 0)
        return -1;
    if (!session_page_knows_cursor(page))
        return error_named(err, ERR_INVALID, "invalid_parameter",
                           "parameter cursor must be the next_cursor of an earlier page");
    return request_parameter_bool(request, "usage", &page->measures, err);
}

void api_list_sessions(struct request *request)
{
    struct listing *listing = xnew(struct listing);
    struct error err = { 0 };

    listing->request = request;
    if (read_page(request, &listing->page, &err) < 0) {
        request_fail(request, &err);
        listing_free(listing);
        return;
    }
    listing->text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    listing->json = JSON_WRITER(&listing->text);
    json_begin_object(&listing->json, NULL);
    json_begin_array(&listing->json, "sessions");
    request_begin(request);
    session_page_start(&listing->page, request->core);
}
