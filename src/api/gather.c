/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes about the whole cluster: what each node has answered, joined. Without a cluster, and with
 * ?node=, the usual handlers answer.
 */

#include "api/gather.h"
#include "api/pages.h"

#include "base/alloc.h"
#include "base/str.h"
#include "face/gather.h"

#include <stdlib.h>
#include <string.h>

enum {
    DEADLINE_MS = 5 * 1000,
    REMOVAL_DEADLINE_MS = 120 * 1000,
    ANSWER_MAXIMUM = 64 * 1024 * 1024,
    PAGE_DEFAULT = 100,
    PAGE_MAXIMUM = 1000,
};

static const struct gather_options usual = { .deadline_ms = DEADLINE_MS,
                                             .answer_maximum = ANSWER_MAXIMUM };

/* Whether the answers can be joined; answers otherwise. Without any there is nothing to show. */
static bool can_join(struct gather *gather)
{
    const struct gather_answer *refusal = gather_refusal(gather);
    struct error err = { 0 };

    if (refusal) {
        gather_reply_refusal(gather, refusal);
        return false;
    }
    for (size_t i = 0; i < gather->count; i++) {
        if (!gather_is_missing(&gather->answers[i]))
            return true;
    }
    error_named(&err, ERR_UNAVAILABLE, "nodes_missing", "no node of the cluster has answered");
    error_hint(&err, "the address of each node (node.address) must be reachable from all nodes");
    err.retryable = true;
    request_fail(gather->request, &err);
    return false;
}

static void put_items(struct json_writer *json, const struct gather *gather, const char *name)
{
    json_begin_array(json, name);
    for (size_t i = 0; i < gather->count; i++) {
        size_t index;
        json_t *item;

        json_array_foreach(json_object_get(gather->answers[i].json, name), index, item)
        {
            scoped(free) char *text = json_dumps(item, JSON_COMPACT | JSON_ENCODE_ANY);

            json_put_raw(json, NULL, text);
        }
    }
    json_end_array(json);
}

static int64_t sum(const struct gather *gather, const char *name)
{
    int64_t total = 0;

    for (size_t i = 0; i < gather->count; i++)
        total += json_integer_value(json_object_get(gather->answers[i].json, name));
    return total;
}

/* --- approvals, removals --------------------------------------------------------------------- */

/* Arrays of objects, joined; and what is the same in all of them. */
static void reply_joined(struct gather *gather, const char *const *arrays)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    const json_t *dry_run = json_object_get(gather->answers[0].json, "dry_run");

    json_begin_object(&json, NULL);
    for (; *arrays; arrays++)
        put_items(&json, gather, *arrays);
    if (dry_run)
        json_put_bool(&json, "dry_run", json_is_true(dry_run));
    gather_put_missing(gather, &json);
    json_end_object(&json);
    request_reply(gather->request, 200, &text);
}

static void on_approvals(struct gather *gather)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    if (can_join(gather)) {
        json_begin_object(&json, NULL);
        put_items(&json, gather, "approvals");
        gather_put_missing(gather, &json);
        json_end_object(&json);
        api_reply_page(gather->request, &text, "approvals", "id");
    }
    gather_free(gather);
}

static const char *const page_parameters[] = { "cursor", "limit", NULL };

static void put_all(void *user UNUSED, const char *node UNUSED, struct buffer *query)
{
    buffer_append_text(query, "&limit=10000");
}

void api_gather_approvals(struct request *request)
{
    gather_start(request,
                 &(struct gather_options){ .deadline_ms = DEADLINE_MS,
                                           .without = page_parameters,
                                           .put_query = put_all,
                                           .answer_maximum = ANSWER_MAXIMUM },
                 on_approvals);
}

static void on_removals(struct gather *gather)
{
    static const char *const arrays[] = { "destroyed", "failed", "skipped", NULL };

    if (can_join(gather))
        reply_joined(gather, arrays);
    gather_free(gather);
}

void api_gather_removals(struct request *request)
{
    gather_start(request,
                 &(struct gather_options){ .deadline_ms = REMOVAL_DEADLINE_MS,
                                           .answer_maximum = ANSWER_MAXIMUM },
                 on_removals);
}

/* --- capacity -------------------------------------------------------------------------------- */

