/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to an engine: versions, errors, connections that break. */

#include "fake_engine.h"

#include "../../../harness/steady_clock.h"
#include "base/alloc.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct world {
    struct loop *loop;
    struct fake_engine fake;
    struct engine *engine;
    int status; /* the fake answers with these, unless `status` is 0 */
    const char *type, *body, *raw;
    bool hangs_up; /* after `raw` */
};

static struct world *world;

static void on_request(struct fake_connection *connection, const char *method UNUSED,
                       const char *target, const char *body UNUSED)
{
    if (strstr(target, "/hold"))
        return;
    if (world->raw)
        fake_send_text(connection, world->raw);
    else if (world->status)
        fake_answer(connection, world->status, world->type, world->body);
    if (world->hangs_up)
        fake_hang_up(connection);
}

static int start(void **state)
{
    struct engine_options options = { 0 };
    struct error err = { 0 };

    world = xnew(struct world);
    world->loop = loop_new(&steady_clock);
    world->status = 200;
    world->type = "application/json";
    world->body = "{\"answer\":42}";
    fake_engine_start(&world->fake, world->loop, on_request);
    options.loop = world->loop;
    options.host = world->fake.host;
    world->engine = engine_new(&options, &err);
    assert_non_null(world->engine);
    *state = world;
    return 0;
}

static int stop(void **state UNUSED)
{
    engine_free(world->engine);
    fake_engine_stop(&world->fake);
    loop_free(world->loop);
    free(world);
    return 0;
}

/* --- one call -------------------------------------------------------------------------------- */

struct outcome {
    struct engine_call call;
    unsigned dones;
    json_t *body; /* owned */
};

static void on_done(struct engine_call *call)
{
    struct outcome *outcome = container_of(call, struct outcome, call);

    outcome->dones++;
    outcome->body = json_incref(call->body);
}

static void outcome_fini(struct outcome *outcome)
{
    json_decref(outcome->body);
}

static void scoped_outcome_fini(struct outcome *outcome)
{
    outcome_fini(outcome);
}

static void ask(struct outcome *outcome, enum http_method method, const char *path)
{
    engine_request(world->engine, &outcome->call, method, path, NULL, NULL, 0, 5000, on_done);
    assert_int_equal(outcome->dones, 0);
}

static void ask_and_wait(struct outcome *outcome, enum http_method method, const char *path)
{
    outcome_fini(outcome);
    *outcome = (struct outcome){ 0 };
    ask(outcome, method, path);
    fake_wait(world->loop, outcome->dones);
    assert_int_equal(outcome->dones, 1);
    assert_null(outcome->call.private);
}

static void an_answer_is_parsed(void **state UNUSED)
{
    scoped(outcome_fini) struct outcome outcome = { 0 };

    ask_and_wait(&outcome, HTTP_GET, "/containers/json?all=1");
    assert_int_equal(outcome.call.err.code, ERR_NONE);
    assert_int_equal(outcome.call.status, 200);
    assert_int_equal(json_integer_value(json_object_get(outcome.body, "answer")), 42);
    assert_string_equal(world->fake.last_target, "/v1.41/containers/json?all=1");
    assert_string_equal(engine_version(world->engine), "1.41");
    assert_true(engine_is_unix(world->engine));
    assert_string_equal(engine_host(world->engine), world->fake.host);
}

