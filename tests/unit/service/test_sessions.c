/* SPDX-License-Identifier: Apache-2.0 */
#include "service/sessions.h"

#include "harness/world.h"
#include "service/recorded.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

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

static struct session *open_labelled(struct world *world, const char *owner, const char *labels)
{
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;

    request.owner = owner;
    request.labels_json = labels;
    return world_open(world, &request, &opened);
}

static unsigned count(struct world *world, const struct session_filter *filter)
{
    const struct session *session = NULL;
    unsigned found = 0;

    while ((session = session_filter_next(filter, world->core, session)))
        found++;
    return found;
}

/* --- filters --------------------------------------------------------------------------------- */

static void a_filter_matches_owner_state_and_labels(void **state)
{
    struct world *world = *state;
    struct session_filter all = { 0 };
    struct session_filter of_ann = { .owner = "ann" };
    struct session_filter paused = { .states = 1u << SESSION_PAUSED };
    scoped(session_filter_fini) struct session_filter labelled = { .owner = "ann" };

    open_labelled(world, "ann", "{\"job\":\"a\",\"run\":\"1\"}");
    open_labelled(world, "ann", "{\"job\":\"b\"}");
    open_labelled(world, "bob", "{\"job\":\"a\"}");
    assert_int_equal(count(world, &all), 3);
    assert_int_equal(count(world, &of_ann), 2);
    assert_int_equal(count(world, &paused), 0);
    assert_int_equal(session_filter_add_label(&labelled, "job=a"), 0);
    assert_int_equal(count(world, &labelled), 1);
    assert_int_equal(session_filter_add_label(&labelled, "run=2"), 0);
    assert_int_equal(count(world, &labelled), 0);
}

static void a_label_is_a_name_and_a_value_and_there_are_not_too_many(void **state)
{
    scoped(session_filter_fini) struct session_filter filter = { 0 };

    (void)state;
    assert_int_equal(session_filter_add_label(&filter, "job"), -1);
    for (int i = 0; i < SESSION_FILTER_LABELS; i++)
        assert_int_equal(session_filter_add_label(&filter, "job="), 0);
    assert_int_equal(session_filter_add_label(&filter, "job="), -1);
}

/* --- pages ----------------------------------------------------------------------------------- */

struct listing {
    struct session_page page;
    unsigned live, ended, done;
    unsigned room; /* for so many */
};

static bool on_session(struct session_page *page, const struct found_session *found)
{
    struct listing *listing = container_of(page, struct listing, page);

    if (listing->live + listing->ended == listing->room)
        return false;
    assert_true(!found->live != !found->record);
    listing->live += found->live != NULL;
    listing->ended += found->record != NULL;
    return true;
}

static void on_done(struct session_page *page)
{
    container_of(page, struct listing, page)->done++;
}

static void list(struct world *world, struct listing *listing, unsigned states, const char *cursor,
                 uint64_t limit)
{
    listing->live = listing->ended = listing->done = 0;
    listing->page = (struct session_page){
        .filter = { .owner = "ann", .states = states },
        .cursor = cursor,
        .limit = limit,
        .on_session = on_session,
        .done = on_done,
    };
    assert_true(session_page_knows_cursor(&listing->page));
    session_page_start(&listing->page, world->core);
    world_settle(world);
    assert_int_equal(listing->done, 1);
    assert_int_equal(listing->page.err.code, ERR_NONE);
}

static void live_sessions_are_paged_in_the_order_they_were_made(void **state)
{
    struct world *world = *state;
    struct listing listing = { .room = 100 };
    char cursor[SESSION_CURSOR_SIZE];

    for (int i = 0; i < 5; i++)
        world_open_simple(world, "ann", NULL);
    world_open_simple(world, "bob", NULL);
    list(world, &listing, 0, NULL, 3);
    assert_int_equal(listing.live, 3);
    assert_int_equal(listing.page.total, 5);
    assert_true(listing.page.has_more);
    memcpy(cursor, listing.page.next, sizeof(cursor));
    list(world, &listing, 0, cursor, 3);
    assert_int_equal(listing.live, 2);
    assert_int_equal(listing.page.total, 5);
    assert_false(listing.page.has_more);
}

static void a_page_ends_where_there_is_no_room(void **state)
{
    struct world *world = *state;
    struct listing listing = { .room = 2 };

    for (int i = 0; i < 4; i++)
        world_open_simple(world, "ann", NULL);
    list(world, &listing, 0, NULL, 100);
    assert_int_equal(listing.live, 2);
    assert_true(listing.page.has_more);
    assert_int_equal(listing.page.total, 4);
}

static void ended_sessions_come_from_the_store_and_go_on_at_the_cursor(void **state)
{
    struct world *world = *state;
    struct listing listing = { .room = 100 };
    char cursor[SESSION_CURSOR_SIZE];

    world_open_simple(world, "ann", NULL);
    for (int i = 0; i < 3; i++) {
        struct ended ended;

        world_end(world, world_open_simple(world, "ann", NULL), END_DELETED, &ended);
    }
    list(world, &listing, 1u << SESSION_ENDED, NULL, 2);
    assert_int_equal(listing.ended, 2);
    assert_int_equal(listing.live, 0);
    assert_int_equal(listing.page.total, 3);
    assert_true(listing.page.has_more);
    memcpy(cursor, listing.page.next, sizeof(cursor));
    list(world, &listing, 1u << SESSION_ENDED, cursor, 2);
    assert_int_equal(listing.ended, 1);
    assert_false(listing.page.has_more);
}

static void a_cursor_of_another_kind_is_not_known(void **state)
{
    struct session_page live = { .cursor = "17" };
    struct session_page ended = { .filter = { .states = 1u << SESSION_ENDED },
                                  .cursor = "17.ses_00000000000000000000000000" };
    struct session_page nonsense = { .cursor = "x" };

    (void)state;
    assert_false(session_page_knows_cursor(&live));
    assert_false(session_page_knows_cursor(&ended));
    assert_false(session_page_knows_cursor(&nonsense));
    ended.cursor = "17";
    live.cursor = "17.ses_00000000000000000000000000";
    assert_true(session_page_knows_cursor(&ended));
    assert_true(session_page_knows_cursor(&live));
}

/* --- recorded -------------------------------------------------------------------------------- */

static unsigned recorded_count;

static void on_recorded(struct recorded *recorded)
{
    assert_int_equal(recorded->err->code, ERR_NONE);
    recorded_count++;
}

static void an_answer_waits_until_the_store_has_it(void **state)
{
    struct world *world = *state;
    struct recorded recorded;

    recorded_count = 0;
    recorded_wait(&recorded, world->core, on_recorded);
    assert_int_equal(recorded_count, 0);
    world_settle(world);
    assert_int_equal(recorded_count, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_filter_matches_owner_state_and_labels),
        TEST(a_label_is_a_name_and_a_value_and_there_are_not_too_many),
        TEST(live_sessions_are_paged_in_the_order_they_were_made),
        TEST(a_page_ends_where_there_is_no_room),
        TEST(ended_sessions_come_from_the_store_and_go_on_at_the_cursor),
        TEST(a_cursor_of_another_kind_is_not_known),
        TEST(an_answer_waits_until_the_store_has_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