/* Counts of slots are added up; the settings are those of the first node. */
static void reply_capacity(struct gather *gather)
{
    static const char *const sums[] = { "max_sandboxes", "burst", "sandboxes", "waiting",
                                        "idle",          "pool",  "own" };
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    const json_t *first = NULL;

    for (size_t i = 0; i < gather->count && !first; i++)
        first = gather->answers[i].json;
    json_begin_object(&json, NULL);
    for (size_t i = 0; i < ARRAY_LENGTH(sums); i++)
        json_put_int(&json, sums[i], sum(gather, sums[i]));
    json_put_int(&json, "max_per_owner",
                 json_integer_value(json_object_get(first, "max_per_owner")));
    json_put_text(&json, "overflow", json_string_value(json_object_get(first, "overflow")));
    json_begin_array(&json, "nodes");
    for (size_t i = 0; i < gather->count; i++) {
        scoped(free) char *own =
            gather->answers[i].json ? json_dumps(gather->answers[i].json, JSON_COMPACT) : NULL;

        if (!own)
            continue;
        json_begin_object(&json, NULL);
        json_put_text(&json, "node", gather->answers[i].node);
        json_put_raw(&json, "capacity", own);
        json_end_object(&json);
    }
    json_end_array(&json);
    gather_put_missing(gather, &json);
    json_end_object(&json);
    request_reply(gather->request, 200, &text);
}

static void on_capacity(struct gather *gather)
{
    if (can_join(gather))
        reply_capacity(gather);
    gather_free(gather);
}

void api_gather_capacity(struct request *request)
{
    gather_start(request, &usual, on_capacity);
}

/* --- metrics --------------------------------------------------------------------------------- */

/* Samples with one name stand together, behind its HELP and TYPE. */
struct family {
    char *name;          /* owned */
    struct buffer head;  /* comments */
    struct buffer lines; /* samples of all nodes */
};

struct families {
    struct family *items; /* owned */
    size_t count;
};

static struct family *family_of(struct families *families, const char *name, size_t length)
{
    struct family *family;

    for (size_t i = families->count; i-- > 0;) {
        family = &families->items[i];
        if (strlen(family->name) == length && memcmp(family->name, name, length) == 0)
            return family;
    }
    families->items = xrealloc(families->items, families->count + 1, sizeof(*families->items));
    family = &families->items[families->count++];
    *family = (struct family){ .name = xstrndup(name, length),
                               .head = BUFFER_INIT(4096),
                               .lines = BUFFER_INIT(ANSWER_MAXIMUM) };
    return family;
}

static void families_fini(struct families *families)
{
    for (size_t i = 0; i < families->count; i++) {
        free(families->items[i].name);
        buffer_fini(&families->items[i].head);
        buffer_fini(&families->items[i].lines);
    }
    free(families->items);
}

static inline void scoped_families_fini(struct families *families)
{
    families_fini(families);
}

/* name{a="b"} 1 becomes name{node="NODE",a="b"} 1. */
static void put_sample(struct buffer *out, const char *line, size_t length, const char *node)
{
    size_t name = strcspn(line, "{ ");
    bool has_labels = name < length && line[name] == '{';

    buffer_append(out, line, name);
    buffer_append_text(out, "{node=\"");
    for (; *node; node++) {
        if (*node == '"' || *node == '\\')
            buffer_append_byte(out, '\\');
        buffer_append_byte(out, (uint8_t)*node);
    }
    buffer_append_text(out, has_labels ? "\"," : "\"}");
    name += has_labels;
    buffer_append(out, line + name, length - name);
    buffer_append_byte(out, '\n');
}

/* Samples of a histogram have other names than the family that they follow. */
static void take_metrics(struct families *families, const char *text, const char *node)
{
    struct family *family = NULL;
    bool is_known = false;

    while (*text) {
        size_t length = strcspn(text, "\n");

        if (str_starts_with(text, "# HELP ") || str_starts_with(text, "# TYPE ")) {
            const char *name = text + strlen("# HELP ");
            size_t before = families->count;

            family = family_of(families, name, strcspn(name, " \n"));
            is_known = families->count == before && family->lines.length;
            if (!is_known) {
                buffer_append(&family->head, text, length);
                buffer_append_byte(&family->head, '\n');
            }
        } else if (length && *text != '#') {
            if (!family)
                family = family_of(families, text, strcspn(text, "{ \n"));
            put_sample(&family->lines, text, length, node);
        }
        text += length + (text[length] == '\n');
    }
}