static void an_answer_may_be_a_list_or_nothing(void **state UNUSED)
{
    scoped(outcome_fini) struct outcome outcome = { 0 };

    world->body = "[{\"Id\":\"a\"}]";
    ask_and_wait(&outcome, HTTP_GET, "/list");
    assert_int_equal(json_array_size(outcome.body), 1);
    world->raw = "HTTP/1.1 204 No Content\r\n\r\n";
    ask_and_wait(&outcome, HTTP_POST, "/start");
    assert_null(outcome.body);
    assert_int_equal(outcome.call.err.code, ERR_NONE);
    world->raw = "HTTP/1.1 304 Not Modified\r\n\r\n";
    ask_and_wait(&outcome, HTTP_POST, "/start");
    assert_int_equal(outcome.call.status, 304);
    assert_int_equal(outcome.call.err.code, ERR_NONE);
    world->raw = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{\"a\": \"b\"}";
    ask_and_wait(&outcome, HTTP_GET, "/without-a-type");
    assert_string_equal(json_string_value(json_object_get(outcome.body, "a")), "b");
    world->raw = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nOK";
    ask_and_wait(&outcome, HTTP_GET, "/text");
    assert_null(outcome.body);
    assert_int_equal(outcome.call.err.code, ERR_NONE);
}

static void a_counter_without_limit_does_not_spoil_the_answer(void **state UNUSED)
{
    scoped(outcome_fini) struct outcome outcome = { 0 };

    world->body = "{\"limit\":18446744073709551615,\"current\":3}";
    ask_and_wait(&outcome, HTTP_GET, "/stats");
    assert_int_equal(outcome.call.err.code, ERR_NONE);
    assert_true(json_number_value(json_object_get(outcome.body, "current")) == 3);
}

static void a_body_is_sent_also_when_it_had_to_wait(void **state UNUSED)
{
    static const char body[] = "{\"Image\":\"x\"}";
    scoped(outcome_fini) struct outcome outcome = { 0 };
    char *copy = xstrdup(body);

    engine_request(world->engine, &outcome.call, HTTP_POST, "/containers/create", NULL, copy,
                   strlen(copy), 5000, on_done);
    memset(copy, 'x', strlen(copy));
    free(copy);
    fake_wait(world->loop, outcome.dones);
    assert_string_equal(world->fake.last_body, body);
}

/* --- the version ----------------------------------------------------------------------------- */

static void the_newest_version_that_both_know_is_used(void **state UNUSED)
{
    static const struct {
        const char *theirs, *ours;
    } rows[] = { { "1.24", "/v1.24/x" },
                 { "1.47", "/v1.47/x" },
                 { "1.99", "/v1.47/x" },
                 { "2.0", "/v1.47/x" } };

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        scoped(outcome_fini) struct outcome outcome = { 0 };
        struct engine_options options = { .loop = world->loop, .host = world->fake.host };
        struct engine *engine = engine_new(&options, NULL);

        world->fake.version = rows[i].theirs;
        engine_request(engine, &outcome.call, HTTP_GET, "/x", NULL, NULL, 0, 5000, on_done);
        fake_wait(world->loop, outcome.dones);
        assert_string_equal(world->fake.last_target, rows[i].ours);
        engine_free(engine);
    }
}

static void calls_wait_for_the_version_and_it_is_asked_once(void **state UNUSED)
{
    struct outcome outcomes[10] = { 0 };

    for (size_t i = 0; i < ARRAY_LENGTH(outcomes); i++)
        ask(&outcomes[i], i % 2 ? HTTP_POST : HTTP_GET, "/x");
    for (size_t i = 0; i < ARRAY_LENGTH(outcomes); i++) {
        fake_wait(world->loop, outcomes[i].dones);
        assert_int_equal(outcomes[i].call.err.code, ERR_NONE);
        outcome_fini(&outcomes[i]);
    }
    assert_int_equal(world->fake.pings, 1);
    assert_int_equal(world->fake.requests, 10);
}

static void a_failed_ping_fails_those_that_wait_and_is_made_again(void **state UNUSED)
{
    struct outcome outcomes[3] = { 0 };

    world->fake.version = NULL;
    world->status = 500;
    world->body = "{\"message\":\"not today\"}";
    for (size_t i = 0; i < ARRAY_LENGTH(outcomes); i++)
        ask(&outcomes[i], HTTP_GET, "/x");
    for (size_t i = 0; i < ARRAY_LENGTH(outcomes); i++) {
        fake_wait(world->loop, outcomes[i].dones);
        assert_int_equal(outcomes[i].call.err.code, ERR_BACKEND);
        assert_int_equal(outcomes[i].call.status, 0);
        assert_non_null(strstr(outcomes[i].call.err.message, "not today"));
    }
    world->fake.version = "1.40";
    world->status = 200;
    world->body = "{}";
    ask_and_wait(&outcomes[0], HTTP_GET, "/x");
    assert_int_equal(outcomes[0].call.err.code, ERR_NONE);
    assert_int_equal(world->fake.pings, 2);
    outcome_fini(&outcomes[0]);
}

