/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Version 1 of cgroups as systemd mounts it, with `cpu` and `cpuacct` in one hierarchy. A directory of the
 * test stands for the mounts: making, renaming and removing need no more of a cgroup than that.
 */

#include "launcher/cgroup/cgroup.h"
#include "launcher/cgroup/cgroup_renew.h"

#include "base/macros.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define INSTANCE "sandglass.test"

static const struct launch_setup setup_of_test = { .instance = "test" };
static const struct launch_limits limits = {
    .memory_bytes = 256 << 20,
    .cpu_millis = 1500,
    .pids = 64,
};

struct host {
    char path[64];
    char mounts[1024];
    struct cgroups cgroups;
};

static int setup(void **state)
{
    struct host *host = calloc(1, sizeof(*host));

    snprintf(host->path, sizeof(host->path), "/tmp/test-cgroup-XXXXXX");
    assert_non_null(mkdtemp(host->path));
    *state = host;
    return 0;
}

static int teardown(void **state)
{
    struct host *host = *state;
    char command[96];

    cgroups_close(&host->cgroups, "test");
    snprintf(command, sizeof(command), "rm -r %s", host->path);
    assert_int_equal(system(command), 0);
    free(host);
    return 0;
}

/* Mounts a hierarchy: a directory that has the controllers' names, as under /sys/fs/cgroup. */
static void mount_v1(struct host *host, const char *controllers)
{
    char path[128];
    size_t length = strlen(host->mounts);

    snprintf(path, sizeof(path), "%s/%s", host->path, controllers);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(host->mounts + length, sizeof(host->mounts) - length,
             "cgroup %s cgroup rw,nosuid,nodev,noexec,relatime,%s 0 0\n", path, controllers);
}

static struct cgroups *find(struct host *host)
{
    FILE *mounts = fmemopen(host->mounts, strlen(host->mounts), "r");

    assert_non_null(mounts);
    cgroups_find(&host->cgroups, mounts, &setup_of_test);
    fclose(mounts);
    return &host->cgroups;
}

static struct cgroups *systemd_host(struct host *host)
{
    mount_v1(host, "name=systemd");
    mount_v1(host, "cpu,cpuacct");
    mount_v1(host, "freezer");
    mount_v1(host, "memory");
    mount_v1(host, "pids");
    mount_v1(host, "net_cls,net_prio");
    return find(host);
}

static const char *path_of(const struct host *host, const char *hierarchy, const char *name)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/%s/" INSTANCE "/%s", host->path, hierarchy, name);
    return path;
}

static bool exists(const struct host *host, const char *hierarchy, const char *name)
{
    return access(path_of(host, hierarchy, name), F_OK) == 0;
}

