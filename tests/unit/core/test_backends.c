/* SPDX-License-Identifier: Apache-2.0 */
/* Several backends behind one core: "fake" is the default, callers may name "other", and only
 * flavors and templates may name "inner". */

#include "core/sandbox/capacity.h"
#include "core/sandbox/pool.h"
#include "core/sandbox/sandbox.h"
#include "harness/fake_agent.h"
#include "harness/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

static struct {
    struct world world;
    struct backend *other, *inner; /* borrowed: the world's */
} bed;

static char basic[] = "cpu-basic", bare[] = "bare", image[] = "image", inner_name[] = "inner";
static struct config_flavor flavors[] = { { .name = basic },
                                          { .name = bare, .backend = inner_name } };
static struct config_template templates[] = { { .name = image, .backend = inner_name } };

static int setup(void **state)
{
    struct world *world = &bed.world;

    world_init(world);
    bed.other = world_add_backend(world, "other", BACKEND_OF_CALLERS);
    bed.inner = world_add_backend(world, inner_name, BACKEND_OF_SETTINGS);
    world->config.flavors = (struct config_flavors){ flavors, ARRAY_LENGTH(flavors) };
    world->config.templates = (struct config_templates){ templates, ARRAY_LENGTH(templates) };
    world->config.session.preload = true;
    world_start(world);
    *state = world;
    return 0;
}

static int teardown(void **state)
{
    world_fini(*state);
    assert_int_equal(fake_agent_count(), 0);
    return 0;
}

static struct session *open_with(struct world *world, const struct session_request *given,
                                 struct error *err)
{
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;
    struct session *session;

    request.backend = given->backend;
    request.flavor = given->flavor;
    request.template_name = given->template_name;
    request.key = given->key;
    request.owner = given->owner;
    session = world_open(world, &request, &opened);
    if (err)
        *err = opened.op.err;
    return session;
}

static struct session *open_on(struct world *world, const char *backend)
{
    struct session *session =
        open_with(world, &(struct session_request){ .backend = backend }, NULL);

    assert_non_null(session);
    return session;
}

static void assert_is_on(struct session *session, const struct backend *backend)
{
    assert_ptr_equal(session_backend(session), backend);
    assert_non_null(session_sandbox(session));
    assert_true(fake_backend_has(backend, sandbox_id(session_sandbox(session))));
}

static void a_session_has_its_sandbox_from_the_backend_that_it_names(void **state)
{
    struct world *world = *state;

    assert_is_on(open_on(world, NULL), world->backend);
    assert_is_on(open_on(world, "fake"), world->backend);
    assert_is_on(open_on(world, "other"), bed.other);
    assert_int_equal(fake_backend_alive(world->backend), 2);
    assert_int_equal(fake_backend_alive(bed.other), 1);
    assert_int_equal(fake_backend_calls(bed.inner, FAKE_CREATE), 0);
}

static void a_backend_that_callers_may_not_name_is_refused_with_the_names(void **state)
{
    static const char *const refused[] = { "inner", "docker" };
    struct error err;

    for (size_t i = 0; i < ARRAY_LENGTH(refused); i++) {
        assert_null(open_with(*state, &(struct session_request){ .backend = refused[i] }, &err));
        assert_int_equal(err.code, ERR_INVALID);
        assert_string_equal(err.name, "backend_unknown");
        assert_non_null(strstr(err.message, "fake, other"));
    }
}

static void a_flavor_and_a_template_bring_their_backend(void **state)
{
    assert_is_on(open_with(*state, &(struct session_request){ .flavor = bare }, NULL), bed.inner);
    assert_is_on(open_with(*state, &(struct session_request){ .template_name = image }, NULL),
                 bed.inner);
}

static void wishes_that_differ_are_refused(void **state)
{
    struct error err;

    assert_null(
        open_with(*state, &(struct session_request){ .backend = "other", .flavor = bare }, &err));
    assert_string_equal(err.name, "backend_differs");
    assert_null(open_with(
        *state, &(struct session_request){ .backend = "fake", .template_name = image }, &err));
    assert_string_equal(err.name, "backend_differs");
}

static void an_owner_may_have_only_the_backends_of_its_row(void **state)
{
    static char ann[] = "ann", allowed[] = "other";
    static char *names[] = { allowed };
    static struct config_owner rows[] = { { .name = ann, .backends = { names, 1 } } };
    struct world *world = *state;
    struct error err;

    world->config.owners = (struct config_owners){ rows, 1 };
    assert_null(open_with(world, &(struct session_request){ .owner = "ann" }, &err));
    assert_int_equal(err.code, ERR_FORBIDDEN);
    assert_string_equal(err.name, "backend_forbidden");
    assert_non_null(strstr(err.hint, "other"));
    assert_null(
        open_with(world, &(struct session_request){ .owner = "ann/x", .flavor = bare }, &err));
    assert_string_equal(err.name, "backend_forbidden");
    assert_is_on(
        open_with(world, &(struct session_request){ .owner = "ann", .backend = "other" }, NULL),
        bed.other);
    assert_is_on(open_with(world, &(struct session_request){ .owner = "bob" }, NULL),
                 world->backend);
}