static void a_server_without_a_version_is_no_engine(void **state UNUSED)
{
    scoped(outcome_fini) struct outcome outcome = { 0 };

    world->fake.version = NULL;
    world->raw = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK";
    ask_and_wait(&outcome, HTTP_GET, "/x");
    assert_int_equal(outcome.call.err.code, ERR_BACKEND);
    assert_non_null(strstr(outcome.call.err.message, "version"));
    world->raw = "HTTP/1.1 200 OK\r\nApi-Version: one\r\nContent-Length: 2\r\n\r\nOK";
    ask_and_wait(&outcome, HTTP_GET, "/x");
    assert_int_equal(outcome.call.err.code, ERR_BACKEND);
}

static void another_engine_at_the_same_place_is_asked_for_its_version(void **state UNUSED)
{
    scoped(outcome_fini) struct outcome outcome = { 0 };

    ask_and_wait(&outcome, HTTP_GET, "/x");
    fake_engine_close_door(&world->fake);
    ask_and_wait(&outcome, HTTP_GET, "/x");
    assert_int_equal(outcome.call.err.code, ERR_UNAVAILABLE);
    assert_string_equal(engine_version(world->engine), "");
    world->fake.version = "1.30";
    fake_engine_open_door(&world->fake);
    ask_and_wait(&outcome, HTTP_GET, "/x");
    assert_string_equal(world->fake.last_target, "/v1.30/x");
}

static void an_engine_that_refuses_the_version_is_asked_again(void **state UNUSED)
{
    scoped(outcome_fini) struct outcome outcome = { 0 };

    ask_and_wait(&outcome, HTTP_GET, "/x");
    world->fake.version = "1.30";
    world->status = 400;
    world->body = "{\"message\":\"client version 1.41 is too new. Maximum is 1.30\"}";
    ask_and_wait(&outcome, HTTP_GET, "/x");
    assert_int_equal(outcome.call.err.code, ERR_INVALID);
    world->status = 200;
    world->body = "{}";
    ask_and_wait(&outcome, HTTP_GET, "/x");
    assert_string_equal(world->fake.last_target, "/v1.30/x");
}

/* --- errors ---------------------------------------------------------------------------------- */

static const struct {
    int status;
    const char *type, *body;
    enum error_code code;
    bool retryable;
    const char *message;
} refusals[] = {
    { 400, "application/json", "{\"message\":\"bad\"}", ERR_INVALID, false, "bad" },
    { 401, "application/json", "{\"message\":\"who\"}", ERR_UNAUTHORIZED, false, "who" },
    { 403, "application/json", "{\"message\":\"no\"}", ERR_FORBIDDEN, false, "no" },
    { 404, "application/json; charset=utf-8", "{\"message\":\"No such container: x\"}",
      ERR_NOT_FOUND, false, "No such container: x" },
    { 409, "application/json", "{\"message\":\"in use\"}", ERR_CONFLICT, false, "in use" },
    { 500, "application/json", "{\"message\":\"broken\\n\"}", ERR_BACKEND, true, "broken" },
    { 503, "application/json", "{\"message\":\"later\"}", ERR_BACKEND, true, "later" },
    { 500, "application/json", "{\"message\":\"write x: no space left on device\"}", ERR_NO_SPACE,
      false, "write x: no space left on device" },
    /* Podman */
    { 404, "application/json",
      "{\"cause\":\"no such container\",\"message\":\"no container x: no such "
      "container\",\"response\":404}",
      ERR_NOT_FOUND, false, "no container x: no such container" },
    { 500, "application/json",
      "{\"cause\":\"no such container\",\"message\":\"container x does not exist in database: no "
      "such container\",\"response\":500}",
      ERR_NOT_FOUND, false, "container x does not exist in database: no such container" },
    { 500, "application/json",
      "{\"cause\":\"that name is already in use\",\"message\":\"taken\",\"response\":500}",
      ERR_CONFLICT, false, "taken" },
    { 500, "application/json", "{\"cause\":\"container state improper\",\"message\":\"stopped\"}",
      ERR_CONFLICT, false, "stopped" },
    { 500, "application/json", "{\"cause\":\"only a cause\",\"message\":\"\"}", ERR_BACKEND, true,
      "only a cause" },
    { 404, "application/json", "", ERR_NOT_FOUND, false, "the engine answers with status 404" },
};

