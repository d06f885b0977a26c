/* SPDX-License-Identifier: Apache-2.0 */
/* Ports over real sockets: the test plays the client and the server inside of the sandbox. */

#include "client.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/port_token.h"
#include "core/vault.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { PORT = 3000, TURNS = 200 };

static struct front front;
static char session[ID_SIZE];

static int setup(void **state)
{
    (void)state;
    front_start(&front);
    fake_programs_serve(PORT);
    {
        scoped(answer_fini) struct answer made = call(&front, "POST", "/api/v1/sessions", "", "{}");

        assert_int_equal(made.status, 201);
        snprintf(session, sizeof(session), "%s",
                 json_string_value(json_object_get(made.json, "id")));
    }
    session_preload(world_find(&front.world, session));
    world_settle(&front.world);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    front_stop(&front);
    return 0;
}

/* --- both sides ------------------------------------------------------------------------------- */

static void ask(struct caller *caller, const char *method, const char *rest, const char *more)
{
    scoped(free) char *text =
        xasprintf("%s /api/v1/sessions/%s/ports/%d%s HTTP/1.1\r\nHost: localhost\r\n%s", method,
                  session, PORT, rest, more);

    caller_send(&front, caller, false, text, strlen(text));
}

static int accept_inside(void)
{
    int fd = -1;

    for (int turn = 0; turn < TURNS && fd < 0; turn++) {
        loop_turn(front.world.loop, 1);
        fd = fake_programs_accept();
    }
    assert_true(fd >= 0);
    return fd;
}

/* Everything that comes until `end` is in it; the caller frees it. */
static char *read_until(int fd, const char *end)
{
    struct buffer text = BUFFER_INIT(1 << 20);

    for (int turn = 0; turn < TURNS; turn++) {
        char bytes[4096];
        ssize_t count = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);

        if (count > 0)
            (void)buffer_append(&text, bytes, (size_t)count);
        if (strstr(buffer_text(&text), end))
            return buffer_steal_text(&text);
        loop_turn(front.world.loop, 1);
    }
    fail_msg("this has come: %s", buffer_text(&text));
    return NULL;
}

