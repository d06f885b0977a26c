/* SPDX-License-Identifier: Apache-2.0 */
#include "core/money/budget.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/money.h"
#include "base/str.h"
#include "config/config.h"
#include "core/events.h"
#include "core/money/approvals.h"
#include "core/money/budget_account.h"
#include "core/money/observer.h"
#include "core/stamp.h"
#include "wire/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The meter of a sandbox that costs something, and its events. */

/* --- events -------------------------------------------------------------------------------- */

static int64_t next_warning_after(int64_t threshold, int64_t spent)
{
    while (threshold > 0 && threshold <= spent)
        threshold *= 2;
    return threshold;
}

static void write_warning(struct buffer *data, const char *scope, int64_t spent, int64_t threshold,
                          int64_t next)
{
    struct json_writer json = JSON_WRITER(data);

    json_begin_object(&json, NULL);
    json_put_text(&json, "scope", scope);
    json_put_money(&json, "spent_usd", spent);
    json_put_money(&json, "threshold_usd", threshold);
    json_put_money(&json, "next_threshold_usd", next);
    json_end_object(&json);
}

static void warn_session(struct session *session, struct budget_account *account)
{
    scoped(buffer_fini) struct buffer data = BUFFER_INIT(512);
    int64_t threshold = account->next_warning;

    if (!threshold || account->spent < threshold)
        return;
    account->next_warning = next_warning_after(threshold, account->spent);
    write_warning(&data, "session", account->spent, threshold, account->next_warning);
    session_emit(session, "budget.threshold", buffer_text(&data));
}

int64_t budget_next_warning(const struct core *core, int64_t threshold, int64_t spent)
{
    int64_t first = core->parts.config->budget.first_warning;

    return next_warning_after(threshold ? threshold : first, spent);
}

void budget_warn_owner(struct core *core, const char *owner, int64_t spent, int64_t threshold,
                       int64_t next)
{
    scoped(buffer_fini) struct buffer data = BUFFER_INIT(512);

    write_warning(&data, "owner", spent, threshold, next);
    events_emit(core->events, "", owner, 0, "budget.threshold", buffer_text(&data));
}

/* With several nodes the sum of all of them counts: budget_grants.c. */
static void warn_owner(struct budgets *budgets, struct owner_account *owner)
{
    int64_t threshold = owner->next_warning;

    if (!threshold || owner->spent < threshold || core_is_clustered(budgets->core))
        return;
    owner->next_warning = next_warning_after(threshold, owner->spent);
    budget_warn_owner(budgets->core, owner->owner, owner->spent, threshold, owner->next_warning);
}

/* A sandbox that cost something has been paid in full. */
static void emit_charged(struct session *session, const struct budget_account *account)
{
    const struct meter *meter = &account->meter;
    scoped(buffer_fini) struct buffer data = BUFFER_INIT(1024);
    struct json_writer json = JSON_WRITER(&data);

    json_begin_object(&json, NULL);
    json_put_text(&json, "sandbox_id", meter->sandbox_id);
    json_put_text(&json, "sandbox", meter->sandbox_id);
    json_put_text(&json, "flavor", meter->flavor);
    json_put_money(&json, "price_per_hour", meter->price);
    json_put_money(&json, "charged_usd", meter->charged);
    json_put_money(&json, "spent_usd", account->spent);
    json_end_object(&json);
    session_emit(session, "budget.charged", buffer_text(&data));
}

static void emit_exhausted(struct session *session, const struct budget_account *account,
                           const struct meter *meter, const char *why)
{
    scoped(buffer_fini) struct buffer data = BUFFER_INIT(1024);
    struct json_writer json = JSON_WRITER(&data);

    json_begin_object(&json, NULL);
    json_put_text(&json, "flavor", meter->flavor);
    json_put_text(&json, "reason", why);
    json_put_money(&json, "spent_usd", account->spent);
    json_put_money(&json, "cap_usd", account->cap);
    json_end_object(&json);
    session_emit(session, "budget.exhausted", buffer_text(&data));
}

/* --- the meter ----------------------------------------------------------------------------- */

