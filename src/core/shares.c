/* SPDX-License-Identifier: Apache-2.0 */
#include "core/shares.h"

#include "base/alloc.h"
#include "base/map.h"
#include "base/str.h"
#include "core/core.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct share_account {
    char *name; /* owned: that of an owner, or of a row after ROW_MARK */
    size_t held[SHARE_KINDS];
    size_t references;
};

struct shares {
    struct core *core;          /* borrowed */
    struct map accounts;        /* struct share_account */
    struct share_account *idle; /* borrowed: in the map, and the only one that holds nothing */
    size_t held[SHARE_KINDS];
};

/* No owner's name begins with it. */
#define ROW_MARK "\n"

enum { BODIES_MAXIMUM = 128 * 1024 * 1024 };

static const struct {
    const char *error, *noun, *setting, *row, *total;
} words[SHARE_KINDS] = {
    [SHARE_SESSIONS] = { "too_many_sessions", "sessions", "capacity.max_sessions_per_owner",
                         "sessions", "capacity.max_sessions" },
    [SHARE_EXECUTIONS] = { "too_many_executions", "executions that run or wait",
                           "capacity.max_executions_per_owner", "executions", NULL },
    [SHARE_TERMINALS] = { "too_many_terminals", "terminals", "capacity.max_terminals_per_owner",
                          "terminals", NULL },
    [SHARE_REQUESTS] = { "too_many_requests", "open requests and streams",
                         "capacity.max_requests_per_owner", "requests", NULL },
    [SHARE_BODIES] = { "too_many_requests", "bytes in the bodies of open requests", NULL, NULL,
                       NULL },
};

struct shares *shares_new(struct core *core)
{
    struct shares *shares = xnew(struct shares);

    shares->core = core;
    return shares;
}

static void account_free(struct share_account *account)
{
    free(account->name);
    free(account);
}

void shares_free(struct shares *shares)
{
    struct map_slot *slot;

    if (!shares)
        return;
    map_for_each (slot, &shares->accounts)
        account_free(slot->value);
    map_fini(&shares->accounts);
    free(shares);
}

/* --- accounts --------------------------------------------------------------------------------- */

static struct share_account *account_ref(struct shares *shares, const char *name)
{
    struct share_account *account = map_get(&shares->accounts, name);

    if (!account) {
        account = xnew(struct share_account);
        account->name = xstrdup(name);
        map_put(&shares->accounts, account->name, account);
    }
    if (account == shares->idle)
        shares->idle = NULL;
    account->references++;
    return account;
}

/* The last one that was emptied stays until the next: a client that sends one request after the
 * other would have its account made anew for each. */
static void account_unref(struct shares *shares, struct share_account *account)
{
    struct share_account *before = shares->idle;

    if (!account || --account->references > 0)
        return;
    shares->idle = account;
    if (!before)
        return;
    map_remove(&shares->accounts, before->name);
    account_free(before);
}

static const struct config *config_of(const struct shares *shares)
{
    return shares->core->parts.config;
}

static int64_t row_cap(const struct config_owner *row, enum config_share kind)
{
    return row ? row->shares[kind] : 0;
}

/* A row of the owner itself takes the place of the setting. */
static int64_t owner_cap(const struct shares *shares, const struct config_owner *row,
                         const char *owner, enum config_share kind)
{
    if (kind == SHARE_BODIES)
        return BODIES_MAXIMUM;
    if (row_cap(row, kind) && str_equal(row->name, owner))
        return row->shares[kind];
    return config_of(shares)->capacity.shares[kind];
}

static int64_t total_cap(const struct shares *shares, enum config_share kind)
{
    return kind == SHARE_SESSIONS ? config_of(shares)->capacity.max_sessions : 0;
}

static bool is_above(size_t held, size_t amount, int64_t cap)
{
    return cap > 0 && held + amount > (size_t)cap;
}

/* --- taking and giving ------------------------------------------------------------------------ */

static int refuse(enum config_share kind, const char *subject, size_t held, int64_t cap,
                  const char *setting, struct error *err)
{
    error_named(err, ERR_LIMIT, words[kind].error, "%s %zu of %lld %s (%s)", subject, held,
                (long long)cap, words[kind].noun, setting);
    if (err)
        err->retryable = true;
    return error_hint(err, "end one of them, or have the operator raise %s", setting);
}

/* By a row of the setting owners. */
static int refuse_by_row(const struct config_owner *row, enum config_share kind,
                         const char *subject, size_t held, struct error *err)
{
    char setting[128];

    snprintf(setting, sizeof(setting), "%s of \"%.60s\" in the setting owners", words[kind].row,
             row->name);
    return refuse(kind, subject, held, row_cap(row, kind), setting, err);
}

static int refuse_bytes(const struct share *share, int64_t cap, struct error *err)
{
    error_named(err, ERR_LIMIT, words[share->kind].error, "you have %zu of %lld %s; this has %zu",
                share->accounts[0]->held[share->kind], (long long)cap, words[share->kind].noun,
                share->amount);
    if (err)
        err->retryable = true;
    return error_hint(err, "wait for the answers to the others");
}

