/* SPDX-License-Identifier: Apache-2.0 */
/* A session asks for another flavor: nothing changes, it is made, somebody decides, or no. */

#include "core/money/approvals.h"
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

static char names[][16] = { "cpu-basic", "roomy", "cpu-upgrade", "gpu", "elsewhere" };
static char docker[] = "docker";

static const struct config_flavor templates[] = {
    { .name = names[0] },
    { .name = names[1], .memory_bytes = 4ULL << 30, .disk_bytes = 8ULL << 30, .pids = 512 },
    { .name = names[2], .price_per_hour = 50000, .needs_approval = true },
    { .name = names[3], .price_per_hour = 2000000, .needs_approval = true, .gpus = 1 },
    { .name = names[4], .backend = docker },
};

static struct config_flavor flavors[sizeof(templates) / sizeof(*templates)];

static int setup(void **state)
{
    static struct world world;

    memcpy(flavors, templates, sizeof(flavors));
    world_init(&world);
    world.config.flavors.items = flavors;
    world.config.flavors.count = sizeof(flavors) / sizeof(*flavors);
    world.config.session.preload = true;
    fake_backend_set_capabilities(world.backend,
                                  (struct backend_capabilities){ .freeze = true, .gpus = true });
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

static struct flavor_change_answer choose(struct world *world, struct session *session,
                                          const char *flavor)
{
    struct flavor_change_request request = { .flavor = flavor, .principal = "agent" };
    struct flavor_change_answer answer;
    struct error err = { 0 };

    if (flavor_change_make(session, &request, &answer, &err) < 0)
        fail_msg("%s", err.message);
    world_settle(world);
    return answer;
}

static struct error refused(struct session *session, const struct flavor_change_request *request)
{
    struct flavor_change_answer answer;
    struct error err = { 0 };

    assert_int_equal(flavor_change_make(session, request, &answer, &err), -1);
    return err;
}

static int decide(struct world *world, struct session *session, bool approve, bool for_session,
                  struct error *err)
{
    struct approval_decision decision = {
        .approve = approve, .for_session = for_session, .by = "eve", .reason = "because"
    };
    int result = approval_decide(session_approval(session), &decision, err);

    world_settle(world);
    return result;
}

static void approve(struct world *world, struct session *session, bool for_session)
{
    struct error err = { 0 };

    if (decide(world, session, true, for_session, &err) < 0)
        fail_msg("%s", err.message);
}

static const struct approval *only_one(const struct world *world)
{
    const struct approval *approval = approvals_next(world->core->approvals, NULL);

    assert_non_null(approval);
    assert_null(approvals_next(world->core->approvals, approval));
    return approval;
}

/* --- what needs nobody --------------------------------------------------------------------- */

static void m1_the_default_needs_no_approval_and_others_do(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);

    assert_int_equal(choose(world, session, NULL).outcome, FLAVOR_CHANGE_NONE);
    assert_int_equal(choose(world, session, "cpu-basic").outcome, FLAVOR_CHANGE_NONE);
    assert_int_equal(choose(world, session, "cpu-upgrade").outcome, FLAVOR_CHANGE_ASKED);
    assert_int_equal(choose(world, session, "gpu").outcome, FLAVOR_CHANGE_ASKED);
}

static void a_free_flavor_takes_the_place_of_the_automatic_one(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct flavor_change_answer answer = choose(world, session, "roomy");

    assert_int_equal(answer.outcome, FLAVOR_CHANGE_MADE);
    assert_non_null(strstr(answer.message, "Files and processes are gone"));
    assert_int_equal(fake_backend_memory(world->backend, sandbox_id(session_sandbox(session))),
                     4ULL << 30);
    assert_int_equal(session_limits(session)->disk_bytes, 8ULL << 30);
    assert_int_equal(session_limits(session)->pids, 512);
    assert_true(session_reset_is_pending(session));
    assert_int_equal(session_generation(session), 2);
}