/* Both documents are written in one turn, so that they are in one transaction. */
static void put_both(const struct budget_account *account)
{
    budget_account_put(account, 0);
    owner_account_put(account->budgets, account->owner);
    budget_note_use(account);
}

/* The cost until then is spent, no longer held. */
static void charge(struct session *session, struct budget_account *account,
                   const struct stamp *until)
{
    struct meter *meter = &account->meter;
    int64_t amount = meter_unpaid(meter, until);

    meter->charged += amount;
    meter->held = MAX(meter->held - amount, (int64_t)0);
    account->spent += amount;
    account->owner->spent += amount;
    warn_session(session, account);
    warn_owner(account->budgets, account->owner);
}

static int64_t renewal_us(const struct budget_account *account)
{
    return account->meter.until.boot_us - budget_window_us(account->budgets->core) / 20;
}

static int64_t warning_us(const struct budget_account *account)
{
    const struct meter *meter = &account->meter;
    int64_t missing = account->next_warning - account->spent + meter->charged;
    int64_t time_us;

    if (!account->next_warning)
        return INT64_MAX;
    time_us = money_time_us(meter->price, missing);
    return time_us > INT64_MAX / 2 ? INT64_MAX : meter->started.boot_us + time_us;
}

static void on_timer(struct timer *timer);

/* While other nodes are asked for the next window, their answer is the next renewal. */
static void arm(struct budget_account *account)
{
    struct loop *loop = account->budgets->core->loop;
    int64_t next_us =
        MIN(account->wish.grant ? INT64_MAX : renewal_us(account), warning_us(account));

    if (!account->timer.loop)
        timer_init(&account->timer, loop, on_timer);
    if (meter_is_running(&account->meter) && next_us != INT64_MAX)
        timer_arm_at(&account->timer, next_us);
    else
        timer_stop(&account->timer);
}

static bool session_cap_holds(const struct session *session, const struct budget_account *account)
{
    return account->auto_approve || session_choice(session) == CHOICE_CAPPED;
}

static struct stamp later(struct stamp stamp, int64_t us)
{
    return (struct stamp){ .wall_us = stamp.wall_us + us, .boot_us = stamp.boot_us + us };
}

void budget_ask_to_continue(struct session *session, const char *name, const char *why)
{
    const struct config_flavor *flavor =
        config_flavor_find(session_core(session)->parts.config, name);
    struct budget_judgement judgement = { .verdict = BUDGET_ASK };

    if (!flavor || session_state(session) == SESSION_ENDING ||
        session_state(session) == SESSION_ENDED)
        return;
    judgement.estimated = budget_estimate(session_core(session), flavor);
    snprintf(judgement.why, sizeof(judgement.why), "%s", why);
    (void)approvals_ask(session, flavor, &judgement,
                        &(struct approval_origin){ .on_behalf_of = session_on_behalf_of(session) });
}

enum renewal { RENEWED, RENEWAL_ASKED, RENEWAL_REFUSED };

static void on_renewal_answered(struct grant_wish *wish);

/* Other nodes have the time until the window ends. */
static bool ask_for_window(struct budget_account *account, int64_t amount, const struct stamp *now)
{
    int64_t patience_us = MAX(account->meter.until.boot_us - now->boot_us, (int64_t)1);
    int64_t more = MAX(amount - budget_account_sums(account).held, (int64_t)1);

    return account->wish.grant ||
           budget_wish(account, more, patience_us, &account->wish, on_renewal_answered);
}

static enum renewal renew(struct session *session, struct budget_account *account,
                          const struct stamp *now, char lack[LACK_SIZE])
{
    struct meter *meter = &account->meter;
    bool session_holds = session_cap_holds(session, account);
    int64_t amount = money_cost(meter->price, budget_window_us(session_core(session)));
    struct room room = budget_account_firm_room(account, session_holds);

    if (room_fits(&room, amount)) {
        meter->held = amount;
        meter->until = later(*now, budget_window_us(session_core(session)));
        return RENEWED;
    }
    if (*lack) /* the other nodes have answered */
        room = budget_account_room(account, session_holds);
    else if (amount <= room.session && ask_for_window(account, amount, now))
        return RENEWAL_ASKED;
    if (!*lack)
        budget_account_describe_lack(account, &room, amount, lack, LACK_SIZE);
    emit_exhausted(session, account, meter, lack);
    log_info("budget exhausted; removing its sandbox", kv("session", session_id(session)),
             kv("why", lack));
    return RENEWAL_REFUSED;
}

