/* SPDX-License-Identifier: Apache-2.0 */
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

/* So that also the owner without a name has an id. Nodes that share a store have a record each:
 * "owner@NODE:NAME"; a sole daemon writes "owner:NAME". */
#define OWNER_PREFIX "owner:"
#define NODE_PREFIX "owner@"

/* --- writing ------------------------------------------------------------------------------- */

/* By the clock of the server, which all nodes know, so that the clock of none has to be right. */
static void put_shared_start(struct json_writer *json, const struct core *core,
                             const struct meter *meter)
{
    int64_t ahead_us = core->parts.store->server_ahead_us;

    if (meter_is_running(meter) && ahead_us)
        json_put_int(json, "started_server_us", meter->started.boot_us + ahead_us);
}

static void put_cover(struct json_writer *json, const struct core *core, const struct meter *meter)
{
    if (!core_is_clustered(core))
        return;
    json_put_text(json, "node", meter->covered_by ? meter->covered_by : core->parts.node);
    json_put_int(json, "life", meter->covered_by ? meter->covered_life : grants_life(core->grants));
}

static void put_meter(struct json_writer *json, const struct core *core, const struct meter *meter)
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
    put_shared_start(json, core, meter);
    put_cover(json, core, meter);
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
        put_meter(&json, account->budgets->core, &account->meter);
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
    const char *node = core_is_clustered(budgets->core) ? budgets->core->parts.node : NULL;
    scoped(free) char *id = node ? xasprintf("%s%s:%s", NODE_PREFIX, node, account->owner)
                                 : xasprintf("%s%s", OWNER_PREFIX, account->owner);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    if (node)
        json_put_text(&json, "node", node);
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
    map_for_each (slot, &budgets->by_owner) {
        const struct owner_account *account = slot->value;

        if (!core_is_clustered(budgets->core) || account->spent)
            owner_account_put(budgets, account);
    }
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

static int64_t get_us(const json_t *document, const char *name)
{
    return json_integer_value(json_object_get(document, name));
}

/* The clock of the server is better than two wall clocks, each of which may have been set. */
static void get_shared_start(const struct core *core, const json_t *document, struct meter *meter)
{
    int64_t ahead_us = core->parts.store->server_ahead_us;
    int64_t started_us = get_us(document, "started_server_us");
    int64_t window_us = get_us(document, "until_boot_us") - get_us(document, "started_boot_us");

    if (core->parts.store->load.same_boot || !ahead_us || !started_us)
        return;
    meter->started.boot_us = MIN(started_us - ahead_us, stamp_now(core).boot_us);
    meter->until.boot_us = meter->started.boot_us + window_us;
}

static void get_cover(const struct core *core, const json_t *document, struct meter *meter)
{
    const char *node = json_string_value(json_object_get(document, "node"));

    if (!node || !core_is_clustered(core) || str_equal(node, core->parts.node))
        return;
    meter->covered_by = xstrdup(node);
    meter->covered_life = json_integer_value(json_object_get(document, "life"));
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
    get_shared_start(core, document, meter);
    get_cover(core, document, meter);
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

/* Money that the nodes of a cluster have spent counts for a sole daemon too, and the other way
 * round. */
static void restore_base(struct owner_account *account, const json_t *document)
{
    int64_t spent = 0;

    get_amount(document, "spent", 0, &spent);
    account->base += spent;
}

static void restore_owner(struct budgets *budgets, const struct document_record *record,
                          const json_t *document)
{
    const char *node = json_string_value(json_object_get(document, "node"));
    bool is_clustered = core_is_clustered(budgets->core);
    struct owner_account *account;

    if (!str_starts_with(record->id, node ? NODE_PREFIX : OWNER_PREFIX))
        return;
    account = owner_account_open(budgets, node ? record->owner : record->id + strlen(OWNER_PREFIX));
    if (!node)
        get_amount(document, "cap", -1, &account->cap);
    if (node ? !is_clustered : is_clustered) {
        restore_base(account, document);
    } else if (!node || str_equal(node, budgets->core->parts.node)) {
        get_amount(document, "spent", 0, &account->spent);
        get_amount(document, "next_warning", 0, &account->next_warning);
    }
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
