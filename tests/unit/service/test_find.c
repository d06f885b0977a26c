/* SPDX-License-Identifier: Apache-2.0 */
#include "service/find.h"

#include "harness/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

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

/* What a search has found, and how long it took. */
struct result {
    struct ended_session ended;
    struct world *world;
    unsigned done;
    int64_t took_us;
};

static void on_done(struct ended_session *ended)
{
    struct result *result = container_of(ended, struct result, ended);

    result->done++;
    result->took_us = loop_now_us(result->world->loop) - ended->began_us;
}

static void search(struct world *world, const struct caller_identity *identity,
                   const char *reference, struct result *result)
{
    *result = (struct result){ .world = world };
    find_ended_session(&result->ended, world->core, identity, reference, loop_now_us(world->loop),
                       on_done);
    assert_int_equal(result->done, 0);
    for (int i = 0; i < 5 && !result->done; i++)
        world_advance(world, 1);
    assert_int_equal(result->done, 1);
}

/* Opens a session of ann's with the key "build" and ends it. */
static void make_ended(struct world *world, char id[ID_SIZE])
{
    struct session *session = world_open_simple(world, "ann", "build");
    struct ended ended;

    memcpy(id, session_id(session), ID_SIZE);
    world_end(world, session, END_DELETED, &ended);
    assert_int_equal(ended.done, 1);
}

/* --- live ------------------------------------------------------------------------------------ */

static void a_live_session_is_found_by_id_and_by_key(void **state)
{
    struct world *world = *state;
    const struct session *session = world_open_simple(world, "ann", "build");

    assert_ptr_equal(find_live_session(world->core, &ann, session_id(session), NULL), session);
    assert_ptr_equal(find_live_session(world->core, &ann, "key:build", NULL), session);
    assert_ptr_equal(find_live_session(world->core, &admin, session_id(session), NULL), session);
}

static void a_stranger_and_an_unknown_id_get_one_message(void **state)
{
    struct world *world = *state;
    const struct session *session = world_open_simple(world, "ann", "build");
    char expected[128];
    struct error of_stranger = { 0 }, of_unknown = { 0 };

    assert_null(find_live_session(world->core, &bob, session_id(session), &of_stranger));
    assert_null(find_live_session(world->core, &ann, UNKNOWN, &of_unknown));
    assert_int_equal(of_stranger.code, ERR_NOT_FOUND);
    assert_string_equal(of_stranger.name, "session_not_found");
    assert_string_equal(of_unknown.name, of_stranger.name);
    snprintf(expected, sizeof(expected), "session \"%s\" not found", session_id(session));
    assert_string_equal(of_stranger.message, expected);
    assert_string_equal(of_unknown.message, "session \"" UNKNOWN "\" not found");
}

/* --- ended ----------------------------------------------------------------------------------- */

static void an_ended_session_comes_with_its_reason_and_record(void **state)
{
    struct world *world = *state;
    struct result result;
    char id[ID_SIZE];

    make_ended(world, id);
    assert_null(find_live_session(world->core, &ann, id, NULL));
    search(world, &ann, id, &result);
    assert_int_equal(result.ended.err.code, ERR_NONE);
    assert_string_equal(result.ended.id, id);
    assert_string_equal(result.ended.end_reason, "deleted");
    assert_non_null(strstr(buffer_text(&result.ended.record), "\"state\":\"ended\""));
    ended_session_fini(&result.ended);

    search(world, &ann, "key:build", &result);
    assert_string_equal(result.ended.id, id);
    ended_session_fini(&result.ended);

    search(world, &admin, id, &result);
    assert_string_equal(result.ended.id, id);
    ended_session_fini(&result.ended);
}

/* The store looks at a record for the stranger and at none for the unknown id. */
static void an_ended_session_of_another_owner_cannot_be_told_from_an_unknown_one(void **state)
{
    struct world *world = *state;
    struct result stranger, unknown;
    char id[ID_SIZE];

    make_ended(world, id);
    search(world, &bob, id, &stranger);
    search(world, &bob, UNKNOWN, &unknown);
    assert_string_equal(stranger.ended.err.name, "session_not_found");
    assert_string_equal(unknown.ended.err.name, "session_not_found");
    assert_int_equal(stranger.took_us, 2000);
    assert_int_equal(unknown.took_us, 2000);
    assert_string_equal(stranger.ended.id, "");
    assert_int_equal(stranger.ended.record.length, 0);
    ended_session_fini(&stranger.ended);
    ended_session_fini(&unknown.ended);
}

static void a_live_session_is_not_found_among_the_ended(void **state)
{
    struct world *world = *state;
    const struct session *session = world_open_simple(world, "ann", "build");
    struct result result;

    search(world, &ann, session_id(session), &result);
    assert_int_equal(result.ended.err.code, ERR_NOT_FOUND);
    ended_session_fini(&result.ended);
}

static void what_cannot_name_a_session_is_refused_without_the_store(void **state)
{
    static const char *const references[] = { "", "key:", "nonsense", "exe_123" };
    struct world *world = *state;

    for (size_t i = 0; i < ARRAY_LENGTH(references); i++) {
        struct result result;

        search(world, &ann, references[i], &result);
        assert_string_equal(result.ended.err.name, "session_not_found");
        ended_session_fini(&result.ended);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_live_session_is_found_by_id_and_by_key),
        TEST(a_stranger_and_an_unknown_id_get_one_message),
        TEST(an_ended_session_comes_with_its_reason_and_record),
        TEST(an_ended_session_of_another_owner_cannot_be_told_from_an_unknown_one),
        TEST(a_live_session_is_not_found_among_the_ended),
        TEST(what_cannot_name_a_session_is_refused_without_the_store),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