static void the_words_of_the_engine_are_the_message(void **state UNUSED)
{
    scoped(outcome_fini) struct outcome outcome = { 0 };

    for (size_t i = 0; i < ARRAY_LENGTH(refusals); i++) {
        world->status = refusals[i].status;
        world->type = refusals[i].type;
        world->body = refusals[i].body;
        ask_and_wait(&outcome, i % 2 ? HTTP_POST : HTTP_GET, "/x");
        assert_int_equal(outcome.call.status, refusals[i].status);
        assert_int_equal(outcome.call.err.code, refusals[i].code);
        assert_int_equal(outcome.call.err.retryable, refusals[i].retryable);
        assert_string_equal(outcome.call.err.message, refusals[i].message);
        assert_null(outcome.body);
    }
}

/* Whatever a proxy says of a path, it says nothing of a container. */
static void a_stranger_never_says_that_something_does_not_exist(void **state UNUSED)
{
    static const struct {
        int status;
        const char *type, *body;
    } rows[] = {
        { 404, "text/html", "<html>Not Found</html>" },
        { 200, "text/html; charset=utf-8", "<html>Welcome</html>" },
        { 404, "text/plain", "Not Found" },
        { 404, "application/json", "{\"error\":\"no route\"}" },
        { 404, "application/json", "[\"message\"]" },
        { 404, "application/json", "{\"message\":" },
        { 409, "text/plain", "" },
        { 301, "application/json", "" },
        { 302, "text/plain", "elsewhere" },
        { 400, "text/plain", "Client sent an HTTP request to an HTTPS server.\n" },
    };
    scoped(outcome_fini) struct outcome outcome = { 0 };

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        world->status = rows[i].status;
        world->type = rows[i].type;
        world->body = rows[i].body;
        ask_and_wait(&outcome, HTTP_GET, "/x");
        assert_int_equal(outcome.call.err.code, ERR_BACKEND);
        assert_true(outcome.call.err.retryable);
        assert_null(outcome.body);
    }
    assert_non_null(strstr(outcome.call.err.hint, "TLS"));
}

static void a_message_is_bounded_and_without_control_characters(void **state UNUSED)
{
    scoped(outcome_fini) struct outcome outcome = { 0 };
    char body[4096] = "{\"message\":\"a\\u001b[31mred\\r\\nline \\u007f";

    for (size_t i = 0; i < 500; i++)
        strcat(body, "\xc3\xa9");
    strcat(body, "\"}");
    world->status = 500;
    world->body = body;
    ask_and_wait(&outcome, HTTP_GET, "/x");
    assert_true(strlen(outcome.call.err.message) <= 304);
    assert_true(strlen(outcome.call.err.message) >= 295);
    assert_memory_equal(outcome.call.err.message, "a [31mred  line  \xc3\xa9", 19);
    assert_string_equal(strrchr(outcome.call.err.message, '\xa9'), "\xa9...");
    for (const char *at = outcome.call.err.message; *at; at++)
        assert_true((unsigned char)*at >= ' ' && *at != 0x7f);
}

