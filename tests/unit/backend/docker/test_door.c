/* SPDX-License-Identifier: Apache-2.0 */
/* The socket that an init on this kernel connects to. */

#include "backend/docker/door.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct loop *loop;
static char root[64];
static char state_path[400];
static int state_dir;
static char id[ID_SIZE];

static int open_state(void **state)
{
    (void)state;
    loop = loop_new(&clock_system);
    snprintf(root, sizeof(root), "/tmp/sandglass-door-XXXXXX");
    assert_non_null(mkdtemp(root));
    /* Longer than the address of a socket may be. */
    snprintf(state_path, sizeof(state_path), "%s/%0200d", root, 0);
    assert_int_equal(mkdir(state_path, 0700), 0);
    state_dir = open(state_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    id_make(id, ID_SANDBOX);
    return 0;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)status;
    (void)type;
    (void)where;
    return remove(path);
}

static int close_state(void **state)
{
    (void)state;
    loop_free(loop);
    close(state_dir);
    return nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static struct door *open_door(void)
{
    struct error err = { 0 };
    struct door *door = door_open(loop, state_dir, id, &err);

    if (!door)
        fail_msg("%s", err.message);
    return door;
}

/* As init does, in its own view of the directory. */
static int dial(void)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int directory;
    char path[128];

    snprintf(path, sizeof(path), "docker/doors/%s", id);
    directory = openat(state_dir, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(directory >= 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s.sock", directory, id);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        close(fd);
        fd = -1;
    }
    close(directory);
    return fd;
}

static void run(void)
{
    for (unsigned i = 0; i < 5; i++)
        loop_turn(loop, 1);
}

static bool is_ended(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

static bool belong_together(int one, int other)
{
    char text[8] = "";

    return send(one, "hello", 5, MSG_NOSIGNAL) == 5 &&
           recv(other, text, sizeof(text), MSG_DONTWAIT) == 5 && str_equal(text, "hello");
}

/* --- connections --------------------------------------------------------------------------------- */

static void a_connection_that_came_before_the_pid_was_known_is_taken(void **state)
{
    scoped(door_free) struct door *door = open_door();
    scoped(fd_close) int init = dial();
    scoped(fd_close) int taken = -1;

    (void)state;
    run();
    assert_int_equal(door_take(door), -1);
    door_set_pid(door, getpid());
    run();
    taken = door_take(door);
    assert_true(taken >= 0);
    assert_true(belong_together(taken, init));
    assert_int_equal(door_take(door), -1);
}

static void a_connection_of_another_process_is_refused(void **state)
{
    scoped(door_free) struct door *door = open_door();
    scoped(fd_close) int stranger = dial();

    (void)state;
    door_set_pid(door, getppid());
    run();
    assert_int_equal(door_take(door), -1);
    assert_true(is_ended(stranger));
}

static void strangers_do_not_take_the_place_of_init(void **state)
{
    scoped(door_free) struct door *door = open_door();
    scoped(fd_close) int init = dial();
    scoped(fd_close) int taken = -1;
    pid_t child;
    int status;

    (void)state;
    door_set_pid(door, getpid());
    run();
    child = fork();
    if (child == 0) {
        for (unsigned i = 0; i < 100; i++) {
            int fd = dial(); /* EAGAIN when the backlog is full: it does not wait */

            if (fd >= 0)
                close(fd);
        }
        _exit(0);
    }
    while (waitpid(child, &status, WNOHANG) == 0)
        run();
    run();
    taken = door_take(door);
    assert_true(belong_together(taken, init));
}

/* The time stands still until the test moves it. */
static void use_simulated_clock(struct simulated_clock *clock)
{
    simulated_clock_init(clock, 1000 * 1000, 0);
    loop_free(loop);
    loop = loop_new(&clock->clock);
}

static void strangers_do_not_keep_the_daemon_busy(void **state)
{
    struct simulated_clock clock;
    struct door *door;
    int first;
    int second;

    (void)state;
    use_simulated_clock(&clock);
    door = open_door();
    first = dial();
    door_set_pid(door, getppid());
    run();
    assert_true(is_ended(first));
    second = dial();
    run();
    assert_false(is_ended(second));
    loop_advance(loop, &clock, 20 * 1000);
    run();
    assert_true(is_ended(second));
    fd_close(first);
    fd_close(second);
    door_free(door);
}

/* The loop would turn and turn. */
static void without_descriptors_the_door_waits(void **state)
{
    struct simulated_clock clock;
    struct rlimit before;
    struct rlimit none;
    struct door *door;
    int init;
    int taken;

    (void)state;
    use_simulated_clock(&clock);
    door = open_door();
    init = dial();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){ .rlim_cur = 3, .rlim_max = before.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    door_set_pid(door, getpid());
    run();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    run();
    assert_int_equal(door_take(door), -1); /* it does not look before the pause is over */
    loop_advance(loop, &clock, 20 * 1000);
    run();
    taken = door_take(door);
    assert_true(belong_together(taken, init));
    fd_close(taken);
    fd_close(init);
    door_free(door);
}

static void the_last_connection_of_init_counts(void **state)
{
    scoped(door_free) struct door *door = open_door();
    scoped(fd_close) int taken = -1;
    int inits[12];

    (void)state;
    for (unsigned i = 0; i < ARRAY_LENGTH(inits); i++)
        inits[i] = dial();
    door_set_pid(door, getpid());
    run();
    taken = door_take(door);
    for (unsigned i = 0; i + 1 < ARRAY_LENGTH(inits); i++)
        assert_true(is_ended(inits[i]));
    assert_true(belong_together(taken, inits[ARRAY_LENGTH(inits) - 1]));
    for (unsigned i = 0; i < ARRAY_LENGTH(inits); i++)
        fd_close(inits[i]);
}

static unsigned arrivals;

static void on_arrival(struct door *door, void *user)
{
    (void)door;
    assert_ptr_equal(user, &arrivals);
    arrivals++;
}

static void an_arrival_is_told_while_it_is_waited_for(void **state)
{
    scoped(door_free) struct door *door = open_door();
    scoped(fd_close) int first = -1;
    scoped(fd_close) int second = -1;

    (void)state;
    arrivals = 0;
    door_set_pid(door, getpid());
    door_wait(door, on_arrival, &arrivals);
    run();
    assert_int_equal(arrivals, 0);
    first = dial();
    run();
    assert_int_equal(arrivals, 1);
    door_wait(door, NULL, NULL);
    second = dial();
    run();
    assert_int_equal(arrivals, 1);
}

/* Init connects again only when it has lost what it has. */
static void the_taken_connection_is_ended_when_another_is_waited_for(void **state)
{
    scoped(door_free) struct door *door = open_door();
    scoped(fd_close) int init = dial();
    scoped(fd_close) int taken = -1;

    (void)state;
    door_set_pid(door, getpid());
    run();
    taken = door_take(door);
    assert_false(is_ended(init));
    door_wait(door, on_arrival, &arrivals);
    assert_true(is_ended(init));
}

/* --- files --------------------------------------------------------------------------------------- */

static void the_next_daemon_replaces_the_socket(void **state)
{
    struct door *old = open_door();
    scoped(fd_close) int lost = dial();
    scoped(door_free) struct door *door = NULL;
    scoped(fd_close) int init = -1;
    scoped(fd_close) int taken = -1;

    (void)state;
    door_free(old);
    assert_true(is_ended(lost) || errno == ECONNRESET);
    init = dial();
    assert_int_equal(init, -1); /* nobody listens */
    door = open_door();
    init = dial();
    door_set_pid(door, getpid());
    run();
    taken = door_take(door);
    assert_true(belong_together(taken, init));
}

static unsigned mode_of(const char *format)
{
    struct stat status;
    char path[256];

    snprintf(path, sizeof(path), format, id, id);
    assert_int_equal(fstatat(state_dir, path, &status, AT_SYMLINK_NOFOLLOW), 0);
    return status.st_mode & 07777;
}

static void any_user_of_the_container_finds_it_and_nobody_lists_the_others(void **state)
{
    mode_t before = umask(077);
    scoped(door_free) struct door *door = open_door();

    (void)state;
    umask(before);
    assert_int_equal(mode_of("docker/doors/%s/%s.sock"), 0666);
    assert_int_equal(mode_of("docker/doors/%s"), 0755);
    assert_int_equal(mode_of("docker/doors") & 0066, 0);
}

static unsigned listed;

static void count(void *user, const char *name)
{
    assert_ptr_equal(user, &listed);
    if (str_equal(name, id))
        listed++;
    else
        listed += 100;
}

static unsigned list(void)
{
    listed = 0;
    door_list(state_dir, count, &listed);
    return listed;
}

static void doors_are_listed_until_they_are_removed(void **state)
{
    struct error err = { 0 };

    (void)state;
    assert_int_equal(list(), 0);
    door_free(open_door());
    assert_int_equal(mkdirat(state_dir, "docker/doors/lost+found", 0700), 0);
    assert_int_equal(list(), 1);
    assert_int_equal(door_remove(state_dir, id, &err), 0);
    assert_int_equal(list(), 0);
    assert_int_equal(door_remove(state_dir, id, &err), 0);
}

static void a_door_that_cannot_be_made_is_told(void **state)
{
    struct error err = { 0 };
    int fd = openat(state_dir, "docker", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

    (void)state;
    fd_close(fd);
    assert_null(door_open(loop, state_dir, id, &err));
    assert_int_not_equal(err.code, ERR_NONE);
    assert_true(*err.message);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, open_state, close_state)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_connection_that_came_before_the_pid_was_known_is_taken),
        TEST(a_connection_of_another_process_is_refused),
        TEST(strangers_do_not_take_the_place_of_init),
        TEST(strangers_do_not_keep_the_daemon_busy),
        TEST(without_descriptors_the_door_waits),
        TEST(the_last_connection_of_init_counts),
        TEST(an_arrival_is_told_while_it_is_waited_for),
        TEST(the_taken_connection_is_ended_when_another_is_waited_for),
        TEST(the_next_daemon_replaces_the_socket),
        TEST(any_user_of_the_container_finds_it_and_nobody_lists_the_others),
        TEST(doors_are_listed_until_they_are_removed),
        TEST(a_door_that_cannot_be_made_is_told),
    };

    return cmocka_run_group_tests_name("docker/door", tests, NULL, NULL);
}