static void without_a_sandbox_asking_makes_the_automatic_one(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);

    session_teardown(session, END_TEARDOWN);
    world_settle(world);
    assert_int_equal(choose(world, session, NULL).outcome, FLAVOR_CHANGE_MADE);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_READY);
}

static void m5_a_chosen_sandbox_has_to_be_deleted_first(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct flavor_change_answer answer;
    struct error err;

    choose(world, session, "roomy");
    err = refused(session, &(struct flavor_change_request){ .flavor = "gpu" });
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_string_equal(err.name, "sandbox_chosen");
    assert_non_null(strstr(err.message, "cannot be changed"));
    assert_non_null(strstr(err.message, "gpu"));
    assert_non_null(strstr(err.hint, "delete"));
    answer = choose(world, session, NULL);
    assert_int_equal(answer.outcome, FLAVOR_CHANGE_NONE);
    assert_null(strstr(answer.message, "cannot be changed"));
    session_teardown(session, END_TEARDOWN);
    world_settle(world);
    assert_string_equal(session_flavor(session), "cpu-basic");
    assert_int_equal(choose(world, session, "gpu").outcome, FLAVOR_CHANGE_ASKED);
}

static void a_teardown_before_the_chosen_one_is_begun_takes_the_choice_back(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);

    fake_backend_hold(world->backend, FAKE_DESTROY, true);
    choose(world, session, "gpu");
    approve(world, session, false);
    assert_string_equal(session_flavor(session), "gpu");
    session_teardown(session, END_TEARDOWN);
    fake_backend_hold(world->backend, FAKE_DESTROY, false);
    world_settle(world);
    assert_null(session_sandbox(session));
    assert_string_equal(session_flavor(session), "cpu-basic");
    assert_int_equal(budget_account_sums(budget_account_open(session)).held, 0);
}

/* --- what cannot be ------------------------------------------------------------------------ */

static void malformed_requests_are_refused_before_anybody_is_asked(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct error err;

    err = refused(session, &(struct flavor_change_request){ .flavor = "none-such" });
    assert_string_equal(err.name, "flavor_unknown");
    assert_non_null(strstr(err.hint, "cpu-basic, roomy"));
    err = refused(session, &(struct flavor_change_request){ .flavor = "elsewhere" });
    assert_string_equal(err.name, "flavor_unavailable");
    assert_non_null(strstr(err.message, "docker"));
    err = refused(session, &(struct flavor_change_request){
                               .flavor = "gpu", .limits = { .memory_bytes = 1 << 30 } });
    assert_non_null(strstr(err.message, "fixed"));
    assert_null(session_approval(session));
    assert_null(approvals_next(world->core->approvals, NULL));
}

static void a_backend_without_gpus_refuses_with_a_reason(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct error err;

    fake_backend_set_capabilities(world->backend, (struct backend_capabilities){ .freeze = true });
    err = refused(session, &(struct flavor_change_request){ .flavor = "gpu" });
    assert_string_equal(err.name, "flavor_unavailable");
    assert_non_null(strstr(err.message, "GPU"));
}

static void no_session_begins_with_what_needs_an_approval(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;

    request.flavor = "gpu";
    assert_null(world_open(world, &request, &opened));
    assert_string_equal(opened.op.err.name, "approval_required");
    request.flavor = "roomy";
    assert_non_null(world_open(world, &request, &opened));
}

/* --- deciding ------------------------------------------------------------------------------ */

static void asking_changes_nothing_and_tells_what_it_would_cost(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct flavor_change_answer answer = choose(world, session, "gpu");
    const struct approval *approval = only_one(world);

    assert_ptr_equal(answer.approval, approval);
    assert_int_equal(approval->estimated, 2000000);
    assert_string_equal(approval->requested_by, "agent");
    assert_int_equal(approval->expires.boot_us - approval->created.boot_us, 3600LL * 1000000);
    assert_string_equal(sandbox_flavor(session_sandbox(session)), "cpu-basic");
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_READY);
    assert_int_equal(world_events(world, session_id(session), "approval.requested"), 1);
}

