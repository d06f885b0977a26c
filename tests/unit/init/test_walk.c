/* SPDX-License-Identifier: Apache-2.0 */
#include "init/files/file_walk.h"
#include "scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_SEEN = 64 };

static struct walk walk;

struct seen {
    unsigned count;
    char paths[MAX_SEEN][256];
};

static void touch(const char *path)
{
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

static int open_here(void)
{
    return open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Goes into every directory; the state of an entry is how deep its directory is. */
static void see_all(struct seen *seen)
{
    struct walk_entry entry;

    while (walk_next(&walk, &entry)) {
        assert_true(seen->count < MAX_SEEN);
        snprintf(seen->paths[seen->count++], sizeof(seen->paths[0]), "%s", entry.path);
        if (S_ISDIR(entry.status.st_mode))
            (void)walk_enter(&walk, &entry, entry.state + 1);
    }
}

static int find(const struct seen *seen, const char *path)
{
    for (unsigned i = 0; i < seen->count; i++)
        if (!strcmp(seen->paths[i], path))
            return (int)i;
    return -1;
}

static void make_tree(void)
{
    mkdir("a", 0755);
    mkdir("a/b", 0755);
    mkdir("a/b/c", 0755);
    touch("top");
    touch("a/one");
    touch("a/b/two");
    touch("a/b/c/three");
    assert_int_equal(symlink("..", "a/b/up"), 0);
    assert_int_equal(mkfifo("a/pipe", 0600), 0);
}

static void every_entry_comes_once_and_behind_its_directory(void **state UNUSED)
{
    static const char *const paths[] = { "a",       "a/b",         "a/b/c",  "top",   "a/one",
                                         "a/b/two", "a/b/c/three", "a/b/up", "a/pipe" };
    struct seen seen = { 0 };

    make_tree();
    walk_begin(&walk, open_here(), 100);
    see_all(&seen);
    assert_int_equal(seen.count, 9); /* the link and the pipe are entries, not entered */
    for (unsigned i = 0; i < 9; i++)
        assert_true(find(&seen, paths[i]) >= 0);
    assert_true(find(&seen, "a") < find(&seen, "a/b"));
    assert_true(find(&seen, "a/b/c") < find(&seen, "a/b/c/three"));
    assert_false(walk.was_cut);
}

static void a_walk_closes_what_it_has_opened(void **state UNUSED)
{
    struct seen seen = { 0 };
    struct walk_entry entry;
    int before = dup(0);
    int after;

    close(before);
    make_tree();
    walk_begin(&walk, open_here(), 100);
    see_all(&seen);
    walk_begin(&walk, open_here(), 100);
    while (walk_next(&walk, &entry) && strcmp(entry.path, "a/b") != 0)
        if (S_ISDIR(entry.status.st_mode))
            (void)walk_enter(&walk, &entry, 0);
    walk_end(&walk); /* in the middle */
    assert_false(walk_next(&walk, &entry));
    after = dup(0);
    close(after);
    assert_int_equal(after, before);
}

static void a_tree_that_is_too_deep_is_cut(void **state UNUSED)
{
    struct seen seen = { 0 };

    make_tree();
    walk_begin(&walk, open_here(), 2);
    see_all(&seen);
    assert_true(find(&seen, "a/b") >= 0);
    assert_int_equal(find(&seen, "a/b/two"), -1);
    assert_true(walk.was_cut);
}

static void a_walk_ends_at_its_deadline(void **state UNUSED)
{
    struct walk_entry entry;

    make_tree();
    walk_begin(&walk, open_here(), 100);
    walk.deadline_us = 1; /* long ago */
    assert_false(walk_next(&walk, &entry));
    assert_true(walk.was_cut);
}

static void more_entries_than_the_buffer_holds_all_come(void **state UNUSED)
{
    struct walk_entry entry;
    unsigned count = 0;
    char name[64];

    for (unsigned i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "a-name-of-some-length-%04u", i);
        touch(name);
    }
    mkdir("directory", 0755);
    touch("directory/inside");
    walk_begin(&walk, open_here(), 100);
    while (walk_next(&walk, &entry)) {
        count++;
        if (S_ISDIR(entry.status.st_mode))
            assert_int_equal(walk_enter(&walk, &entry, 0), 0);
    }
    assert_int_equal(count, 1002); /* going into a directory loses none of its siblings */
}

static void a_directory_that_was_swapped_for_a_link_is_not_entered(void **state UNUSED)
{
    struct walk_entry entry;

    mkdir("target", 0755);
    walk_begin(&walk, open_here(), 100);
    assert_true(walk_next(&walk, &entry));
    assert_int_equal(rmdir("target"), 0);
    assert_int_equal(symlink("/etc", "target"), 0);
    assert_true(walk_enter(&walk, &entry, 0) < 0);
    walk_end(&walk);
}

static void a_walk_that_stays_does_not_go_into_proc(void **state UNUSED)
{
    struct walk_entry entry;
    int entered = 0;

    walk_begin(&walk, open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 100);
    walk.stays = true;
    while (walk_next(&walk, &entry))
        if (!strcmp(entry.path, "proc"))
            entered = walk_enter(&walk, &entry, 0);
    assert_int_equal(entered, -EXDEV);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_entry_comes_once_and_behind_its_directory,
                                        scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(a_walk_closes_what_it_has_opened, scratch_make,
                                        scratch_remove),
        cmocka_unit_test_setup_teardown(a_tree_that_is_too_deep_is_cut, scratch_make,
                                        scratch_remove),
        cmocka_unit_test_setup_teardown(a_walk_ends_at_its_deadline, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(more_entries_than_the_buffer_holds_all_come, scratch_make,
                                        scratch_remove),
        cmocka_unit_test_setup_teardown(a_directory_that_was_swapped_for_a_link_is_not_entered,
                                        scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(a_walk_that_stays_does_not_go_into_proc, scratch_make,
                                        scratch_remove),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
