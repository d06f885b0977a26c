/* SPDX-License-Identifier: Apache-2.0 */
#include "core/money/budget.h"

#include "base/alloc.h"
#include "base/money.h"
#include "base/str.h"
#include "config/config.h"
#include "core/money/budget_account.h"
#include "core/stamp.h"
#include "wire/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- sums ---------------------------------------------------------------------------------- */

/* The cost since the meter was last charged. */
int64_t meter_unpaid(const struct meter *meter, const struct stamp *now)
{
    int64_t total;

    if (!meter_is_running(meter))
        return 0;
    total = money_cost(meter->price, now->boot_us - meter->started.boot_us);
    return MAX(total - meter->charged, (int64_t)0);
}

static int64_t still_held(const struct meter *meter, const struct stamp *now)
{
    return MAX(meter->held - meter_unpaid(meter, now), (int64_t)0);
}

struct sums budget_account_sums(const struct budget_account *account)
{
    struct stamp now = stamp_now(account->budgets->core);

    return (struct sums){ .spent = account->spent + meter_unpaid(&account->meter, &now),
                          .held = still_held(&account->meter, &now) };
}

bool owner_is_in_tree(const char *root, const char *owner)
{
    size_t length = strlen(root);

    if (!length)
        return !*owner;
    return strncmp(root, owner, length) == 0 && (!owner[length] || owner[length] == '/');
}

/* Of an owner and all below it. Held amounts are summed anew each time, so the sum cannot drift. */
struct sums budget_tree_sums(const struct budgets *budgets, const char *root)
{
    bool is_alone = !core_is_clustered(budgets->core); /* otherwise documents of grants have it */
    struct stamp now = stamp_now(budgets->core);
    struct sums sums = { 0 };
    struct map_slot *slot;

    map_for_each (slot, &budgets->by_owner) {
        const struct owner_account *owner = slot->value;

        if (owner_is_in_tree(root, owner->owner))
            sums.spent += owner->spent + (is_alone ? owner->base : 0);
    }
    map_for_each (slot, &budgets->by_session) {
        const struct budget_account *account = slot->value;

        if (!owner_is_in_tree(root, account->owner->owner))
            continue;
        sums.spent += meter_unpaid(&account->meter, &now);
        sums.held += still_held(&account->meter, &now);
    }
    return sums;
}

/* With several nodes it is in the document of the grant. */
int64_t budget_owner_cap(const struct budgets *budgets, const char *owner)
{
    const struct grant_document *document = grant_look(budgets->core->grants, GRANT_MONEY, owner);
    const struct owner_account *account = map_get(&budgets->by_owner, owner);
    int64_t set = account ? account->cap : -1;

    if (document)
        set = document->cap;
    return set >= 0 ? set : budgets->core->parts.config->budget.owner_cap;
}

/* The cap that leaves least, of the owner's own and of those above it. */
struct narrowest {
    int64_t cap;
    int64_t left; /* INT64_MAX without a cap */
};

enum certainty { HOPED, FIRM };

static int64_t left_of(const struct budgets *budgets, const char *owner, int64_t own_held,
                       enum certainty certainty)
{
    struct grants *grants = budgets->core->grants;
    int64_t cap, left;
    struct sums all;

    if (grants) {
        left = certainty == FIRM ? grant_room(grants, GRANT_MONEY, owner)
                                 : grant_hope(grants, GRANT_MONEY, owner);
        return left == INT64_MAX ? INT64_MAX : left + own_held;
    }
    cap = budget_owner_cap(budgets, owner);
    all = budget_tree_sums(budgets, owner);
    return cap ? cap - all.spent - (all.held - own_held) : INT64_MAX;
}

static struct narrowest narrowest_cap(const struct budget_account *account,
                                      enum certainty certainty)
{
    const struct budgets *budgets = account->budgets;
    int64_t own_held = budget_account_sums(account).held;
    scoped(free) char *name = xstrdup(account->owner->owner);
    struct narrowest narrowest = { .left = INT64_MAX };

    do {
        int64_t left = left_of(budgets, name, own_held, certainty);

        if (left < narrowest.left)
            narrowest = (struct narrowest){ budget_owner_cap(budgets, name), left };
    } while (owner_climb(name));
    return narrowest;
}

int64_t budget_window_us(const struct core *core)
{
    return core->parts.config->budget.window_ms * 1000;
}

/* --- caps ---------------------------------------------------------------------------------- */

static struct room room_of(const struct budget_account *account, bool session_cap_holds,
                           enum certainty certainty)
{
    struct sums own = budget_account_sums(account);

