/* SPDX-License-Identifier: Apache-2.0 */
/* envd over HTTP: processes by the Connect protocol, and what is refused before a sandbox is
 * asked. */

#include "../api/client.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/session/session.h"
#include "e2b/e2b.h"
#include "e2b/envd/messages.h"
#include "e2b/token.h"
#include "wire/base64.h"
#include "wire/http/connect.h"
#include "wire/json.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

enum { TURNS = 400, SECOND_US = 1000 * 1000 };

static struct front front;
static struct e2b *e2b;
static struct faces *rest_faces; /* of the front, put aside */
static struct http_server *rest_server;
static char session[ID_SIZE];
static char *headers; /* of every request: the sandbox and its token */

/* --- the world -------------------------------------------------------------------------------- */

static void turn(void)
{
    for (int i = 0; i < 40; i++)
        loop_turn(front.world.loop, 0);
}

static void open_session(void)
{
    scoped(answer_fini) struct answer answer = call(&front, "POST", "/api/v1/sessions", "", "{}");

    assert_int_equal(answer.status, 201);
    snprintf(session, sizeof(session), "%s", json_string_value(json_object_get(answer.json, "id")));
}

/* The same socket is served by the E2B faces from now on. */
static void open_faces(void)
{
    struct world *world = &front.world;
    struct face_entry faces[3] = { { &e2b_envd_face, NULL }, { &api_face, front.api } };
    scoped(free) char *address = xasprintf("unix:%s/e2b", front.path);
    struct error err = { 0 };

    e2b = e2b_new(&(struct e2b_parts){ .loop = world->loop, .core = world->core });
    faces[0].context = e2b;
    rest_faces = front.faces;
    rest_server = front.server;
    front.faces = faces_new(&(struct faces_parts){
        .loop = world->loop, .config = &world->config, .core = world->core, .faces = faces });
    front.server =
        http_server_new(world->loop, &http_server_default_limits, faces_handle, front.faces);
    assert_int_equal(http_server_listen(front.server, "127.0.0.1:0", &err), 0);
}

static int setup(void **state UNUSED)
{
    char token[E2B_TOKEN_SIZE];

    front_start(&front);
    open_session();
    open_faces();
    assert_int_equal(vault_open(front.world.core->vault, NULL), 0);
    e2b_token_write(front.world.core, session, E2B_TOKEN_ENVD, token);
    headers = xasprintf("E2b-Sandbox-Id: i%s\r\nE2b-Sandbox-Port: 49983\r\nX-Access-Token: %s\r\n",
                        session + 4, token);
    return 0;
}

static int teardown(void **state UNUSED)
{
    http_server_free(front.server);
    world_settle(&front.world);
    faces_free(front.faces);
    e2b_free(e2b);
    front.server = rest_server;
    front.faces = rest_faces;
    front_stop(&front);
    free(steal_ptr(&headers));
    return 0;
}

/* --- calls ------------------------------------------------------------------------------------ */

static void send_bytes(struct caller *caller, const char *path, const char *more, const void *body,
                       size_t length)
{
    struct buffer text = BUFFER_INIT(1024 * 1024);

    buffer_appendf(&text, "POST %s HTTP/1.1\r\nHost: localhost\r\n%s%sContent-Length: %zu\r\n\r\n",
                   path, headers, more, length);
    buffer_append(&text, body, length);
    caller_send(&front, caller, true, (const char *)text.data, text.length);
    buffer_fini(&text);
    turn();
}

#define STREAM "Content-Type: application/connect+json\r\n"
#define CALL "Content-Type: application/json\r\n"

static void open_stream(struct caller *caller, const char *path, const char *more,
                        const char *message)
{
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(64 * 1024);

    connect_envelope_append(&body, 0, message, strlen(message));
    send_bytes(caller, path, more, body.data, body.length);
}

static struct answer finish(struct caller *caller)
{
    struct answer answer = { 0 };
    int turns = 0;

    while (!caller_poll(&front, caller, &answer)) {
        assert_true(++turns < TURNS);
        if (turns == TURNS / 2)
            simulated_clock_advance(&front.world.clock, 10 * 1000);
    }
    caller_close(&front, caller);
    return answer;
}

static struct answer ask(const char *path, const char *message)
{
    struct caller caller;

