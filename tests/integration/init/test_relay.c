/* SPDX-License-Identifier: Apache-2.0 */
/* The real relay against the real bridge, over a carrier that fails in every way: what goes through is
 * the same as without any failure, and no byte is missing or doubled. */

#include "base/macros.h"
#include "both.h"
#include "cutter.h"
#include "wire/relay_frame.h"
#include "workload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { SMALL = 6000, LARGE = 3000000 };

static int start_relay(void **state)
{
    *state = box_new_bridged(BOX_DIRECT);
    return 0;
}

/* --- cuts --------------------------------------------------------------------------------------- */

/* A frame that was cut comes again from its beginning, so every other connection lives for longer than
 * the longest frame. */
enum { LAST_CUT = 5000, LONG_LIFE = RELAY_MAX_FRAME + 1000 };

static unsigned cut_step(void)
{
    const char *text = getenv("SANDGLASS_CUT_STEP");

    return text ? (unsigned)atoi(text) : 199;
}

static void run_with_cuts(struct box *box, uint64_t inward, uint64_t outward)
{
    struct cutter_plan plan = { .cut_after = { inward, outward }, .then_after = LONG_LIFE };
    unsigned before = cutter_cuts(box->cutter);

    cutter_follow(box->cutter, &plan);
    cutter_cut(box->cutter);
    workload_run(box, SMALL);
    cutter_follow(box->cutter, &(struct cutter_plan){ 0 });
    assert_true(cutter_cuts(box->cutter) > before);
}

static void no_byte_is_lost_when_what_the_relay_sends_is_cut_anywhere(void **state)
{
    struct box *box = *state;

    for (uint64_t n = 1; n <= LAST_CUT; n += cut_step())
        run_with_cuts(box, 0, n);
}

static void no_byte_is_lost_when_what_the_bridge_sends_is_cut_anywhere(void **state)
{
    struct box *box = *state;

    for (uint64_t n = 1; n <= LAST_CUT; n += cut_step())
        run_with_cuts(box, n, 0);
}

static void no_byte_is_lost_when_both_ways_are_cut(void **state)
{
    struct box *box = *state;

    for (uint64_t n = 3; n <= LAST_CUT; n += 3 * cut_step())
        run_with_cuts(box, LAST_CUT + 100 - n, n);
}

static void every_byte_of_the_handshake_can_be_the_last_one(void **state)
{
    struct box *box = *state;

    for (uint64_t n = 1; n <= 160; n += 3) {
        unsigned before = cutter_connections(box->cutter);

        cutter_follow(box->cutter,
                      &(struct cutter_plan){ .cut_after = { n % 2 ? n : 0, n % 2 ? 0 : n } });
        cutter_cut(box->cutter);
        box_wait(box, cutter_connections(box->cutter) > before + 1);
        cutter_follow(box->cutter, &(struct cutter_plan){ 0 });
        box_list(box);
    }
}

/* --- slow carriers ------------------------------------------------------------------------------ */

static void all_is_done_when_bytes_come_one_by_one(void **state)
{
    struct box *box = *state;

    cutter_follow(box->cutter, &(struct cutter_plan){ .piece = 1 });
    workload_run(box, SMALL);
    cutter_follow(box->cutter, &(struct cutter_plan){ .piece = 17 });
    workload_run(box, 10 * SMALL);
}

static void much_more_than_a_window_goes_through(void **state)
{
    workload_run(*state, LARGE);
}

static void much_more_than_a_window_goes_through_a_carrier_that_is_cut(void **state)
{
    struct box *box = *state;

    cutter_follow(box->cutter, &(struct cutter_plan){ .cut_after = { 300001, 250007 } });
    workload_run(box, LARGE);
    assert_true(cutter_cuts(box->cutter) > 10);
}

/* The bridge hears nothing: it must not send without end, and goes on where it stopped. */
static void a_carrier_that_stalls_loses_nothing(void **state)
{
    struct box *box = *state;

    for (int way = CUTTER_IN; way <= CUTTER_OUT; way++) {
        struct workload *workload = workload_new(box, LARGE);
        struct cutter_plan plan = { 0 };
        int64_t deadline_us = box_deadline_us(120000);
        uint64_t passed = cutter_passed(box->cutter, CUTTER_OUT);

        while (cutter_passed(box->cutter, CUTTER_OUT) < passed + 100000) {
            (void)workload_step(workload);
            box_turn(box, deadline_us, "some bytes have passed");
        }
        plan.is_held[way] = true;
        cutter_follow(box->cutter, &plan);
        for (int turn = 0; turn < 50; turn++) {
            (void)workload_step(workload);
            loop_turn(box->loop, 1);
        }
        cutter_follow(box->cutter, &(struct cutter_plan){ 0 });
        while (!workload_step(workload))
            box_turn(box, deadline_us, "all is done");
        workload_free(workload);
    }
}

