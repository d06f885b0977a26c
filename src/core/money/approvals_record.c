/* SPDX-License-Identifier: Apache-2.0 */
/* Approvals as documents of the store, and as what callers see. */

#include "core/money/approvals_private.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "core/money/flavor.h"
#include "core/stamp.h"
#include "wire/json.h"

#include <stdlib.h>
#include <string.h>

enum { DOCUMENT_MAXIMUM = 64 * 1024 };

/* The texts of an approval, in both directions. */
static const struct {
    const char *name;
    size_t offset;
} texts[] = {
    { "owner", offsetof(struct approval, owner) },
    { "requested_by", offsetof(struct approval, requested_by) },
    { "on_behalf_of", offsetof(struct approval, on_behalf_of) },
    { "flavor", offsetof(struct approval, flavor) },
    { "question", offsetof(struct approval, question) },
    { "decided_by", offsetof(struct approval, decided_by) },
    { "reason", offsetof(struct approval, reason) },
    { "result", offsetof(struct approval, result) },
};

static const struct {
    const char *name;
    size_t offset;
} numbers[] = {
    { "price", offsetof(struct approval, price) },
    { "estimated", offsetof(struct approval, estimated) },
    { "created_wall_us", offsetof(struct approval, created.wall_us) },
    { "created_boot_us", offsetof(struct approval, created.boot_us) },
    { "expires_wall_us", offsetof(struct approval, expires.wall_us) },
    { "expires_boot_us", offsetof(struct approval, expires.boot_us) },
    { "decided_wall_us", offsetof(struct approval, decided_wall_us) },
};

#define AT(type, approval, offset) ((type *)(void *)((char *)(approval) + (offset)))

void approval_put(const struct approval *approval, int64_t expires_wall_us)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(DOCUMENT_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_text(&json, "session", approval->session_id);
    json_put_text(&json, "state", approval_state_name(approval->state));
    json_put_bool(&json, "for_session", approval->for_session);
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++)
        json_put_text(&json, texts[i].name, *AT(char *const, approval, texts[i].offset));
    for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++)
        json_put_int(&json, numbers[i].name, *AT(const int64_t, approval, numbers[i].offset));
    json_end_object(&json);
    store_put_document(approval->approvals->core->parts.store,
                       &(struct document_record){ .kind = APPROVAL_KIND,
                                                  .id = approval->id,
                                                  .owner = approval->owner,
                                                  .json = buffer_text(&text),
                                                  .expires_wall_us = expires_wall_us });
}

/* --- reading ------------------------------------------------------------------------------- */

static enum approval_state parse_state(const char *name)
{
    for (unsigned state = 0; name && state < APPROVAL_STATES; state++)
        if (str_equal(name, approval_state_name(state)))
            return state;
    return APPROVAL_CANCELLED; /* an unknown state is not waited for */
}

/* Stamps of an earlier boot are worked out anew from the wall clock. */
static void convert_stamp(const struct core *core, struct stamp *stamp)
{
    struct stamp now = stamp_now(core);

    if (!core->parts.store->load.same_boot)
        stamp->boot_us = now.boot_us - (now.wall_us - stamp->wall_us);
}

static void fill(struct approval *approval, const json_t *document)
{
    const char *session = json_string_value(json_object_get(document, "session"));

    snprintf(approval->session_id, sizeof(approval->session_id), "%s", session ? session : "");
    approval->for_session = json_is_true(json_object_get(document, "for_session"));
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
        const char *text = json_string_value(json_object_get(document, texts[i].name));

        *AT(char *, approval, texts[i].offset) = xstrdup(text ? text : "");
    }
    for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++)
        *AT(int64_t, approval, numbers[i].offset) =
            json_integer_value(json_object_get(document, numbers[i].name));
    convert_stamp(approval->approvals->core, &approval->created);
    convert_stamp(approval->approvals->core, &approval->expires);
}

struct approval *approval_read(struct approvals *approvals, const struct document_record *record)
{
    struct error err = { 0 };
    scoped(json_decref) json_t *document = json_read(record->json, strlen(record->json), &err);
    struct approval *approval;

    if (!document || !id_is_valid(record->id, ID_APPROVAL)) {
        log_warn("record of an approval is damaged; continuing without it", kv("id", record->id),
                 kv("error", err.message));
        return NULL;
    }
    approval = approval_new(approvals, record->id);
    fill(approval, document);
    approval->state = parse_state(json_string_value(json_object_get(document, "state")));
    if (approval->state != APPROVAL_PENDING)
        approvals->decided++;
    return approval;
}

/* --- showing ------------------------------------------------------------------------------- */

static void put_text_or_null(struct json_writer *json, const char *key, const char *text)
{
    json_put_text(json, key, str_is_empty(text) ? NULL : text);
}

static void put_money_or_null(struct json_writer *json, const char *key, int64_t amount)
{
    if (amount >= 0)
        json_put_money(json, key, amount);
    else
        json_put_null(json, key);
}

static void put_decision(struct json_writer *json, const struct approval *approval)
{
    const char *scope = approval->for_session ? "session" : "once";

    json_put_text(json, "scope", approval->state == APPROVAL_APPROVED ? scope : NULL);
    put_text_or_null(json, "decided_by", approval->decided_by);
    json_put_time(json, "decided_at", approval->decided_wall_us);
    put_text_or_null(json, "decision_reason", approval->reason);
    put_text_or_null(json, "result", approval->result);
}

void approval_write_fields(const struct approval *approval, struct json_writer *json)
{
    const struct core *core = approval->approvals->core;

    json_put_text(json, "id", approval->id);
    json_put_text(json, "kind", "approval");
    json_put_text(json, "state", approval_state_name(approval->state));
    json_put_text(json, "session_id", approval->session_id);
    json_put_text(json, "session", approval->session_id);
    json_put_text(json, "owner", approval->owner);
    json_put_text(json, "requested_by", approval->requested_by);
    put_text_or_null(json, "on_behalf_of", approval->on_behalf_of);
    json_put_text(json, "flavor", approval->flavor);
    put_money_or_null(json, "price_per_hour", approval->price);
    put_money_or_null(json, "estimated_usd", approval->estimated);
    json_put_text(json, "question", approval->question);
    json_put_time(json, "created_at", approval->created.wall_us);
    json_put_time(json, "expires_at", stamp_wall_us(core, &approval->expires));
    put_decision(json, approval);
}

void approval_write_json(const struct approval *approval, struct json_writer *json, const char *key)
{
    json_begin_object(json, key);
    approval_write_fields(approval, json);
    json_end_object(json);
}