    send_bytes(&caller, path, CALL, message, strlen(message));
    return finish(&caller);
}

/* What has come of a stream: its messages, one in each line; the last with a '!' before it. */
static char *told(struct caller *caller)
{
    scoped(buffer_fini) struct buffer bytes = BUFFER_INIT(1024 * 1024);
    struct buffer out = BUFFER_INIT(1024 * 1024);
    struct connect_envelope envelope;
    struct answer unused;
    const char *at, *end;
    long used;

    if (caller_poll(&front, caller, &unused))
        answer_fini(&unused);
    at = caller->bytes ? strstr(caller->bytes, "\r\n\r\n") : NULL;
    end = caller->bytes + caller->length;
    for (at = at ? at + 4 : end; at < end;) {
        char *rest;
        size_t size = strtoul(at, &rest, 16);

        buffer_append(&bytes, rest + 2, size);
        at = rest + 2 + size + 2;
    }
    while ((used = connect_envelope_decode(bytes.data, bytes.length, 65536, &envelope)) > 0) {
        buffer_appendf(&out, "%s%.*s\n", envelope.flags & CONNECT_END ? "!" : "",
                       (int)envelope.length, (const char *)envelope.message);
        buffer_consume(&bytes, (size_t)used);
    }
    return buffer_steal_text(&out);
}

static void expect_told(struct caller *caller, const char *text)
{
    scoped(free) char *all = told(caller);

    assert_string_equal(all, text);
}

#define START_CAT "{\"process\":{\"cmd\":\"cat\"},\"tag\":\"t\"}"
#define STARTED "{\"event\":{\"start\":{\"pid\":2}}}\n"

static struct fake_program *start(struct caller *caller, const char *message)
{
    open_stream(caller, "/process.Process/Start", STREAM, message);
    world_settle(&front.world);
    turn();
    assert_non_null(fake_programs_last());
    return fake_programs_last();
}

static const char *code_of(const struct answer *answer)
{
    const char *code = json_string_value(json_object_get(answer->json, "code"));

    return code ? code : "";
}

/* --- processes -------------------------------------------------------------------------------- */

static void a_process_is_followed_from_its_start_to_its_end(void **state UNUSED)
{
    struct caller caller;
    struct fake_program *program = start(
        &caller, "{\"process\":{\"cmd\":\"/bin/bash\",\"args\":[\"-l\",\"-c\",\"x\"],\"envs\":{"
                 "\"A\":\"b\"},\"cwd\":\"/tmp\"},\"stdin\":false,\"unknown\":1}");

    assert_string_equal(program->argv[2], "-c");
    assert_string_equal(program->cwd, "/tmp");
    assert_int_equal(program->input, -1);
    fake_program_write(program, "hi");
    turn();
    expect_told(&caller, STARTED "{\"event\":{\"data\":{\"stdout\":\"aGk=\"}}}\n");
    fake_program_exit(program, 3);
    turn();
    expect_told(&caller, STARTED "{\"event\":{\"data\":{\"stdout\":\"aGk=\"}}}\n"
                                 "{\"event\":{\"end\":{\"exitCode\":3,\"exited\":true,\"status\":"
                                 "\"exit status 3\",\"error\":\"exit status 3\"}}}\n!{}\n");
    assert_non_null(strstr(caller.bytes, "Content-Type: application/connect+json"));
    caller_close(&front, &caller);
}

static void a_process_that_is_killed_is_gone_when_that_is_answered(void **state UNUSED)
{
    struct caller caller, killer;
    struct fake_program *program = start(&caller, START_CAT);
    const char *message = "{\"process\":{\"pid\":2},\"signal\":\"SIGNAL_SIGKILL\"}";
    struct answer early = { 0 };

    program->ignores_term = true;
    send_bytes(&killer, "/process.Process/SendSignal", CALL, message, strlen(message));
    if (!program->has_exited) {
        assert_false(caller_poll(&front, &killer, &early));
        fake_program_die(program, SIGKILL);
    }
    {
        scoped(answer_fini) struct answer answer = finish(&killer);

        assert_int_equal(answer.status, 200);
        assert_string_equal(answer.body, "{}");
    }
    expect_told(&caller, STARTED "{\"event\":{\"end\":{\"exitCode\":-1,\"exited\":false,\"status\":"
                                 "\"signal: killed\",\"error\":\"signal: killed\"}}}\n!{}\n");
    caller_close(&front, &caller);
}