static void reply_metrics(struct gather *gather)
{
    scoped(families_fini) struct families families = { 0 };
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);

    for (size_t i = 0; i < gather->count; i++) {
        if (!gather_is_missing(&gather->answers[i]))
            take_metrics(&families, buffer_text(&gather->answers[i].body), gather->answers[i].node);
    }
    for (size_t i = 0; i < families.count; i++) {
        buffer_append(&text, families.items[i].head.data, families.items[i].head.length);
        buffer_append(&text, families.items[i].lines.data, families.items[i].lines.length);
    }
    gather_put_missing(gather, NULL);
    http_respond(gather->request->exchange, 200, "text/plain; version=0.0.4; charset=utf-8",
                 text.data, text.length);
}

static void on_metrics(struct gather *gather)
{
    if (can_join(gather))
        reply_metrics(gather);
    gather_free(gather);
}

void api_gather_metrics(struct request *request)
{
    gather_start(request, &usual, on_metrics);
}

/* --- sessions -------------------------------------------------------------------------------- */

/*
 * Nodes come one behind the other, by their ids. A cursor is NODE~CURSOR: the page begins at that
 * node, behind that cursor of its own. All nodes are asked at once for as many as the page may have;
 * of a node that does not fit whole the right number is asked for once more.
 */
struct listing {
    struct request *request; /* borrowed */
    char *first;             /* owned: the node that the page begins with; NULL: the first of all */
    char *own;               /* owned: behind this cursor of that node; "" from its start */
    uint64_t limit;
    struct buffer items; /* sessions, with commas between them */
    size_t shown;
    int64_t total, maximum;
    char *next;            /* owned: cursor of the next page; NULL: this is the last one */
    struct buffer missing; /* nodes, as JSON */
    char *cut;             /* owned: the node that is asked once more, or NULL */
    char *behind;          /* owned: the one behind that, or NULL */
    size_t room;           /* for as many sessions of the node that is cut */
};

static void listing_free(void *user)
{
    struct listing *listing = user;

    buffer_fini(&listing->items);
    buffer_fini(&listing->missing);
    free(listing->first);
    free(listing->own);
    free(listing->next);
    free(listing->cut);
    free(listing->behind);
    free(listing);
}

static struct listing *listing_new(struct request *request)
{
    struct listing *listing = xnew(struct listing);
    const char *cursor = request_parameter(request, "cursor");
    const char *mark = cursor ? strrchr(cursor, '~') : NULL;

    listing->request = request;
    listing->first = mark ? xstrndup(cursor, (size_t)(mark - cursor)) : NULL;
    listing->own = xstrdup(mark ? mark + 1 : "");
    listing->limit = PAGE_DEFAULT;
    listing->items = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    listing->missing = BUFFER_INIT(64 * 1024);
    return listing;
}

static bool is_before(const struct listing *listing, const char *node)
{
    return listing->first && strcmp(node, listing->first) < 0;
}

static const char *own_cursor(const struct listing *listing, const char *node)
{
    return listing->first && str_equal(node, listing->first) ? listing->own : "";
}

/* Of the nodes before the first one only the total is asked for. */
static void put_page(void *user, const char *node, struct buffer *query)
{
    const struct listing *listing = user;
    const char *own = own_cursor(listing, node);
    uint64_t limit = is_before(listing, node) ? 0 : listing->cut ? listing->room : listing->limit;

    buffer_appendf(query, "&limit=%llu", (unsigned long long)limit);
    if (*own) {
        buffer_append_text(query, "&cursor=");
        (void)http_escape(query, own);
    }
}

static void put_sessions(struct listing *listing, const struct gather_answer *answer)
{
    size_t index;
    json_t *session;

    json_array_foreach(json_object_get(answer->json, "sessions"), index, session)
    {
        scoped(free) char *text = NULL;

        json_object_set_new(session, "node", json_string(answer->node));
        text = json_dumps(session, JSON_COMPACT);
        if (listing->shown++)
            buffer_append_byte(&listing->items, ',');
        buffer_append_text(&listing->items, text);
    }
}

static void end_at(struct listing *listing, const char *node, const char *own)
{
    free(listing->next);
    listing->next = node ? xasprintf("%s~%s", node, own) : NULL;
}

/* Whether the page goes on behind this node. */
static bool take_node(struct listing *listing, const struct gather_answer *answer)
{
    const char *next = json_string_value(json_object_get(answer->json, "next_cursor"));
    size_t count = json_array_size(json_object_get(answer->json, "sessions"));

    if (!count && !next)
        return true;
    listing->room = listing->limit - listing->shown;
    if (count <= listing->room && listing->room) {
        put_sessions(listing, answer);
        if (next)
            end_at(listing, answer->node, next);
        return !next;
    }
    if (listing->room)
        listing->cut = xstrdup(answer->node);
    else
        end_at(listing, answer->node, own_cursor(listing, answer->node));
    return false;
}

