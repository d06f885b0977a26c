/* SPDX-License-Identifier: Apache-2.0 */
#include "bridge/resend.h"

#include "base/macros.h"
#include "wire/relay_frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void add_frame(struct resend *resend, uint32_t length, uint8_t value)
{
    struct relay_frame frame = { .length = length, .type = RELAY_DATA };
    uint8_t *payload = malloc(length + 1);

    assert_non_null(payload);
    memset(payload, value, length);
    resend_add(resend, &frame, sizeof(frame));
    resend_add(resend, payload, length);
    free(payload);
}

static void frames_are_dropped_whole(void **state UNUSED)
{
    struct resend resend = { 0 };

    add_frame(&resend, 10, 1);
    add_frame(&resend, 20, 2);
    assert_int_equal(resend_held(&resend), 62);
    assert_int_equal(resend_frame_end(&resend, 0), 26);
    assert_false(resend_drop(&resend, 25));
    assert_false(resend_drop(&resend, 63));
    assert_true(resend_drop(&resend, 26));
    assert_true(resend_drop(&resend, 26));
    assert_false(resend_drop(&resend, 0));
    assert_true(resend_drop(&resend, 62));
    assert_int_equal(resend_held(&resend), 0);
    resend_clear(&resend);
}

static uint8_t byte_of(const struct resend *resend, uint64_t at)
{
    struct iovec pieces[2];

    assert_int_equal(resend_pieces(resend, at, at + 1, pieces), 1);
    return *(uint8_t *)pieces[0].iov_base;
}

static void bytes_stay_what_they_are_when_the_ring_turns_and_grows(void **state UNUSED)
{
    struct resend resend = { 0 };
    uint64_t starts[300];

    for (unsigned i = 0; i < ARRAY_LENGTH(starts); i++) {
        starts[i] = resend.end;
        add_frame(&resend, 1000 + i * 13, (uint8_t)i);
        if (i % 3 == 0)
            assert_true(resend_drop(&resend, resend_frame_end(&resend, resend.first)));
        for (unsigned j = 0; j <= i; j++)
            if (starts[j] >= resend.first)
                assert_int_equal(byte_of(&resend, starts[j] + 16 + 999), (uint8_t)j);
    }
    assert_true(resend_drop(&resend, resend.end));
    assert_null(resend.bytes); /* a large one is given back */
    resend_clear(&resend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_are_dropped_whole),
        cmocka_unit_test(bytes_stay_what_they_are_when_the_ring_turns_and_grows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
