/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of sandboxes, and one of them. */

#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"
#include "core/core.h"
#include "core/session/session.h"
#include "core/stamp.h"
#include "e2b/private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_MAXIMUM = 100, METADATA_PAIRS = 32, TOKEN_SIZE = 32 };

struct pair {
    char *name, *value; /* owned */
};

struct filter {
    const char *template_name; /* borrowed; NULL: any */
    bool running, paused, ascending;
    int64_t started_after_ms;
    uint64_t limit, behind; /* the number of the last session of the page before; 0: none */
    struct pair pairs[METADATA_PAIRS];
    size_t pair_count;
};

static void filter_fini(struct filter *filter)
{
    for (size_t i = 0; i < filter->pair_count; i++) {
        free(filter->pairs[i].name);
        free(filter->pairs[i].value);
    }
}

static void scoped_filter_fini(struct filter *filter)
{
    filter_fini(filter);
}

/* --- the query ------------------------------------------------------------------------------- */

static int refuse(struct error *err, const char *parameter, const char *expected)
{
    return error_named(err, ERR_INVALID, "invalid_parameter", "parameter %s must be %s", parameter,
                       expected);
}

static char *unescaped(const char *text, size_t length)
{
    char *decoded = xmalloc(length + 1);

    request_unescape(text, length, decoded);
    return decoded;
}

/* The clients escape names and values, join them as a query, and escape that. */
static int read_metadata(struct filter *filter, const char *given, struct error *err)
{
    scoped(free) char *query = given ? unescaped(given, strlen(given)) : NULL;
    const char *rest = query;

    while (rest && *rest) {
        size_t length = strcspn(rest, "&");
        const char *equals = memchr(rest, '=', length);
        struct pair *pair = &filter->pairs[filter->pair_count];

        if (!equals || filter->pair_count == METADATA_PAIRS)
            return refuse(err, "metadata", "at most 32 pairs NAME=VALUE joined by &");
        pair->name = unescaped(rest, (size_t)(equals - rest));
        pair->value = unescaped(equals + 1, length - (size_t)(equals - rest) - 1);
        filter->pair_count++;
        rest += length + (rest[length] == '&');
    }
    return 0;
}

static int read_states(struct filter *filter, const char *given, struct error *err)
{
    filter->running = filter->paused = !given;
    while (given && *given) {
        size_t length = strcspn(given, ",");

        if (length == 7 && strncmp(given, "running", length) == 0)
            filter->running = true;
        else if (length == 6 && strncmp(given, "paused", length) == 0)
            filter->paused = true;
        else
            return refuse(err, "state", "running, paused or both joined by a comma");
        given += length + (given[length] == ',');
    }
    return 0;
}

static int read_order(struct filter *filter, const char *given, struct error *err)
{
    filter->ascending = str_equal(given, "asc");
    if (given && !filter->ascending && !str_equal(given, "desc"))
        return refuse(err, "order", "asc or desc");
    return 0;
}

static int read_time(const char *given, int64_t *out_ms, struct error *err)
{
    bool has_offset = given && str_ends_with(given, "+00:00"); /* as Python writes it */
    scoped(free) char *text =
        has_offset ? xasprintf("%.*sZ", (int)(strlen(given) - strlen("+00:00")), given) : NULL;
    int64_t wall_us;

    if (!given)
        return 0;
    if (clock_parse(text ? text : given, &wall_us) < 0)
        return refuse(err, "startedAfter", "a time such as 2026-01-31T12:00:00Z");
    *out_ms = wall_us / 1000;
    return 0;
}

/* A token is the order and the number of the last session of the page. */
static int read_token(struct filter *filter, const char *given, struct error *err)
{
    if (str_is_empty(given))
        return 0;
    if (*given != (filter->ascending ? 'a' : 'd') || str_to_u64(given + 1, &filter->behind) < 0)
        return refuse(err, "nextToken", "the X-Next-Token of a page with the same order");
    return 0;
}

static int read_filter(const struct request *request, struct filter *filter, struct error *err)
{
    filter->limit = PAGE_MAXIMUM;
    filter->template_name = request_parameter(request, "template");
    if (request_parameter_u64(request, "limit", PAGE_MAXIMUM, &filter->limit, err) < 0 ||
        read_metadata(filter, request_parameter(request, "metadata"), err) < 0 ||
        read_states(filter, request_parameter(request, "state"), err) < 0 ||
        read_order(filter, request_parameter(request, "order"), err) < 0 ||
        read_time(request_parameter(request, "startedAfter"), &filter->started_after_ms, err) < 0)
        return -1;
    if (filter->limit == 0)
        return refuse(err, "limit", "from 1 to 100");
    return read_token(filter, request_parameter(request, "nextToken"), err);
}

