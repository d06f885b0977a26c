/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/session/sessions.h"

#include "base/alloc.h"
#include "base/str.h"

#include <string.h>

enum { PAGE_SIZE = 500, TARGET_MAXIMUM = 65536 };

char *sessions_query(const struct sessions_filter *filter)
{
    struct buffer query = BUFFER_INIT(TARGET_MAXIMUM);

    for (size_t i = 0; i < filter->labels->count; i++) {
        scoped(free) char *label = url_encode(filter->labels->items[i]);

        buffer_appendf(&query, "%clabel=%s", query.length ? '&' : '?', label);
    }
    if (filter->state)
        buffer_appendf(&query, "%cstate=%s", query.length ? '&' : '?', filter->state);
    if (filter->owner) {
        scoped(free) char *owner = url_encode(filter->owner);

        buffer_appendf(&query, "%cowner=%s", query.length ? '&' : '?', owner);
    }
    return buffer_steal_text(&query);
}

static char *page_target(const char *query, bool usage, const char *cursor)
{
    scoped(free) char *encoded = url_encode(cursor ? cursor : "");

    return xasprintf("/api/v1/sessions%s%climit=%d%s%s%s", query, *query ? '&' : '?', PAGE_SIZE,
                     usage ? "&usage=1" : "", cursor ? "&cursor=" : "", encoded);
}

json_t *sessions_list(struct cli *cli, const struct sessions_filter *filter, bool usage,
                      struct error *err)
{
    scoped(free) char *query = sessions_query(filter);
    scoped(json_decref) json_t *all = NULL;
    scoped(free) char *cursor = NULL;

    do {
        scoped(free) char *target = page_target(query, usage, cursor);
        scoped(reply_fini) struct reply page = { 0 };
        const char *next;

        if (cli_call(cli, HTTP_GET, target, NULL, &page, err) < 0)
            return NULL;
        if (all)
            json_array_extend(json_object_get(all, "sessions"),
                              json_object_get(page.json, "sessions"));
        else
            all = json_incref(page.json);
        next = field_text(page.json, "next_cursor", NULL);
        free(cursor);
        cursor = str_is_empty(next) ? NULL : xstrdup(next);
    } while (cursor);
    json_object_set_new(all, "next_cursor", json_null());
    return steal_ptr(&all);
}

struct session_end session_next_end_of(const json_t *session)
{
    const json_t *next = json_object_get(session, "next_end");

    return (struct session_end){
        .kind = field_text(next, "reason", ""),
        .remaining_s = field_number(next, "in_seconds", -1),
    };
}

const char *session_sandbox_state(const json_t *session)
{
    return field_text(json_object_get(session, "sandbox"), "state", "none");
}

json_t *execution_last(struct cli *cli, const char *session, struct error *err)
{
    scoped(free) char *target = session_target(session, "/executions");
    scoped(reply_fini) struct reply reply = { 0 };
    json_t *last = NULL;
    json_t *execution;
    size_t index;

    if (cli_call(cli, HTTP_GET, target, NULL, &reply, err) < 0)
        return NULL;
    json_array_foreach(json_object_get(reply.json, "executions"), index,
                       execution) if (strcmp(field_text(execution, "created_at", ""),
                                             field_text(last, "created_at", "")) >= 0)
        last = execution;
    if (!last)
        error_set(err, ERR_NOT_FOUND, "session %s has no executions yet", session);
    return json_incref(last);
}
