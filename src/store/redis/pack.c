/* SPDX-License-Identifier: Apache-2.0 */
#include "store/redis/pack.h"

#include "base/alloc.h"
#include "base/macros.h"
#include "base/str.h"
#include "store/redis/link.h"

#include <arpa/inet.h>
#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_SIZE = 24, INDEXES_MAXIMUM = 64 };

const char *redis_table(enum store_table table)
{
    static const char *const letters[RECORD_TABLES] = { [STORE_SESSIONS] = "s",
                                                        [STORE_SANDBOXES] = "b",
                                                        [STORE_EXECUTIONS] = "x",
                                                        [STORE_EVENTS] = "e",
                                                        [STORE_DOCUMENTS] = "d" };

    return letters[table];
}

/* --- MessagePack ---------------------------------------------------------------------------- */

static void pack_length(struct buffer *out, uint8_t tag, size_t length)
{
    uint32_t big = htonl((uint32_t)length);

    buffer_append_byte(out, tag);
    buffer_append(out, &big, sizeof(big));
}

void redis_pack_array(struct buffer *out, size_t count)
{
    if (count < 16)
        buffer_append_byte(out, (uint8_t)(0x90 | count));
    else
        pack_length(out, 0xdd, count);
}

void redis_pack_text(struct buffer *out, const char *text)
{
    size_t length = strlen(text);

    if (length < 32)
        buffer_append_byte(out, (uint8_t)(0xa0 | length));
    else
        pack_length(out, 0xdb, length);
    buffer_append(out, text, length);
}

/* --- indexes of a record -------------------------------------------------------------------- */

struct index_list {
    struct {
        char *name; /* owned */
        char score[NUMBER_SIZE];
    } items[INDEXES_MAXIMUM];
    size_t count;
};

/* Labels beyond INDEXES_MAXIMUM are not indexed: queries do not find the session by them. */
static void add(struct index_list *list, char *name, int64_t score)
{
    if (list->count == INDEXES_MAXIMUM) {
        free(name);
        return;
    }
    list->items[list->count].name = name;
    if (score)
        snprintf(list->items[list->count].score, NUMBER_SIZE, "%" PRId64, score);
    list->count++;
}

static char *label_index(const char *name, const char *value)
{
    return xasprintf("s.label:%zu:%s=%s", strlen(name), name, value);
}

static void add_labels(struct index_list *list, const char *labels_json)
{
    json_t *labels = json_loads(labels_json, 0, NULL);
    const char *name;
    json_t *value;

    json_object_foreach(labels, name, value)
    {
        if (json_is_string(value))
            add(list, label_index(name, json_string_value(value)), 0);
    }
    json_decref(labels);
}

static void index_session(struct index_list *list, const struct session_record *session)
{
    bool is_ended = str_equal(session->state, STORE_STATE_ENDED);

    add(list, xstrdup("s.all"), 0);
    add(list, xstrdup(is_ended ? "s.ended" : "s.live"), 0);
    if (!is_ended)
        add(list, xasprintf("s.node:%s", session->node), 0);
    add(list, xasprintf("s.own:%s", session->owner), 0);
    if (session->key)
        add(list, xasprintf("s.key:%s", session->key), 0);
    /* An ended session without a retention time would be retained for ever. */
    if (session->retain_until_wall_us > 0 || is_ended)
        add(list, xstrdup("s.retention"), MAX(session->retain_until_wall_us, (int64_t)1));
    if (!is_ended)
        return;
    add(list, xasprintf("s.ended.own:%s", session->owner), 0);
    add_labels(list, session->labels_json);
}

static void index_execution(struct index_list *list, const struct execution_record *execution)
{
    add(list, xstrdup("x.all"), 0);
    add(list, xasprintf("x.session:%s", execution->session_id), 0);
    add(list, xasprintf("x.state:%s", execution->state), 0);
    if (execution->key)
        add(list, xasprintf("x.key:%s", execution->key), 0);
}

static void index_document(struct index_list *list, const struct document_record *document)
{
    add(list, xstrdup("d.all"), 0);
    add(list, xasprintf("d.kind:%s", document->kind), 0);
    add(list, xasprintf("d.own:%s/%s", document->kind, document->owner), 0);
    if (document->expires_wall_us > 0)
        add(list, xstrdup("d.expiry"), document->expires_wall_us);
}

