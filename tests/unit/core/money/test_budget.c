/* SPDX-License-Identifier: Apache-2.0 */
/* Money: caps, reservations, charges, and what a killed daemon leaves of them. */

#include "base/money.h"
#include "core/money/approvals.h"
#include "core/money/budget.h"
#include "core/money/budget_account.h"
#include "core/sandbox/sandbox.h"
#include "core/session/flavor_change.h"
#include "harness/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

enum { MINUTE_MS = 60 * 1000, HOUR_MS = 60 * MINUTE_MS };

#define USD(amount) ((int64_t)((amount)*MONEY_DOLLAR + 0.5))

static char names[][16] = { "cpu-basic", "cpu-upgrade", "gpu", "mystery", "cheap" };

static struct config_flavor flavors[] = {
    { .name = names[0] },
    { .name = names[1],
      .memory_bytes = 4ULL << 30,
      .price_per_hour = 50000,
      .needs_approval = true },
    { .name = names[2],
      .memory_bytes = 8ULL << 30,
      .price_per_hour = 2000000,
      .needs_approval = true },
    { .name = names[3], .price_per_hour = PRICE_UNKNOWN },
    { .name = names[4], .price_per_hour = 1000000 },
};

static int setup(void **state)
{
    static struct world world;

    world_init(&world);
    world.config.flavors.items = flavors;
    world.config.flavors.count = sizeof(flavors) / sizeof(*flavors);
    world.config.session.idle_timeout_ms = 0;
    world.config.session.max_lifetime_ms = 0;
    world.config.session.preload = true;
    world.config.budget.auto_approve = true;
    world_start(&world);
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    world_fini(*state);
    return 0;
}

/* --- helpers ------------------------------------------------------------------------------- */

static enum flavor_change_outcome choose(struct world *world, struct session *session,
                                         const char *flavor)
{
    struct flavor_change_request request = { .flavor = flavor };
    struct flavor_change_answer answer;
    struct error err = { 0 };

    if (flavor_change_make(session, &request, &answer, &err) < 0)
        fail_msg("%s", err.message);
    world_settle(world);
    return answer.outcome;
}

static struct sums sums_of(struct session *session)
{
    return budget_account_sums(budget_account_open(session));
}

static int64_t owner_spent(struct world *world, const char *owner)
{
    return owner_account_open(world->core->budgets, owner)->spent;
}

static struct session *again(struct world *world, const char *id)
{
    world_restart(world);
    return world_find(world, id);
}

static void set_cap(struct session *session, int64_t cap)
{
    budget_patch(session, &(struct budget_patch){ .auto_approve = -1, .cap = cap });
}

/* --- what is charged ----------------------------------------------------------------------- */

static void a_session_that_is_to_be_opened_has_free_flavors_only(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);

    assert_int_equal(budget_judge(NULL, &flavors[0]).verdict, BUDGET_FREE);
    assert_int_equal(budget_judge(session, &flavors[0]).verdict, BUDGET_FREE);
    for (size_t i = 1; i < sizeof(flavors) / sizeof(*flavors); i++) {
        assert_int_equal(budget_judge(NULL, &flavors[i]).verdict, BUDGET_REFUSED);
        assert_in_set(budget_judge(session, &flavors[i]).verdict,
                      ((LargestIntegralType[]){ BUDGET_CAPPED, BUDGET_ASK }), 2);
    }
}

static void the_automatic_sandbox_costs_nothing(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);

    world_advance(world, 10 * HOUR_MS);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_READY);
    assert_int_equal(budget_spent(session), 0);
    assert_int_equal(fake_store_count(world->store, STORE_DOCUMENTS), 0);
}

static void e14_replacing_the_automatic_sandbox_holds_the_first_hour(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);

    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_READY);
    assert_int_equal(choose(world, session, "gpu"), FLAVOR_CHANGE_MADE);
    assert_int_equal(sums_of(session).held, USD(2.00));
    assert_string_equal(sandbox_flavor(session_sandbox(session)), "gpu");
    assert_int_equal(fake_backend_count(world->backend), 1);
}