static void an_answer_that_is_none_is_the_engines_failure(void **state UNUSED)
{
    static const char *const rows[] = {
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{\"cut\":",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"cut\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: appl",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"bad\":",
        "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n",
        "HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n",
    };
    scoped(outcome_fini) struct outcome outcome = { 0 };

    world->hangs_up = true;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        world->raw = rows[i];
        ask_and_wait(&outcome, HTTP_GET, "/x");
        if (outcome.call.err.code != ERR_BACKEND)
            fail_msg("%s: %d %s", rows[i], outcome.call.err.code, outcome.call.err.message);
        assert_true(*outcome.call.err.message);
    }
}

static void an_answer_without_end_is_cut_off(void **state UNUSED)
{
    static char piece[65536];
    scoped(outcome_fini) struct outcome outcome = { 0 };

    memset(piece, ' ', sizeof(piece));
    world->raw = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[";
    ask(&outcome, HTTP_GET, "/x");
    fake_wait(world->loop, world->fake.requests);
    for (int i = 0; i < 300 && !outcome.dones; i++) {
        if (world->fake.last->socket.fd >= 0)
            (void)!write(world->fake.last->socket.fd, piece, sizeof(piece));
        loop_turn(world->loop, 1);
    }
    fake_wait(world->loop, outcome.dones);
    assert_int_equal(outcome.call.err.code, ERR_BACKEND);
    assert_non_null(strstr(outcome.call.err.message, "16 MiB"));
}

static void a_head_without_end_is_cut_off(void **state UNUSED)
{
    scoped(outcome_fini) struct outcome outcome = { 0 };

    world->raw = "HTTP/1.1 200 OK\r\n";
    ask(&outcome, HTTP_GET, "/x");
    fake_wait(world->loop, world->fake.requests);
    for (int i = 0; i < 20000 && !outcome.dones; i++) {
        if (world->fake.last->socket.fd >= 0)
            (void)!write(world->fake.last->socket.fd, "X-More: and more and more\r\n", 27);
        if (i % 100 == 0)
            loop_turn(world->loop, 1);
    }
    fake_wait(world->loop, outcome.dones);
    assert_int_equal(outcome.call.err.code, ERR_BACKEND);
}

/* --- connections ----------------------------------------------------------------------------- */

static void an_engine_that_is_away_is_unavailable_with_a_remedy(void **state UNUSED)
{
    scoped(outcome_fini) struct outcome outcome = { 0 };

    fake_engine_close_door(&world->fake);
    ask_and_wait(&outcome, HTTP_POST, "/x");
    assert_int_equal(outcome.call.err.code, ERR_UNAVAILABLE);
    assert_int_equal(outcome.call.err.sys_errno, ECONNREFUSED);
    assert_true(outcome.call.err.retryable);
    assert_non_null(strstr(outcome.call.err.hint, "not running"));
    unlink(world->fake.path);
    ask_and_wait(&outcome, HTTP_GET, "/x");
    assert_int_equal(outcome.call.err.code, ERR_UNAVAILABLE);
    assert_int_equal(outcome.call.err.sys_errno, ENOENT);
    assert_int_equal(outcome.call.status, 0);
    assert_non_null(strstr(outcome.call.err.hint, "docker.host"));
    assert_non_null(strstr(outcome.call.err.message, world->fake.path));
}

static void a_socket_of_others_is_unavailable_with_a_remedy(void **state UNUSED)
{
    scoped(outcome_fini) struct outcome outcome = { 0 };

    if (geteuid() != 0)
        skip();
    assert_int_equal(chmod(world->fake.path, 0600), 0);
    assert_int_equal(chmod(world->fake.directory, 0711), 0);
    assert_int_equal(seteuid(65534), 0);
    ask(&outcome, HTTP_GET, "/x");
    fake_wait(world->loop, outcome.dones);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(outcome.call.err.code, ERR_UNAVAILABLE);
    assert_int_equal(outcome.call.err.sys_errno, EACCES);
    assert_non_null(strstr(outcome.call.err.hint, "adduser"));
}

static void an_engine_that_hangs_up_without_a_word_is_unavailable(void **state UNUSED)
{
    scoped(outcome_fini) struct outcome outcome = { 0 };

    world->raw = "";
    world->hangs_up = true;
    ask_and_wait(&outcome, HTTP_POST, "/x");
    assert_int_equal(outcome.call.err.code, ERR_UNAVAILABLE);
    assert_true(outcome.call.err.retryable);
}

static void silence_ends_in_time_and_holds_nobody_up(void **state UNUSED)
{
    scoped(outcome_fini) struct outcome held = { 0 };
    scoped(outcome_fini) struct outcome outcome = { 0 };

    engine_request(world->engine, &held.call, HTTP_GET, "/hold", NULL, NULL, 0, 300, on_done);
    fake_wait(world->loop, world->fake.requests);
    for (int i = 0; i < 5; i++)
        ask_and_wait(&outcome, i % 2 ? HTTP_POST : HTTP_GET, "/x");
    assert_int_equal(held.dones, 0);
    fake_wait(world->loop, held.dones);
    assert_int_equal(held.call.err.code, ERR_UNAVAILABLE);
    assert_true(held.call.err.retryable);
    assert_non_null(strstr(held.call.err.message, "300ms"));
    assert_int_equal(world->fake.pings, 1);
}

static void a_timeout_counts_while_the_version_is_asked(void **state UNUSED)
{
    scoped(outcome_fini) struct outcome outcome = { 0 };

    world->fake.version = NULL;
    world->status = 0;
    engine_request(world->engine, &outcome.call, HTTP_GET, "/x", NULL, NULL, 0, 50, on_done);
    fake_wait(world->loop, outcome.dones);
    assert_int_equal(outcome.call.err.code, ERR_UNAVAILABLE);
}

static void a_slow_answer_comes_together(void **state UNUSED)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                                 "Transfer-Encoding: chunked\r\n\r\n"
                                 "5\r\n{\"a\":\r\n4\r\n\"bc\"\r\n1\r\n}\r\n0\r\n\r\n";
    scoped(outcome_fini) struct outcome outcome = { 0 };

    world->status = 0;
    ask(&outcome, HTTP_GET, "/x");
    fake_wait(world->loop, world->fake.requests);
    for (size_t i = 0; i < sizeof(answer) - 1; i++) {
        fake_send(world->fake.last, answer + i, 1);
        loop_turn(world->loop, 0);
        loop_turn(world->loop, 0);
    }
    fake_wait(world->loop, outcome.dones);
    assert_string_equal(json_string_value(json_object_get(outcome.body, "a")), "bc");
}