static void a_process_outlives_its_client_and_is_found_again(void **state UNUSED)
{
    struct caller first, second;
    struct fake_program *program = start(&first, START_CAT);

    fake_program_write(program, "before");
    turn();
    caller_close(&front, &first);
    assert_false(program->has_exited);
    assert_int_equal(program->signal_count, 0);
    open_stream(&second, "/process.Process/Connect", STREAM, "{\"process\":{\"tag\":\"t\"}}");
    expect_told(&second, STARTED);
    fake_program_write(program, "!");
    fake_program_exit(program, 0);
    turn();
    expect_told(&second, STARTED "{\"event\":{\"data\":{\"stdout\":\"IQ==\"}}}\n"
                                 "{\"event\":{\"end\":{\"exitCode\":0,\"exited\":true,\"status\":"
                                 "\"exit status 0\"}}}\n!{}\n");
    caller_close(&front, &second);
}

static void the_end_of_a_process_is_told_for_half_a_minute(void **state UNUSED)
{
    struct caller first, second;
    struct fake_program *program = start(&first, START_CAT);

    caller_close(&front, &first);
    fake_program_exit(program, 0);
    turn();
    open_stream(&second, "/process.Process/Connect", STREAM, "{\"process\":{\"pid\":2}}");
    expect_told(&second, STARTED "{\"event\":{\"end\":{\"exitCode\":0,\"exited\":true,\"status\":"
                                 "\"exit status 0\"}}}\n!{}\n");
    caller_close(&front, &second);
    loop_advance(front.world.loop, &front.world.clock, 31 * SECOND_US);
    open_stream(&second, "/process.Process/Connect", STREAM, "{\"process\":{\"pid\":2}}");
    expect_told(&second, "!{\"error\":{\"code\":\"not_found\",\"message\":\"process with pid 2 not "
                         "found\"}}\n");
    caller_close(&front, &second);
}

static void processes_are_listed_while_they_run(void **state UNUSED)
{
    struct caller caller;
    struct fake_program *program = start(&caller, START_CAT);

    {
        scoped(answer_fini) struct answer list = ask("/process.Process/List", "{}");

        assert_string_equal(list.body, "{\"processes\":[{\"config\":{\"cmd\":\"cat\",\"args\":[],"
                                       "\"envs\":{}},\"pid\":2,\"tag\":\"t\"}]}");
    }
    fake_program_exit(program, 0);
    turn();
    {
        scoped(answer_fini) struct answer list = ask("/process.Process/List", "{}");

        assert_string_equal(list.body, "{\"processes\":[]}");
    }
    caller_close(&front, &caller);
}

static void a_process_that_is_not_there_is_not_found(void **state UNUSED)
{
    scoped(answer_fini) struct answer by_pid = ask(
        "/process.Process/SendSignal", "{\"process\":{\"pid\":77},\"signal\":\"SIGNAL_SIGKILL\"}");
    scoped(answer_fini) struct answer by_nothing =
        ask("/process.Process/SendInput", "{\"input\":{\"stdin\":\"\"}}");
    struct caller caller;

    assert_int_equal(by_pid.status, 404);
    assert_string_equal(code_of(&by_pid), "not_found");
    assert_int_equal(by_nothing.status, 400);
    open_stream(&caller, "/process.Process/Connect", STREAM, "{\"process\":{\"pid\":77}}");
    expect_told(&caller,
                "!{\"error\":{\"code\":\"not_found\",\"message\":\"process with pid 77 not "
                "found\"}}\n");
    caller_close(&front, &caller);
}

static void read_input(const struct fake_program *program, const char *text)
{
    char bytes[64] = "";
    ssize_t count = read(program->input, bytes, sizeof(bytes) - 1);

    assert_int_equal(count, strlen(text));
    assert_string_equal(bytes, text);
}

