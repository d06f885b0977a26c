/* SPDX-License-Identifier: Apache-2.0 */
#include "store/record.h"

#include "base/alloc.h"
#include "base/macros.h"
#include "base/map.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* clang-format off */
#define COLUMN(struct_name, name, field_kind, ...) \
    { .column = #name, .kind = (field_kind), .offset = offsetof(struct struct_name, name), __VA_ARGS__ }
#define STAMP(struct_name, name) \
    { .column = #name "_wall_us", .kind = FIELD_I64, .offset = offsetof(struct struct_name, name.wall_us) }, \
    { .column = #name "_boot_us", .kind = FIELD_BOOT, .offset = offsetof(struct struct_name, name.boot_us) }
#define STAMP_WITH_CODE(struct_name, name, first) \
    { .column = #name "_wall_us", .kind = FIELD_I64, .offset = offsetof(struct struct_name, name.wall_us), .code = (first) }, \
    { .column = #name "_boot_us", .kind = FIELD_BOOT, .offset = offsetof(struct struct_name, name.boot_us), .code = (first) + 1 }

static const struct record_field session_fields[] = {
    COLUMN(session_record, id, FIELD_ID, .filter = FILTER_ID, .required = true, .indexed = true),
    COLUMN(session_record, owner, FIELD_TEXT, .filter = FILTER_OWNER, .indexed = true),
    COLUMN(session_record, key, FIELD_KEY, .filter = FILTER_KEY, .indexed = true),
    COLUMN(session_record, on_behalf_of, FIELD_TEXT),
    COLUMN(session_record, spec_json, FIELD_TEXT),
    COLUMN(session_record, labels_json, FIELD_TEXT, .indexed = true),
    COLUMN(session_record, state, FIELD_TEXT, .filter = FILTER_STATE, .required = true, .indexed = true),
    COLUMN(session_record, end_reason, FIELD_TEXT),
    COLUMN(session_record, generation, FIELD_U64),
    COLUMN(session_record, idle_timeout_ms, FIELD_I64, .minus_one = true),
    COLUMN(session_record, max_lifetime_ms, FIELD_I64, .minus_one = true),
    STAMP(session_record, created),
    STAMP(session_record, started),
    STAMP(session_record, last_activity),
    STAMP(session_record, expires),
    STAMP(session_record, ended),
    COLUMN(session_record, retain_until_wall_us, FIELD_I64, .indexed = true),
    COLUMN(session_record, node, FIELD_TEXT, .filter = FILTER_NODE),
};

static const struct record_field sandbox_fields[] = {
    COLUMN(sandbox_record, id, FIELD_ID, .filter = FILTER_ID, .required = true, .indexed = true),
    COLUMN(sandbox_record, session_id, FIELD_ID, .filter = FILTER_SESSION, .indexed = true),
    COLUMN(sandbox_record, backend, FIELD_TEXT),
    COLUMN(sandbox_record, state, FIELD_TEXT, .filter = FILTER_STATE, .required = true),
    COLUMN(sandbox_record, end_reason, FIELD_TEXT),
    COLUMN(sandbox_record, last_error, FIELD_TEXT),
    COLUMN(sandbox_record, generation, FIELD_U64),
    COLUMN(sandbox_record, handle, FIELD_TEXT, .code = 13), /* 7, 8, 10: enum old_handle_code */
    COLUMN(sandbox_record, attempts, FIELD_U32, .code = 9),
    STAMP_WITH_CODE(sandbox_record, created, 11),
    COLUMN(sandbox_record, node, FIELD_TEXT, .filter = FILTER_NODE, .code = 14),
};

static const struct record_field execution_fields[] = {
    COLUMN(execution_record, id, FIELD_ID, .filter = FILTER_ID, .required = true, .indexed = true),
    COLUMN(execution_record, session_id, FIELD_ID, .filter = FILTER_SESSION, .required = true, .indexed = true),
    COLUMN(execution_record, sandbox_id, FIELD_ID),
    COLUMN(execution_record, key, FIELD_KEY, .filter = FILTER_KEY, .indexed = true),
    COLUMN(execution_record, request_json, FIELD_TEXT),
    COLUMN(execution_record, state, FIELD_TEXT, .filter = FILTER_STATE, .required = true, .indexed = true),
    COLUMN(execution_record, reason, FIELD_TEXT),
    COLUMN(execution_record, error, FIELD_TEXT),
    COLUMN(execution_record, generation, FIELD_U64),
    COLUMN(execution_record, number, FIELD_U64),
    COLUMN(execution_record, timeout_ms, FIELD_I64),
    COLUMN(execution_record, exit_code, FIELD_INT),
    COLUMN(execution_record, signal, FIELD_INT),
    COLUMN(execution_record, background, FIELD_BOOL),
    COLUMN(execution_record, stdout_bytes, FIELD_U64),
    COLUMN(execution_record, stderr_bytes, FIELD_U64),
    COLUMN(execution_record, cpu_us, FIELD_I64),
    COLUMN(execution_record, max_rss_bytes, FIELD_U64),
    STAMP(execution_record, created),
    STAMP(execution_record, started),
    STAMP(execution_record, ended),
};

static const struct record_field event_fields[] = {
    COLUMN(event_record, sequence, FIELD_U64, .required = true, .indexed = true),
    COLUMN(event_record, session_sequence, FIELD_U64),
    COLUMN(event_record, session_id, FIELD_ID, .filter = FILTER_SESSION, .indexed = true),
    COLUMN(event_record, owner, FIELD_TEXT, .filter = FILTER_OWNER, .indexed = true),
    COLUMN(event_record, type, FIELD_TEXT, .required = true),
    COLUMN(event_record, data_json, FIELD_TEXT),
    COLUMN(event_record, wall_us, FIELD_I64),
};

static const struct record_field document_fields[] = {
    COLUMN(document_record, kind, FIELD_TEXT, .filter = FILTER_KIND, .required = true, .indexed = true),
    COLUMN(document_record, id, FIELD_TEXT, .filter = FILTER_ID, .required = true, .indexed = true),
    COLUMN(document_record, owner, FIELD_TEXT, .filter = FILTER_OWNER, .indexed = true),
    COLUMN(document_record, json, FIELD_TEXT),
    COLUMN(document_record, expires_wall_us, FIELD_I64, .indexed = true),
    COLUMN(document_record, version, FIELD_U64),
};
/* clang-format on */

#define FIELDS(array) .fields = (array), .field_count = ARRAY_LENGTH(array)

_Static_assert(sizeof(struct session_record) <= RECORD_MAXIMUM &&
                   sizeof(struct execution_record) <= RECORD_MAXIMUM &&
                   offsetof(struct session_record, id) == 0 &&
                   offsetof(struct sandbox_record, id) == 0 &&
                   offsetof(struct execution_record, id) == 0,
               "records fit RECORD_MAXIMUM and begin with their id");

const struct record_type record_types[RECORD_TABLES] = {
    [STORE_SESSIONS] = { .table = "sessions",
                         .identity = "id",
                         .order = "seq",
                         .size = sizeof(struct session_record),
                         FIELDS(session_fields),
                         .has_stamps = true },
    [STORE_SANDBOXES] = { .table = "sandboxes",
                          .identity = "id",
                          .order = "seq",
                          .size = sizeof(struct sandbox_record),
                          FIELDS(sandbox_fields),
                          .has_stamps = true },
    [STORE_EXECUTIONS] = { .table = "executions",
                           .identity = "id",
                           .order = "seq",
                           .size = sizeof(struct execution_record),
                           FIELDS(execution_fields),
                           .has_stamps = true },
    [STORE_EVENTS] = { .table = "events",
                       .identity = "sequence",
                       .order = "sequence",
                       .size = sizeof(struct event_record),
                       FIELDS(event_fields) },
    [STORE_DOCUMENTS] = { .table = "documents",
                          .identity = "kind, id",
                          .order = "seq",
                          .size = sizeof(struct document_record),
                          FIELDS(document_fields) },
};

static bool field_is_pointer(const struct record_field *field)
{
    return field->kind == FIELD_TEXT || field->kind == FIELD_KEY;
}

const char *record_text(const struct record_field *field, const void *record)
{
    const char *place = (const char *)record + field->offset;
    const char *text;

    if (!field_is_pointer(field))
        return place;
    memcpy(&text, place, sizeof(text));
    return text ? text : "";
}

bool record_is_text(const struct record_field *field)
{
    return field->kind == FIELD_ID || field->kind == FIELD_TEXT || field->kind == FIELD_KEY;
}

int64_t record_number(const struct record_field *field, const void *record)
{
    const void *place = (const char *)record + field->offset;

    switch (field->kind) {
    case FIELD_I64:
    case FIELD_U64:
    case FIELD_BOOT:
        return *(const int64_t *)place;
    case FIELD_U32:
        return *(const uint32_t *)place;
    case FIELD_INT:
        return *(const int *)place;
    case FIELD_BOOL:
        return *(const bool *)place;
    case FIELD_ID:
    case FIELD_TEXT:
    case FIELD_KEY:
        break;
    }
    return 0;
}

size_t record_size(const struct record_type *type, const void *record)
{
    size_t size = type->size;

    for (size_t i = 0; i < type->field_count; i++)
        if (field_is_pointer(&type->fields[i]))
            size += strlen(record_text(&type->fields[i], record)) + 1;
    return size;
}

void *record_copy(const struct record_type *type, const void *record, size_t header_size)
{
    char *memory = xmalloc(header_size + record_size(type, record));
    char *copy = memory + header_size;
    char *end = copy + type->size;

    assert(header_size % alignof(max_align_t) == 0);
    memset(memory, 0, header_size);
    memcpy(copy, record, type->size);
    for (size_t i = 0; i < type->field_count; i++) {
        const struct record_field *field = &type->fields[i];
        const char *text;
        size_t size;

        if (!field_is_pointer(field))
            continue;
        text = record_text(field, record);
        size = strlen(text) + 1;
        memcpy(end, text, size);
        text = field->kind == FIELD_KEY && size == 1 ? NULL : end;
        memcpy(copy + field->offset, &text, sizeof(text));
        end += size;
    }
    return memory;
}

const char *record_filter_value(unsigned filter, const struct store_query *query)
{
    switch (filter) {
    case FILTER_ID:
        return query->id;
    case FILTER_SESSION:
        return query->session_id;
    case FILTER_OWNER:
        return query->owner;
    case FILTER_KEY:
        return query->key;
    case FILTER_KIND:
        return query->kind;
    case FILTER_STATE:
        return query->state;
    case FILTER_NODE:
        return query->node;
    }
    return NULL;
}

unsigned record_filters(const struct record_type *type, const struct store_query *query)
{
    unsigned filters = 0;

    for (size_t i = 0; i < type->field_count; i++) {
        unsigned filter = type->fields[i].filter;
        const char *value = record_filter_value(filter, query);

        if (value && (*value || filter == FILTER_OWNER))
            filters |= filter;
    }
    if ((filters & FILTER_STATE) && strcmp(query->state, STORE_STATE_ENDED) == 0)
        filters ^= FILTER_STATE | FILTER_ENDED;
    if (query->live && type == &record_types[STORE_SESSIONS])
        filters |= FILTER_LIVE;
    return filters;
}

bool record_matches(const struct record_type *type, const void *record, unsigned filters,
                    const struct store_query *query)
{
    const struct session_record *session = record;

    if (filters & FILTER_LIVE && strcmp(session->state, STORE_STATE_ENDED) == 0)
        return false;
    if (filters & FILTER_ENDED)
        filters ^= FILTER_STATE | FILTER_ENDED;
    for (size_t i = 0; i < type->field_count; i++) {
        const struct record_field *field = &type->fields[i];

        if ((filters & field->filter) &&
            strcmp(record_text(field, record), record_filter_value(field->filter, query)) != 0)
            return false;
    }
    return true;
}

void record_renew_stamps(const struct record_type *type, char *record, int64_t boot_began_wall_us)
{
    for (size_t i = 0; i < type->field_count; i++) {
        int64_t *boot_us = (int64_t *)(void *)(record + type->fields[i].offset);
        int64_t wall_us;

        if (type->fields[i].kind != FIELD_BOOT)
            continue;
        wall_us = *(int64_t *)(void *)(record + type->fields[i - 1].offset);
        *boot_us = wall_us ? wall_us - boot_began_wall_us : 0;
        if (wall_us && !*boot_us)
            *boot_us = 1;
    }
}

void record_deliver(enum store_table table, struct store_query *query, const void *record)
{
    switch (table) {
    case STORE_SESSIONS:
        query->on_session(query, record);
        break;
    case STORE_SANDBOXES:
        query->on_sandbox(query, record);
        break;
    case STORE_EXECUTIONS:
        query->on_execution(query, record);
        break;
    case STORE_EVENTS:
        query->on_event(query, record);
        break;
    case STORE_DOCUMENTS:
        query->on_document(query, record);
        break;
    }
}

struct change *change_new(enum store_table table, bool forget, const void *record)
{
    struct change *change =
        record_copy(&record_types[table], record, offsetof(struct change, record));

    change->table = table;
    change->forget = forget;
    return change;
}

char *change_id(const struct change *change)
{
    const struct event_record *event = (const void *)change->record;
    const struct document_record *document = (const void *)change->record;

    switch (change->table) {
    case STORE_SESSIONS:
    case STORE_SANDBOXES:
    case STORE_EXECUTIONS:
        return xstrdup(record_text(&record_types[change->table].fields[0], change->record));
    case STORE_EVENTS:
        return xasprintf("%" PRIu64, event->sequence);
    case STORE_DOCUMENTS:
        return xasprintf("%s/%s", document->kind, document->id);
    }
    return NULL;
}

void change_queue_append(struct change_queue *queue, struct change *change)
{
    change->next = NULL;
    if (queue->last)
        queue->last->next = change;
    else
        queue->first = change;
    queue->last = change;
}

struct change_queue change_queue_take(struct change_queue *queue)
{
    struct change_queue taken = *queue;

    *queue = (struct change_queue){ 0 };
    return taken;
}

void change_queue_join(struct change_queue *queue, struct change_queue *rest)
{
    if (!rest->first)
        return;
    if (queue->last)
        queue->last->next = rest->first;
    else
        queue->first = rest->first;
    queue->last = rest->last;
    *rest = (struct change_queue){ 0 };
}

/* Sessions, sandboxes and executions change several times in their lives. */
static bool is_foldable(const struct change *change)
{
    return change->table < STORE_EVENTS;
}

static void fold(struct map *earliest, struct change *change)
{
    const char *id = change->record; /* is their first field */
    struct change *first = map_get(earliest, id);

    if (change->forget) {
        if (first)
            first->is_moot = true;
        map_remove(earliest, id);
    } else if (first) {
        first->newest = change;
        change->is_moot = true;
    } else {
        map_put(earliest, id, change);
    }
}

void change_queue_fold(struct change_queue *queue)
{
    struct map earliest[STORE_EVENTS] = { 0 };

    for (struct change *change = queue->first; change; change = change->next) {
        change->newest = NULL;
        change->is_moot = false;
    }
    for (struct change *change = queue->first; change; change = change->next) {
        /* Takes records of other tables along: nothing is moved across it. */
        if (change->forget && change->table == STORE_SESSIONS)
            for (size_t i = 0; i < ARRAY_LENGTH(earliest); i++)
                map_fini(&earliest[i]);
        else if (is_foldable(change))
            fold(&earliest[change->table], change);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(earliest); i++)
        map_fini(&earliest[i]);
}

void change_queue_free(struct change_queue *queue)
{
    struct change *change;

    while ((change = queue->first)) {
        queue->first = change->next;
        free(change);
    }
    queue->last = NULL;
}