static void e14_a_replacement_over_the_cap_is_asked_for(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);

    set_cap(session, USD(1.99));
    assert_int_equal(choose(world, session, "gpu"), FLAVOR_CHANGE_ASKED);
    assert_string_equal(sandbox_flavor(session_sandbox(session)), "cpu-basic");
    assert_non_null(strstr(session_approval(session)->question, "exceeds the remaining $1.99"));
    assert_int_equal(sums_of(session).held, 0);
}

static void m18_an_early_end_gives_the_unused_half_hour_back(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);

    choose(world, session, "gpu");
    world_advance(world, 30 * MINUTE_MS);
    assert_int_equal(sums_of(session).spent, USD(1.00));
    assert_int_equal(sums_of(session).held, USD(1.00));
    session_teardown(session, END_TEARDOWN);
    world_settle(world);
    assert_int_equal(sums_of(session).spent, USD(1.00));
    assert_int_equal(sums_of(session).held, 0);
    assert_int_equal(owner_spent(world, "ann"), USD(1.00));
    assert_int_equal(world_events(world, session_id(session), "budget.charged"), 1);
    world_advance(world, HOUR_MS);
    assert_int_equal(budget_spent(session), USD(1.00));
}

static void the_time_of_the_clock_is_charged_to_the_micro_dollar(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);

    set_cap(session, USD(100));
    choose(world, session, "gpu");
    for (int i = 0; i < 7; i++)
        world_advance(world, 47 * MINUTE_MS + 13);
    session_teardown(session, END_TEARDOWN);
    world_settle(world);
    assert_int_equal(budget_spent(session),
                     money_cost(USD(2.00), 7 * (47LL * MINUTE_MS + 13) * 1000));
}

static void m19_a_refused_renewal_ends_the_sandbox_with_reason_budget(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);

    set_cap(session, USD(3.00));
    choose(world, session, "gpu");
    world_advance(world, 56 * MINUTE_MS);
    assert_string_equal(sandbox_flavor(session_sandbox(session)), "gpu");
    world_advance(world, MINUTE_MS);
    assert_null(session_sandbox(session));
    assert_int_equal(session_state(session), SESSION_OPEN);
    assert_int_equal(budget_spent(session), USD(1.90));
    assert_int_equal(sums_of(session).held, 0);
    assert_int_equal(world_events(world, session_id(session), "budget.exhausted"), 1);
    assert_string_equal(session_flavor(session), "cpu-basic");
    assert_int_equal(session_previous_end(session)->kind, END_BUDGET);
}

/* The session is not left with a failure alone: a person is asked, and decides when there is money
 * again. */
static void at_the_cap_the_question_stays_pending_for_a_person(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    const struct approval_decision decision = { .approve = true, .by = "boss" };
    struct error err = { 0 };

    set_cap(session, USD(3.00));
    choose(world, session, "gpu");
    world_advance(world, 57 * MINUTE_MS);
    assert_null(session_sandbox(session));
    assert_non_null(session_approval(session));
    assert_string_equal(session_approval(session)->flavor, "gpu");
    assert_non_null(strstr(session_approval(session)->question, "cap of $3"));

    assert_int_equal(approval_decide(session_approval(session), &decision, &err), -1);
    assert_string_equal(err.name, "cap_exceeded");
    assert_int_equal(session_approval(session)->state, APPROVAL_PENDING);
    set_cap(session, USD(10.00));
    assert_int_equal(approval_decide(session_approval(session), &decision, &err), 0);
    world_settle(world);
    assert_string_equal(sandbox_flavor(session_sandbox(session)), "gpu");
    assert_null(session_approval(session));
}

static void a_renewal_that_fits_goes_on(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);

    set_cap(session, USD(4.00));
    choose(world, session, "gpu");
    world_advance(world, 90 * MINUTE_MS);
    assert_string_equal(sandbox_flavor(session_sandbox(session)), "gpu");
    assert_int_equal(budget_spent(session), USD(3.00));
    world_advance(world, 30 * MINUTE_MS);
    assert_null(session_sandbox(session));
    assert_int_equal(budget_spent(session), money_cost(USD(2.00), 114LL * MINUTE_MS * 1000));
}

