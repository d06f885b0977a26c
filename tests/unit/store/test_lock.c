/* SPDX-License-Identifier: Apache-2.0 */
#include "store/lock.h"

#include "base/alloc.h"
#include "base/scoped.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

struct place {
    char path[64];
    int dir_fd;
};

static int setup(void **state)
{
    struct place *place = xnew(struct place);

    snprintf(place->path, sizeof(place->path), "/tmp/sandglass-lock-XXXXXX");
    assert_non_null(mkdtemp(place->path));
    place->dir_fd = open(place->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *state = place;
    return 0;
}

static int teardown(void **state)
{
    struct place *place = *state;

    (void)unlinkat(place->dir_fd, "lock", 0);
    close(place->dir_fd);
    assert_int_equal(rmdir(place->path), 0);
    free(place);
    return 0;
}

static void a_second_lock_is_refused_and_names_the_holder(void **state)
{
    struct place *place = *state;
    struct error err = { 0 };
    scoped(free) char *pid = xasprintf("pid %d", (int)getpid());
    int first = store_lock(place->dir_fd, &err);

    assert_true(first >= 0);
    assert_true(fcntl(first, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(store_lock(place->dir_fd, &err), -1);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_string_equal(err.name, "state_in_use");
    assert_non_null(strstr(err.message, place->path));
    assert_non_null(strstr(err.message, pid));
    assert_non_null(strstr(err.message, "since 20"));
    assert_int_not_equal(err.hint[0], '\0');
    store_unlock(first);
    first = store_lock(place->dir_fd, &err);
    assert_true(first >= 0);
    store_unlock(first);
}

static void the_lock_of_a_killed_process_is_free(void **state)
{
    struct place *place = *state;
    struct error err = { 0 };
    int ready[2];
    char byte;
    pid_t child;
    int fd;

    assert_int_equal(pipe(ready), 0);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        byte = store_lock(place->dir_fd, &err) >= 0;
        (void)!write(ready[1], &byte, 1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
    assert_int_equal(store_lock(place->dir_fd, &err), -1);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    fd = store_lock(place->dir_fd, &err);
    assert_true(fd >= 0);
    store_unlock(fd);
    close(ready[0]);
    close(ready[1]);
}

/* As one that was killed while it started a child, and whose parent does not reap. */
static void the_lock_of_a_killed_process_that_nobody_reaps_is_waited_for(void **state)
{
    struct place *place = *state;
    struct error err = { 0 };
    siginfo_t end;
    pid_t child = fork();
    int fd;

    if (child == 0) {
        if (store_lock(place->dir_fd, &err) < 0)
            _exit(1);
        if (fork() == 0) { /* it has the lock as well, for a moment */
            (void)usleep(300 * 1000);
            _exit(0);
        }
        (void)raise(SIGKILL);
    }
    assert_int_equal(waitid(P_PID, (id_t)child, &end, WEXITED | WNOWAIT), 0);
    assert_int_equal(end.si_code, CLD_KILLED);
    fd = store_lock(place->dir_fd, &err);
    assert_true(fd >= 0);
    store_unlock(fd);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void a_lock_file_without_text_still_locks(void **state)
{
    struct place *place = *state;
    struct error err = { 0 };
    int first = store_lock(place->dir_fd, &err);

    assert_int_equal(ftruncate(first, 0), 0);
    assert_int_equal(store_lock(place->dir_fd, &err), -1);
    assert_non_null(strstr(err.message, "another process"));
    store_unlock(first);
}

static void a_symbolic_link_is_not_followed(void **state)
{
    struct place *place = *state;
    struct error err = { 0 };

    assert_int_equal(symlinkat("/tmp/sandglass-lock-target", place->dir_fd, "lock"), 0);
    assert_int_equal(store_lock(place->dir_fd, &err), -1);
    assert_int_not_equal(access("/tmp/sandglass-lock-target", F_OK), 0);
    assert_non_null(strstr(err.message, place->path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_second_lock_is_refused_and_names_the_holder, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_lock_of_a_killed_process_is_free, setup, teardown),
        cmocka_unit_test_setup_teardown(
            the_lock_of_a_killed_process_that_nobody_reaps_is_waited_for, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lock_file_without_text_still_locks, setup, teardown),
        cmocka_unit_test_setup_teardown(a_symbolic_link_is_not_followed, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