static int check(const struct shares *shares, const struct config_owner *row, const char *owner,
                 const struct share *share, struct error *err)
{
    enum config_share kind = share->kind;
    int64_t own = owner_cap(shares, row, owner, kind);
    int64_t tree = row_cap(row, kind);
    int64_t total = total_cap(shares, kind);

    if (kind == SHARE_BODIES)
        return is_above(share->accounts[0]->held[kind], share->amount, own)
                   ? refuse_bytes(share, own, err)
                   : 0;
    if (is_above(share->accounts[0]->held[kind], share->amount, own) && own == tree)
        return refuse_by_row(row, kind, "you have", share->accounts[0]->held[kind], err);
    if (is_above(share->accounts[0]->held[kind], share->amount, own))
        return refuse(kind, "you have", share->accounts[0]->held[kind], own, words[kind].setting,
                      err);
    if (share->accounts[1] && is_above(share->accounts[1]->held[kind], share->amount, tree))
        return refuse_by_row(row, kind, "you and the owners below you have",
                             share->accounts[1]->held[kind], err);
    if (is_above(shares->held[kind], share->amount, total))
        return refuse(kind, "all owners together have", shares->held[kind], total,
                      words[kind].total, err);
    return 0;
}

static void open_accounts(struct share *share, struct shares *shares,
                          const struct config_owner *row, const char *owner, enum config_share kind)
{
    *share = (struct share){ .shares = shares, .kind = kind, .amount = 1 };
    share->accounts[0] = account_ref(shares, owner);
    if (row_cap(row, kind)) {
        scoped(free) char *name = xasprintf(ROW_MARK "%s", row->name);

        share->accounts[1] = account_ref(shares, name);
    }
}

static void close_accounts(struct share *share)
{
    account_unref(share->shares, share->accounts[0]);
    account_unref(share->shares, share->accounts[1]);
    *share = (struct share){ 0 };
}

static void count(struct share *share)
{
    share->shares->held[share->kind] += share->amount;
    share->accounts[0]->held[share->kind] += share->amount;
    if (share->accounts[1])
        share->accounts[1]->held[share->kind] += share->amount;
}

static void uncount(struct share *share)
{
    share->shares->held[share->kind] -= share->amount;
    share->accounts[0]->held[share->kind] -= share->amount;
    if (share->accounts[1])
        share->accounts[1]->held[share->kind] -= share->amount;
}

static int take(struct share *share, struct shares *shares, const char *owner,
                enum config_share kind, size_t amount, struct error *err)
{
    const char *name = owner ? owner : "";
    const struct config_owner *row = config_owner_find(config_of(shares), name);

    open_accounts(share, shares, row, name, kind);
    share->amount = amount;
    if (check(shares, row, name, share, err) < 0) {
        close_accounts(share);
        return -1;
    }
    count(share);
    return 0;
}

int share_take(struct share *share, struct shares *shares, const char *owner,
               enum config_share kind, struct error *err)
{
    return take(share, shares, owner, kind, 1, err);
}

int share_take_bytes(struct share *share, struct shares *shares, const char *owner,
                     enum config_share kind, size_t bytes, struct error *err)
{
    return take(share, shares, owner, kind, bytes, err);
}

size_t share_amount(const struct share *share)
{
    return share->amount;
}

int share_grow(struct share *share, size_t bytes, struct error *err)
{
    size_t before = share->amount;
    int result = 0;

    assert(share->kind == SHARE_BODIES && bytes >= before);
    uncount(share);
    share->amount = bytes;
    if (is_above(share->accounts[0]->held[share->kind], bytes, BODIES_MAXIMUM)) {
        result = refuse_bytes(share, BODIES_MAXIMUM, err);
        share->amount = before;
    }
    count(share);
    return result;
}

void share_shrink(struct share *share, size_t bytes)
{
    if (!share->shares || bytes >= share->amount)
        return;
    uncount(share);
    share->amount = bytes;
    count(share);
}

void share_hold(struct share *share, struct shares *shares, const char *owner,
                enum config_share kind)
{
    const char *name = owner ? owner : "";

    open_accounts(share, shares, config_owner_find(config_of(shares), name), name, kind);
    count(share);
}

void share_give(struct share *share)
{
    if (!share->shares)
        return;
    uncount(share);
    close_accounts(share);
}

int64_t shares_cap(const struct shares *shares, const char *owner, enum config_share kind)
{
    const char *name = owner ? owner : "";
    const struct config_owner *row = config_owner_find(config_of(shares), name);
    const int64_t caps[] = { owner_cap(shares, row, name, kind), row_cap(row, kind),
                             total_cap(shares, kind) };
    int64_t least = 0;

    for (size_t i = 0; i < ARRAY_LENGTH(caps); i++)
        if (caps[i] && (!least || caps[i] < least))
            least = caps[i];
    return least;
}