static void a_start_that_fails_costs_nothing(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);

    fake_backend_refuse(world->backend, FAKE_CREATE, 1, ERR_BACKEND);
    choose(world, session, "gpu");
    assert_null(session_sandbox(session));
    assert_int_equal(sums_of(session).held, 0);
    assert_int_equal(budget_spent(session), 0);
    assert_int_equal(session_choice(session), CHOICE_CAPPED);
}

static void a_crash_settles_and_the_next_use_pays_for_itself(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    choose(world, session, "gpu");
    world_advance(world, 6 * MINUTE_MS);
    fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
    world_settle(world);
    world_advance(world, 30 * MINUTE_MS);
    assert_int_equal(budget_spent(session), USD(0.20));
    world_use(world, session, &tried);
    world_settle(world);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_string_equal(sandbox_flavor(session_sandbox(session)), "gpu");
    assert_int_equal(sums_of(session).held, USD(2.00));
    session_hold_end(&tried.hold);
}

static void what_nobody_can_pay_for_any_more_is_not_made_again(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    set_cap(session, USD(3.00));
    choose(world, session, "gpu");
    world_advance(world, 36 * MINUTE_MS);
    fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
    world_settle(world);
    world_use(world, session, &tried);
    world_settle(world);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_string_equal(sandbox_flavor(session_sandbox(session)), "cpu-basic");
    assert_int_equal(world_events(world, session_id(session), "budget.exhausted"), 1);
    session_hold_end(&tried.hold);
}

static void the_end_of_a_session_settles_and_its_record_tells_what_it_cost(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct ended ended;

    choose(world, session, "gpu");
    world_advance(world, 15 * MINUTE_MS);
    world_end(world, session, END_DELETED, &ended);
    assert_int_equal(ended.done, 1);
    assert_int_equal(owner_spent(world, "ann"), USD(0.50));
}

/* --- caps ---------------------------------------------------------------------------------- */

static void m31_an_unknown_price_always_goes_to_a_person(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);

    assert_int_equal(choose(world, session, "mystery"), FLAVOR_CHANGE_ASKED);
    assert_int_equal(session_approval(session)->estimated, PRICE_UNKNOWN);
}

static void a_flavor_that_needs_no_approval_still_has_to_fit(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);

    budget_patch(session, &(struct budget_patch){ .auto_approve = 0, .cap = USD(0.99) });
    assert_int_equal(choose(world, session, "cheap"), FLAVOR_CHANGE_ASKED);
    set_cap(session, USD(1.00));
    assert_int_equal(choose(world, session, "cheap"), FLAVOR_CHANGE_MADE);
}

static void m32_two_sessions_of_an_owner_share_his_cap(void **state)
{
    struct world *world = *state;
    struct session *first = world_open_simple(world, "ann", NULL);
    struct session *second = world_open_simple(world, "ann", NULL);
    struct session *other = world_open_simple(world, "bob", NULL);

    world->config.budget.owner_cap = USD(3.00);
    assert_int_equal(choose(world, first, "gpu"), FLAVOR_CHANGE_MADE);
    assert_int_equal(choose(world, second, "gpu"), FLAVOR_CHANGE_ASKED);
    assert_non_null(strstr(session_approval(second)->question, "owner's cap"));
    assert_int_equal(choose(world, other, "gpu"), FLAVOR_CHANGE_MADE);
    session_teardown(first, END_TEARDOWN);
    world_settle(world);
    assert_int_equal(choose(world, second, "gpu"), FLAVOR_CHANGE_MADE);
}