static void input_arrives_and_ends(void **state UNUSED)
{
    struct caller caller;
    struct fake_program *program = start(&caller, START_CAT);
    scoped(answer_fini) struct answer sent =
        ask("/process.Process/SendInput",
            "{\"process\":{\"pid\":2},\"input\":{\"stdin\":\"aGVsbG8\"}}");
    scoped(answer_fini) struct answer wrong = ask(
        "/process.Process/SendInput", "{\"process\":{\"pid\":2},\"input\":{\"pty\":\"aGVsbG8\"}}");
    scoped(answer_fini) struct answer malformed =
        ask("/process.Process/SendInput", "{\"process\":{\"pid\":2},\"input\":{\"stdin\":\"*\"}}");

    assert_string_equal(sent.body, "{}");
    read_input(program, "hello");
    assert_string_equal(code_of(&wrong), "invalid_argument");
    assert_string_equal(code_of(&malformed), "invalid_argument");
    for (int i = 0; i < 2; i++) {
        scoped(answer_fini) struct answer closed =
            ask("/process.Process/CloseStdin", "{\"process\":{\"pid\":2}}");

        assert_string_equal(closed.body, "{}");
    }
    caller_close(&front, &caller);
}

static void input_comes_as_a_stream_of_messages(void **state UNUSED)
{
    static const char *const messages[] = {
        "{\"start\":{\"process\":{\"tag\":\"t\"}}}",
        "{\"data\":{\"input\":{\"stdin\":\"YWI=\"}}}",
        "{\"keepalive\":{}}",
        "{\"data\":{\"input\":{\"stdin\":\"Yw==\"}}}",
    };
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(4096);
    struct caller caller, sender, bad;
    struct fake_program *program = start(&caller, START_CAT);

    for (size_t i = 0; i < ARRAY_LENGTH(messages); i++)
        connect_envelope_append(&body, 0, messages[i], strlen(messages[i]));
    send_bytes(&sender, "/process.Process/StreamInput", STREAM, body.data, body.length);
    expect_told(&sender, "{}\n!{}\n");
    read_input(program, "abc");
    send_bytes(&bad, "/process.Process/StreamInput", STREAM, body.data, body.length - 3);
    expect_told(&bad, "!{\"error\":{\"code\":\"invalid_argument\",\"message\":\"the stream ends "
                      "within an envelope\"}}\n");
    caller_close(&front, &bad);
    caller_close(&front, &sender);
    caller_close(&front, &caller);
}

static void a_terminal_is_resized_and_has_its_own_stream(void **state UNUSED)
{
    struct caller caller;
    struct fake_program *program = start(
        &caller, "{\"process\":{\"cmd\":\"sh\"},\"pty\":{\"size\":{\"cols\":80,\"rows\":24}}}");
    scoped(answer_fini) struct answer resized =
        ask("/process.Process/Update",
            "{\"process\":{\"pid\":2},\"pty\":{\"size\":{\"cols\":100,\"rows\":30}}}");
    scoped(answer_fini) struct answer closed =
        ask("/process.Process/CloseStdin", "{\"process\":{\"pid\":2}}");

    assert_true(program->terminal);
    assert_string_equal(resized.body, "{}");
    assert_int_equal(program->columns, 100);
    assert_string_equal(code_of(&closed), "failed_precondition");
    fake_program_write(program, "$");
    turn();
    expect_told(&caller, STARTED "{\"event\":{\"data\":{\"pty\":\"JA==\"}}}\n");
    caller_close(&front, &caller);
}

static void a_process_that_cannot_start_says_why(void **state UNUSED)
{
    struct caller caller;

    fake_programs_fail_next(STAGE_CWD, 2);
    open_stream(&caller, "/process.Process/Start", STREAM,
                "{\"process\":{\"cmd\":\"x\",\"cwd\":\"/nope\"}}");
    world_settle(&front.world);
    turn();
    expect_told(&caller,
                "!{\"error\":{\"code\":\"invalid_argument\",\"message\":\"cwd '/nope' does "
                "not exist\"}}\n");
    caller_close(&front, &caller);
    open_stream(&caller, "/process.Process/Start", STREAM, "{}");
    expect_told(&caller,
                "!{\"error\":{\"code\":\"invalid_argument\",\"message\":\"field \\\"cmd\\\" "
                "of the process is missing\"}}\n");
    caller_close(&front, &caller);
}