/* --- which ----------------------------------------------------------------------------------- */

static bool has_pairs(const struct filter *filter, const struct session *session)
{
    const char *text = session_labels_json(session);
    scoped(json_decref) json_t *labels = text ? json_read(text, strlen(text), NULL) : NULL;

    for (size_t i = 0; i < filter->pair_count; i++) {
        const json_t *value = json_object_get(labels, filter->pairs[i].name);

        if (!str_equal(json_string_value(value), filter->pairs[i].value))
            return false;
    }
    return true;
}

static bool has_template(const struct filter *filter, const struct session *session)
{
    scoped(e2b_notes_fini) struct e2b_notes notes = { 0 };

    if (!filter->template_name)
        return true;
    e2b_notes_read(&notes, session);
    return str_equal(filter->template_name, e2b_template_of(session, &notes)) ||
           str_equal(filter->template_name, session_template_name(session));
}

static bool matches(const struct filter *filter, const struct request *request,
                    const struct session *session)
{
    return session_is_alive(session) && str_equal(session_owner(session), request->owner) &&
           !e2b_is_lost(session) && (e2b_is_paused(session) ? filter->paused : filter->running) &&
           session_created(session).wall_us / 1000 >= filter->started_after_ms &&
           has_template(filter, session) && has_pairs(filter, session);
}

/* In the order of their creation; the caller frees it. */
static const struct session **choose(const struct filter *filter, const struct request *request,
                                     size_t *out_count)
{
    const struct session **chosen = NULL;
    const struct session *session;
    size_t count = 0, room = 0;

    session_for_each (session, request->core) {
        if (!matches(filter, request, session))
            continue;
        if (count == room) {
            room = room ? room * 2 : 64;
            chosen = xrealloc(chosen, room, sizeof(*chosen));
        }
        chosen[count++] = session;
    }
    *out_count = count;
    return chosen;
}

static bool is_behind(const struct filter *filter, const struct session *session)
{
    if (!filter->behind)
        return true;
    return filter->ascending ? session_number(session) > filter->behind
                             : session_number(session) < filter->behind;
}

/* --- pages ----------------------------------------------------------------------------------- */

static void reply_page(struct request *request, const struct filter *filter)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    size_t count, shown = 0;
    scoped(free) const struct session **chosen = choose(filter, request, &count);
    const struct session *last = NULL;
    char token[TOKEN_SIZE];

    json_begin_array(&json, NULL);
    for (size_t i = 0; i < count; i++) {
        const struct session *session = chosen[filter->ascending ? i : count - 1 - i];

        if (!is_behind(filter, session))
            continue;
        if (shown == filter->limit) {
            snprintf(token, sizeof(token), "%c%llu", filter->ascending ? 'a' : 'd',
                     (unsigned long long)session_number(last));
            http_respond_header(request->exchange, "X-Next-Token", token);
            break;
        }
        e2b_write_listed(request, session, false, &json);
        last = session;
        shown++;
    }
    json_end_array(&json);
    request_reply(request, 200, &text);
}

static void put_total(struct request *request)
{
    struct filter all = { .running = true };
    char number[TOKEN_SIZE];
    size_t count;

    free(choose(&all, request, &count));
    snprintf(number, sizeof(number), "%zu", count);
    http_respond_header(request->exchange, "X-Total-Running", number);
}

static void list_page(struct request *request)
{
    scoped(filter_fini) struct filter filter = { 0 };
    struct error err = { 0 };

    if (read_filter(request, &filter, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    put_total(request);
    reply_page(request, &filter);
}

/* The first version has no pages, and knows running ones alone. */
static void list_running(struct request *request)
{
    scoped(filter_fini) struct filter filter = { .running = true, .limit = SIZE_MAX };
    struct error err = { 0 };

    if (read_metadata(&filter, request_parameter(request, "metadata"), &err) < 0)
        request_fail(request, &err);
    else
        reply_page(request, &filter);
}

/* --- one ------------------------------------------------------------------------------------- */

static void show(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    struct error err = { 0 };

    if (vault_open(request->core->vault, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    e2b_write_listed(request, request->session, true, &json);
    request_reply(request, 200, &text);
}

static void get_sandbox(struct request *request)
{
    e2b_find(request, show);
}

const struct route e2b_list_routes[] = {
    { HTTP_GET, "/v2/sandboxes", list_page, "List sandboxes", .answers = e2b_any_answers },
    { HTTP_GET, "/sandboxes", list_running, "List running sandboxes", .answers = e2b_any_answers },
    { HTTP_GET, "/sandboxes/{id}", get_sandbox, "Show a sandbox", .answers = e2b_any_answers },
    { 0 },
};