/* Its sandbox goes, and with it what was chosen; what it had can be approved again. */
static void run_dry(struct session *session, const struct budget_account *account, const char *lack)
{
    scoped(free) char *flavor = xstrdup(account->meter.flavor);

    session_core(session)->money->on_exhausted(session);
    budget_ask_to_continue(session, flavor, lack);
}

/* `refusal` is what other nodes have said to the next window; "": they were not asked. */
static void tick_with(struct session *session, struct budget_account *account, const char *refusal)
{
    struct stamp now = stamp_now(session_core(session));
    enum renewal renewal = RENEWED;
    char lack[LACK_SIZE];

    if (!meter_is_running(&account->meter))
        return;
    snprintf(lack, sizeof(lack), "%s", refusal);
    charge(session, account, &now);
    if (now.boot_us >= renewal_us(account))
        renewal = renew(session, account, &now, lack);
    put_both(account);
    if (renewal == RENEWAL_REFUSED)
        run_dry(session, account, lack);
    else
        arm(account);
}

static void tick(struct session *session, struct budget_account *account)
{
    tick_with(session, account, "");
}

static void on_renewal_answered(struct grant_wish *wish)
{
    struct budget_account *account = container_of(wish, struct budget_account, wish);
    struct session *session = map_get(&account->budgets->core->sessions_by_id, account->session_id);

    if (session)
        tick_with(session, account, wish->err.code == ERR_NONE ? "" : wish->err.message);
}

static void on_timer(struct timer *timer)
{
    struct budget_account *account = container_of(timer, struct budget_account, timer);
    struct session *session = map_get(&account->budgets->core->sessions_by_id, account->session_id);

    if (session)
        tick(session, account);
}

int budget_reserve(struct session *session, struct error *err)
{
    const struct config_flavor *flavor =
        config_flavor_find(session_core(session)->parts.config, session_flavor(session));
    struct budget_account *account;
    struct room room, firm;
    int64_t amount;
    char lack[LACK_SIZE];

    if (!flavor || flavor->price_per_hour <= 0)
        return 0;
    account = budget_account_open(session);
    if (account->meter.flavor)
        return 0;
    amount = budget_estimate(session_core(session), flavor);
    room = budget_account_room(account, session_cap_holds(session, account));
    firm = budget_account_firm_room(account, session_cap_holds(session, account));
    if (room_fits(&room, amount) && !room_fits(&firm, amount))
        return error_named(err, ERR_UNAVAILABLE, "cap_unconfirmed",
                           "what the owner has spent on other nodes is not confirmed yet");
    if (!room_fits(&room, amount)) {
        struct meter wanted = { .flavor = flavor->name };

        budget_account_describe_lack(account, &room, amount, lack, sizeof(lack));
        emit_exhausted(session, account, &wanted, lack);
        return error_named(err, ERR_LIMIT, "budget_exhausted", "%s", lack);
    }
    account->meter = (struct meter){ .flavor = xstrdup(flavor->name),
                                     .price = flavor->price_per_hour,
                                     .held = amount };
    budget_account_put(account, 0);
    budget_note_use(account);
    return 0;
}

int budget_ask(struct session *session, struct grant_wish *wish, grant_wish_fn *answered)
{
    const struct config_flavor *flavor =
        config_flavor_find(session_core(session)->parts.config, session_flavor(session));
    struct budget_account *account;
    struct room room;
    int64_t amount;

    if (!flavor || flavor->price_per_hour <= 0)
        return 0;
    account = budget_account_open(session);
    amount = budget_estimate(session_core(session), flavor);
    room = budget_account_room(account, session_cap_holds(session, account));
    if (account->meter.flavor || amount > room.session || amount <= 0)
        return 0;
    return budget_wish(account, amount, GRANT_PATIENCE_US, wish, answered);
}