static void a_connection_is_used_again_but_not_for_posts(void **state UNUSED)
{
    scoped(outcome_fini) struct outcome outcome = { 0 };

    for (int i = 0; i < 5; i++)
        ask_and_wait(&outcome, HTTP_GET, "/x");
    assert_int_equal(world->fake.accepted, 1);
    ask_and_wait(&outcome, HTTP_POST, "/x");
    assert_int_equal(world->fake.accepted, 2);
    ask_and_wait(&outcome, HTTP_DELETE, "/x");
    assert_int_equal(world->fake.accepted, 2);
}

static void a_connection_that_was_closed_meanwhile_fails_no_request(void **state UNUSED)
{
    static const enum http_method methods[] = { HTTP_GET, HTTP_POST, HTTP_PUT, HTTP_DELETE };

    for (size_t i = 0; i < 3 * ARRAY_LENGTH(methods); i++) {
        scoped(outcome_fini) struct outcome first = { 0 };
        scoped(outcome_fini) struct outcome outcome = { 0 };
        struct fake_connection *idle;

        ask_and_wait(&first, HTTP_GET, "/x");
        idle = world->fake.last;
        if (i % 3 == 0)
            fake_hang_up(idle);
        ask(&outcome, methods[i / 3], "/x");
        /* At the same moment, before or after the request went out, which was never read. */
        if (i % 3 == 1)
            loop_run_deferred(world->loop);
        fake_hang_up(idle);
        fake_wait(world->loop, outcome.dones);
        if (outcome.call.err.code)
            fail_msg("%zu: %s", i, outcome.call.err.message);
    }
}

