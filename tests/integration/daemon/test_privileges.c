/* SPDX-License-Identifier: Apache-2.0 */
/* What is left of the groups of the daemon's user, in a child with users and groups of the test's. */

#include "daemon/privileges.h"

#include "base/macros.h"
#include "base/scoped.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { USER_ID = 61001, ENGINE = 61002, OTHER = 61003, FOREIGN = 61004, NAME_SIZE = 128 };

static char root[] = "/tmp/privileges.XXXXXX";
static char socket_path[NAME_SIZE];

#define check(condition, ...)                                   \
    do {                                                        \
        if (!(condition)) {                                     \
            fprintf(stderr, "# %s:%d: ", __FILE__, __LINE__);   \
            fprintf(stderr, __VA_ARGS__);                       \
            fprintf(stderr, " (errno: %s)\n", strerror(errno)); \
            _exit(1);                                           \
        }                                                       \
    } while (0)

static void replace_file(const char *path, const char *name, const char *text)
{
    char own[NAME_SIZE];
    FILE *file;

    snprintf(own, sizeof(own), "%s/%s", root, name);
    file = fopen(own, "we");
    check(file && fputs(text, file) >= 0 && fclose(file) == 0, "write %s", own);
    check(mount(own, path, NULL, MS_BIND, NULL) == 0, "mount over %s", path);
}

/* The names are the test's own wherever /etc says who they are. */
static void replace_users(void)
{
    check(unshare(CLONE_NEWNS) == 0, "a mount namespace");
    check(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "private mounts");
    replace_file("/etc/passwd", "passwd",
                 "root:x:0:0::/root:/bin/sh\nglass:x:61001:61001::/:/bin/sh\n");
    replace_file("/etc/group", "group",
                 "root:x:0:glass\nglass:x:61001:\ndocker:x:61002:glass\nother:x:61003:glass\n"
                 "foreign:x:61004:\n");
}

static int listen_as(gid_t group, mode_t mode)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    strcpy(address.sun_path, socket_path);
    (void)unlink(socket_path);
    check(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(fd, 4) == 0,
          "listen at %s", socket_path);
    check(chown(socket_path, 0, group) == 0 && chmod(socket_path, mode) == 0, "give it away");
    return fd;
}

static bool can_connect(void)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    scoped(fd_close) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    strcpy(address.sun_path, socket_path);
    return connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
}

/* Becomes the user, who may connect and has this group besides their own; 0: has none. */
static void assume(gid_t expected, bool connects)
{
    struct identity identity;
    struct error err = { 0 };
    gid_t groups[16];
    int count;

    check(identity_find("glass", &identity, &err) == 0, "%s", err.message);
    check(identity.kind == IDENTITY_NAMED && identity.uid == USER_ID, "another user");
    identity_keep_group(&identity, socket_path);
    check(identity_assume(&identity, &err) == 0, "%s", err.message);
    count = getgroups(ARRAY_LENGTH(groups), groups);
    check(count == (expected ? 1 : 0), "%d groups", count);
    check(!expected || groups[0] == expected, "group %u", groups[0]);
    check(can_connect() == connects, "connecting %s", connects ? "fails" : "works");
}

static void run(gid_t group, mode_t mode, gid_t expected, bool connects)
{
    pid_t pid = fork();
    int status = 0;

    assert_true(pid >= 0);
    if (pid == 0) {
        replace_users();
        listen_as(group, mode);
        assume(expected, connects);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void the_group_of_the_engine_is_kept_and_no_other(void **state UNUSED)
{
    run(ENGINE, 0660, ENGINE, true);
    run(OTHER, 0660, OTHER, true);
}

static void a_group_of_others_is_not_taken(void **state UNUSED)
{
    run(FOREIGN, 0660, 0, false);
}

static void root_s_group_is_not_kept(void **state UNUSED)
{
    run(0, 0660, 0, false);
}

static void a_group_without_use_is_not_kept(void **state UNUSED)
{
    run(ENGINE, 0666, 0, true);
    run(ENGINE, 0600, 0, false);
    run(USER_ID, 0660, 0, true); /* the user's own */
}

static void try_a_later_engine(void)
{
    struct identity identity;
    struct error err = { 0 };

    replace_users();
    (void)unlink(socket_path);
    check(identity_find("glass", &identity, &err) == 0, "%s", err.message);
    identity_keep_group(&identity, socket_path);
    check(identity.keeps_group && identity.group == ENGINE, "the group of an engine to come");
}

static void an_engine_may_come_later(void **state UNUSED)
{
    pid_t pid = fork();
    int status = 0;

    if (pid == 0) {
        try_a_later_engine();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static int set_up(void **state UNUSED)
{
    if (!mkdtemp(root) || chmod(root, 0755) < 0)
        return -1;
    snprintf(socket_path, sizeof(socket_path), "%s/engine.sock", root);
    return 0;
}

static int tear_down(void **state UNUSED)
{
    static const char *const names[] = { "engine.sock", "passwd", "group" };

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        char path[NAME_SIZE * 2];

        snprintf(path, sizeof(path), "%s/%s", root, names[i]);
        (void)unlink(path);
    }
    return rmdir(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_group_of_the_engine_is_kept_and_no_other),
        cmocka_unit_test(a_group_of_others_is_not_taken),
        cmocka_unit_test(root_s_group_is_not_kept),
        cmocka_unit_test(a_group_without_use_is_not_kept),
        cmocka_unit_test(an_engine_may_come_later),
    };

    if (geteuid() != 0) {
        printf("1..0 # SKIP only root has privileges to give up\n");
        return 0;
    }
    return cmocka_run_group_tests_name("daemon/privileges", tests, set_up, tear_down);
}