static struct budget_account *account_with_meter(const struct session *session)
{
    struct budget_account *account =
        budget_account_find(session_core(session)->budgets, session_id(session));

    return account && account->meter.flavor ? account : NULL;
}

static struct budget_account *account_of_sandbox(const struct session *session,
                                                 const char *sandbox_id)
{
    struct budget_account *account = account_with_meter(session);

    return account && str_equal(account->meter.sandbox_id, sandbox_id) ? account : NULL;
}

void budget_bind(struct session *session, const char *sandbox_id)
{
    struct budget_account *account = account_with_meter(session);

    if (!account)
        return;
    snprintf(account->meter.sandbox_id, sizeof(account->meter.sandbox_id), "%s", sandbox_id);
    budget_account_put(account, 0);
}

void budget_run(struct session *session, const char *sandbox_id)
{
    struct budget_account *account = account_of_sandbox(session, sandbox_id);

    if (!account || meter_is_running(&account->meter))
        return;
    account->meter.started = stamp_now(session_core(session));
    account->meter.until = later(account->meter.started, budget_window_us(session_core(session)));
    budget_account_put(account, 0);
    arm(account);
}

/* Time beyond the window, without a daemon to renew it, was not reserved and is not charged. */
static struct stamp settled_at(const struct meter *meter, const struct stamp *end)
{
    return end->boot_us > meter->until.boot_us ? meter->until : *end;
}

static void settle(struct session *session, struct budget_account *account, const struct stamp *end)
{
    struct stamp at = settled_at(&account->meter, end);

    if (meter_is_running(&account->meter)) {
        charge(session, account, &at);
        emit_charged(session, account);
    }
    meter_clear(&account->meter);
    grant_wish_end(&account->wish);
    put_both(account);
    arm(account);
}

void budget_settle(struct session *session, const char *sandbox_id, const struct stamp *end)
{
    struct budget_account *account = account_of_sandbox(session, sandbox_id);

    if (account)
        settle(session, account, end);
}

void budget_release(struct session *session)
{
    struct budget_account *account = account_with_meter(session);

    if (!account || *account->meter.sandbox_id)
        return;
    meter_clear(&account->meter);
    budget_account_put(account, 0);
    budget_note_use(account);
}

void budget_close(struct session *session)
{
    struct budget_account *account =
        budget_account_find(session_core(session)->budgets, session_id(session));
    struct stamp now = stamp_now(session_core(session));

    if (!account)
        return;
    if (account->meter.flavor)
        settle(session, account, &now);
    session_set_spent(session, account->spent);
    if (!session_is_unrecorded(session))
        budget_account_put(account, session_retain_until_wall_us(session));
    budget_account_free(account);
}

/* --- after a restart ----------------------------------------------------------------------- */

static enum metered_sandbox find_sandbox(const struct session *session, const struct meter *meter)
{
    return session_core(session)->money->metered_sandbox(session, meter->sandbox_id);
}

static void recover(struct session *session)
{
    struct budget_account *account = account_with_meter(session);
    struct stamp now = stamp_now(session_core(session));

    if (!account)
        return;
    budget_take_over(account);
    switch (find_sandbox(session, &account->meter)) {
    case METERED_GONE:
        settle(session, account, &now);
        break;
    case METERED_UNKNOWN:
        break;
    case METERED_UP:
        tick(session, account);
        break;
    }
}

void budgets_start(struct budgets *budgets)
{
    struct session *session;
    struct session *following;

    session_for_each_safe (session, following, budgets->core)
        recover(session);
}

void budget_recover(struct session *session)
{
    struct budget_account *account =
        budget_account_find(session_core(session)->budgets, session_id(session));

    if (!account)
        return;
    recover(session);
    budget_account_put(account, 0);
}

void budget_forget(struct session *session)
{
    struct budget_account *account =
        budget_account_find(session_core(session)->budgets, session_id(session));

    if (!account)
        return;
    budget_note_use(account);
    budget_account_free(account);
}

void budget_resume(struct session *session)
{
    struct budget_account *account = account_with_meter(session);

    if (account && find_sandbox(session, &account->meter) != METERED_GONE)
        tick(session, account);
}