/* --- strangers ---------------------------------------------------------------------------------- */

enum { STRANGERS = 8 };

static int stranger_connect(const struct box *box)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", box->socket);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void say_frame(int fd, uint8_t type, uint32_t length)
{
    struct relay_frame frame = { .type = type, .length = length };
    static const uint8_t zeros[RELAY_MAX_HANDSHAKE];

    (void)!send(fd, &frame, sizeof(frame), MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)!send(fd, zeros, MIN((size_t)length, sizeof(zeros)), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Each of them does something else that is wrong. */
static void stranger_talk(int fd, unsigned kind)
{
    uint8_t noise[512] = { 0 };

    switch (kind % 8) {
    case 0: /* says nothing */
        break;
    case 1:
        for (size_t i = 0; i < sizeof(noise); i++)
            noise[i] = (uint8_t)(i * 37 + kind);
        (void)!send(fd, noise, sizeof(noise), MSG_NOSIGNAL);
        break;
    case 2: /* a login without the key */
        say_frame(fd, RELAY_LOGIN, sizeof(struct relay_login));
        break;
    case 3: /* as if it had logged in */
        say_frame(fd, RELAY_MESSAGE, 64);
        break;
    case 4:
        say_frame(fd, RELAY_DATA, RELAY_MAX_DATA);
        break;
    case 5:
        say_frame(fd, RELAY_LOGIN, UINT32_MAX);
        break;
    case 6: /* half a header */
        (void)!send(fd, noise, 7, MSG_NOSIGNAL);
        break;
    case 7: /* leaves at once */
        (void)shutdown(fd, SHUT_RDWR);
        break;
    }
}

static void strangers_change_nothing(void **state)
{
    struct box *box = *state;

    for (unsigned round = 0; round < 20; round++) {
        int fds[STRANGERS];

        for (unsigned i = 0; i < STRANGERS; i++) {
            fds[i] = stranger_connect(box);
            stranger_talk(fds[i], round + i);
        }
        workload_run(box, SMALL);
        for (unsigned i = 0; i < STRANGERS; i++)
            close(fds[i]);
    }
}

/* Those who only wait must not keep the bridge out when its own connection breaks. */
static void silent_strangers_do_not_keep_the_bridge_out(void **state)
{
    struct box *box = *state;
    int fds[STRANGERS];

    for (unsigned i = 0; i < STRANGERS; i++)
        fds[i] = stranger_connect(box);
    for (unsigned cuts = 0; cuts < 3; cuts++) {
        cutter_cut(box->cutter);
        workload_run(box, SMALL);
    }
    for (unsigned i = 0; i < STRANGERS; i++)
        close(fds[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(much_more_than_a_window_goes_through, start_relay,
                                        stop_box),
        cmocka_unit_test_setup_teardown(all_is_done_when_bytes_come_one_by_one, start_relay,
                                        stop_box),
        cmocka_unit_test_setup_teardown(every_byte_of_the_handshake_can_be_the_last_one,
                                        start_relay, stop_box),
        cmocka_unit_test_setup_teardown(no_byte_is_lost_when_what_the_relay_sends_is_cut_anywhere,
                                        start_relay, stop_box),
        cmocka_unit_test_setup_teardown(no_byte_is_lost_when_what_the_bridge_sends_is_cut_anywhere,
                                        start_relay, stop_box),
        cmocka_unit_test_setup_teardown(no_byte_is_lost_when_both_ways_are_cut, start_relay,
                                        stop_box),
        cmocka_unit_test_setup_teardown(much_more_than_a_window_goes_through_a_carrier_that_is_cut,
                                        start_relay, stop_box),
        cmocka_unit_test_setup_teardown(a_carrier_that_stalls_loses_nothing, start_relay, stop_box),
        cmocka_unit_test_setup_teardown(strangers_change_nothing, start_relay, stop_box),
        cmocka_unit_test_setup_teardown(silent_strangers_do_not_keep_the_bridge_out, start_relay,
                                        stop_box),
    };

    return cmocka_run_group_tests_name("init/relay", tests, NULL, NULL);
}