static void the_same_question_has_the_same_approval_and_another_takes_its_place(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    char first[ID_SIZE];

    choose(world, session, "gpu");
    memcpy(first, session_approval(session)->id, sizeof(first));
    choose(world, session, "gpu");
    assert_string_equal(session_approval(session)->id, first);
    choose(world, session, "cpu-upgrade");
    assert_string_not_equal(session_approval(session)->id, first);
    assert_int_equal(approvals_find(world->core->approvals, first)->state, APPROVAL_CANCELLED);
}

static void m15_what_is_approved_is_made_in_place_of_the_automatic_one(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);

    choose(world, session, "gpu");
    approve(world, session, false);
    assert_null(session_approval(session));
    assert_string_equal(sandbox_flavor(session_sandbox(session)), "gpu");
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_READY);
    assert_int_equal(sandbox_gpus(session_sandbox(session)), 1);
    assert_int_equal(fake_backend_count(world->backend), 1);
    assert_int_equal(only_one(world)->state, APPROVAL_APPROVED);
    assert_non_null(strstr(only_one(world)->result, "files are gone"));
    assert_int_equal(world_events(world, session_id(session), "approval.decided"), 1);
}

static void what_is_approved_once_is_for_one_sandbox(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    choose(world, session, "gpu");
    approve(world, session, false);
    fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
    world_settle(world);
    world_use(world, session, &tried);
    world_settle(world);
    assert_string_equal(sandbox_flavor(session_sandbox(session)), "cpu-basic");
    session_hold_end(&tried.hold);
    assert_int_equal(choose(world, session, "gpu").outcome, FLAVOR_CHANGE_ASKED);
}

static void what_is_approved_for_the_session_is_not_asked_again(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);

    choose(world, session, "gpu");
    approve(world, session, true);
    session_teardown(session, END_TEARDOWN);
    world_settle(world);
    assert_string_equal(session_flavor(session), "cpu-basic");
    assert_int_equal(choose(world, session, "gpu").outcome, FLAVOR_CHANGE_MADE);
}

static void what_is_denied_changes_nothing_and_is_final(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct approval *approval;
    struct error err = { 0 };

    choose(world, session, "gpu");
    approval = session_approval(session);
    assert_int_equal(decide(world, session, false, false, &err), 0);
    assert_string_equal(sandbox_flavor(session_sandbox(session)), "cpu-basic");
    assert_non_null(strstr(approval->result, "denied: because"));
    assert_int_equal(
        approval_decide(approval, &(struct approval_decision){ .approve = true }, &err), -1);
    assert_string_equal(err.name, "approval_decided");
    assert_int_equal(choose(world, session, "gpu").outcome, FLAVOR_CHANGE_ASKED);
}

static void m32_an_approval_over_the_cap_stays_pending(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct error err = { 0 };

    budget_patch(session, &(struct budget_patch){ .auto_approve = 1, .cap = 1000000 });
    choose(world, session, "gpu");
    assert_int_equal(decide(world, session, true, false, &err), -1);
    assert_string_equal(err.name, "cap_exceeded");
    assert_non_null(session_approval(session));
    assert_int_equal(session_approval(session)->state, APPROVAL_PENDING);
    budget_patch(session, &(struct budget_patch){ .auto_approve = -1, .cap = 2000000 });
    approve(world, session, false);
    assert_string_equal(sandbox_flavor(session_sandbox(session)), "gpu");
}

static void another_price_was_not_approved(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    char id[ID_SIZE];
    struct error err = { 0 };

    choose(world, session, "gpu");
    memcpy(id, session_id(session), sizeof(id));
    flavors[3].price_per_hour *= 10;
    world_restart(world);
    session = world_find(world, id);
    assert_int_equal(decide(world, session, true, false, &err), -1);
    assert_string_equal(err.name, "approval_outdated");
    assert_int_equal(decide(world, session, false, false, &err), 0);
}

