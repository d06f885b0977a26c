#include "launcher/uid_ranges.h"

#include "base/macros.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

/* There are no sandboxes on disk here. */
int mark_read(int dir UNUSED, struct mark *out_mark UNUSED)
{
    return -1;
}

static struct slots slots;
static char place[64];

/* One block of leases in a directory of the test's own. */
static int setup(void **state)
{
    (void)state;
    snprintf(place, sizeof(place), "/tmp/test-slots-XXXXXX");
    assert_non_null(mkdtemp(place));
    memset(&slots, 0, sizeof(slots));
    slots.count = LEASE_SLOTS;
    slots.leases.dir = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    slots.leases.root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    slots.leases.blocks = 1;
    for (unsigned i = 0; i < LEASE_BLOCKS; i++)
        slots.leases.locks[i] = -1;
    snprintf(slots.leases.path, sizeof(slots.leases.path), "%s", place);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    leases_release(&slots.leases, 0);
    close(slots.leases.dir);
    close(slots.leases.root);
    return rmdir(place);
}

static void when_all_are_taken_that_is_what_is_said(void **state)
{
    struct fail fail = { 0 };

    (void)state;
    for (unsigned i = 0; i < LEASE_SLOTS; i++)
        assert_int_not_equal(slots_take(&slots), SLOTS_NONE);
    assert_int_equal(slots_take(&slots), SLOTS_NONE);
    assert_int_equal(slots_fail(&fail), -1);
    assert_string_equal(fail.step, "all uid ranges are in use");
    assert_int_equal(fail.error, EAGAIN);
}

static void a_lack_of_descriptors_is_not_a_lack_of_ranges(void **state)
{
    struct rlimit before, none = { 0 };
    struct fail fail = { 0 };
    int slot, reason;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    slot = slots_take(&slots);
    reason = errno;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(slot, SLOTS_NONE);
    errno = reason;
    assert_int_equal(slots_fail(&fail), -1);
    assert_string_equal(fail.step, "take a range of user ids");
    assert_int_equal(fail.error, EMFILE);
    assert_int_not_equal(slots_take(&slots), SLOTS_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(when_all_are_taken_that_is_what_is_said, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lack_of_descriptors_is_not_a_lack_of_ranges, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