/* The events of each node are numbered by itself. */
static void index_record(struct index_list *list, enum store_table table, const void *record,
                         const char *node)
{
    const struct sandbox_record *sandbox = record;
    const struct event_record *event = record;

    switch (table) {
    case STORE_SESSIONS:
        index_session(list, record);
        break;
    case STORE_SANDBOXES:
        add(list, xstrdup("b.all"), 0);
        add(list, xasprintf("b.node:%s", sandbox->node), 0);
        if (sandbox->session_id[0])
            add(list, xasprintf("b.session:%s", sandbox->session_id), 0);
        break;
    case STORE_EXECUTIONS:
        index_execution(list, record);
        break;
    case STORE_EVENTS:
        add(list, xasprintf("e.node:%s", node), 0);
        add(list, xasprintf("e.own:%s/%s", node, event->owner), 0);
        if (event->session_id[0])
            add(list, xasprintf("e.session:%s", event->session_id), 0);
        break;
    case STORE_DOCUMENTS:
        index_document(list, record);
        break;
    }
}

static void pack_indexes(struct buffer *out, enum store_table table, const void *record,
                         const char *node)
{
    struct index_list *list = xnew(struct index_list);

    index_record(list, table, record, node);
    redis_pack_array(out, 2 * list->count);
    for (size_t i = 0; i < list->count; i++) {
        redis_pack_text(out, list->items[i].name);
        redis_pack_text(out, list->items[i].score);
        free(list->items[i].name);
    }
    free(list);
}

/* --- fields --------------------------------------------------------------------------------- */

/* The text of a field, "" when it is not set. */
static const char *field_text(const struct record_field *field, const void *record,
                              char number[NUMBER_SIZE])
{
    int64_t value;

    if (record_is_text(field))
        return record_text(field, record);
    value = record_number(field, record);
    if (value == 0 && !field->minus_one)
        return "";
    snprintf(number, NUMBER_SIZE, "%" PRId64, value);
    return number;
}

static void pack_fields(struct buffer *out, const struct record_type *type, const void *record,
                        const char *boot_id)
{
    char number[NUMBER_SIZE];
    size_t count = 0;

    for (size_t i = 0; i < type->field_count; i++)
        count += *field_text(&type->fields[i], record, number) != '\0';
    redis_pack_array(out, 2 * count + (type->has_stamps ? 2 : 0));
    for (size_t i = 0; i < type->field_count; i++) {
        const char *text = field_text(&type->fields[i], record, number);

        if (!*text)
            continue;
        redis_pack_text(out, type->fields[i].column);
        redis_pack_text(out, text);
    }
    if (type->has_stamps) {
        redis_pack_text(out, "_boot");
        redis_pack_text(out, boot_id);
    }
    redis_pack_array(out, type->field_count - count);
    for (size_t i = 0; i < type->field_count; i++)
        if (!*field_text(&type->fields[i], record, number))
            redis_pack_text(out, type->fields[i].column);
}

/* --- a commit ------------------------------------------------------------------------------- */

static void pack_id(struct buffer *out, const struct redis_writer *writer,
                    const struct change *change)
{
    scoped(free) char *id = change_id(change);
    scoped(free) char *of_node = NULL;

    if (change->table != STORE_EVENTS) {
        redis_pack_text(out, id);
        return;
    }
    of_node = xasprintf("%s:%s", writer->node, id);
    redis_pack_text(out, of_node);
}

static void pack_change(struct buffer *out, const struct redis_writer *writer,
                        const struct change *change)
{
    const struct event_record *event = (const void *)change->record;
    char position[NUMBER_SIZE] = "";

    redis_pack_array(out, change->forget ? 3 : 7);
    redis_pack_text(out, change->forget ? "forget" : "put");
    redis_pack_text(out, redis_table(change->table));
    pack_id(out, writer, change);
    if (change->forget)
        return;
    if (change->table == STORE_EVENTS)
        snprintf(position, sizeof(position), "%" PRIu64, event->sequence);
    redis_pack_text(out, position);
    pack_fields(out, &record_types[change->table], change->record, writer->boot_id);
    pack_indexes(out, change->table, change->record, writer->node);
}

static void pack_claim(struct buffer *out, const struct redis_writer *writer,
                       const struct store_claim *claim)
{
    const struct change *change = claim->private.change;
    char expected[NUMBER_SIZE];

    redis_pack_array(out, change->forget ? 4 : 8);
    redis_pack_text(out, "claim");
    redis_pack_text(out, redis_table(STORE_DOCUMENTS));
    pack_id(out, writer, change);
    snprintf(expected, sizeof(expected), "%" PRIu64, claim->private.expected);
    redis_pack_text(out, expected);
    if (change->forget)
        return;
    pack_fields(out, &record_types[STORE_DOCUMENTS], change->record, writer->boot_id);
    pack_indexes(out, STORE_DOCUMENTS, change->record, writer->node);
    redis_pack_text(out, claim->private.guarded);
}