/* --- time ---------------------------------------------------------------------------------- */

static void nothing_proceeds_when_nobody_decides(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;

    world_use(world, session, &tried);
    choose(world, session, "gpu");
    world_advance(world, 59 * MINUTE_MS);
    assert_non_null(session_approval(session));
    world_advance(world, MINUTE_MS);
    assert_null(session_approval(session));
    assert_int_equal(only_one(world)->state, APPROVAL_EXPIRED);
    assert_non_null(strstr(only_one(world)->result, "within 60 minutes"));
    assert_string_equal(sandbox_flavor(session_sandbox(session)), "cpu-basic");
    assert_int_equal(world_events(world, session_id(session), "approval.expired"), 1);
    session_hold_end(&tried.hold);
}

static void expiry_goes_on_over_a_restart(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct session_patch endless = SESSION_PATCH_INIT;
    struct tried tried;
    char id[ID_SIZE];

    world->config.session.idle_timeout_ms = 0;
    endless.idle_timeout_ms = 0;
    assert_int_equal(session_patch(session, &endless, NULL), 0);
    choose(world, session, "gpu");
    memcpy(id, session_id(session), sizeof(id));
    world_advance(world, 30 * MINUTE_MS);
    world_restart(world);
    session = world_find(world, id);
    assert_non_null(session_approval(session));
    assert_ptr_equal(session_approval(session), only_one(world));
    world_advance(world, 29 * MINUTE_MS);
    assert_int_equal(only_one(world)->state, APPROVAL_PENDING);
    world_kill(world, false);
    world_advance(world, 10 * HOUR_MS);
    world_start(world);
    world_settle(world);
    assert_int_equal(only_one(world)->state, APPROVAL_EXPIRED);
    session = world_find(world, id);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    session_hold_end(&tried.hold);
}

static void waiting_pins_no_slot_and_the_session_waits_for_the_decision(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);

    choose(world, session, "gpu");
    world_advance(world, 30 * MINUTE_MS);
    assert_null(session_sandbox(session));
    assert_int_equal(fake_backend_count(world->backend), 0);
    assert_int_equal(session_state(session), SESSION_OPEN);
    world_advance(world, 20 * MINUTE_MS);
    approve(world, session, false);
    assert_string_equal(sandbox_flavor(session_sandbox(session)), "gpu");
}

static void when_it_has_expired_the_idle_clock_ends_the_session(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    char id[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    choose(world, session, "gpu");
    world_advance(world, 61 * MINUTE_MS);
    assert_non_null(world_find(world, id));
    world_advance(world, 30 * MINUTE_MS);
    assert_null(world_find(world, id));
}

static void the_end_of_the_session_cancels_it(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct ended ended;

    choose(world, session, "gpu");
    world_end(world, session, END_DELETED, &ended);
    assert_int_equal(only_one(world)->state, APPROVAL_CANCELLED);
    world_restart(world);
    assert_int_equal(only_one(world)->state, APPROVAL_CANCELLED);
    world_advance(world, 25 * HOUR_MS);
    assert_null(approvals_next(world->core->approvals, NULL));
}

/* The old one was not recorded as going yet, because the backend was still busy with it. */
static void a_replacement_that_had_begun_goes_on_after_a_restart(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    char id[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    choose(world, session, "gpu");
    fake_backend_hold(world->backend, FAKE_FREEZE, true);
    session_pause(session, NULL, NULL);
    world_settle(world); /* it is recorded, and asked of the backend */
    session_resume(session, NULL, NULL);
    approve(world, session, false);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_DESTROYING);
    world_kill(world, false);
    fake_backend_hold(world->backend, FAKE_FREEZE, false);
    world_start(world);
    world_settle(world);
    session = world_find(world, id);
    assert_string_equal(sandbox_flavor(session_sandbox(session)), "gpu");
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_READY);
    assert_int_equal(session_generation(session), 2);
    assert_int_equal(fake_backend_count(world->backend), 1);
    assert_int_equal(budget_account_sums(budget_account_open(session)).held, 2000000);
}

