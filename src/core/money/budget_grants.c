/* SPDX-License-Identifier: Apache-2.0 */
/* The amounts of an owner over all nodes: each node has a part of the cap, see core/grants.h. */

#include "core/money/budget_account.h"

#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "core/core.h"

#include <stdlib.h>
#include <string.h>

/* --- owners and those above them ------------------------------------------------------------- */

bool owner_climb(char *owner)
{
    char *slash = strrchr(owner, '/');

    if (slash)
        *slash = '\0';
    return slash;
}

void budget_note_use(const struct budget_account *account)
{
    struct grants *grants = account->budgets->core->grants;
    scoped(free) char *name = NULL;

    if (!grants)
        return;
    name = xstrdup(account->owner->owner);
    do
        grant_note_use(grants, GRANT_MONEY, name);
    while (owner_climb(name));
}

void budget_take_over(struct budget_account *account)
{
    scoped(free) char *from = steal_ptr(&account->meter.covered_by);
    scoped(free) char *name = NULL;

    if (!from)
        return;
    name = xstrdup(account->owner->owner);
    do
        grant_take_over(account->budgets->core->grants, GRANT_MONEY, name,
                        &(struct grant_share){ .node = from,
                                               .life = account->meter.covered_life,
                                               .granted = account->meter.held });
    while (owner_climb(name));
}

/* Caps are asked for one at a time: the next one when this one has answered. */
int budget_wish(const struct budget_account *account, int64_t amount, int64_t patience_us,
                struct grant_wish *wish, grant_wish_fn *answered)
{
    struct grants *grants = account->budgets->core->grants;
    scoped(free) char *name = xstrdup(account->owner->owner);

    if (!grants)
        return 0;
    do {
        if (grant_room(grants, GRANT_MONEY, name) >= amount)
            continue;
        grant_wish_begin(wish, grants, GRANT_MONEY, name, amount, patience_us, answered);
        return 1;
    } while (owner_climb(name));
    return 0;
}

struct sums budget_sums_of_all(const struct budgets *budgets, const char *owner)
{
    const struct grant_document *document = grant_look(budgets->core->grants, GRANT_MONEY, owner);
    struct sums sums = budget_tree_sums(budgets, owner);

    if (!document)
        return sums;
    sums.spent += document->base;
    for (size_t i = 0; i < document->count; i++) {
        const struct grant_share *share = &document->shares[i];

        if (str_equal(share->node, budgets->core->parts.node))
            continue;
        sums.spent += share->spent;
        sums.held += share->granted - MIN(share->spent, share->granted);
    }
    return sums;
}

/* --- the rules ------------------------------------------------------------------------------- */

static struct grant_use use_of_money(const struct core *core, const char *owner)
{
    struct sums sums = budget_tree_sums(core->budgets, owner);

    return (struct grant_use){ .used = sums.spent + sums.held, .spent = sums.spent };
}

static int64_t cap_of_money(const struct core *core, const char *owner UNUSED, int64_t set)
{
    return set >= 0 ? set : core->parts.config->budget.owner_cap;
}

/* The sum of `base` (see struct owner_account) of the owner and all owners below it. */
static int64_t base_of(const struct budgets *budgets, const char *name)
{
    const struct map_slot *slot;
    int64_t base = 0;

    map_for_each (slot, &budgets->by_owner) {
        const struct owner_account *owner = slot->value;

        if (owner_is_in_tree(name, owner->owner))
            base += owner->base;
    }
    return base;
}

static void complete_money(const struct core *core, const char *name,
                           struct grant_document *document)
{
    const struct owner_account *own = map_get(&core->budgets->by_owner, name);
    int64_t next;

    if (own && document->cap == GRANT_CAP_UNSET)
        document->cap = own->cap;
    document->base = MAX(document->base, base_of(core->budgets, name));
    next = budget_next_warning(core, document->warning, grant_document_spent(document));
    if (document->warning || next != core->parts.config->budget.first_warning)
        document->warning = next;
}

static void warn_of_money(struct core *core, const char *owner, int64_t before,
                          const struct grant_document *document)
{
    int64_t threshold = before ? before : core->parts.config->budget.first_warning;

    budget_warn_owner(core, owner, grant_document_spent(document), threshold, document->warning);
}

/* Without a cap some windows more; below one the others may need it. */
static int64_t money_ahead(int64_t wanted, int64_t free)
{
    return free > INT64_MAX / 2 ? wanted * 8 : 0;
}

static void yield_money(struct core *core UNUSED, const char *owner UNUSED)
{
}

static const struct grant_rules money_rules = {
    .prefix = "money:",
    .is_account = true,
    .use = use_of_money,
    .cap = cap_of_money,
    .complete = complete_money,
    .warn = warn_of_money,
    .spent_kind = BUDGET_OWNER_KIND,
    .covers = owner_is_in_tree,
    .ahead = money_ahead,
    .yield = yield_money,
};

void budget_set_grant_rules(struct core *core)
{
    grants_set_rules(core->grants, GRANT_MONEY, &money_rules);
}