static void the_same_key_with_another_backend_is_a_conflict(void **state)
{
    struct error err;
    struct session *first =
        open_with(*state, &(struct session_request){ .key = "k", .backend = "other" }, NULL);

    assert_ptr_equal(open_with(*state, &(struct session_request){ .key = "k" }, NULL), first);
    assert_null(
        open_with(*state, &(struct session_request){ .key = "k", .backend = "fake" }, &err));
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_non_null(strstr(err.message, "backend"));
}

static void a_restart_adopts_each_sandbox_with_the_backend_that_has_made_it(void **state)
{
    struct world *world = *state;
    char ids[2][ID_SIZE];

    memcpy(ids[0], session_id(open_on(world, "fake")), ID_SIZE);
    memcpy(ids[1], session_id(open_on(world, "other")), ID_SIZE);
    world_restart(world);
    assert_is_on(world_find(world, ids[0]), world->backend);
    assert_is_on(world_find(world, ids[1]), bed.other);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_ADOPT), 1);
    assert_int_equal(fake_backend_calls(bed.other, FAKE_ADOPT), 1);
    for (size_t i = 0; i < ARRAY_LENGTH(ids); i++) {
        struct tried tried;

        world_use(world, world_find(world, ids[i]), &tried);
        assert_int_equal(tried.hold.err.code, ERR_NONE);
        assert_int_equal(tried.hold.generation, 1);
        session_hold_end(&tried.hold);
    }
}

static void the_next_sandbox_of_a_session_has_the_same_backend(void **state)
{
    struct world *world = *state;
    struct session *session = open_on(world, "other");
    char id[ID_SIZE];
    struct tried tried;

    memcpy(id, session_id(session), sizeof(id));
    fake_backend_kill(bed.other, sandbox_id(session_sandbox(session)));
    world_settle(world);
    world_restart(world);
    session = world_find(world, id);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(tried.hold.generation, 2);
    assert_is_on(session, bed.other);
    session_hold_end(&tried.hold);
}

static void assert_is_out_of_reach(struct world *world, struct session *session)
{
    struct tried tried;

    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_UNKNOWN);
    assert_string_equal(session_backend(session)->ops->name, "other");
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_UNAVAILABLE);
    assert_string_equal(tried.hold.err.name, "backend_not_enabled");
    assert_non_null(strstr(tried.hold.err.hint, "sandbox.backends"));
}

