/* SPDX-License-Identifier: Apache-2.0 */
#include "service/event_page.h"

#include "base/macros.h"
#include "core/core.h"

static void on_event(struct store_query *query, const struct event_record *event)
{
    struct event_page *page = container_of(query, struct event_page, query);

    page->on_event(page, event);
}

static void on_done(struct store_query *query)
{
    struct event_page *page = container_of(query, struct event_page, query);

    page->err = query->err;
    page->has_more = query->is_cut;
    page->done(page);
}

void event_page_read(struct event_page *page, struct core *core)
{
    page->query = (struct store_query){
        .on_event = on_event,
        .done = on_done,
        .session_id = page->session_id,
        .owner = page->owner,
        .after = page->after,
        .limit = page->limit,
        .limit_bytes = page->limit_bytes,
    };
    store_query(core->parts.store, STORE_EVENTS, &page->query);
}