static void a_teardown_that_had_begun_goes_on_after_a_restart(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);

    fake_backend_hold(world->backend, FAKE_FREEZE, true);
    session_pause(session, NULL, NULL);
    session_teardown(session, END_TEARDOWN);
    world_settle(world);
    world_kill(world, false);
    fake_backend_hold(world->backend, FAKE_FREEZE, false);
    world_start(world);
    world_settle(world);
    assert_int_equal(fake_backend_count(world->backend), 0);
}

/* Killed after any number of turns, the decision and what follows from it stand or fall together.
 */
static void killed_at_any_moment_a_decision_is_whole(void **state)
{
    struct world *world = *state;

    for (int turns = 0; turns < 12; turns++) {
        struct session *session = world_open_simple(world, "ann", NULL);
        struct approval_decision decision = { .approve = true, .by = "eve" };
        struct tried tried;
        struct error err = { 0 };
        char approval[ID_SIZE];
        char id[ID_SIZE];
        bool approved;

        memcpy(id, session_id(session), sizeof(id));
        choose(world, session, "gpu");
        memcpy(approval, session_approval(session)->id, sizeof(approval));
        assert_int_equal(approval_decide(session_approval(session), &decision, &err), 0);
        for (int i = 0; i < turns / 2; i++)
            loop_turn(world->loop, 0);
        world_kill(world, turns & 1);
        world_start(world);
        world_settle(world);
        session = world_find(world, id);
        approved = approvals_find(world->core->approvals, approval)->state == APPROVAL_APPROVED;
        assert_int_equal(session_approval(session) == NULL, approved);
        world_use(world, session, &tried);
        world_settle(world);
        assert_string_equal(sandbox_flavor(session_sandbox(session)),
                            approved ? "gpu" : "cpu-basic");
        session_hold_end(&tried.hold);
        world_end(world, session, END_DELETED, &(struct ended){ 0 });
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(m1_the_default_needs_no_approval_and_others_do),
        TEST(a_free_flavor_takes_the_place_of_the_automatic_one),
        TEST(without_a_sandbox_asking_makes_the_automatic_one),
        TEST(m5_a_chosen_sandbox_has_to_be_deleted_first),
        TEST(a_teardown_before_the_chosen_one_is_begun_takes_the_choice_back),
        TEST(malformed_requests_are_refused_before_anybody_is_asked),
        TEST(a_backend_without_gpus_refuses_with_a_reason),
        TEST(no_session_begins_with_what_needs_an_approval),
        TEST(asking_changes_nothing_and_tells_what_it_would_cost),
        TEST(the_same_question_has_the_same_approval_and_another_takes_its_place),
        TEST(m15_what_is_approved_is_made_in_place_of_the_automatic_one),
        TEST(what_is_approved_once_is_for_one_sandbox),
        TEST(what_is_approved_for_the_session_is_not_asked_again),
        TEST(what_is_denied_changes_nothing_and_is_final),
        TEST(m32_an_approval_over_the_cap_stays_pending),
        TEST(another_price_was_not_approved),
        TEST(nothing_proceeds_when_nobody_decides),
        TEST(expiry_goes_on_over_a_restart),
        TEST(waiting_pins_no_slot_and_the_session_waits_for_the_decision),
        TEST(when_it_has_expired_the_idle_clock_ends_the_session),
        TEST(the_end_of_the_session_cancels_it),
        TEST(a_replacement_that_had_begun_goes_on_after_a_restart),
        TEST(a_teardown_that_had_begun_goes_on_after_a_restart),
        TEST(killed_at_any_moment_a_decision_is_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