/* --- cancelling ------------------------------------------------------------------------------ */

static void a_cancelled_call_is_silent_in_every_state(void **state UNUSED)
{
    scoped(outcome_fini) struct outcome waiting = { 0 };
    scoped(outcome_fini) struct outcome asked = { 0 };
    scoped(outcome_fini) struct outcome done = { 0 };

    engine_cancel(&waiting.call);
    ask(&waiting, HTTP_GET, "/x");
    engine_cancel(&waiting.call);
    engine_cancel(&waiting.call);
    ask_and_wait(&done, HTTP_GET, "/x");
    engine_cancel(&done.call);
    ask(&asked, HTTP_GET, "/hold");
    fake_wait(world->loop, strstr(world->fake.last_target, "hold"));
    engine_cancel(&asked.call);
    ask_and_wait(&done, HTTP_GET, "/x");
    assert_int_equal(waiting.dones, 0);
    assert_int_equal(asked.dones, 0);
    assert_null(asked.call.private);
}

static struct outcome *other;

static void on_done_cancel_other(struct engine_call *call)
{
    on_done(call);
    engine_cancel(&other->call);
}

static void one_that_fails_may_cancel_the_next(void **state UNUSED)
{
    struct outcome first = { 0 };
    struct outcome second = { 0 };
    struct outcome third = { 0 };

    other = &second;
    fake_engine_close_door(&world->fake);
    engine_request(world->engine, &first.call, HTTP_GET, "/x", NULL, NULL, 0, 5000,
                   on_done_cancel_other);
    ask(&second, HTTP_GET, "/x");
    ask(&third, HTTP_GET, "/x");
    fake_wait(world->loop, first.dones && third.dones);
    assert_int_equal(second.dones, 0);
}

static unsigned again_left;

static void on_done_again(struct engine_call *call)
{
    assert_int_equal(call->err.code, again_left % 2 ? ERR_NONE : ERR_UNAVAILABLE);
    if (!again_left--)
        return;
    if (again_left % 2)
        fake_engine_open_door(&world->fake);
    else
        fake_engine_close_door(&world->fake);
    engine_request(world->engine, call, HTTP_POST, "/x", NULL, "{}", 2, 5000, on_done_again);
}

static void a_call_may_be_used_again_in_done(void **state UNUSED)
{
    struct engine_call call = { 0 };

    again_left = 9;
    engine_request(world->engine, &call, HTTP_POST, "/x", NULL, "{}", 2, 5000, on_done_again);
    fake_wait(world->loop, !call.private);
    assert_int_equal(again_left, UINT32_MAX);
}

static void freeing_the_engine_ends_everything_silently(void **state UNUSED)
{
    struct outcome outcomes[8] = { 0 };

    for (size_t i = 0; i < 4; i++)
        ask(&outcomes[i], HTTP_GET, "/hold");
    fake_wait(world->loop, world->fake.requests == 4);
    fake_engine_close_door(&world->fake);
    for (size_t i = 4; i < 8; i++)
        ask(&outcomes[i], HTTP_POST, "/hold");
    engine_free(world->engine);
    world->engine = NULL;
    for (int i = 0; i < 10; i++)
        loop_turn(world->loop, 1);
    for (size_t i = 0; i < ARRAY_LENGTH(outcomes); i++) {
        assert_int_equal(outcomes[i].dones, 0);
        assert_null(outcomes[i].call.private);
        engine_cancel(&outcomes[i].call);
    }
}

/* --- addresses ------------------------------------------------------------------------------- */