static void a_sandbox_whose_backend_is_not_enabled_is_unknown_and_stays(void **state)
{
    struct world *world = *state;
    struct tried tried;
    char id[ID_SIZE];

    memcpy(id, session_id(open_on(world, "other")), sizeof(id));
    fake_backend_set_name(bed.other, "renamed");
    world_restart(world);
    assert_is_out_of_reach(world, world_find(world, id));
    world_advance(world, world->config.sandbox.silence_timeout_ms * 3);
    assert_is_out_of_reach(world, world_find(world, id));
    assert_int_equal(fake_backend_calls(bed.other, FAKE_DESTROY), 0);

    fake_backend_set_name(bed.other, "other");
    world_restart(world);
    world_use(world, world_find(world, id), &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(tried.hold.generation, 1);
    session_hold_end(&tried.hold);
}

static void deleting_it_waits_until_a_daemon_has_the_backend_again(void **state)
{
    struct world *world = *state;
    struct ended ended;
    char id[ID_SIZE];

    memcpy(id, session_id(open_on(world, "other")), sizeof(id));
    fake_backend_set_name(bed.other, "renamed");
    world_restart(world);
    world_end(world, world_find(world, id), END_DELETED, &ended);
    world_advance(world, 60 * 1000);
    assert_int_equal(session_state(world_find(world, id)), SESSION_ENDING);
    assert_int_equal(fake_backend_alive(bed.other), 1);

    fake_backend_set_name(bed.other, "other");
    world_restart(world);
    assert_null(world_find(world, id));
    assert_int_equal(fake_backend_count(bed.other), 0);
    assert_int_equal(fake_store_count(world->store, STORE_SANDBOXES), 0);
}

static void a_session_makes_no_sandbox_where_it_may_not_ask_any_more(void **state)
{
    struct world *world = *state;
    struct session *session = open_on(world, "other");
    struct tried tried;
    char id[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    fake_backend_kill(bed.other, sandbox_id(session_sandbox(session)));
    world_settle(world);
    fake_backend_set_name(bed.other, "renamed");
    world_add_backend(world, "other", BACKEND_OF_SETTINGS);
    world_restart(world);
    world_use(world, world_find(world, id), &tried);
    assert_string_equal(tried.hold.err.name, "backend_not_enabled");
    assert_null(session_sandbox(world_find(world, id)));
    assert_int_equal(fake_store_count(world->store, STORE_SANDBOXES), 0);
}

static void a_backend_that_did_not_open_is_refused_with_its_reason(void **state)
{
    struct world *world = *state;
    struct error why = { 0 };

    error_named(&why, ERR_UNAVAILABLE, "engine_missing", "the engine does not answer");
    backends_add_absent(world->backends, "docker", &why, BACKEND_OF_CALLERS);
    assert_null(open_with(world, &(struct session_request){ .backend = "docker" }, &why));
    assert_int_equal(why.code, ERR_UNAVAILABLE);
    assert_string_equal(why.name, "engine_missing");
}

struct control {
    struct session_op op;
    unsigned done;
};

static void on_control(struct session_op *op)
{
    container_of(op, struct control, op)->done++;
}

static void capabilities_are_asked_of_the_backend_of_the_sandbox(void **state)
{
    struct world *world = *state;
    struct session *plain = open_on(world, "fake");
    struct session *bound = open_on(world, "other");
    struct control first = { 0 }, second = { 0 };

    fake_backend_set_capabilities(bed.other, (struct backend_capabilities){ .limits = true });
    session_pause(plain, &first.op, on_control);
    session_pause(bound, &second.op, on_control);
    world_settle(world);
    assert_int_equal(first.op.err.code, ERR_NONE);
    assert_true(fake_backend_is_frozen(world->backend, sandbox_id(session_sandbox(plain))));
    assert_string_equal(second.op.err.name, "pause_unsupported");
    assert_non_null(strstr(second.op.err.message, "other"));
    assert_string_equal(session_network_name(plain), "none");
    assert_string_equal(session_network_name(bound), "host");
    assert_int_equal(fake_backend_calls(bed.other, FAKE_FREEZE), 0);
}

static void the_pool_serves_the_default_backend_alone(void **state)
{
    struct world *world = *state;

    world->config.pool_size = 2;
    world_restart(world);
    assert_int_equal(pool_ready(world->core->pool), 2);
    assert_int_equal(fake_backend_alive(world->backend), 2);
    assert_is_on(open_on(world, "other"), bed.other);
    assert_int_equal(fake_backend_calls(bed.other, FAKE_CREATE), 1);
    assert_int_equal(pool_ready(world->core->pool), 2);
    assert_is_on(open_on(world, NULL), world->backend);
    assert_int_equal(pool_ready(world->core->pool), 1);
}

static void orphans_are_removed_by_the_backend_that_lists_them(void **state)
{
    struct world *world = *state;
    char id[ID_SIZE];

    world_kill(world, false);
    id_make(id, ID_SANDBOX);
    fake_backend_add(bed.inner, id);
    world_start(world);
    world_settle(world);
    assert_false(fake_backend_has(bed.inner, id));
    assert_int_equal(fake_backend_calls(bed.inner, FAKE_DESTROY), 1);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_DESTROY), 0);
    assert_int_equal(capacity_held(world->core->capacity), 0);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_session_has_its_sandbox_from_the_backend_that_it_names),
        TEST(a_backend_that_callers_may_not_name_is_refused_with_the_names),
        TEST(a_flavor_and_a_template_bring_their_backend),
        TEST(wishes_that_differ_are_refused),
        TEST(an_owner_may_have_only_the_backends_of_its_row),
        TEST(the_same_key_with_another_backend_is_a_conflict),
        TEST(a_restart_adopts_each_sandbox_with_the_backend_that_has_made_it),
        TEST(the_next_sandbox_of_a_session_has_the_same_backend),
        TEST(a_sandbox_whose_backend_is_not_enabled_is_unknown_and_stays),
        TEST(deleting_it_waits_until_a_daemon_has_the_backend_again),
        TEST(a_session_makes_no_sandbox_where_it_may_not_ask_any_more),
        TEST(a_backend_that_did_not_open_is_refused_with_its_reason),
        TEST(capabilities_are_asked_of_the_backend_of_the_sandbox),
        TEST(the_pool_serves_the_default_backend_alone),
        TEST(orphans_are_removed_by_the_backend_that_lists_them),
    };

    return cmocka_run_group_tests_name("core/backends", tests, NULL, NULL);
}