    return (struct room){
        .session = session_cap_holds ? account->cap - own.spent : INT64_MAX,
        .owner = narrowest_cap(account, certainty).left,
    };
}

struct room budget_account_room(const struct budget_account *account, bool session_cap_holds)
{
    return room_of(account, session_cap_holds, HOPED);
}

struct room budget_account_firm_room(const struct budget_account *account, bool session_cap_holds)
{
    return room_of(account, session_cap_holds, FIRM);
}

bool room_fits(const struct room *room, int64_t amount)
{
    return amount <= room->session && amount <= room->owner;
}

/* "Estimated cost $4.00 exceeds the remaining $1.20 of the session's cap of $5.00" */
void budget_account_describe_lack(const struct budget_account *account, const struct room *room,
                                  int64_t amount, char *text, size_t size)
{
    bool of_session = amount > room->session;
    int64_t cap = of_session ? account->cap : narrowest_cap(account, HOPED).cap;
    int64_t left = MAX(of_session ? room->session : room->owner, (int64_t)0);
    char amounts[3][MONEY_TEXT_SIZE];

    snprintf(text, size, "estimated cost $%s exceeds the remaining $%s of the %s's cap of $%s",
             money_text(amount, amounts[0]), money_text(left, amounts[1]),
             of_session ? "session" : "owner", money_text(cap, amounts[2]));
}

static bool is_granted(const struct budget_account *account, const char *flavor)
{
    size_t i;
    json_t *name;

    json_array_foreach(account->granted, i, name)
    {
        if (str_equal(json_string_value(name), flavor))
            return true;
    }
    return false;
}

int64_t budget_estimate(const struct core *core, const struct config_flavor *flavor)
{
    if (flavor->price_per_hour < 0)
        return PRICE_UNKNOWN;
    return money_cost(flavor->price_per_hour, budget_window_us(core));
}

static struct budget_judgement ask(int64_t estimated, const char *why)
{
    struct budget_judgement judgement = { .verdict = BUDGET_ASK, .estimated = estimated };

    snprintf(judgement.why, sizeof(judgement.why), "%s", why);
    return judgement;
}

/* Approved before for this session: only the caps are in the way. */
static struct budget_judgement judge_granted(const struct budget_account *account,
                                             int64_t estimated)
{
    struct budget_judgement judgement = { .verdict = BUDGET_GRANTED, .estimated = estimated };
    struct room room = budget_account_room(account, account->auto_approve);

    if (estimated != PRICE_UNKNOWN && !room_fits(&room, estimated)) {
        judgement.verdict = BUDGET_ASK;
        budget_account_describe_lack(account, &room, estimated, judgement.why,
                                     sizeof(judgement.why));
    }
    return judgement;
}

struct budget_judgement budget_judge(struct session *session, const struct config_flavor *flavor)
{
    struct budget_account *account;
    struct budget_judgement judgement = { .verdict = BUDGET_FREE };
    struct room room;

    if (flavor_is_free(flavor))
        return judgement;
    if (!session)
        return (struct budget_judgement){ .verdict = BUDGET_REFUSED };
    account = budget_account_open(session);
    judgement.estimated = budget_estimate(session_core(session), flavor);
    if (is_granted(account, flavor->name))
        return judge_granted(account, judgement.estimated);
    if (judgement.estimated == PRICE_UNKNOWN)
        return ask(PRICE_UNKNOWN, "its price is not known, so it needs an approval");
    if (flavor->needs_approval && !account->auto_approve)
        return ask(judgement.estimated, "this flavor needs an approval");
    judgement.verdict = BUDGET_CAPPED;
    room = budget_account_room(account, true);
    if (!room_fits(&room, judgement.estimated)) {
        judgement.verdict = BUDGET_ASK;
        budget_account_describe_lack(account, &room, judgement.estimated, judgement.why,
                                     sizeof(judgement.why));
    }
    return judgement;
}

int budget_check_approved(struct session *session, const struct config_flavor *flavor,
                          struct error *err)
{
    struct budget_account *account = budget_account_open(session);
    int64_t estimated = budget_estimate(session_core(session), flavor);
    struct room room = budget_account_room(account, account->auto_approve);
    char lack[200];

    if (estimated == PRICE_UNKNOWN || room_fits(&room, estimated))
        return 0;
    budget_account_describe_lack(account, &room, estimated, lack, sizeof(lack));
    error_named(err, ERR_CONFLICT, "cap_exceeded", "%s", lack);
    return error_hint(err, "raise the cap, or switch auto_approve off, then approve it again");
}