static void addresses_are_checked(void **state UNUSED)
{
    static const char *const good[] = { "unix:///run/x.sock",    "unix:/run/x.sock",
                                        "tcp://127.0.0.1:2375",  "tcp://127.0.0.1",
                                        "tcp://127.0.0.1:2375/", "http://127.0.0.1:2375",
                                        "https://127.0.0.1:1",   "tcp://[::1]",
                                        "tcp://[::1]:2375" };
    static const char *const bad[] = { "",
                                       "ssh://host",
                                       "/var/run/docker.sock",
                                       "unix://",
                                       "tcp://",
                                       "tcp://127.0.0.1:x",
                                       "fd://",
                                       "tcp://127.0.0.1/a/b",
                                       "tcp://127.0.0.1:70000",
                                       "npipe:////./pipe/docker_engine" };

    for (size_t i = 0; i < ARRAY_LENGTH(good) + ARRAY_LENGTH(bad); i++) {
        bool is_good = i < ARRAY_LENGTH(good);
        struct engine_options options = { .loop = world->loop,
                                          .host = is_good ? good[i] : bad[i - ARRAY_LENGTH(good)] };
        struct error err = { 0 };
        struct engine *engine = engine_new(&options, &err);

        if (!engine != !is_good)
            fail_msg("%s: %s", options.host, err.message);
        assert_int_equal(err.code, is_good ? ERR_NONE : ERR_INVALID);
        engine_free(engine);
    }
}

static void files_for_tls_are_checked_at_once(void **state UNUSED)
{
    struct engine_options options = {
        .loop = world->loop,
        .host = "tcp://127.0.0.1:2376",
        .ca = "/nonexistent/ca.pem",
    };
    struct error err = { 0 };

    assert_null(engine_new(&options, &err));
    assert_int_equal(err.code, ERR_INVALID);
    assert_non_null(strstr(err.message, "/nonexistent/ca.pem"));
    options.ca = "";
    options.certificate = "/nonexistent/cert.pem";
    assert_null(engine_new(&options, &err));
    assert_non_null(strstr(err.message, "key"));
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(an_answer_is_parsed),
        ROW(an_answer_may_be_a_list_or_nothing),
        ROW(a_counter_without_limit_does_not_spoil_the_answer),
        ROW(a_body_is_sent_also_when_it_had_to_wait),
        ROW(the_newest_version_that_both_know_is_used),
        ROW(calls_wait_for_the_version_and_it_is_asked_once),
        ROW(a_failed_ping_fails_those_that_wait_and_is_made_again),
        ROW(a_server_without_a_version_is_no_engine),
        ROW(another_engine_at_the_same_place_is_asked_for_its_version),
        ROW(an_engine_that_refuses_the_version_is_asked_again),
        ROW(the_words_of_the_engine_are_the_message),
        ROW(a_stranger_never_says_that_something_does_not_exist),
        ROW(a_message_is_bounded_and_without_control_characters),
        ROW(an_answer_that_is_none_is_the_engines_failure),
        ROW(an_answer_without_end_is_cut_off),
        ROW(a_head_without_end_is_cut_off),
        ROW(an_engine_that_is_away_is_unavailable_with_a_remedy),
        ROW(a_socket_of_others_is_unavailable_with_a_remedy),
        ROW(an_engine_that_hangs_up_without_a_word_is_unavailable),
        ROW(silence_ends_in_time_and_holds_nobody_up),
        ROW(a_timeout_counts_while_the_version_is_asked),
        ROW(a_slow_answer_comes_together),
        ROW(a_connection_is_used_again_but_not_for_posts),
        ROW(a_connection_that_was_closed_meanwhile_fails_no_request),
        ROW(a_cancelled_call_is_silent_in_every_state),
        ROW(one_that_fails_may_cancel_the_next),
        ROW(a_call_may_be_used_again_in_done),
        ROW(freeing_the_engine_ends_everything_silently),
        ROW(addresses_are_checked),
        ROW(files_for_tls_are_checked_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