static void write_text(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static struct answer wait_answer(struct caller *caller)
{
    struct answer answer = { 0 };

    for (int turn = 0; turn < TURNS; turn++)
        if (caller_poll(&front, caller, &answer))
            return answer;
    fail_msg("no answer");
    return answer;
}

/* Whether the other end is closed, after everything that may happen. */
static bool is_closed(int fd)
{
    char byte;

    for (int turn = 0; turn < TURNS; turn++) {
        ssize_t count = recv(fd, &byte, 1, MSG_DONTWAIT);

        if (count == 0 || (count < 0 && errno != EAGAIN))
            return true;
        loop_turn(front.world.loop, 1);
    }
    return false;
}

/* --- HTTP ------------------------------------------------------------------------------------ */

static void a_request_goes_in_and_its_answer_comes_out(void **state)
{
    struct caller caller;
    scoped(free) char *seen = NULL;
    int inside;

    (void)state;
    ask(&caller, "GET", "/a%2Fb/../c?x=%20&y", "Accept: a/b\r\nAuthorization: Bearer x\r\n\r\n");
    inside = accept_inside();
    seen = read_until(inside, "\r\n\r\n");
    assert_true(str_starts_with(seen, "GET /a%2Fb/../c?x=%20&y HTTP/1.1\r\nHost: localhost:3000"));
    assert_non_null(strstr(seen, "accept: a/b\r\n"));
    assert_non_null(strstr(seen, "Connection: close\r\n"));
    assert_null(strcasestr(seen, "authorization"));
    write_text(inside, "HTTP/1.1 203 Fine\r\nX-Mine: 1\r\nContent-Length: 5\r\n\r\nhello");
    {
        scoped(answer_fini) struct answer answer = wait_answer(&caller);

        assert_int_equal(answer.status, 203);
        assert_string_equal(answer.body, "hello");
        assert_non_null(strstr(answer.head, "x-mine: 1\r\n"));
        assert_null(strcasestr(answer.head, "no-store"));
        assert_non_null(strstr(answer.head, "Content-Security-Policy: sandbox "));
    }
    assert_true(is_closed(inside));
    fd_close(inside);
    caller_close(&front, &caller);
}

/* Two requests in one: the second is never part of what the server gets. */
static void a_second_request_does_not_hide_in_the_first(void **state)
{
    struct caller caller;
    scoped(free) char *seen = NULL;
    int inside;

    (void)state;
    ask(&caller, "POST", "/",
        "Content-Length: 4\r\n\r\nbodyGET /api/v1/hidden HTTP/1.1\r\nHost: localhost\r\n\r\n");
    inside = accept_inside();
    seen = read_until(inside, "body");
    loop_turn(front.world.loop, 1);
    assert_null(strstr(seen, "hidden"));
    assert_non_null(strstr(seen, "Content-Length: 4\r\n"));
    write_text(inside, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    {
        scoped(answer_fini) struct answer answer = wait_answer(&caller);

        assert_int_equal(answer.status, 200);
    }
    fd_close(inside);
    caller_close(&front, &caller);
}

static void answers_that_cannot_be_understood_are_refused(void **state)
{
    static const char *const texts[] = {
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 101 Switching\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: https://evil.example/\r\nContent-Length: 0\r\n\r\n",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
        struct caller caller;
        int inside;

        ask(&caller, "GET", "/", "\r\n");
        inside = accept_inside();
        free(read_until(inside, "\r\n\r\n"));
        write_text(inside, texts[i]);
        {
            scoped(answer_fini) struct answer answer = wait_answer(&caller);

            assert_int_equal(answer.status, 502);
            assert_null(strcasestr(answer.head, "evil"));
        }
        fd_close(inside);
        caller_close(&front, &caller);
    }
}

static void a_client_that_leaves_takes_its_connection_along(void **state)
{
    struct caller caller;
    int inside;

    (void)state;
    ask(&caller, "GET", "/", "\r\n");
    inside = accept_inside();
    free(read_until(inside, "\r\n\r\n"));
    caller_close(&front, &caller);
    assert_true(is_closed(inside));
    fd_close(inside);
}

static void the_end_of_the_sandbox_cuts_an_answer(void **state)
{
    struct caller caller;
    struct answer answer;
    int inside;

    (void)state;
    ask(&caller, "GET", "/", "\r\n");
    inside = accept_inside();
    free(read_until(inside, "\r\n\r\n"));
    write_text(inside, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nbeginning");
    assert_false(caller_poll(&front, &caller, &answer));
    session_teardown(world_find(&front.world, session), END_TEARDOWN);
    for (int turn = 0; turn < TURNS && !caller.closed; turn++)
        assert_false(caller_poll(&front, &caller, &answer));
    assert_true(caller.closed);
    fd_close(inside);
    caller_close(&front, &caller);
}

/* --- streams --------------------------------------------------------------------------------- */

static void a_websocket_becomes_a_stream(void **state)
{
    struct caller caller;
    scoped(free) char *seen = NULL;
    scoped(free) char *echoed = NULL;
    scoped(free) char *heard = NULL;
    int inside;

    (void)state;
    ask(&caller, "GET", "/ws",
        "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Key: k\r\n\r\n");
    inside = accept_inside();
    seen = read_until(inside, "\r\n\r\n");
    assert_non_null(strstr(seen, "Upgrade: websocket\r\n"));
    assert_non_null(strstr(seen, "sec-websocket-key: k\r\n"));
    write_text(inside, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: "
                       "Upgrade\r\nSec-WebSocket-Accept: a\r\n\r\nat once");
    heard = read_until(caller.fd, "at once");
    assert_true(str_starts_with(heard, "HTTP/1.1 101 "));
    assert_non_null(strstr(heard, "sec-websocket-accept: a\r\n"));
    write_text(caller.fd, "to the server");
    echoed = read_until(inside, "to the server");
    fd_close(inside);
    assert_true(is_closed(caller.fd));
    caller_close(&front, &caller);
}

static void a_tunnel_ends_each_direction_by_itself(void **state)
{
    struct caller caller;
    scoped(free) char *head = NULL;
    scoped(free) char *inward = NULL;
    scoped(free) char *outward = NULL;
    int inside;

    (void)state;
    ask(&caller, "GET", "", "Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n");
    inside = accept_inside();
    head = read_until(caller.fd, "\r\n\r\n");
    assert_true(str_starts_with(head, "HTTP/1.1 101 "));
    write_text(caller.fd, "the last word");
    shutdown(caller.fd, SHUT_WR);
    inward = read_until(inside, "the last word");
    assert_true(is_closed(inside));
    write_text(inside, "and an answer");
    outward = read_until(caller.fd, "and an answer");
    fd_close(inside);
    assert_true(is_closed(caller.fd));
    caller_close(&front, &caller);
}

/* --- signed URLs ----------------------------------------------------------------------------- */

static int status_of(const char *path)
{
    scoped(answer_fini) struct answer answer = call(&front, "GET", path, "", NULL);

    return answer.status;
}

static void signed_urls_are_checked_before_anything_else(void **state)
{
    struct port_token token = { .port = PORT + 1, .expires_wall_s = 1 };
    char text[PORT_TOKEN_SIZE];
    scoped(free) char *path = NULL;
    scoped(free) char *late = NULL;

    (void)state;
    assert_int_equal(vault_open(front.world.core->vault, NULL), 0);
    snprintf(token.session_id, sizeof(token.session_id), "%s", session);
    port_token_write(&token, front.world.core->vault, text);
    late = xasprintf("/api/v1/ports/%s/", text);
    assert_int_equal(status_of(late), 403);
    token.expires_wall_s = INT64_MAX / 2000000;
    port_token_write(&token, front.world.core->vault, text);
    path = xasprintf("/api/v1/ports/%s/", text);
    assert_int_equal(status_of(path), 502); /* nothing listens there */
    path[strlen(path) - 2] = path[strlen(path) - 2] == '0' ? '1' : '0';
    assert_int_equal(status_of(path), 404);
    assert_int_equal(status_of("/api/v1/ports/x/"), 404);
    assert_int_equal(status_of("/api/v1/ports/x"), 404);
    assert_int_equal(status_of("/api/v1/ports//"), 404);
}

static void wrong_ports_are_told(void **state)
{
    static const char *const wrong[] = { "0", "65536", "1x", "+1", "99999999999" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
        scoped(free) char *path = xasprintf("/api/v1/sessions/%s/ports/%s/x", session, wrong[i]);
        scoped(answer_fini) struct answer answer = call(&front, "GET", path, "", NULL);

        assert_int_equal(answer.status, 400);
        assert_string_equal(error_code_of(&answer), "invalid_port");
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_request_goes_in_and_its_answer_comes_out),
        TEST(a_second_request_does_not_hide_in_the_first),
        TEST(answers_that_cannot_be_understood_are_refused),
        TEST(a_client_that_leaves_takes_its_connection_along),
        TEST(the_end_of_the_sandbox_cuts_an_answer),
        TEST(a_websocket_becomes_a_stream),
        TEST(a_tunnel_ends_each_direction_by_itself),
        TEST(signed_urls_are_checked_before_anything_else),
        TEST(wrong_ports_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
