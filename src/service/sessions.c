/* SPDX-License-Identifier: Apache-2.0 */
#include "service/sessions.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "core/sandbox/usage.h"
#include "wire/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- which ----------------------------------------------------------------------------------- */

int session_filter_add_label(struct session_filter *filter, const char *text)
{
    const char *equals = strchr(text, '=');

    if (!equals || filter->label_count == SESSION_FILTER_LABELS)
        return -1;
    filter->labels[filter->label_count++] =
        (struct store_label){ xstrndup(text, (size_t)(equals - text)), equals + 1 };
    return 0;
}

int session_filter_set_ids(struct session_filter *filter, const char *text)
{
    char *rest, *id;

    filter->ids = xstrdup(text);
    for (id = strtok_r(filter->ids, ",", &rest); id; id = strtok_r(NULL, ",", &rest)) {
        if (!id_is_valid(id, ID_SESSION) || filter->by_id.count == SESSION_FILTER_IDS)
            return -1;
        map_put(&filter->by_id, id, id);
    }
    return 0;
}

void session_filter_fini(struct session_filter *filter)
{
    map_fini(&filter->by_id);
    free(filter->ids);
    for (unsigned i = 0; i < filter->label_count; i++)
        free((char *)filter->labels[i].name);
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

bool session_filter_matches(const struct session_filter *filter, const struct session *session)
{
    return (!filter->owner || str_equal(session_owner(session), filter->owner)) &&
           (!filter->states || filter->states & 1u << session_state(session)) &&
           (!filter->ids || map_get(&filter->by_id, session_id(session))) &&
           has_labels(filter, session_labels_json(session));
}

bool session_filter_is_ended(const struct session_filter *filter)
{
    return filter->states == 1u << SESSION_ENDED;
}

struct session *session_filter_next(const struct session_filter *filter, struct core *core,
                                    const struct session *session)
{
    struct session *candidate = session_next(core, session);

    while (candidate && !session_filter_matches(filter, candidate))
        candidate = session_next(core, candidate);
    return candidate;
}

/* --- a page ---------------------------------------------------------------------------------- */

void found_session_write_json(const struct found_session *found, struct json_writer *json,
                              const char *key)
{
    if (found->live)
        session_write_json(found->live, json, key);
    else
        session_record_write_json(found->record, json, key);
}

/* The number before the dot of a live cursor, or the whole of one of ended sessions. */
static uint64_t cursor_number(const struct session_page *page)
{
    return page->cursor ? strtoull(page->cursor, NULL, 10) : 0;
}

bool session_page_knows_cursor(const struct session_page *page)
{
    const char *text = page->cursor;
    size_t digits = text ? strspn(text, "0123456789") : 0;

    if (str_is_empty(text) || str_equal(text, "0"))
        return true;
    if (digits == 0 || digits > 18)
        return false;
    if (session_filter_is_ended(&page->filter))
        return text[digits] == '\0';
    return text[digits] == '.' && id_is_valid(text + digits + 1, ID_SESSION);
}

/* False when the page is full. */
static bool show(struct session_page *page, const struct found_session *found)
{
    page->has_more = page->has_more || page->shown == page->limit || !page->on_session(page, found);
    page->shown += !page->has_more;
    return !page->has_more;
}

/* All that match are counted, those behind the cursor are shown. */
static void list_live(struct session_page *page)
{
    uint64_t after = cursor_number(page);
    const struct session *session = NULL;

    while ((session = session_filter_next(&page->filter, page->core, session))) {
        page->total++;
        if (session_number(session) > after &&
            show(page, &(struct found_session){ .live = session }))
            snprintf(page->next, sizeof(page->next), "%llu.%s",
                     (unsigned long long)session_number(session), session_id(session));
    }
    page->done(page);
}

static void on_measured(void *user)
{
    list_live(user);
}

static void measure_live(struct session_page *page)
{
    struct usage_round *round = usage_begin(page->core);
    uint64_t after = cursor_number(page), added = 0;
    const struct session *session = NULL;

    while (added < page->limit &&
           (session = session_filter_next(&page->filter, page->core, session))) {
        if (session_number(session) <= after)
            continue;
        usage_add(round, session_sandbox(session));
        added++;
    }
    usage_end(round, on_measured, page);
}

static void on_ended(struct store_query *query, const struct session_record *record)
{
    struct session_page *page = container_of(query, struct session_page, query);

    if (show(page, &(struct found_session){ .record = record }))
        page->last = query->position;
}

static void on_ended_done(struct store_query *query)
{
    struct session_page *page = container_of(query, struct session_page, query);

    page->err = query->err;
    page->total = query->total;
    page->has_more = page->has_more || query->is_cut;
    snprintf(page->next, sizeof(page->next), "%llu", (unsigned long long)page->last);
    page->done(page);
}

static void list_ended(struct session_page *page)
{
    page->query = (struct store_query){
        .on_session = on_ended,
        .done = on_ended_done,
        .owner = page->filter.owner,
        .state = session_state_name(SESSION_ENDED),
        .labels = page->filter.labels,
        .label_count = page->filter.label_count,
        .newest_first = true,
        .behind = cursor_number(page),
        .limit = (uint32_t)MAX(page->limit, (uint64_t)1),
        .limit_bytes = page->limit_bytes,
        .count = true,
    };
    store_query(page->core->parts.store, STORE_SESSIONS, &page->query);
}

void session_page_start(struct session_page *page, struct core *core)
{
    page->core = core;
    if (session_filter_is_ended(&page->filter))
        list_ended(page);
    else if (page->measures)
        measure_live(page);
    else
        list_live(page);
}

void session_page_fini(struct session_page *page)
{
    session_filter_fini(&page->filter);
}