void budget_grant(struct session *session, const char *flavor)
{
    struct budget_account *account = budget_account_open(session);

    if (is_granted(account, flavor))
        return;
    json_array_append_new(account->granted, json_string(flavor));
    budget_account_put(account, 0);
}

/* --- looking and setting ------------------------------------------------------------------- */

void budget_patch(struct session *session, const struct budget_patch *patch)
{
    struct budget_account *account = budget_account_open(session);

    if (patch->auto_approve >= 0)
        account->auto_approve = patch->auto_approve;
    if (patch->cap >= 0)
        account->cap = patch->cap;
    budget_account_put(account, 0);
}

bool budget_patch_is_wider(struct session *session, const struct budget_patch *patch)
{
    const struct budget_account *account = budget_account_open(session);

    return (patch->auto_approve == 1 && !account->auto_approve) || patch->cap > account->cap ||
           (patch->auto_approve == 0 && account->auto_approve &&
            session_choice(session) == CHOICE_ONCE);
}

int64_t budget_spent(const struct session *session)
{
    const struct budget_account *account =
        budget_account_find(session_core(session)->budgets, session_id(session));

    return account ? budget_account_sums(account).spent : session_spent(session);
}

static void put_owner(struct json_writer *json, const char *key, const struct budgets *budgets,
                      const struct owner_account *owner)
{
    struct sums sums = budget_sums_of_all(budgets, owner->owner);
    int64_t cap = budget_owner_cap(budgets, owner->owner);

    json_begin_object(json, key);
    json_put_text(json, "owner", owner->owner);
    if (cap)
        json_put_money(json, "cap_usd", cap);
    else
        json_put_null(json, "cap_usd");
    json_put_money(json, "spent_usd", sums.spent);
    json_put_money(json, "reserved_usd", sums.held);
    if (cap)
        json_put_money(json, "remaining_usd", MAX(cap - sums.spent - sums.held, (int64_t)0));
    else
        json_put_null(json, "remaining_usd");
    json_end_object(json);
}

static void put_meter(struct json_writer *json, const struct meter *meter)
{
    if (!meter->flavor) {
        json_put_null(json, "meter");
        return;
    }
    json_begin_object(json, "meter");
    json_put_text(json, "flavor", meter->flavor);
    json_put_text(json, "sandbox_id", *meter->sandbox_id ? meter->sandbox_id : NULL);
    json_put_text(json, "sandbox", *meter->sandbox_id ? meter->sandbox_id : NULL);
    json_put_money(json, "price_per_hour", meter->price);
    json_put_time(json, "started_at", meter->started.wall_us);
    json_put_time(json, "reserved_until", meter->until.wall_us);
    json_end_object(json);
}

void budget_write_json(struct session *session, struct json_writer *json, const char *key)
{
    const struct budget_account *account = budget_account_open(session);
    struct sums sums = budget_account_sums(account);
    scoped(free) char *granted = json_dumps(account->granted, JSON_COMPACT);

    json_begin_object(json, key);
    json_put_text(json, "session_id", session_id(session));
    json_put_text(json, "session", session_id(session));
    json_put_bool(json, "auto_approve", account->auto_approve);
    json_put_money(json, "cap_usd", account->cap);
    json_put_money(json, "spent_usd", sums.spent);
    json_put_money(json, "reserved_usd", sums.held);
    json_put_money(json, "remaining_usd", MAX(account->cap - sums.spent - sums.held, (int64_t)0));
    json_put_money(json, "next_threshold_usd", account->next_warning);
    json_put_raw(json, "approved_flavors", granted);
    put_meter(json, &account->meter);
    put_owner(json, "owner", account->budgets, account->owner);
    json_end_object(json);
}

void budget_set_owner_cap(struct budgets *budgets, const char *owner, int64_t cap)
{
    struct owner_account *account = owner_account_open(budgets, owner);

    account->cap = cap;
    owner_account_put(budgets, account);
}

void budget_visit_owner(struct grant_visit *visit, struct budgets *budgets, const char *owner,
                        int64_t cap, grant_visit_fn *done)
{
    grant_visit_begin(visit, budgets->core->grants, GRANT_MONEY, owner, cap, done);
}

void budget_write_owner_json(struct budgets *budgets, const char *owner, struct json_writer *json,
                             const char *key)
{
    put_owner(json, key, budgets, owner_account_open(budgets, owner));
}