static void the_cap_of_an_owner_holds_for_all_below_it(void **state)
{
    struct world *world = *state;
    struct session *first = world_open_simple(world, "svc/u1", NULL);
    struct session *second = world_open_simple(world, "svc/u2", NULL);
    struct session *other = world_open_simple(world, "svcx", NULL);

    budget_set_owner_cap(world->core->budgets, "svc", USD(3.00));
    assert_int_equal(choose(world, first, "gpu"), FLAVOR_CHANGE_MADE);
    assert_int_equal(choose(world, second, "gpu"), FLAVOR_CHANGE_ASKED);
    assert_non_null(strstr(session_approval(second)->question, "owner's cap of $3.00"));
    assert_int_equal(choose(world, other, "gpu"), FLAVOR_CHANGE_MADE);
    budget_set_owner_cap(world->core->budgets, "svc", USD(30.00));
    assert_int_equal(choose(world, second, "gpu"), FLAVOR_CHANGE_MADE);
}

static void e17_reservations_are_durable(void **state)
{
    struct world *world = *state;
    struct session *first = world_open_simple(world, "ann", NULL);
    struct session *second = world_open_simple(world, "ann", NULL);
    char id[ID_SIZE];

    world->config.budget.owner_cap = USD(3.00);
    choose(world, first, "gpu");
    memcpy(id, session_id(second), sizeof(id));
    second = again(world, id);
    assert_int_equal(choose(world, second, "gpu"), FLAVOR_CHANGE_ASKED);
}

static void m34_switching_automatic_approval_on_counts_what_was_spent_before(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct error err = { 0 };

    budget_patch(session, &(struct budget_patch){ .auto_approve = 0, .cap = -1 });
    assert_int_equal(choose(world, session, "gpu"), FLAVOR_CHANGE_ASKED);
    assert_int_equal(approval_decide(session_approval(session),
                                     &(struct approval_decision){ .approve = true, .by = "eve" },
                                     &err),
                     0);
    world_settle(world);
    world_advance(world, 2 * HOUR_MS);
    session_teardown(session, END_TEARDOWN);
    world_settle(world);
    assert_int_equal(budget_spent(session), USD(4.00));
    budget_patch(session, &(struct budget_patch){ .auto_approve = 1, .cap = -1 });
    assert_int_equal(choose(world, session, "gpu"), FLAVOR_CHANGE_ASKED);
}

static void a_wider_budget_is_told_from_a_narrower_one(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);

    budget_patch(session, &(struct budget_patch){ .auto_approve = 0, .cap = USD(5) });
    assert_true(
        budget_patch_is_wider(session, &(struct budget_patch){ .auto_approve = 1, .cap = -1 }));
    assert_true(budget_patch_is_wider(session, &(struct budget_patch){ -1, USD(5.01) }));
    assert_false(budget_patch_is_wider(session, &(struct budget_patch){ 0, USD(4) }));
}

static void thresholds_are_told_at_five_and_at_each_doubling(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);

    set_cap(session, USD(100));
    choose(world, session, "gpu");
    world_advance(world, 149 * MINUTE_MS);
    assert_int_equal(world_events(world, session_id(session), "budget.threshold"), 0);
    world_advance(world, 2 * MINUTE_MS);
    assert_int_equal(world_events(world, session_id(session), "budget.threshold"), 1);
    world_advance(world, 149 * MINUTE_MS);
    assert_int_equal(world_events(world, session_id(session), "budget.threshold"), 2);
    world_advance(world, 5 * HOUR_MS);
    assert_int_equal(world_events(world, session_id(session), "budget.threshold"), 3);
}

/* --- restarts and clocks ------------------------------------------------------------------- */

