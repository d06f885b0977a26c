/* SPDX-License-Identifier: Apache-2.0 */
#include "core/run/no_network.h"

#include "harness/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct world world;

static int setup(void **state)
{
    (void)state;
    world = (struct world){ 0 };
    world_init(&world);
    world_start(&world);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_fini(&world);
    return 0;
}

static struct session *open_session(enum network_mode mode)
{
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;

    request.owner = "ann";
    request.network = mode;
    return world_open(&world, &request, &opened);
}

static void a_tail_has_the_last_bytes_however_they_come(void **state)
{
    struct output_tail tail = { 0 };
    char many[3 * OUTPUT_TAIL_BYTES];

    (void)state;
    memset(many, 'x', sizeof(many));
    output_tail_add(&tail, NULL, 0);
    assert_int_equal(tail.length, 0);
    output_tail_add(&tail, "abc", 3);
    assert_memory_equal(tail.bytes, "abc", 3);
    output_tail_add(&tail, many, OUTPUT_TAIL_BYTES - 1);
    assert_int_equal(tail.length, OUTPUT_TAIL_BYTES);
    assert_memory_equal(tail.bytes, "cxx", 3);
    output_tail_add(&tail, "end", 3);
    assert_memory_equal(tail.bytes + OUTPUT_TAIL_BYTES - 4, "xend", 4);
    output_tail_add(&tail, many, sizeof(many));
    assert_memory_equal(tail.bytes, many, OUTPUT_TAIL_BYTES);
}

static void a_sentence_in_two_pieces_is_found(void **state)
{
    struct session *session = open_session(NETWORK_NONE);
    struct output_tail tail = { 0 };

    (void)state;
    output_tail_add(&tail, "curl: (6) Could not res", 23);
    assert_null(no_network_warning(session, &tail));
    output_tail_add(&tail, "olve host: pypi.org\n", 20);
    assert_non_null(strstr(no_network_warning(session, &tail), "--network open"));
}

static void with_a_network_nothing_is_said(void **state)
{
    struct session *session = open_session(NETWORK_OPEN);
    struct output_tail tail = { 0 };

    (void)state;
    output_tail_add(&tail, "Network is unreachable", 22);
    assert_null(no_network_warning(session, &tail));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_tail_has_the_last_bytes_however_they_come, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_sentence_in_two_pieces_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(with_a_network_nothing_is_said, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