static void take_nodes(struct listing *listing, const struct gather *gather)
{
    bool goes_on = true;

    for (size_t i = 0; i < gather->count; i++) {
        const struct gather_answer *answer = &gather->answers[i];
        const json_t *maximum = json_object_get(answer->json, "max_sessions");

        listing->total += json_integer_value(json_object_get(answer->json, "total"));
        if (maximum)
            listing->maximum = json_integer_value(maximum);
        if (goes_on && !is_before(listing, answer->node)) {
            goes_on = take_node(listing, answer);
            if (listing->cut && i + 1 < gather->count)
                listing->behind = xstrdup(gather->answers[i + 1].node);
        }
    }
}

static void note_missing(struct listing *listing, struct gather *gather)
{
    struct json_writer json = JSON_WRITER(&listing->missing);
    bool has_any = false;

    for (size_t i = 0; i < gather->count; i++)
        has_any = has_any || gather_is_missing(&gather->answers[i]);
    if (!has_any)
        return;
    gather_put_missing(gather, NULL);
    json_begin_array(&json, NULL);
    for (size_t i = 0; i < gather->count; i++) {
        if (gather_is_missing(&gather->answers[i]))
            json_put_text(&json, NULL, gather->answers[i].node);
    }
    json_end_array(&json);
}

static void reply_list(struct listing *listing)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    scoped(buffer_fini) struct buffer items = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    buffer_append_byte(&items, '[');
    buffer_append(&items, listing->items.data, listing->items.length);
    buffer_append_byte(&items, ']');
    json_begin_object(&json, NULL);
    json_put_raw(&json, "sessions", buffer_text(&items));
    json_put_text(&json, "next_cursor", listing->next);
    json_put_int(&json, "total", listing->total);
    json_put_int(&json, "max_sessions", listing->maximum);
    if (listing->missing.length)
        json_put_raw(&json, "missing_nodes", buffer_text(&listing->missing));
    json_end_object(&json);
    request_reply(listing->request, 200, &text);
}

/* The rest of the page is the beginning of one node's list. */
static void on_rest(struct gather *gather)
{
    struct listing *listing = gather->user;
    const struct gather_answer *answer = gather->count ? &gather->answers[0] : NULL;
    const json_t *json = answer ? answer->json : NULL;
    const char *next = json_string_value(json_object_get(json, "next_cursor"));

    if (!json)
        end_at(listing, listing->cut, own_cursor(listing, listing->cut));
    else if (next)
        end_at(listing, listing->cut, next);
    else
        end_at(listing, listing->behind, "");
    if (json)
        put_sessions(listing, answer);
    reply_list(listing);
    gather_free(gather);
}

static void ask_for_rest(struct listing *listing)
{
    gather_start(listing->request,
                 &(struct gather_options){ .node = listing->cut,
                                           .deadline_ms = DEADLINE_MS,
                                           .without = page_parameters,
                                           .put_query = put_page,
                                           .user = listing,
                                           .release = listing_free,
                                           .answer_maximum = ANSWER_MAXIMUM },
                 on_rest);
}

static void on_sessions(struct gather *gather)
{
    struct listing *listing = gather->user;

    if (!can_join(gather)) {
        gather_free(gather);
        return;
    }
    note_missing(listing, gather);
    take_nodes(listing, gather);
    if (!listing->cut) {
        reply_list(listing);
        gather_free(gather);
        return;
    }
    gather->release = NULL; /* the listing goes on */
    gather_free(gather);
    ask_for_rest(listing);
}

/* Ended sessions are in the store that all nodes share: any of them can list them. */
void api_gather_sessions(struct request *request)
{
    struct listing *listing;
    struct error err = { 0 };

    if (str_equal(request_parameter(request, "state"), "ended")) {
        request->route->handle(request);
        return;
    }
    listing = listing_new(request);
    if (request_parameter_limit(request, PAGE_MAXIMUM, &listing->limit, &err) < 0) {
        listing_free(listing);
        request_fail(request, &err);
        return;
    }
    gather_start(request,
                 &(struct gather_options){ .deadline_ms = DEADLINE_MS,
                                           .without = page_parameters,
                                           .put_query = put_page,
                                           .user = listing,
                                           .release = listing_free,
                                           .answer_maximum = ANSWER_MAXIMUM },
                 on_sessions);
}
