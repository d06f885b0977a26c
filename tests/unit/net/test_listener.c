/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a unix socket, and addresses. */

#include "net/listener.h"

#include "base/buffer.h"
#include "base/macros.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct place {
    struct loop *loop;
    char directory[64];
    char path[96];
    struct address address;
};

static void on_accept(void *context UNUSED, int fd, const struct address *peer UNUSED)
{
    close(fd);
}

static void on_exhausted(void *context UNUSED)
{
}

static const struct listener_events events = { on_accept, on_exhausted, NULL };

static int start(void **state)
{
    struct place *place = calloc(1, sizeof(*place));
    char text[128];

    place->loop = loop_new(&clock_system);
    snprintf(place->directory, sizeof(place->directory), "/tmp/sandglass-net-XXXXXX");
    assert_non_null(mkdtemp(place->directory));
    snprintf(place->path, sizeof(place->path), "%s/s", place->directory);
    snprintf(text, sizeof(text), "unix:%s", place->path);
    assert_int_equal(address_parse(&place->address, text, NULL), 0);
    *state = place;
    return 0;
}

static int stop(void **state)
{
    struct place *place = *state;

    loop_free(place->loop);
    assert_int_equal(rmdir(place->directory), 0);
    free(place);
    return 0;
}

static void the_socket_has_mode_0660_and_goes_with_the_listener(void **state)
{
    struct place *place = *state;
    mode_t before = umask(0077);
    struct listener *listener = listener_new(place->loop, &place->address, &events, NULL);
    struct stat status;

    umask(before);
    assert_non_null(listener);
    assert_int_equal(lstat(place->path, &status), 0);
    assert_true(S_ISSOCK(status.st_mode));
    assert_int_equal(status.st_mode & 0777, 0660);
    listener_free(listener);
    assert_int_equal(access(place->path, F_OK), -1);
}

static void a_missing_directory_is_made(void **state)
{
    struct place *place = *state;
    struct listener *listener;
    char text[160];

    snprintf(text, sizeof(text), "unix:%s/a/b/s", place->directory);
    assert_int_equal(address_parse(&place->address, text, NULL), 0);
    listener = listener_new(place->loop, &place->address, &events, NULL);
    assert_non_null(listener);
    listener_free(listener);
    snprintf(text, sizeof(text), "%s/a/b", place->directory);
    assert_int_equal(rmdir(text), 0);
    snprintf(text, sizeof(text), "%s/a", place->directory);
    assert_int_equal(rmdir(text), 0);
}

static void a_stale_socket_is_replaced(void **state)
{
    struct place *place = *state;
    int stale = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct listener *listener;

    assert_int_equal(bind(stale, (struct sockaddr *)&place->address.storage, place->address.length),
                     0);
    close(stale);
    listener = listener_new(place->loop, &place->address, &events, NULL);
    assert_non_null(listener);
    listener_free(listener);
}

static void a_socket_in_use_is_left_alone(void **state)
{
    struct place *place = *state;
    struct listener *first = listener_new(place->loop, &place->address, &events, NULL);
    struct error err = { 0 };

    assert_null(listener_new(place->loop, &place->address, &events, &err));
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(access(place->path, F_OK), 0);
    listener_free(first);
}

static void a_socket_that_does_not_listen_yet_is_left_alone(void **state)
{
    struct place *place = *state;
    struct listener *first = listener_bind(place->loop, &place->address, &events, NULL);
    struct error err = { 0 };

    assert_non_null(first);
    assert_null(listener_bind(place->loop, &place->address, &events, &err));
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(listener_start(first, &err), 0);
    listener_free(first);
}

static void a_socket_that_was_replaced_before_it_listens_is_not_served(void **state)
{
    struct place *place = *state;
    struct listener *first = listener_bind(place->loop, &place->address, &events, NULL);
    struct listener *second;
    struct error err = { 0 };

    assert_int_equal(unlink(place->path), 0);
    second = listener_new(place->loop, &place->address, &events, NULL);
    assert_non_null(second);
    assert_int_equal(listener_start(first, &err), -1);
    assert_int_equal(err.code, ERR_CONFLICT);
    listener_free(first);
    assert_int_equal(access(place->path, F_OK), 0);
    listener_free(second);
}