static void m23_spend_and_policy_survive_a_restart(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    char id[ID_SIZE];

    budget_patch(session, &(struct budget_patch){ .auto_approve = 0, .cap = USD(7.50) });
    budget_grant(session, "gpu");
    memcpy(id, session_id(session), sizeof(id));
    assert_int_equal(choose(world, session, "gpu"), FLAVOR_CHANGE_MADE);
    world_advance(world, 15 * MINUTE_MS);
    session = again(world, id);
    assert_int_equal(budget_spent(session), USD(0.50));
    assert_false(budget_account_open(session)->auto_approve);
    assert_int_equal(budget_account_open(session)->cap, USD(7.50));
    assert_string_equal(session_flavor(session), "gpu");
    assert_int_equal(session_choice(session), CHOICE_SESSION);
    session_teardown(session, END_TEARDOWN);
    world_settle(world);
    session = again(world, id);
    assert_int_equal(budget_spent(session), USD(0.50));
    assert_int_equal(owner_spent(world, "ann"), USD(0.50));
    assert_int_equal(choose(world, session, "gpu"), FLAVOR_CHANGE_MADE);
}

static void a_sandbox_that_ran_while_the_daemon_was_down_is_charged_for_it(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    char id[ID_SIZE];

    set_cap(session, USD(100));
    choose(world, session, "gpu");
    memcpy(id, session_id(session), sizeof(id));
    world_kill(world, false);
    world_advance(world, 3 * HOUR_MS);
    world_start(world);
    session = world_find(world, id);
    assert_int_equal(budget_spent(session), USD(6.00));
    assert_int_equal(sums_of(session).held, USD(2.00));
    assert_string_equal(sandbox_flavor(session_sandbox(session)), "gpu");
}

static void one_that_cannot_be_renewed_after_that_ends_with_reason_budget(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    char id[ID_SIZE];

    choose(world, session, "gpu");
    memcpy(id, session_id(session), sizeof(id));
    world_kill(world, false);
    world_advance(world, 3 * HOUR_MS);
    world_start(world);
    session = world_find(world, id);
    world_settle(world);
    assert_null(session_sandbox(session));
    assert_int_equal(budget_spent(session), USD(6.00));
    assert_int_equal(world_events(world, session_id(session), "budget.exhausted"), 1);
}

static void one_that_died_while_the_daemon_was_down_is_charged_for_its_hour_at_most(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    char id[ID_SIZE];
    char sandbox[ID_SIZE];

    choose(world, session, "gpu");
    memcpy(id, session_id(session), sizeof(id));
    memcpy(sandbox, sandbox_id(session_sandbox(session)), sizeof(sandbox));
    world_kill(world, false);
    world_advance(world, 72 * HOUR_MS);
    fake_backend_kill(world->backend, sandbox);
    world_start(world);
    session = world_find(world, id);
    assert_int_equal(budget_spent(session), USD(2.00));
    assert_int_equal(sums_of(session).held, 0);
}

static void setting_the_wall_clock_costs_nobody_anything(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);

    choose(world, session, "gpu");
    world_advance(world, 15 * MINUTE_MS);
    world->clock.wall_us = 1;
    world_advance(world, 15 * MINUTE_MS);
    session_teardown(session, END_TEARDOWN);
    world_settle(world);
    assert_int_equal(budget_spent(session), USD(1.00));
}

/* Killed after any number of turns, whether or not the backend still did what it was asked for. */
static void killed_at_any_moment_nothing_is_lost_or_charged_twice(void **state)
{
    struct world *world = *state;

    set_cap(world_open_simple(world, "ann", "probe"), USD(5));
    for (int turns = 0; turns < 24; turns++) {
        struct session *session = world_open_simple(world, "ann", NULL);
        struct flavor_change_request request = { .flavor = "gpu" };
        struct flavor_change_answer answer;
        struct error err = { 0 };
        int64_t before = owner_spent(world, "ann");
        char id[ID_SIZE];

        memcpy(id, session_id(session), sizeof(id));
        assert_int_equal(flavor_change_make(session, &request, &answer, &err), 0);
        for (int i = 0; i < turns / 2; i++)
            loop_turn(world->loop, 0);
        world_kill(world, turns & 1);
        world_advance(world, 15 * MINUTE_MS);
        world_start(world);
        session = world_find(world, id);
        world_advance(world, 15 * MINUTE_MS);
        session_teardown(session, END_TEARDOWN);
        world_settle(world);
        assert_int_equal(sums_of(session).held, 0);
        assert_int_equal(owner_spent(world, "ann") - before, budget_spent(session));
        assert_true(budget_spent(session) == 0 || budget_spent(session) == USD(0.50) ||
                    budget_spent(session) == USD(1.00));
        world_end(world, session, END_DELETED, &(struct ended){ 0 });
    }
}

