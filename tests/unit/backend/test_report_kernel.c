/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/report_kernel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const char systemd_v1[] =
    "tmpfs /sys/fs/cgroup tmpfs ro,nosuid,nodev,noexec,mode=755 0 0\n"
    "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nosuid,nodev,noexec,relatime 0 0\n"
    "cgroup /sys/fs/cgroup/systemd cgroup rw,nosuid,nodev,noexec,relatime,xattr,name=systemd 0 0\n"
    "cgroup /sys/fs/cgroup/cpuset cgroup rw,nosuid,nodev,noexec,relatime,cpuset 0 0\n"
    "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,nodev,noexec,relatime,cpu,cpuacct 0 0\n"
    "cgroup /sys/fs/cgroup/memory cgroup rw,nosuid,nodev,noexec,relatime,memory 0 0\n";

static void a_controller_is_found_alone_and_among_others(void **state)
{
    char path[64];

    (void)state;
    assert_true(kernel_find_hierarchy(systemd_v1, "memory", path, sizeof(path)));
    assert_string_equal(path, "/sys/fs/cgroup/memory");
    assert_true(kernel_find_hierarchy(systemd_v1, "cpu", path, sizeof(path)));
    assert_string_equal(path, "/sys/fs/cgroup/cpu,cpuacct");
    assert_true(kernel_find_hierarchy(systemd_v1, "cpuacct", path, sizeof(path)));
    assert_string_equal(path, "/sys/fs/cgroup/cpu,cpuacct");
}

static void version_2_has_no_controller_of_version_1(void **state)
{
    char path[64];

    (void)state;
    assert_true(kernel_find_hierarchy(systemd_v1, "", path, sizeof(path)));
    assert_string_equal(path, "/sys/fs/cgroup/unified");
    assert_false(kernel_find_hierarchy(systemd_v1, "pids", path, sizeof(path)));
    assert_false(kernel_find_hierarchy("", "", path, sizeof(path)));
}

static void a_path_that_is_too_long_is_none(void **state)
{
    char path[16];

    (void)state;
    assert_false(kernel_find_hierarchy(systemd_v1, "memory", path, sizeof(path)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_controller_is_found_alone_and_among_others),
        cmocka_unit_test(version_2_has_no_controller_of_version_1),
        cmocka_unit_test(a_path_that_is_too_long_is_none),
    };

    return cmocka_run_group_tests_name("backend/report_kernel", tests, NULL, NULL);
}
