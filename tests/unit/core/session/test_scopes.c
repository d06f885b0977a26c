/* SPDX-License-Identifier: Apache-2.0 */
#include "core/session/scopes.h"
#include "harness/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#define MINTED "scp_0123456789abcdefghjkmnpqrs"

static int setup(void **state)
{
    static struct world world;

    world_init(&world);
    world_start(&world);
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    world_fini(*state);
    return 0;
}

static void take(struct world *world, struct scope_lease *lease, const char *owner)
{
    struct error err;

    assert_int_equal(scope_lease_take(lease, world->core->scopes, owner, &err), 0);
}

static void remember(const struct session *session, char id[ID_SIZE])
{
    memcpy(id, session_id(session), ID_SIZE);
}

static void assert_ended_by_scope(struct world *world, const char *id)
{
    struct world_record record;

    world_settle(world);
    assert_null(world_find(world, id));
    assert_true(world_record(world, id, &record));
    assert_string_equal(record.end_reason, "deleted: scope");
}

static const char *open_error(struct world *world, const char *owner)
{
    static struct opened opened;
    struct session_request request = SESSION_REQUEST_INIT;

    request.owner = owner;
    if (world_open(world, &request, &opened))
        return "";
    assert_int_equal(opened.op.err.code, ERR_GONE);
    return opened.op.err.name;
}

static void a_released_lease_ends_the_sessions_of_its_owner_and_no_others(void **state)
{
    struct world *world = *state;
    struct scope_lease lease;
    char mine[ID_SIZE], second[ID_SIZE], other[ID_SIZE], nobodys[ID_SIZE];

    take(world, &lease, "ann");
    remember(world_open_simple(world, "ann", NULL), mine);
    remember(world_open_simple(world, "ann", "named"), second);
    remember(world_open_simple(world, "ann/child", NULL), other);
    remember(world_open_simple(world, "", NULL), nobodys);
    scope_lease_release(&lease);
    assert_ended_by_scope(world, mine);
    assert_ended_by_scope(world, second);
    assert_non_null(world_find(world, other));
    assert_non_null(world_find(world, nobodys));
}

static void releasing_twice_or_without_a_lease_does_nothing(void **state)
{
    struct world *world = *state;
    struct scope_lease lease = { 0 };
    char id[ID_SIZE];

    scope_lease_release(&lease);
    take(world, &lease, "ann");
    scope_lease_release(&lease);
    remember(world_open_simple(world, "ann", NULL), id);
    scope_lease_release(&lease);
    world_settle(world);
    assert_non_null(world_find(world, id));
}

static void an_owner_has_one_lease_at_a_time(void **state)
{
    struct world *world = *state;
    struct scope_lease lease;
    struct scope_lease second = { 0 };
    struct error err;

    take(world, &lease, "ann");
    assert_int_equal(scope_lease_take(&second, world->core->scopes, "ann", &err), -1);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_string_equal(err.name, "scope_taken");
    scope_lease_release(&lease);
    take(world, &second, "ann");
    scope_lease_release(&second);
}

static void a_minted_owner_has_sessions_only_while_its_lease_is_held(void **state)
{
    struct world *world = *state;
    struct scope_lease lease;

    assert_string_equal(open_error(world, MINTED), "scope_ended");
    take(world, &lease, MINTED);
    assert_string_equal(open_error(world, MINTED), "");
    scope_lease_release(&lease);
    assert_string_equal(open_error(world, MINTED), "scope_ended");
    assert_string_equal(open_error(world, "key/" MINTED), "scope_ended");
    assert_string_equal(open_error(world, "ann"), "");
}

static void only_the_last_part_of_an_owner_tells_whether_it_was_minted(void **state UNUSED)
{
    assert_true(owner_is_minted(MINTED));
    assert_true(owner_is_minted("principal/" MINTED));
    assert_false(owner_is_minted(MINTED "/x"));
    assert_false(owner_is_minted("scp_"));
    assert_false(owner_is_minted("scp_short"));
    assert_false(owner_is_minted(""));
}

static void a_lease_that_is_taken_up_again_after_a_restart_keeps_the_sessions(void **state)
{
    struct world *world = *state;
    struct scope_lease lease, again;
    char id[ID_SIZE];

    take(world, &lease, MINTED);
    remember(world_open_simple(world, MINTED, NULL), id);
    world->core->stopping = true; /* so that the release of its connection ends nothing */
    scope_lease_release(&lease);
    world->core->stopping = false;
    world_restart(world);
    world_advance(world, 1000);
    take(world, &again, MINTED);
    world_advance(world, SCOPE_GRACE_US / 1000);
    assert_non_null(world_find(world, id));
    scope_lease_release(&again);
    assert_ended_by_scope(world, id);
}

static void what_nobody_claims_after_a_restart_is_ended_after_the_grace(void **state)
{
    struct world *world = *state;
    struct scope_lease lease;
    char id[ID_SIZE], other[ID_SIZE];

    take(world, &lease, MINTED);
    remember(world_open_simple(world, MINTED, NULL), id);
    remember(world_open_simple(world, "ann", NULL), other);
    world->core->stopping = true;
    scope_lease_release(&lease);
    world->core->stopping = false;
    world_restart(world);
    world_advance(world, SCOPE_GRACE_US / 1000 - 1);
    assert_non_null(world_find(world, id));
    world_advance(world, 2);
    assert_ended_by_scope(world, id);
    assert_non_null(world_find(world, other));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_released_lease_ends_the_sessions_of_its_owner_and_no_others),
        TEST(releasing_twice_or_without_a_lease_does_nothing),
        TEST(an_owner_has_one_lease_at_a_time),
        TEST(a_minted_owner_has_sessions_only_while_its_lease_is_held),
        TEST(only_the_last_part_of_an_owner_tells_whether_it_was_minted),
        TEST(a_lease_that_is_taken_up_again_after_a_restart_keeps_the_sessions),
        TEST(what_nobody_claims_after_a_restart_is_ended_after_the_grace),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