static void a_user_is_named_by_the_header(void **state UNUSED)
{
    struct caller caller;
    const struct fake_program *program;

    open_stream(&caller, "/process.Process/Start", STREAM "Authorization: Basic cm9vdDo=\r\n",
                "{\"process\":{\"cmd\":\"x\"}}");
    world_settle(&front.world);
    turn();
    program = fake_programs_last();
    assert_string_equal(program->user, "root");
    caller_close(&front, &caller);
}

/* --- the protocol ----------------------------------------------------------------------------- */

static void messages_may_be_binary(void **state UNUSED)
{
    /* process.cmd = "cat", and as the last field one that is not known */
    static const char message[] = "\x0a\x05\x0a\x03"
                                  "cat\x78\x01";
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(256);
    scoped(json_decref) json_t *list = NULL;
    struct caller caller, lister;
    struct fake_program *program;

    connect_envelope_append(&body, 0, message, sizeof(message) - 1);
    send_bytes(&caller, "/process.Process/Start", "Content-Type: application/connect+proto\r\n",
               body.data, body.length);
    world_settle(&front.world);
    turn();
    program = fake_programs_last();
    assert_string_equal(program->argv[0], "cat");
    expect_told(&caller, "\x0a\x04\x0a\x02\x08\x02\n");
    send_bytes(&lister, "/process.Process/List", "Content-Type: application/proto\r\n", "", 0);
    {
        scoped(answer_fini) struct answer answer = finish(&lister);

        assert_int_equal(answer.status, 200);
        list = protobuf_decode(envd_list_response, answer.body, answer.length, NULL);
        assert_int_equal(json_array_size(json_object_get(list, "processes")), 1);
    }
    caller_close(&front, &caller);
}

