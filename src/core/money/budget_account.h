/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Private to the files of budgets: accounts, and their records. */

#include "core/money/budget.h"
#include "core/money/flavor.h"

#include <jansson.h>

enum { LACK_SIZE = 200 }; /* of budget_account_describe_lack() */

/* Of the one sandbox of a session that costs something. */
struct meter {
    char *flavor;             /* owned; NULL when there is none */
    char sandbox_id[ID_SIZE]; /* "" while the sandbox is not begun */
    int64_t price;            /* for an hour */
    int64_t charged;          /* of this sandbox; in `spent` already */
    int64_t held;             /* for the rest of the window */
    struct stamp started;     /* zero while it is only reserved */
    struct stamp until;       /* the end of the window */
    char *covered_by;         /* owned: the node whose part of the caps has it; NULL: this one */
    int64_t covered_life;     /* of that node; see grants_life() */
};

struct owner_account {
    char *owner; /* owned */
    int64_t cap; /* -1: that of the settings */
    int64_t spent;
    int64_t base; /* spent in another life: by nodes together, or before there were several */
    int64_t next_warning;
};

struct budget_account {
    struct budgets *budgets; /* borrowed */
    char session_id[ID_SIZE];
    struct owner_account *owner; /* borrowed */
    bool auto_approve;
    int64_t cap;
    int64_t spent;
    int64_t next_warning;
    json_t *granted; /* owned; array of names */
    struct meter meter;
    struct timer timer;     /* the next renewal or warning */
    struct grant_wish wish; /* for the next window: other nodes are asked */
};

struct budgets {
    struct core *core;     /* borrowed */
    struct map by_session; /* struct budget_account */
    struct map by_owner;   /* struct owner_account */
};

struct budget_account *budget_account_find(const struct budgets *budgets, const char *session_id);
struct budget_account *
budget_account_open(struct session *session); /* makes it when there is none */
void budget_account_free(struct budget_account *account);
struct owner_account *owner_account_open(struct budgets *budgets, const char *owner);

void meter_clear(struct meter *meter);
bool meter_is_running(const struct meter *meter);

/* budget_meter.c: of an owner, about the sum of all nodes; 0 as threshold is the first one. */
int64_t budget_next_warning(const struct core *core, int64_t threshold, int64_t spent);
void budget_warn_owner(struct core *core, const char *owner, int64_t spent, int64_t threshold,
                       int64_t next);

/* budget_record.c: expires_wall_us is 0 for one that lives. */
void budget_account_put(const struct budget_account *account, int64_t expires_wall_us);
void owner_account_put(struct budgets *budgets, const struct owner_account *account);

/* --- sums and caps: budget.c ----------------------------------------------------------------- */

int64_t budget_window_us(const struct core *core);

/* Of one window; PRICE_UNKNOWN. */
int64_t budget_estimate(const struct core *core, const struct config_flavor *flavor);

/* The cost since the meter was last charged. */
int64_t meter_unpaid(const struct meter *meter, const struct stamp *now);

struct sums {
    int64_t spent, held;
};

struct sums budget_account_sums(const struct budget_account *account); /* as of now */

/* The amount that is left. The amount that the session's own meter holds counts as left: the
 * requested sandbox takes the place of the present one. */
struct room {
    int64_t session, owner; /* INT64_MAX without a cap */
};

/* With several nodes: as far as it is known here what the others leave. */
struct room budget_account_room(const struct budget_account *account, bool session_cap_holds);

/* With several nodes: what this one was granted. The same as the room in a sole daemon. */
struct room budget_account_firm_room(const struct budget_account *account, bool session_cap_holds);
bool room_fits(const struct room *room, int64_t amount);

/* "estimated cost $4.00 exceeds the remaining $1.20 of the session's cap of $5.00" */
void budget_account_describe_lack(const struct budget_account *account, const struct room *room,
                                  int64_t amount, char *text, size_t size);

/* "svc" holds for svc and svc/ann. */
bool owner_is_in_tree(const char *root, const char *owner);

/* Of an owner and all below it, on this node. */
struct sums budget_tree_sums(const struct budgets *budgets, const char *root);

/* 0 without one. */
int64_t budget_owner_cap(const struct budgets *budgets, const char *owner);

/* --- over all nodes: budget_grants.c --------------------------------------------------------- */

void budget_set_grant_rules(struct core *core);

/* The owner whose cap is next above, in place; false when there is none. */
bool owner_climb(char *owner);

/* The spent or reserved money of the account has changed. */
void budget_note_use(const struct budget_account *account);

/* The meter comes from another node: what it holds leaves the parts of that one. */
void budget_take_over(struct budget_account *account);

/* Asks for `amount` more, where it is not granted: 1 when `answered` comes. */
int budget_wish(const struct budget_account *account, int64_t amount, int64_t patience_us,
                struct grant_wish *wish, grant_wish_fn *answered);

/* Of an owner and all below it, on all nodes, as far as it is known here. */
struct sums budget_sums_of_all(const struct budgets *budgets, const char *owner);