/* As many at once as there are processors to do it, and one stale socket to be replaced. */
static void of_many_that_start_together_one_gets_the_socket(void **state)
{
    enum { STARTERS = 8 };
    struct place *place = *state;
    pid_t starters[STARTERS];
    int stale = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int begin[2], told[2];
    unsigned served = 0;
    char byte;

    assert_int_equal(bind(stale, (struct sockaddr *)&place->address.storage, place->address.length),
                     0);
    close(stale);
    assert_int_equal(pipe2(begin, O_CLOEXEC), 0);
    assert_int_equal(pipe2(told, O_CLOEXEC), 0);
    for (int i = 0; i < STARTERS; i++) {
        starters[i] = fork();
        if (starters[i] == 0) {
            struct error err = { 0 };

            (void)!read(begin[0], &byte, 1);
            byte = listener_new(place->loop, &place->address, &events, &err) ? 'y' : 'n';
            (void)!write(told[1], &byte, 1);
            pause();
        }
    }
    assert_int_equal(write(begin[1], "xxxxxxxx", STARTERS), STARTERS);
    for (int i = 0; i < STARTERS; i++) {
        assert_int_equal(read(told[0], &byte, 1), 1);
        served += byte == 'y';
    }
    for (int i = 0; i < STARTERS; i++) {
        kill(starters[i], SIGKILL);
        waitpid(starters[i], NULL, 0);
    }
    assert_int_equal(served, 1);
    assert_int_equal(unlink(place->path), 0);
    for (int i = 0; i < 2; i++) {
        close(begin[i]);
        close(told[i]);
    }
}

static void a_file_or_a_link_at_the_path_is_refused_and_kept(void **state)
{
    struct place *place = *state;
    struct error err = { 0 };
    int fd = open(place->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    close(fd);
    assert_null(listener_new(place->loop, &place->address, &events, &err));
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(unlink(place->path), 0);

    assert_int_equal(symlink("/dev/null", place->path), 0);
    assert_null(listener_new(place->loop, &place->address, &events, &err));
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(unlink(place->path), 0);
}

static void a_socket_that_is_no_longer_ours_is_not_removed(void **state)
{
    struct place *place = *state;
    struct listener *first = listener_new(place->loop, &place->address, &events, NULL);
    struct listener *second;

    assert_int_equal(unlink(place->path), 0);
    second = listener_new(place->loop, &place->address, &events, NULL);
    listener_free(first);
    assert_int_equal(access(place->path, F_OK), 0);
    listener_free(second);
}

static void both_families_listen_and_tell_their_port(void **state)
{
    struct place *place = *state;
    static const char *const texts[] = { "127.0.0.1:0", "[::1]:0" };

    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
        struct listener *listener;
        struct error err = { 0 };

        assert_int_equal(address_parse(&place->address, texts[i], &err), 0);
        listener = listener_new(place->loop, &place->address, &events, &err);
        if (!listener && i == 1)
            continue; /* a host without IPv6 */
        assert_non_null(listener);
        assert_true(listener_port(listener) > 0);
        assert_null(listener_new(place->loop, &(struct address){ 0 }, &events, &err));
        listener_free(listener);
    }
}

static void addresses_are_read_and_shown(void **state UNUSED)
{
    static const char *const shown[][2] = {
        { "127.0.0.1:7420", "127.0.0.1:7420" },
        { "[::1]:7420", "[::1]:7420" },
        { "http://127.0.0.1", "127.0.0.1:80" },
        { "http://127.0.0.1:81/", "127.0.0.1:81" },
        { "unix:/a", "unix" },
        { "unix:///a", "unix" },
    };
    struct address address;
    char text[ADDRESS_TEXT_SIZE];

    for (size_t i = 0; i < ARRAY_LENGTH(shown); i++) {
        assert_int_equal(address_parse(&address, shown[i][0], NULL), 0);
        address_format(&address, text);
        assert_string_equal(text, shown[i][1]);
    }
    assert_string_equal(address_path(&address), "/a");
}

#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_PLACE(the_socket_has_mode_0660_and_goes_with_the_listener),
        IN_PLACE(a_missing_directory_is_made),
        IN_PLACE(a_stale_socket_is_replaced),
        IN_PLACE(a_socket_in_use_is_left_alone),
        IN_PLACE(a_socket_that_does_not_listen_yet_is_left_alone),
        IN_PLACE(a_socket_that_was_replaced_before_it_listens_is_not_served),
        IN_PLACE(of_many_that_start_together_one_gets_the_socket),
        IN_PLACE(a_file_or_a_link_at_the_path_is_refused_and_kept),
        IN_PLACE(a_socket_that_is_no_longer_ours_is_not_removed),
        IN_PLACE(both_families_listen_and_tell_their_port),
        cmocka_unit_test(addresses_are_read_and_shown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
