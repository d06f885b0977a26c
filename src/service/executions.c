/* SPDX-License-Identifier: Apache-2.0 */
#include "service/executions.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "wire/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void found_execution_write_json(const struct found_execution *found, struct json_writer *json,
                                const char *key, bool with_output)
{
    if (found->live)
        execution_write_json(found->live, json, key, with_output);
    else
        execution_record_write_json(found->record, found->core, json, key, with_output, NULL);
}

const char *found_execution_id(const struct found_execution *found)
{
    return found->live ? execution_facts(found->live)->id : found->record->id;
}

const char *found_execution_state(const struct found_execution *found)
{
    return found->live ? execution_state_name(execution_facts(found->live)->state)
                       : found->record->state;
}

bool found_execution_is_background(const struct found_execution *found)
{
    return found->live ? execution_facts(found->live)->kind == EXECUTION_BACKGROUND
                       : found->record->background;
}

static struct found_execution found_record(struct core *core, const struct execution_record *record)
{
    return (struct found_execution){
        .core = core,
        .live = execution_find(core, record->session_id, record->id),
        .record = record,
    };
}

/* --- one ------------------------------------------------------------------------------------- */

static void on_record(struct store_query *query, const struct execution_record *record)
{
    struct execution_search *search = container_of(query, struct execution_search, query);
    struct found_execution found;

    if (search->was_found || !str_equal(record->session_id, search->session_id))
        return;
    found = found_record(search->core, record);
    if (search->round == SEARCH_FIRST && !found.live &&
        !execution_state_is_final(execution_state_parse(record->state))) {
        search->round = SEARCH_OUTDATED;
        return;
    }
    search->was_found = true;
    search->on_found(search, &found);
}

static void ask_store(struct execution_search *search);

static void on_searched(struct store_query *query)
{
    struct execution_search *search = container_of(query, struct execution_search, query);

    if (search->round == SEARCH_OUTDATED && !query->err.code) {
        search->round = SEARCH_LAST;
        ask_store(search);
        return;
    }
    search->err = query->err;
    search->done(search);
}

static void ask_store(struct execution_search *search)
{
    search->query = (struct store_query){
        .on_execution = on_record,
        .done = on_searched,
        .id = *search->id ? search->id : NULL,
        .session_id = search->session_id,
        .key = search->key,
        .limit = 1,
    };
    store_query(search->core->parts.store, STORE_EXECUTIONS, &search->query);
}

void execution_search_start(struct execution_search *search, struct core *core,
                            const char *session_id, const char *id, const char *key)
{
    search->core = core;
    search->round = SEARCH_FIRST;
    search->key = key ? xstrdup(key) : NULL;
    snprintf(search->session_id, sizeof(search->session_id), "%s", session_id);
    snprintf(search->id, sizeof(search->id), "%s", id ? id : "");
    ask_store(search);
}

void execution_search_fini(struct execution_search *search)
{
    free(search->key);
}

/* --- a page ---------------------------------------------------------------------------------- */

static void on_listed(struct store_query *query, const struct execution_record *record)
{
    struct execution_page *page = container_of(query, struct execution_page, query);
    struct found_execution found = found_record(page->core, record);

    page->has_more = page->has_more || !page->on_execution(page, &found);
    if (!page->has_more)
        page->next = query->position;
}

static void on_page(struct store_query *query)
{
    struct execution_page *page = container_of(query, struct execution_page, query);

    page->err = query->err;
    page->has_more = page->has_more || query->is_cut;
    page->done(page);
}

void execution_page_start(struct execution_page *page, struct core *core, const char *session_id)
{
    page->core = core;
    snprintf(page->session_id, sizeof(page->session_id), "%s", session_id);
    page->query = (struct store_query){
        .on_execution = on_listed,
        .done = on_page,
        .session_id = page->session_id,
        .state = page->state,
        .newest_first = true,
        .behind = page->behind,
        .limit = (uint32_t)MAX(page->limit, (uint64_t)1),
        .limit_bytes = page->limit_bytes,
    };
    store_query(core->parts.store, STORE_EXECUTIONS, &page->query);
}

/* --- start and wait -------------------------------------------------------------------------- */

struct execution *start_execution(struct core *core, const char *session_id,
                                  const struct execution_request *request, bool *out_is_repeated,
                                  struct error *err)
{
    struct session *session = session_find(core, NULL, true, session_id);

    if (!session) {
        error_named(err, ERR_GONE, "session_ended", "session %s has ended", session_id);
        return NULL;
    }
    *out_is_repeated = request->key && execution_find_key(session, request->key);
    return execution_start(session, request, err);
}

static void on_change(struct execution_watcher *watcher)
{
    struct execution_wait *wait = container_of(watcher, struct execution_wait, watcher);

    if (execution_has_ended(wait->execution))
        wait->done(wait);
}

static void on_time_over(struct timer *timer)
{
    struct execution_wait *wait = container_of(timer, struct execution_wait, timer);

    wait->done(wait);
}

void execution_wait_start(struct execution_wait *wait, struct core *core,
                          struct execution *execution, int64_t timeout_ms, execution_wait_fn *done)
{
    *wait = (struct execution_wait){ .execution = execution, .done = done };
    timer_init(&wait->timer, core->loop, on_time_over);
    execution_ref(execution);
    execution_watch(execution, &wait->watcher, on_change);
    if (timeout_ms >= 0)
        timer_arm_in(&wait->timer, timeout_ms * 1000);
}

void execution_wait_stop(struct execution_wait *wait)
{
    execution_unwatch(&wait->watcher);
    timer_stop(&wait->timer);
    execution_unref(wait->execution);
}