static void write_file(const struct host *host, const char *hierarchy, const char *name,
                       const char *text)
{
    FILE *file = fopen(path_of(host, hierarchy, name), "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static const char *read_file(const struct host *host, const char *hierarchy, const char *name)
{
    static char text[64];
    FILE *file = fopen(path_of(host, hierarchy, name), "r");

    assert_non_null(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    return text;
}

/* The kernel makes the files of a cgroup; here the test does it before. */
static void make_files(const struct host *host)
{
    static const struct {
        const char *hierarchy, *name, *text;
    } files[] = {
        { "cpu,cpuacct", "box/tasks", "" },
        { "cpu,cpuacct", "box/cpu.cfs_quota_us", "-1" },
        { "cpu,cpuacct", "box/cpuacct.usage", "7000000" },
        { "freezer", "box/tasks", "" },
        { "memory", "box/tasks", "" },
        { "memory", "box/memory.limit_in_bytes", "" },
        { "memory", "box/memory.usage_in_bytes", "0\n" },
        { "memory", "box/memory.max_usage_in_bytes", "" },
        { "memory", "box/memory.oom_control", "under_oom 0\noom_kill 0\n" },
        { "pids", "box/tasks", "" },
        { "pids", "box/pids.max", "" },
        { "pids", "box/pids.current", "0\n" },
    };

    for (size_t i = 0; i < ARRAY_LENGTH(files); i++) {
        (void)mkdir(path_of(host, files[i].hierarchy, "box"), 0700);
        write_file(host, files[i].hierarchy, files[i].name, files[i].text);
    }
}

static void all_controllers_of_a_shared_hierarchy_are_found(void **state)
{
    struct cgroups *cgroups = systemd_host(*state);

    assert_true(cgroups->base[CGROUP_CPU] >= 0);
    assert_true(cgroups->base[CGROUP_CPUACCT] >= 0);
    assert_int_equal(cgroups->features, LAUNCH_HAS_CGROUP_V1 | LAUNCH_HAS_MEMORY | LAUNCH_HAS_CPU |
                                            LAUNCH_HAS_PIDS | LAUNCH_HAS_FREEZER);
}

static void a_shared_hierarchy_counts_once(void **state)
{
    struct cgroups *cgroups = systemd_host(*state);

    assert_true(cgroups_has_hierarchy(cgroups, CGROUP_CPU));
    assert_false(cgroups_has_hierarchy(cgroups, CGROUP_CPUACCT));
    assert_true(cgroups_has_hierarchy(cgroups, CGROUP_MEMORY));
    assert_false(cgroups_has_hierarchy(cgroups, CGROUP_IO));
}

static void hierarchies_of_one_controller_count_each(void **state)
{
    struct host *host = *state;
    struct cgroups *cgroups;

    mount_v1(host, "cpuacct");
    mount_v1(host, "cpu");
    cgroups = find(host);
    assert_true(cgroups_has_hierarchy(cgroups, CGROUP_CPU));
    assert_true(cgroups_has_hierarchy(cgroups, CGROUP_CPUACCT));
}

static void cgroups_in_a_shared_hierarchy_are_renamed(void **state)
{
    struct host *host = *state;
    struct cgroups *cgroups = systemd_host(host);
    struct fail fail = { 0 };

    make_files(host);
    assert_int_equal(cgroups_rename(cgroups, "box", "other", &fail), 0);
    assert_true(exists(host, "cpu,cpuacct", "other"));
    assert_false(exists(host, "cpu,cpuacct", "box"));
    assert_true(exists(host, "memory", "other"));
    assert_int_equal(cgroups_rename(cgroups, "box", "other", &fail), -1);
    assert_string_equal(fail.step, "name cgroup");
}

static void cgroups_in_a_shared_hierarchy_are_removed(void **state)
{
    static const char *const hierarchies[] = { "cpu,cpuacct", "freezer", "memory", "pids" };
    struct host *host = *state;
    struct cgroups *cgroups = systemd_host(host);

    for (size_t i = 0; i < ARRAY_LENGTH(hierarchies); i++)
        assert_int_equal(mkdir(path_of(host, hierarchies[i], "box"), 0700), 0);
    assert_int_equal(cgroups_remove(cgroups, "box"), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(hierarchies); i++)
        assert_false(exists(host, hierarchies[i], "box"));
}

static void a_sandbox_enters_a_shared_hierarchy_once_with_all_limits(void **state)
{
    struct host *host = *state;
    struct cgroups *cgroups = systemd_host(host);
    struct cgroup_entry entry;
    struct fail fail = { 0 };

    make_files(host);
    assert_int_equal(cgroups_make(cgroups, "box", &limits, &entry, &fail), 0);
    assert_true(entry.fds[CGROUP_CPU] >= 0);
    assert_int_equal(entry.fds[CGROUP_CPUACCT], -1);
    assert_int_equal(cgroup_enter(&entry), 0);
    assert_string_equal(read_file(host, "cpu,cpuacct", "box/tasks"), "0");
    assert_string_equal(read_file(host, "cpu,cpuacct", "box/cpu.cfs_quota_us"), "150000");
    assert_string_equal(read_file(host, "memory", "box/memory.limit_in_bytes"), "268435456");
    assert_string_equal(read_file(host, "pids", "box/pids.max"), "65");
    cgroup_entry_close(&entry);
}

static void processor_time_is_read_from_a_shared_hierarchy(void **state)
{
    struct host *host = *state;
    struct cgroups *cgroups = systemd_host(host);
    struct launch_usage usage = { 0 };

    make_files(host);
    cgroups_usage(cgroups, "box", &usage);
    assert_int_equal(usage.cpu_us, 7000);
}

static void cgroups_in_a_shared_hierarchy_are_renewed(void **state)
{
    struct host *host = *state;
    struct cgroups *cgroups = systemd_host(host);
    struct cgroup_watch watch;
    struct cgroup_entry entry;

    make_files(host);
    cgroup_watch_init(&watch);
    assert_int_equal(cgroups_renew(cgroups, "box", &limits, &limits, &watch, &entry), 0);
    assert_int_equal(read_file(host, "cpu,cpuacct", "box/cpuacct.usage")[0], '0');
    assert_true(entry.fds[CGROUP_CPU] >= 0);
    assert_int_equal(entry.fds[CGROUP_CPUACCT], -1);
    cgroup_entry_close(&entry);
    cgroup_watch_close(&watch);
}

#define ON_A_HOST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_A_HOST(all_controllers_of_a_shared_hierarchy_are_found),
        ON_A_HOST(a_shared_hierarchy_counts_once),
        ON_A_HOST(hierarchies_of_one_controller_count_each),
        ON_A_HOST(cgroups_in_a_shared_hierarchy_are_renamed),
        ON_A_HOST(cgroups_in_a_shared_hierarchy_are_removed),
        ON_A_HOST(a_sandbox_enters_a_shared_hierarchy_once_with_all_limits),
        ON_A_HOST(processor_time_is_read_from_a_shared_hierarchy),
        ON_A_HOST(cgroups_in_a_shared_hierarchy_are_renewed),
    };

    return cmocka_run_group_tests_name("launcher/cgroup", tests, NULL, NULL);
}