/* The other end: settling and the record of the destruction are one transaction. */
static void killed_while_it_is_torn_down_it_is_charged_once(void **state)
{
    struct world *world = *state;

    for (int turns = 0; turns < 16; turns++) {
        struct session *session = world_open_simple(world, "bob", NULL);
        int64_t before = owner_spent(world, "bob");
        char id[ID_SIZE];

        memcpy(id, session_id(session), sizeof(id));
        choose(world, session, "gpu");
        world_advance(world, 30 * MINUTE_MS);
        session_teardown(session, END_TEARDOWN);
        for (int i = 0; i < turns / 2; i++)
            loop_turn(world->loop, 0);
        world_restart(world);
        session = world_find(world, id);
        session_teardown(session, END_TEARDOWN);
        world_settle(world);
        assert_int_equal(budget_spent(session), USD(1.00));
        assert_int_equal(owner_spent(world, "bob") - before, USD(1.00));
        assert_int_equal(fake_backend_count(world->backend), 0);
        world_end(world, session, END_DELETED, &(struct ended){ 0 });
    }
}

static void a_charge_that_the_store_lost_is_put_again(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    char id[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    choose(world, session, "gpu");
    world_advance(world, 30 * MINUTE_MS);
    fake_store_fail_next(world->store, ERR_NO_SPACE);
    session_teardown(session, END_TEARDOWN);
    world_settle(world);
    world_advance(world, 5000);
    session = again(world, id);
    assert_int_equal(budget_spent(session), USD(1.00));
    assert_int_equal(owner_spent(world, "ann"), USD(1.00));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(a_session_that_is_to_be_opened_has_free_flavors_only),
        TEST(the_automatic_sandbox_costs_nothing),
        TEST(e14_replacing_the_automatic_sandbox_holds_the_first_hour),
        TEST(e14_a_replacement_over_the_cap_is_asked_for),
        TEST(m18_an_early_end_gives_the_unused_half_hour_back),
        TEST(the_time_of_the_clock_is_charged_to_the_micro_dollar),
        TEST(m19_a_refused_renewal_ends_the_sandbox_with_reason_budget),
        TEST(at_the_cap_the_question_stays_pending_for_a_person),
        TEST(a_renewal_that_fits_goes_on),
        TEST(a_start_that_fails_costs_nothing),
        TEST(a_crash_settles_and_the_next_use_pays_for_itself),
        TEST(what_nobody_can_pay_for_any_more_is_not_made_again),
        TEST(the_end_of_a_session_settles_and_its_record_tells_what_it_cost),
        TEST(m31_an_unknown_price_always_goes_to_a_person),
        TEST(a_flavor_that_needs_no_approval_still_has_to_fit),
        TEST(m32_two_sessions_of_an_owner_share_his_cap),
        TEST(the_cap_of_an_owner_holds_for_all_below_it),
        TEST(e17_reservations_are_durable),
        TEST(m34_switching_automatic_approval_on_counts_what_was_spent_before),
        TEST(a_wider_budget_is_told_from_a_narrower_one),
        TEST(thresholds_are_told_at_five_and_at_each_doubling),
        TEST(m23_spend_and_policy_survive_a_restart),
        TEST(a_sandbox_that_ran_while_the_daemon_was_down_is_charged_for_it),
        TEST(one_that_cannot_be_renewed_after_that_ends_with_reason_budget),
        TEST(one_that_died_while_the_daemon_was_down_is_charged_for_its_hour_at_most),
        TEST(setting_the_wall_clock_costs_nobody_anything),
        TEST(killed_at_any_moment_nothing_is_lost_or_charged_twice),
        TEST(killed_while_it_is_torn_down_it_is_charged_once),
        TEST(a_charge_that_the_store_lost_is_put_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
