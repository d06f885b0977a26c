/* SPDX-License-Identifier: Apache-2.0 */
#include "core/money/budget_account.h"

#include "base/alloc.h"
#include "config/config.h"
#include "wire/json.h"

#include <stdlib.h>
#include <string.h>

void meter_clear(struct meter *meter)
{
    free(meter->flavor);
    free(meter->covered_by);
    *meter = (struct meter){ 0 };
}

bool meter_is_running(const struct meter *meter)
{
    return meter->flavor && meter->started.wall_us;
}

struct budget_account *budget_account_find(const struct budgets *budgets, const char *session_id)
{
    return map_get(&budgets->by_session, session_id);
}

struct owner_account *owner_account_open(struct budgets *budgets, const char *owner)
{
    struct owner_account *account = map_get(&budgets->by_owner, owner);

    if (account)
        return account;
    account = xnew(struct owner_account);
    account->owner = xstrdup(owner);
    account->cap = -1;
    account->next_warning = budgets->core->parts.config->budget.first_warning;
    map_put(&budgets->by_owner, account->owner, account);
    return account;
}

struct budget_account *budget_account_open(struct session *session)
{
    struct budgets *budgets = session_core(session)->budgets;
    const struct config *config = session_core(session)->parts.config;
    struct budget_account *account = budget_account_find(budgets, session_id(session));

    if (account)
        return account;
    account = xnew(struct budget_account);
    account->budgets = budgets;
    memcpy(account->session_id, session_id(session), sizeof(account->session_id));
    account->owner = owner_account_open(budgets, session_owner(session));
    account->auto_approve = config->budget.auto_approve;
    account->cap = config->budget.session_cap;
    account->next_warning = config->budget.first_warning;
    account->granted = json_array();
    map_put(&budgets->by_session, account->session_id, account);
    return account;
}

void budget_account_free(struct budget_account *account)
{
    if (account->timer.loop)
        timer_stop(&account->timer);
    grant_wish_end(&account->wish);
    map_remove(&account->budgets->by_session, account->session_id);
    meter_clear(&account->meter);
    json_decref(account->granted);
    free(account);
}

static void owner_account_free(struct budgets *budgets, struct owner_account *account)
{
    map_remove(&budgets->by_owner, account->owner);
    free(account->owner);
    free(account);
}

struct budgets *budgets_new(struct core *core)
{
    struct budgets *budgets = xnew(struct budgets);

    budgets->core = core;
    budget_set_grant_rules(core);
    return budgets;
}

static void *any_value(const struct map *map)
{
    size_t position = 0;
    const struct map_slot *slot = map_next(map, &position);

    return slot ? slot->value : NULL;
}

void budgets_free(struct budgets *budgets)
{
    void *account;

    if (!budgets)
        return;
    while ((account = any_value(&budgets->by_session)))
        budget_account_free(account);
    while ((account = any_value(&budgets->by_owner)))
        owner_account_free(budgets, account);
    map_fini(&budgets->by_session);
    map_fini(&budgets->by_owner);
    free(budgets);
}