void redis_pack_commit(struct buffer *out, const struct redis_writer *writer,
                       const struct change_queue *changes, const struct list *claims)
{
    const struct store_claim *claim;
    size_t count = 0;

    for (const struct change *change = changes->first; change; change = change->next)
        count += !change->is_moot;
    list_for_each (claim, claims, node)
        count++;
    redis_pack_array(out, count);
    for (const struct change *change = changes->first; change; change = change->next)
        if (!change->is_moot)
            pack_change(out, writer, change->newest ? change->newest : change);
    list_for_each (claim, claims, node)
        pack_claim(out, writer, claim);
}

/* --- queries -------------------------------------------------------------------------------- */

static void use(struct redis_plan *plan, unsigned settled, char *index)
{
    plan->index = index;
    plan->left &= ~settled;
}

static void plan_sessions(struct redis_plan *plan, const struct store_query *query)
{
    unsigned filters = plan->left;

    if (query->label_count) {
        use(plan, FILTER_ENDED, label_index(query->labels[0].name, query->labels[0].value));
        plan->labels = 1;
    } else if (filters & FILTER_KEY) {
        use(plan, FILTER_KEY, xasprintf("s.key:%s", query->key));
    } else if ((filters & FILTER_LIVE) && (filters & FILTER_NODE)) {
        use(plan, FILTER_LIVE | FILTER_NODE, xasprintf("s.node:%s", query->node));
    } else if (filters & (FILTER_LIVE | FILTER_STATE)) {
        use(plan, FILTER_LIVE, xstrdup("s.live"));
    } else if ((filters & FILTER_ENDED) && (filters & FILTER_OWNER)) {
        use(plan, FILTER_ENDED | FILTER_OWNER, xasprintf("s.ended.own:%s", query->owner));
    } else if (filters & FILTER_ENDED) {
        use(plan, FILTER_ENDED, xstrdup("s.ended"));
    } else if (filters & FILTER_OWNER) {
        use(plan, FILTER_OWNER, xasprintf("s.own:%s", query->owner));
    }
}

static void plan_executions(struct redis_plan *plan, const struct store_query *query)
{
    unsigned filters = plan->left;

    if (filters & FILTER_KEY)
        use(plan, FILTER_KEY, xasprintf("x.key:%s", query->key));
    else if (filters & FILTER_SESSION)
        use(plan, FILTER_SESSION, xasprintf("x.session:%s", query->session_id));
    else if (filters & (FILTER_STATE | FILTER_ENDED))
        use(plan, FILTER_STATE | FILTER_ENDED, xasprintf("x.state:%s", query->state));
}

static void plan_documents(struct redis_plan *plan, const struct store_query *query)
{
    unsigned filters = plan->left;

    if ((filters & FILTER_KIND) && (filters & FILTER_OWNER))
        use(plan, FILTER_KIND | FILTER_OWNER, xasprintf("d.own:%s/%s", query->kind, query->owner));
    else if (filters & FILTER_KIND)
        use(plan, FILTER_KIND, xasprintf("d.kind:%s", query->kind));
}

static char *only_id(enum store_table table, unsigned filters, const struct store_query *query)
{
    if (table == STORE_DOCUMENTS)
        return (filters & FILTER_ID) && (filters & FILTER_KIND)
                   ? xasprintf("%s/%s", query->kind, query->id)
                   : xstrdup("");
    return xstrdup(filters & FILTER_ID ? query->id : "");
}

void redis_plan_make(struct redis_plan *plan, enum store_table table,
                     const struct store_query *query, const char *own_node)
{
    unsigned filters = record_filters(&record_types[table], query);
    const char *node = str_is_empty(query->node) ? own_node : query->node;

    *plan = (struct redis_plan){ .left = filters, .id = only_id(table, filters, query) };
    if (!*plan->id) {
        if (table == STORE_SESSIONS)
            plan_sessions(plan, query);
        else if (table == STORE_SANDBOXES && (filters & FILTER_SESSION))
            use(plan, FILTER_SESSION, xasprintf("b.session:%s", query->session_id));
        else if (table == STORE_SANDBOXES && (filters & FILTER_NODE))
            use(plan, FILTER_NODE, xasprintf("b.node:%s", query->node));
        else if (table == STORE_EXECUTIONS)
            plan_executions(plan, query);
        else if (table == STORE_EVENTS && (filters & FILTER_SESSION))
            use(plan, FILTER_SESSION, xasprintf("e.session:%s", query->session_id));
        else if (table == STORE_EVENTS && (filters & FILTER_OWNER))
            use(plan, FILTER_OWNER, xasprintf("e.own:%s/%s", node, query->owner));
        else if (table == STORE_EVENTS)
            use(plan, 0, xasprintf("e.node:%s", node));
        else if (table == STORE_DOCUMENTS)
            plan_documents(plan, query);
    }
    if (!plan->index)
        plan->index = *plan->id ? xstrdup("") : xasprintf("%s.all", redis_table(table));
    plan->is_counted = !*plan->id && !plan->left && query->label_count <= plan->labels &&
                       table != STORE_DOCUMENTS && table != STORE_EVENTS;
}

