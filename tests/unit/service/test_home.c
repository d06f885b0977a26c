/* SPDX-License-Identifier: Apache-2.0 */
/* The home of a session, by its record. */

#include "service/home.h"

#include "harness/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>

#define SESSION "ses_00000000000000000000000001"
#define EARLIER "ses_00000000000000000000000002"
#define UNKNOWN "ses_00000000000000000000000000"

static const struct caller_identity ann = { .owner = "ann", .on_behalf_of = "" };
static const struct caller_identity bob = { .owner = "bob", .on_behalf_of = "" };
static const struct caller_identity admin = { .owner = "root",
                                              .on_behalf_of = "",
                                              .any_owner = true };

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

static void put(struct world *world, const char *id, const char *state, const char *node)
{
    struct session_record record = { .owner = "ann", .key = "k", .state = state, .node = node };

    snprintf(record.id, sizeof(record.id), "%s", id);
    store_put_session(world->core->parts.store, &record);
}

static void put_document(struct world *world, const char *id, const char *json)
{
    store_put_document(
        world->core->parts.store,
        &(struct document_record){ .kind = "approval", .id = id, .owner = "ann", .json = json });
}

struct result {
    struct session_home home;
    unsigned done;
};

static void on_done(struct session_home *home)
{
    container_of(home, struct result, home)->done++;
}

static void wait_for(struct world *world, struct result *result)
{
    assert_int_equal(result->done, 0);
    for (int i = 0; i < 10 && !result->done; i++)
        world_advance(world, 1);
    assert_int_equal(result->done, 1);
    assert_int_equal(result->home.err.code, ERR_NONE);
}

static void assert_home(struct world *world, const struct caller_identity *identity,
                        const char *reference, enum home_found found, const char *node)
{
    struct result result = { 0 };

    session_home_find(&result.home, world->core, identity, reference, on_done);
    wait_for(world, &result);
    assert_int_equal(result.home.found, found);
    assert_string_equal(result.home.node, node);
    session_home_fini(&result.home);
}

static void a_session_of_another_node_has_its_home(void **state)
{
    struct world *world = *state;

    put(world, SESSION, "open", "b");
    assert_home(world, &ann, SESSION, HOME_LIVE, "b");
    assert_home(world, &ann, "key:k", HOME_LIVE, "b");
    assert_home(world, &admin, SESSION, HOME_LIVE, "b");
    assert_home(world, &ann, UNKNOWN, HOME_NONE, "");
}

static void a_stranger_finds_none(void **state)
{
    struct world *world = *state;

    put(world, SESSION, "open", "b");
    assert_home(world, &bob, SESSION, HOME_NONE, "");
    assert_home(world, &bob, "key:k", HOME_NONE, "");
}

static void an_ended_session_has_its_last_home_and_a_live_one_goes_first(void **state)
{
    struct world *world = *state;

    put(world, EARLIER, "ended", "a");
    assert_home(world, &ann, EARLIER, HOME_ENDED, "a");
    assert_home(world, &ann, "key:k", HOME_ENDED, "a");
    put(world, SESSION, "paused", "b");
    assert_home(world, &ann, "key:k", HOME_LIVE, "b");
}

static void assert_home_by(struct world *world, const char *document, enum home_found found,
                           const char *node)
{
    struct result result = { 0 };

    session_home_find_by(&result.home, world->core, "approval", document, on_done);
    wait_for(world, &result);
    assert_int_equal(result.home.found, found);
    assert_string_equal(result.home.node, node);
    session_home_fini(&result.home);
}

static void a_document_leads_to_the_home_of_its_session(void **state)
{
    struct world *world = *state;

    put(world, SESSION, "open", "b");
    put_document(world, "apr_1", "{\"session\":\"" SESSION "\"}");
    put_document(world, "apr_2", "{\"session\":\"../x\"}");
    put_document(world, "apr_3", "[]");
    put_document(world, "apr_4", "{\"session\":\"" UNKNOWN "\"}");
    assert_home_by(world, "apr_1", HOME_LIVE, "b");
    assert_home_by(world, "apr_2", HOME_NONE, "");
    assert_home_by(world, "apr_3", HOME_NONE, "");
    assert_home_by(world, "apr_4", HOME_NONE, "");
    assert_home_by(world, "apr_5", HOME_NONE, "");
}

#define IN_WORLD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_WORLD(a_session_of_another_node_has_its_home),
        IN_WORLD(a_stranger_finds_none),
        IN_WORLD(an_ended_session_has_its_last_home_and_a_live_one_goes_first),
        IN_WORLD(a_document_leads_to_the_home_of_its_session),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
