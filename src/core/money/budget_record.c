/* Accounts as documents of the store. */

#include "core/money/budget_account.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "core/stamp.h"
#include "wire/json.h"

#include <stdlib.h>
#include <string.h>

enum { DOCUMENT_MAXIMUM = 64 * 1024 };

/* So that also the owner without a name has an id. */
#define OWNER_PREFIX "owner:"

/* --- writing ------------------------------------------------------------------------------- */

static void put_meter(struct json_writer *json, const struct meter *meter)
{
    json_begin_object(json, "meter");
    json_put_text(json, "flavor", meter->flavor);
    json_put_text(json, "sandbox", meter->sandbox_id);
    json_put_int(json, "price", meter->price);
    json_put_int(json, "charged", meter->charged);
    json_put_int(json, "held", meter->held);
    json_put_int(json, "started_wall_us", meter->started.wall_us);
    json_put_int(json, "started_boot_us", meter->started.boot_us);
    json_put_int(json, "until_wall_us", meter->until.wall_us);
    json_put_int(json, "until_boot_us", meter->until.boot_us);
    json_end_object(json);
}

void budget_account_put(const struct budget_account *account, int64_t expires_wall_us)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(DOCUMENT_MAXIMUM);
    scoped(free) char *granted = json_dumps(account->granted, JSON_COMPACT);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_bool(&json, "auto_approve", account->auto_approve);
    json_put_int(&json, "cap", account->cap);
    json_put_int(&json, "spent", account->spent);
    json_put_int(&json, "next_warning", account->next_warning);
    json_put_raw(&json, "granted", granted);
    if (account->meter.flavor)
        put_meter(&json, &account->meter);
    json_end_object(&json);
    store_put_document(account->budgets->core->parts.store,
                       &(struct document_record){ .kind = BUDGET_SESSION_KIND,
                                                  .id = account->session_id,
                                                  .owner = account->owner->owner,
                                                  .json = buffer_text(&text),
                                                  .expires_wall_us = expires_wall_us });
}

void owner_account_put(struct budgets *budgets, const struct owner_account *account)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(DOCUMENT_MAXIMUM);
    scoped(free) char *id = xasprintf("%s%s", OWNER_PREFIX, account->owner);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_int(&json, "cap", account->cap);
    json_put_int(&json, "spent", account->spent);
    json_put_int(&json, "next_warning", account->next_warning);
    json_end_object(&json);
    store_put_document(budgets->core->parts.store,
                       &(struct document_record){ .kind = BUDGET_OWNER_KIND,
                                                  .id = id,
                                                  .owner = account->owner,
                                                  .json = buffer_text(&text) });
}

void budgets_repair(struct budgets *budgets)
{
    struct map_slot *slot;

    map_for_each (slot, &budgets->by_session)
        budget_account_put(slot->value, 0);
    map_for_each (slot, &budgets->by_owner)
        owner_account_put(budgets, slot->value);
}

/* --- reading: what is missing or cannot be meant keeps its default -------------------------- */

static void get_amount(const json_t *document, const char *name, int64_t least, int64_t *out)
{
    const json_t *value = json_object_get(document, name);

    if (json_is_integer(value) && json_integer_value(value) >= least)
        *out = json_integer_value(value);
}

/* A stamp of an earlier boot is worked out anew from the wall clock. */
static struct stamp get_stamp(const struct core *core, const json_t *document, const char *wall,
                              const char *boot)
{
    struct stamp now = stamp_now(core);
    struct stamp stamp = { .wall_us = json_integer_value(json_object_get(document, wall)),
                           .boot_us = json_integer_value(json_object_get(document, boot)) };

    if (stamp.wall_us && !core->parts.store->load.same_boot)
        stamp.boot_us = now.boot_us - (now.wall_us - stamp.wall_us);
    return stamp;
}

static void get_meter(const struct core *core, const json_t *document, struct meter *meter)
{
    const char *flavor = json_string_value(json_object_get(document, "flavor"));
    const char *sandbox = json_string_value(json_object_get(document, "sandbox"));

    if (!flavor)
        return;
    meter->flavor = xstrdup(flavor);
    snprintf(meter->sandbox_id, sizeof(meter->sandbox_id), "%s", sandbox ? sandbox : "");
    get_amount(document, "price", 0, &meter->price);
    get_amount(document, "charged", 0, &meter->charged);
    get_amount(document, "held", 0, &meter->held);
    meter->started = get_stamp(core, document, "started_wall_us", "started_boot_us");
    meter->until = get_stamp(core, document, "until_wall_us", "until_boot_us");
}

static void restore_session(struct budgets *budgets, const struct document_record *record,
                            const json_t *document)
{
    struct session *session = map_get(&budgets->core->sessions_by_id, record->id);
    const json_t *granted = json_object_get(document, "granted");
    struct budget_account *account;

    if (!session)
        return; /* it has ended; the document goes with its record */
    account = budget_account_open(session);
    account->auto_approve = json_is_true(json_object_get(document, "auto_approve"));
    get_amount(document, "cap", 0, &account->cap);
    get_amount(document, "spent", 0, &account->spent);
    get_amount(document, "next_warning", 0, &account->next_warning);
    if (json_is_array(granted))
        json_array_extend(account->granted, (json_t *)granted);
    get_meter(budgets->core, json_object_get(document, "meter"), &account->meter);
}

static void restore_owner(struct budgets *budgets, const struct document_record *record,
                          const json_t *document)
{
    struct owner_account *account;

    if (!str_starts_with(record->id, OWNER_PREFIX))
        return;
    account = owner_account_open(budgets, record->id + strlen(OWNER_PREFIX));
    get_amount(document, "cap", -1, &account->cap);
    get_amount(document, "spent", 0, &account->spent);
    get_amount(document, "next_warning", 0, &account->next_warning);
}

void budgets_restore(struct budgets *budgets, const struct document_record *record)
{
    struct error err = { 0 };
    scoped(json_decref) json_t *document = json_read(record->json, strlen(record->json), &err);

    if (!document)
        log_error("record of money is damaged; continuing without it", kv("id", record->id),
                  kv("error", err.message));
    else if (str_equal(record->kind, BUDGET_OWNER_KIND))
        restore_owner(budgets, record, document);
    else
        restore_session(budgets, record, document);
}
