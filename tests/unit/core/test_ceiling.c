/* SPDX-License-Identifier: Apache-2.0 */
#include "core/ceiling.h"
#include "core/session/flavor_change.h"
#include "harness/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

enum { HOUR_MS = 3600 * 1000 };

static const struct host_size small_host = {
    .memory_bytes = 8ULL << 30, .disk_bytes = 100ULL << 30, .cpu_millis = 4000, .pids = 32768
};

static int setup(void **state)
{
    static struct world world;

    world_init(&world);
    world_start(&world);
    ceiling_set_host(world.core->ceiling, &small_host);
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    world_fini(*state);
    return 0;
}

/* Refused with this status and a message that has the text; nothing is made. */
static void assert_refused(struct world *world, const struct session_request *request,
                           enum error_code code, const char *text)
{
    size_t before = world->core->sessions_by_id.count;
    struct opened opened;

    assert_null(world_open(world, request, &opened));
    assert_int_equal(opened.op.err.code, code);
    assert_string_equal(opened.op.err.name, "over_limit");
    assert_non_null(strstr(opened.op.err.message, text));
    assert_true(*opened.op.err.hint);
    assert_false(opened.op.err.retryable);
    assert_int_equal(world->core->sessions_by_id.count, before);
}

static void nothing_is_above_the_size_of_the_host(void **state)
{
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;

    request.limits.memory_bytes = (8ULL << 30) + 1;
    assert_refused(*state, &request, ERR_INVALID, "the memory of this host");
    request.limits = (struct sandbox_limits){ .cpu_millis = 4001 };
    assert_refused(*state, &request, ERR_INVALID, "the limit of 4 (");
    request.limits = (struct sandbox_limits){ .pids = 4000001 };
    assert_refused(*state, &request, ERR_INVALID, "pids 4000001 is above the limit of 32768");
    request.limits = (struct sandbox_limits){ .disk_bytes = 900ULL << 30 };
    assert_refused(*state, &request, ERR_INVALID, "the disk of this host");
    request.limits = (struct sandbox_limits){ 8ULL << 30, 100ULL << 30, 4000, 32768 };
    assert_non_null(world_open(*state, &request, &opened));
}

static void the_operators_limits_are_told_by_their_name(void **state)
{
    struct world *world = *state;
    struct config_ceiling *max = &world->config.sandbox.max;
    struct session_request request = SESSION_REQUEST_INIT;

    *max = (struct config_ceiling){ .memory_bytes = 4ULL << 30,
                                    .lifetime_ms = HOUR_MS,
                                    .timeout_ms = HOUR_MS,
                                    .idle_timeout_ms = HOUR_MS,
                                    .network = MAX_NETWORK_NONE };
    request.limits.memory_bytes = 5ULL << 30;
    assert_refused(world, &request, ERR_FORBIDDEN, "sandbox.max.memory");
    request.limits.memory_bytes = 0;
    request.max_lifetime_ms = 0;
    assert_refused(world, &request, ERR_FORBIDDEN, "sandbox.max.lifetime");
    request.max_lifetime_ms = HOUR_MS + 1;
    assert_refused(world, &request, ERR_FORBIDDEN, "sandbox.max.lifetime");
    request.max_lifetime_ms = -1;
    request.timeout_ms = 2 * HOUR_MS;
    assert_refused(world, &request, ERR_FORBIDDEN, "sandbox.max.timeout");
    request.timeout_ms = -1;
    request.idle_timeout_ms = 0;
    assert_refused(world, &request, ERR_FORBIDDEN, "sandbox.max.idle_timeout");
    request.idle_timeout_ms = -1;
    request.network = NETWORK_OPEN;
    assert_refused(world, &request, ERR_FORBIDDEN, "sandbox.max.network");
}

static void defaults_are_cut_to_the_ceiling(void **state)
{
    struct world *world = *state;
    struct session *session;

    world->config.sandbox.network = CONFIG_NETWORK_OPEN;
    world->config.sandbox.max = (struct config_ceiling){ .memory_bytes = 1ULL << 30,
                                                         .cpu_millis = 500,
                                                         .lifetime_ms = HOUR_MS,
                                                         .timeout_ms = HOUR_MS,
                                                         .network = MAX_NETWORK_NONE };
    session = world_open_simple(world, "ann", NULL);
    assert_int_equal(session_limits(session)->memory_bytes, 1ULL << 30);
    assert_int_equal(session_limits(session)->cpu_millis, 500);
    assert_int_equal(session_max_lifetime_ms(session), HOUR_MS);
    assert_int_equal(session_timeout_ms(session), HOUR_MS);
    assert_int_equal(session_lease_remaining_ms(session), HOUR_MS);
    assert_int_equal(session_network(session)->mode, NETWORK_NONE);
}