static size_t compress_gzip(const char *text, uint8_t *out, size_t size)
{
    z_stream zlib = { 0 };

    assert_int_equal(deflateInit2(&zlib, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    zlib.next_in = (uint8_t *)(uintptr_t)text;
    zlib.avail_in = (unsigned)strlen(text);
    zlib.next_out = out;
    zlib.avail_out = (unsigned)size;
    assert_int_equal(deflate(&zlib, Z_FINISH), Z_STREAM_END);
    deflateEnd(&zlib);
    return size - zlib.avail_out;
}

static void messages_may_be_compressed(void **state UNUSED)
{
    uint8_t bytes[256];
    size_t length = compress_gzip("{}", bytes, sizeof(bytes));
    struct caller caller;

    send_bytes(&caller, "/process.Process/List", CALL "Content-Encoding: gzip\r\n", bytes, length);
    {
        scoped(answer_fini) struct answer answer = finish(&caller);

        assert_string_equal(answer.body, "{\"processes\":[]}");
    }
    send_bytes(&caller, "/process.Process/List", CALL "Content-Encoding: gzip\r\n", "{}", 2);
    {
        scoped(answer_fini) struct answer answer = finish(&caller);

        assert_string_equal(code_of(&answer), "invalid_argument");
    }
}

static void other_types_and_malformed_messages_are_refused(void **state UNUSED)
{
    static const char *const bodies[] = { "rubbish", "", "\x02\x00\x00\x00\x02{}" };
    scoped(answer_fini) struct answer wrong = ask("/process.Process/List", "[1]");
    scoped(answer_fini) struct answer stream = ask("/process.Process/Start", "{}");
    struct caller caller;

    assert_string_equal(code_of(&wrong), "invalid_argument");
    assert_int_equal(stream.status, 415);
    for (size_t i = 0; i < ARRAY_LENGTH(bodies); i++) {
        scoped(free) char *text = NULL;

        send_bytes(&caller, "/process.Process/Start", STREAM, bodies[i],
                   i == 2 ? 7 : strlen(bodies[i]));
        text = told(&caller);
        assert_non_null(strstr(text, "!{\"error\":{\"code\":\"invalid_argument\""));
        assert_non_null(strstr(caller.bytes, "HTTP/1.1 200"));
        caller_close(&front, &caller);
    }
}

static void an_idle_stream_is_kept_alive_and_has_a_deadline(void **state UNUSED)
{
    struct caller first, caller;

    (void)start(&first, START_CAT);
    open_stream(&caller, "/process.Process/Connect",
                STREAM "Keepalive-Ping-Interval: 5\r\nConnect-Timeout-Ms: 8000\r\n",
                "{\"process\":{\"pid\":2}}");
    loop_advance(front.world.loop, &front.world.clock, 6 * SECOND_US);
    expect_told(&caller, STARTED "{\"event\":{\"keepalive\":{}}}\n");
    loop_advance(front.world.loop, &front.world.clock, 3 * SECOND_US);
    expect_told(&caller, STARTED "{\"event\":{\"keepalive\":{}}}\n"
                                 "!{\"error\":{\"code\":\"deadline_exceeded\",\"message\":\"the "
                                 "time of the call is over\"}}\n");
    caller_close(&front, &caller);
    caller_close(&front, &first);
}

static void a_stream_is_cut_when_its_sandbox_goes(void **state UNUSED)
{
    struct caller caller;

    (void)start(&caller, START_CAT);
    session_end(session_find(front.world.core, "", true, session), END_DELETED, NULL, NULL, NULL);
    world_settle(&front.world);
    turn();
    expect_told(&caller, STARTED);
    expect_told(&caller, STARTED); /* the reset was told, and nothing comes after it */
    assert_true(caller.closed);
    caller_close(&front, &caller);
}

/* --- refused before a sandbox is asked -------------------------------------------------------- */

static void a_stranger_gets_nothing(void **state UNUSED)
{
    static const char *const paths[] = { "/process.Process/List", "/filesystem.Filesystem/Stat",
                                         "/files" };
    char *token = strstr(headers, "X-Access-Token: ") + strlen("X-Access-Token: ");

    *token ^= 1;
    for (size_t i = 0; i < ARRAY_LENGTH(paths); i++) {
        scoped(answer_fini) struct answer answer = ask(paths[i], "{}");

        assert_int_equal(answer.status, 401);
    }
}

static void uploads_of_the_wrong_form_are_refused(void **state UNUSED)
{
    static const struct {
        const char *path, *headers;
    } cases[] = {
        { "/files?path=a", CALL },
        { "/files?path=a", "Content-Type: multipart/form-data\r\n" },
        { "/files?path=~other/a", "Content-Type: application/octet-stream\r\n" },
        { "/files", "Content-Type: application/octet-stream\r\n" },
        { "/files?path=a",
          "Content-Type: application/octet-stream\r\nContent-Encoding: deflate\r\n" },
        { "/files?path=a", "Content-Type: application/octet-stream\r\nX-Metadata-A: \xc3\xa4\r\n" },
    };

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct caller caller;

        send_bytes(&caller, cases[i].path, cases[i].headers, "x", 1);
        {
            scoped(answer_fini) struct answer answer = finish(&caller);

            assert_int_equal(answer.status, 400);
            assert_int_equal(json_integer_value(json_object_get(answer.json, "code")), 400);
        }
    }
}

static void an_init_of_an_earlier_version_is_told_apart(void **state UNUSED)
{
    scoped(answer_fini) struct answer stat =
        ask("/filesystem.Filesystem/Stat", "{\"path\":\"/tmp\"}");
    scoped(answer_fini) struct answer home =
        ask("/filesystem.Filesystem/Stat", "{\"path\":\"~other/x\"}");

    assert_string_equal(code_of(&stat), "failed_precondition");
    assert_string_equal(code_of(&home), "invalid_argument");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_process_is_followed_from_its_start_to_its_end),
        TEST(a_process_that_is_killed_is_gone_when_that_is_answered),
        TEST(a_process_outlives_its_client_and_is_found_again),
        TEST(the_end_of_a_process_is_told_for_half_a_minute),
        TEST(processes_are_listed_while_they_run),
        TEST(a_process_that_is_not_there_is_not_found),
        TEST(input_arrives_and_ends),
        TEST(input_comes_as_a_stream_of_messages),
        TEST(a_terminal_is_resized_and_has_its_own_stream),
        TEST(a_process_that_cannot_start_says_why),
        TEST(a_user_is_named_by_the_header),
        TEST(messages_may_be_binary),
        TEST(messages_may_be_compressed),
        TEST(other_types_and_malformed_messages_are_refused),
        TEST(an_idle_stream_is_kept_alive_and_has_a_deadline),
        TEST(a_stream_is_cut_when_its_sandbox_goes),
        TEST(a_stranger_gets_nothing),
        TEST(uploads_of_the_wrong_form_are_refused),
        TEST(an_init_of_an_earlier_version_is_told_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
