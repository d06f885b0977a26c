/* SPDX-License-Identifier: Apache-2.0 */
/* Small parts of the launcher that need neither privileges nor a sandbox. */

#include "launcher/ahead/spares.h"
#include "launcher/cgroup/cgroup_files.h"
#include "launcher/mark_cache.h"
#include "launcher/namespaces.h"
#include "launcher/remove_tree.h"
#include "launcher/sys.h"
#include "launcher/walls/disk.h"
#include "launcher/walls/host.h"
#include "launcher/walls/ids.h"
#include "launcher/walls/landlock.h"
#include "launcher/walls/mounts.h"
#include "launcher/walls/skeleton_profile.h"

#include "base/macros.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static char path[64];
static int dir;

static int make_directory(void **state UNUSED)
{
    snprintf(path, sizeof(path), "/tmp/test-parts-XXXXXX");
    assert_non_null(mkdtemp(path));
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return 0;
}

static int remove_directory(void **state UNUSED)
{
    close(dir);
    return rmdir(path);
}

static void write_file(const char *name, const char *text)
{
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

/* --- the mark cache -------------------------------------------------------------------------- */

static void a_mark_is_taken_from_the_cache_once_and_the_oldest_gives_way(void **state UNUSED)
{
    static struct mark_cache cache;
    struct mark mark = { 0 }, found;
    int own = sys_pidfd_open(getpid());
    int pidfd;

    for (int i = 0; i <= MARK_CACHE_MAX; i++) {
        snprintf(mark.id, sizeof(mark.id), "%d", i);
        mark.pid = i + 2;
        mark_cache_add(&cache, &mark, own);
    }
    assert_false(mark_cache_take(&cache, "0", &found, &pidfd));
    assert_true(mark_cache_take(&cache, "7", &found, &pidfd));
    assert_int_equal(found.pid, 9);
    close(pidfd);
    assert_false(mark_cache_take(&cache, "7", &found, &pidfd));
    mark_cache_forget(&cache, "8");
    assert_false(mark_cache_take(&cache, "8", &found, &pidfd));
    for (int i = 0; i <= MARK_CACHE_MAX; i++) {
        snprintf(mark.id, sizeof(mark.id), "%d", i);
        mark_cache_forget(&cache, mark.id);
    }
    close(own);
}

/* --- ids ------------------------------------------------------------------------------------- */

static void each_slot_has_ids_of_its_own_only_where_root_gives_them(void **state UNUSED)
{
    struct context context = { .setup.uid_base = 1 << 20, .ids = IDS_OWN };

    assert_int_equal(ids_first(&context, 3), (1 << 20) + 3 * LAUNCH_IDS_STEP);
    assert_true(ids_are_many(&context));
    context.ids = IDS_RANGE;
    assert_int_equal(ids_first(&context, 3), 1);
    assert_true(ids_are_many(&context));
    context.ids = IDS_SINGLE;
    assert_int_equal(ids_first(&context, 3), 0);
    assert_false(ids_are_many(&context));
}

/* --- files of cgroups ------------------------------------------------------------------------ */

static void numbers_are_found_by_their_whole_key(void **state UNUSED)
{
    write_file("memory.events", "low 1\noom_kill_all 7\noom_kill 2\nhigh");
    assert_int_equal(cgroup_read_keyed(dir, "memory.events", "oom_kill"), 2);
    assert_int_equal(cgroup_read_keyed(dir, "memory.events", "oom"), 0);
    assert_int_equal(cgroup_read_keyed(dir, "memory.events", "high"), 0);
    assert_int_equal(cgroup_read_keyed(dir, "none", "oom_kill"), 0);
    write_file("memory.events", "18446744073709551615\n");
    assert_true(cgroup_read_number(dir, "memory.events") == UINT64_MAX);
    assert_int_equal(cgroup_write_number(dir, "memory.events", 12), 0);
    assert_int_equal(cgroup_write_number(dir, "none", 12), -1);
    assert_int_equal(unlinkat(dir, "memory.events", 0), 0);
}

/* --- mounts ---------------------------------------------------------------------------------- */

static void options_that_do_not_fit_are_refused_before_anything_is_mounted(void **state UNUSED)
{
    char value[600];
    const struct mount_option options[] = { { "size", value }, { 0 } };

    memset(value, '1', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    assert_int_equal(mount_at("tmpfs", options, 0, path), -1);
    assert_int_equal(errno, ENAMETOOLONG);
}

/* --- spares ---------------------------------------------------------------------------------- */

static void a_root_fits_only_what_it_was_made_for(void **state UNUSED)
{
    struct launch_create create = { .limits = { .memory_bytes = 1 << 30, .disk_bytes = 1 << 30 } };
    struct template template = { .name = "host" };
    struct disks disks = { .control = -1 };
    struct spare spare;

    spare_init(&spare);
    spare.limits = create.limits;
    strcpy(spare.template_name, "host");
    assert_false(spare_root_fits(&disks, &spare, &template, &create)); /* it has none */
    spare.root = 0;
    assert_true(spare_root_fits(&disks, &spare, &template, &create));
    create.limits.cpu_millis = 7; /* of the cgroup, not of the root */
    assert_true(spare_root_fits(&disks, &spare, &template, &create));
    create.network = LAUNCH_NETWORK_OPEN;
    assert_false(spare_root_fits(&disks, &spare, &template, &create));
    create.network = LAUNCH_NETWORK_NONE;
    create.limits.image = 1;
    assert_true(spare_root_fits(&disks, &spare, &template, &create)); /* there are no disks */
    disks.control = 0;
    assert_false(spare_root_fits(&disks, &spare, &template, &create));
    create.limits.image = 0;
    template.imported = true;
    assert_false(spare_root_fits(&disks, &spare, &template, &create));
    template = (struct template){ .name = "other" };
    assert_false(spare_root_fits(&disks, &spare, &template, &create));
}

static void slots_of_spares_are_taken(void **state UNUSED)
{
    static struct uid_ranges ranges = { .count = 4, .blocks = { .dir = -1, .count = 1 } };
    static struct spares spares = { .parts.builder.spare.uid_ranges = &ranges,
                                    .count = 1,
                                    .ordered = 1,
                                    .ordered_slots = { 2 },
                                    .reclaimed_count = 1 };

    spares.items[0].slot = 0;
    spares.reclaimed[0].slot = 1;
    spares_mark(&spares);
    assert_int_equal(uid_ranges_take(&ranges), 3);
    assert_int_equal(uid_ranges_take(&ranges), UID_RANGE_NONE);
    uid_ranges_release(&ranges, 1);
    assert_int_equal(uid_ranges_take(&ranges), 1);
}

static void a_pinned_sandbox_gives_nothing_back(void **state UNUSED)
{
    static struct issued issued[UID_RANGES_MAX];
    static struct context context = { .root = true };
    static struct spares spares = { .parts.builder.spare.context = &context, .builder = -1 };
    struct mark mark = { .slot = 5 };
    struct spare spare;

    spares.issued = issued;
    issued[5].socket = 1;
    spare_pin(&spares, &mark);
    assert_int_equal(issued[5].socket, 0);
    mark.slot = MARK_NO_SLOT;
    spare_pin(&spares, &mark);
    assert_false(spare_reclaim_begin(&spares, &mark, -1, &spare));
    assert_int_equal(spare.slot, UID_RANGE_NONE);
    assert_int_equal(spares.reclaiming, 0);
}

/* --- others ---------------------------------------------------------------------------------- */

static void a_tree_goes_however_deep_and_closed_it_is(void **state UNUSED)
{
    int at = dup(dir);

    for (int depth = 0; depth < 700; depth++) {
        int next;

        assert_int_equal(mkdirat(at, "d", 0700), 0);
        next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(at);
        at = next;
    }
    close(openat(at, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0));
    assert_int_equal(fchmod(at, 0), 0);
    close(at);
    assert_int_equal(symlinkat("/", dir, "link"), 0);
    assert_int_equal(remove_content(dir), 0);
}

static void our_own_namespaces_are_the_hosts(void **state UNUSED)
{
    struct namespaces namespaces;
    int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int own = sys_pidfd_open(getpid());
    int fd;

    namespaces_open(&namespaces, proc, -1);
    assert_int_equal(namespaces_of_process(&namespaces, proc, getpid(), own), 0);
    assert_int_equal(__builtin_popcount(namespaces_all()), NAMESPACES);
    namespaces.host[0]++; /* the first in the list is the user namespace */
    assert_int_equal(namespaces_of_process(&namespaces, proc, getpid(), own), LAUNCH_NS_USER);
    fd = namespace_of_process(proc, getpid(), own, LAUNCH_NS_NET);
    assert_true(fd >= 0);
    assert_int_equal(sys_inode(fd), namespaces.host[3]);
    close(fd);
    close(own);
    close(proc);
}

static void the_version_of_landlock_is_small_or_none(void **state UNUSED)
{
    assert_true(landlock_abi() < 100);
}

#define TEST_IN_DIRECTORY(name) \
    cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)

/* --- the profile of login shells ------------------------------------------------------------- */

static void a_profile_does_not_start_a_program_to_ask_who_it_is(void **state UNUSED)
{
    char out[128];
    char want[] = "a ${EUID:-$(id -u)} b\n${EUID:-$(id -u)}";
    char asks[] = "a $(id -u) b\n`id -u`";
    char asks_otherwise[] = "$(id -un) $(id -u";

    assert_int_equal(profile_rewrite(asks, strlen(asks), out, sizeof(out)), strlen(want));
    assert_memory_equal(out, want, strlen(want));
    assert_int_equal(profile_rewrite(asks_otherwise, strlen(asks_otherwise), out, sizeof(out)), 0);
    assert_int_equal(profile_rewrite(asks, strlen(asks), out, strlen(want) - 1), 0);
    assert_int_equal(profile_rewrite("", 0, out, sizeof(out)), 0);
}

static void a_profile_that_cannot_be_rewritten_stays(void **state UNUSED)
{
    char text[64] = "";
    int fd;

    skeleton_profile(dir);
    assert_int_equal(faccessat(dir, "profile", F_OK, 0), -1);
    write_file("profile", "umask 022\n");
    skeleton_profile(dir);
    fd = openat(dir, "profile", O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, text, sizeof(text)), strlen("umask 022\n"));
    close(fd);
    assert_string_equal(text, "umask 022\n");
    assert_int_equal(unlinkat(dir, "profile", 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mark_is_taken_from_the_cache_once_and_the_oldest_gives_way),
        cmocka_unit_test(each_slot_has_ids_of_its_own_only_where_root_gives_them),
        TEST_IN_DIRECTORY(numbers_are_found_by_their_whole_key),
        TEST_IN_DIRECTORY(options_that_do_not_fit_are_refused_before_anything_is_mounted),
        cmocka_unit_test(a_root_fits_only_what_it_was_made_for),
        cmocka_unit_test(slots_of_spares_are_taken),
        cmocka_unit_test(a_pinned_sandbox_gives_nothing_back),
        TEST_IN_DIRECTORY(a_tree_goes_however_deep_and_closed_it_is),
        cmocka_unit_test(our_own_namespaces_are_the_hosts),
        cmocka_unit_test(the_version_of_landlock_is_small_or_none),
        cmocka_unit_test(a_profile_does_not_start_a_program_to_ask_who_it_is),
        TEST_IN_DIRECTORY(a_profile_that_cannot_be_rewritten_stays),
    };

    return cmocka_run_group_tests_name("launcher/parts", tests, NULL, NULL);
}