static void an_owner_with_a_row_has_limits_of_its_own(void **state)
{
    static char svc[] = "svc", ci[] = "ci-*";
    struct world *world = *state;
    struct config_owner rows[] = {
        { .name = svc, .max = { .memory_bytes = 1ULL << 30 } },
        { .name = ci, .max = { .memory_bytes = 6ULL << 30 } },
    };
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;

    world->config.owners = (struct config_owners){ rows, 2 };
    world->config.sandbox.max.memory_bytes = 3ULL << 30;
    request.limits.memory_bytes = 2ULL << 30;
    request.owner = "svc/ann";
    assert_refused(world, &request, ERR_FORBIDDEN, "the owner \"svc\"");
    request.owner = "svcx";
    assert_non_null(world_open(world, &request, &opened));
    request.limits.memory_bytes = 5ULL << 30;
    assert_refused(world, &request, ERR_FORBIDDEN, "sandbox.max.memory");
    request.owner = "ci-7";
    assert_non_null(world_open(world, &request, &opened));
}

static void clocks_cannot_be_moved_beyond_it_later(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct session_patch patch = { .timeout_ms = -1,
                                   .idle_timeout_ms = -1,
                                   .max_lifetime_ms = -1,
                                   .auto_restart = -1,
                                   .auto_resume = -1,
                                   .keep_files = -1,
                                   .on_timeout = -1 };
    struct error err = { 0 };

    world->config.sandbox.max = (struct config_ceiling){ .lifetime_ms = 25 * HOUR_MS,
                                                         .timeout_ms = HOUR_MS,
                                                         .idle_timeout_ms = HOUR_MS };
    assert_int_equal(session_keepalive(session, HOUR_MS + 1, false, &err), -1);
    assert_string_equal(err.name, "over_limit");
    assert_int_equal(session_keepalive(session, 0, true, &err), -1);
    assert_int_equal(session_keepalive(session, HOUR_MS, false, &err), 0);
    patch.max_lifetime_ms = 0;
    assert_int_equal(session_patch(session, &patch, &err), -1);
    patch.max_lifetime_ms = 25 * HOUR_MS;
    assert_int_equal(session_patch(session, &patch, &err), 0);
    patch.idle_timeout_ms = HOUR_MS + 1;
    assert_int_equal(session_patch(session, &patch, &err), -1);
    assert_int_equal(session_max_lifetime_ms(session), 25 * HOUR_MS);
}

static void another_flavor_cannot_have_more_than_the_owner_may(void **state)
{
    static char first[] = "small", big[] = "big", svc[] = "svc";
    struct config_flavor flavors[] = { { .name = first },
                                       { .name = big, .memory_bytes = 6ULL << 30 } };
    struct config_owner rows[] = { { .name = svc, .max = { .memory_bytes = 4ULL << 30 } } };
    struct world *world = *state;
    struct flavor_change_answer answer;
    struct error err = { 0 };
    struct session *session;

    world->config.flavors = (struct config_flavors){ flavors, 2 };
    world->config.owners = (struct config_owners){ rows, 1 };
    session = world_open_simple(world, "svc", NULL);
    assert_int_equal(flavor_change_make(session, &(struct flavor_change_request){ .flavor = "big" },
                                        &answer, &err),
                     -1);
    assert_string_equal(err.name, "over_limit");
    assert_string_equal(session_flavor(session), "small");
    assert_int_equal(
        flavor_change_make(
            session, &(struct flavor_change_request){ .limits = { .memory_bytes = 5ULL << 30 } },
            &answer, &err),
        -1);
    assert_int_equal(
        flavor_change_make(
            session, &(struct flavor_change_request){ .limits = { .memory_bytes = 3ULL << 30 } },
            &answer, &err),
        0);
    session = world_open_simple(world, "ann", NULL);
    assert_int_equal(flavor_change_make(session, &(struct flavor_change_request){ .flavor = "big" },
                                        &answer, &err),
                     0);
    flavors[1].max.memory_bytes = 3ULL << 30; /* asking for more than its max is refused, too */
    assert_int_equal(
        flavor_change_make(world_open_simple(world, "bob", NULL),
                           &(struct flavor_change_request){
                               .flavor = "big", .limits = { .memory_bytes = 4ULL << 30 } },
                           &answer, &err),
        -1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_is_above_the_size_of_the_host),
        TEST(the_operators_limits_are_told_by_their_name),
        TEST(defaults_are_cut_to_the_ceiling),
        TEST(an_owner_with_a_row_has_limits_of_its_own),
        TEST(clocks_cannot_be_moved_beyond_it_later),
        TEST(another_flavor_cannot_have_more_than_the_owner_may),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