void redis_plan_fini(struct redis_plan *plan)
{
    free(plan->index);
    free(plan->id);
    *plan = (struct redis_plan){ 0 };
}

void redis_pack_filter(struct buffer *out, enum store_table table, const struct store_query *query,
                       const struct redis_plan *plan, bool counts)
{
    const struct record_type *type = &record_types[table];
    unsigned left = plan->left & FILTER_ENDED ? plan->left ^ (FILTER_ENDED | FILTER_STATE)
                                              : plan->left;
    size_t fields = 0;

    for (size_t i = 0; i < type->field_count; i++)
        fields += (left & type->fields[i].filter) != 0;
    redis_pack_array(out, 4);
    redis_pack_array(out, 2 * fields);
    for (size_t i = 0; i < type->field_count; i++) {
        if (!(left & type->fields[i].filter))
            continue;
        redis_pack_text(out, type->fields[i].column);
        redis_pack_text(out, record_filter_value(type->fields[i].filter, query));
    }
    redis_pack_array(out, 2 * (query->label_count - plan->labels));
    for (unsigned i = plan->labels; i < query->label_count; i++) {
        redis_pack_text(out, query->labels[i].name);
        redis_pack_text(out, query->labels[i].value);
    }
    redis_pack_text(out, left & FILTER_LIVE ? "1" : "");
    redis_pack_text(out, counts ? "1" : "");
}

/* --- reading -------------------------------------------------------------------------------- */

static const struct record_field *field_named(const struct record_type *type, const char *name)
{
    for (size_t i = 0; i < type->field_count; i++)
        if (strcmp(type->fields[i].column, name) == 0)
            return &type->fields[i];
    return NULL;
}

static int64_t in_range(const char *text, int64_t least, int64_t most)
{
    long long value = strtoll(text, NULL, 10);

    return value >= least && value <= most ? value : 0;
}

static void read_field(const struct record_field *field, const char *text, char *record)
{
    void *place = record + field->offset;

    switch (field->kind) {
    case FIELD_ID:
        if (strlen(text) < ID_SIZE)
            strcpy(place, text);
        break;
    case FIELD_TEXT:
    case FIELD_KEY:
        *(const char **)place = text;
        break;
    case FIELD_I64:
    case FIELD_U64:
    case FIELD_BOOT:
        *(int64_t *)place = strtoll(text, NULL, 10);
        break;
    case FIELD_U32:
        *(uint32_t *)place = (uint32_t)in_range(text, 0, UINT32_MAX);
        break;
    case FIELD_INT:
        *(int *)place = (int)in_range(text, INT32_MIN, INT32_MAX);
        break;
    case FIELD_BOOL:
        *(bool *)place = in_range(text, 0, 1);
        break;
    }
}

static void clear_record(const struct record_type *type, char *record)
{
    memset(record, 0, type->size);
    for (size_t i = 0; i < type->field_count; i++)
        if (type->fields[i].minus_one)
            *(int64_t *)(void *)(record + type->fields[i].offset) = -1;
}

static bool is_whole(const struct record_type *type, const char *record)
{
    for (size_t i = 0; i < type->field_count; i++) {
        const struct record_field *field = &type->fields[i];

        if (field->required &&
            (record_is_text(field) ? !*record_text(field, record) : !record_number(field, record)))
            return false;
    }
    return true;
}

bool redis_read_record(const redisReply *hash, enum store_table table, const char *boot_id,
                       char record[RECORD_MAXIMUM], uint64_t *out_position, bool *out_same_boot)
{
    const struct record_type *type = &record_types[table];

    assert(type->size <= RECORD_MAXIMUM);
    clear_record(type, record);
    *out_position = 0;
    *out_same_boot = false;
    if (!redis_reply_has_words(hash, hash->elements))
        return false;
    for (size_t i = 0; i + 1 < hash->elements; i += 2) {
        const char *name = hash->element[i]->str;
        const char *value = hash->element[i + 1]->str;
        const struct record_field *field = field_named(type, name);

        if (field)
            read_field(field, value, record);
        else if (strcmp(name, "_at") == 0)
            *out_position = strtoull(value, NULL, 10);
        else if (strcmp(name, "_boot") == 0)
            *out_same_boot = str_equal(value, boot_id);
    }
    return is_whole(type, record);
}
