/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's end against an init that is played by the test, and that lies. */

#include "stage.h"

#include "base/buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* A small request that is answered by DONE. */
static void ask_something(struct stage *stage, struct agent_request *request)
{
    agent_resize(stage->agent, 1, 80, 24, request, on_done);
}

/* --- the good init ---------------------------------------------------------------------------- */

static void what_init_says_first_is_kept(void **state)
{
    struct stage *stage = *state;

    assert_null(agent_hello(stage->agent));
    greet(stage);
    assert_int_equal(agent_hello(stage->agent)->bounding, 5);
    assert_int_equal(stage->lost, 0);
}

static void a_start_is_answered_once_with_pipes_that_do_not_block(void **state)
{
    struct stage *stage = *state;
    struct asked asked;
    int out[2];
    int errors[2];
    struct protocol_started started;
    uint64_t request;

    greet(stage);
    request = begin_start(stage, &asked, false);
    started = started_for(request, 0);
    assert_int_equal(pipe(out), 0);
    assert_int_equal(pipe(errors), 0);
    say(stage, &started, sizeof(started), (int[]){ out[0], errors[0] }, 2);
    assert_int_equal(asked.answers, 1);
    assert_int_equal(asked.request.err.code, ERR_NONE);
    assert_int_equal(asked.request.result.started.pid, 3);
    assert_int_equal(asked.request.result.started.pipes.input, -1);
    assert_true(fcntl(asked.request.result.started.pipes.output, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(asked.request.result.started.pipes.errors, F_GETFD) & FD_CLOEXEC);
    close(asked.request.result.started.pipes.output);
    close(asked.request.result.started.pipes.errors);
    for (int i = 0; i < 2; i++) {
        close(out[i]);
        close(errors[i]);
    }
}

static void a_failure_tells_stage_and_reason(void **state)
{
    struct stage *stage = *state;
    struct asked asked;
    struct protocol_failed failed = { .stage = STAGE_EXEC, .error = ENOENT };

    greet(stage);
    failed.header =
        protocol_header(PROTOCOL_FAILED, sizeof(failed), 41, begin_start(stage, &asked, false));
    say(stage, &failed, sizeof(failed), NULL, 0);
    assert_int_equal(asked.answers, 1);
    assert_int_equal(asked.request.stage, STAGE_EXEC);
    assert_int_equal(asked.request.sys_errno, ENOENT);
    assert_int_equal(asked.request.err.code, ERR_INVALID);
    assert_int_equal(asked.request.result.started.pipes.output, -1);
}

static void an_end_reaches_the_handler(void **state)
{
    struct stage *stage = *state;
    struct protocol_exited exited = {
        .header = protocol_header(PROTOCOL_EXITED, sizeof(exited), 41, 0),
        .end = { .code = -1, .signal = 9, .cpu_us = 5, .survivors = 2 },
    };

    greet(stage);
    say(stage, &exited, sizeof(exited), NULL, 0);
    assert_int_equal(stage->exited, 1);
    assert_int_equal(stage->end.signal, 9);
    assert_int_equal(stage->end.survivors, 2);
}

static void who_remembers_nothing_is_not_asked_for_a_list(void **state)
{
    struct stage *stage = *state;
    struct asked asked = { 0 };
    char byte;

    agent_list(stage->agent, &asked.request, on_done);
    turn(stage);
    assert_int_equal(asked.answers, 0);
    greet(stage);
    assert_int_equal(asked.answers, 1);
    assert_int_equal(asked.request.err.code, ERR_NONE);
    assert_int_equal(recv(stage->init, &byte, sizeof(byte), MSG_DONTWAIT), -1);
}

static void who_remembers_something_is_asked_for_a_list(void **state)
{
    struct stage *stage = *state;
    struct asked asked = { 0 };
    struct protocol_hello hello = {
        .header = protocol_header(PROTOCOL_HELLO, sizeof(hello), 0, 0),
        .oldest = PROTOCOL_VERSION,
        .newest = PROTOCOL_VERSION,
        .processes = 1,
    };
    struct protocol_done done = { .value = 1 };

    agent_list(stage->agent, &asked.request, on_done);
    say(stage, &hello, sizeof(hello), NULL, 0);
    assert_int_equal(asked.answers, 0);
    done.header = protocol_header(PROTOCOL_DONE, sizeof(done), 0, hear(stage, PROTOCOL_LIST));
    say(stage, &done, sizeof(done), NULL, 0);
    assert_int_equal(asked.answers, 1);
    assert_int_equal(asked.request.err.code, ERR_NONE);
}

static void greet_in(struct stage *stage, uint16_t oldest, uint16_t newest, const char *told)
{
    struct asked asked = { 0 };
    struct protocol_hello hello = {
        .header = protocol_header(PROTOCOL_HELLO, sizeof(hello), 0, 0),
        .oldest = oldest,
        .newest = newest,
    };

    hello.header.version = newest;
    agent_list(stage->agent, &asked.request, on_done);
    say(stage, &hello, sizeof(hello), NULL, 0);
    assert_int_equal(asked.answers, 1);
    assert_string_equal(asked.request.err.name, AGENT_OTHER_VERSION);
    assert_non_null(strstr(asked.request.err.message, told));
}

static void a_newer_init_is_told_apart(void **state)
{
    greet_in(*state, PROTOCOL_VERSION + 1, PROTOCOL_VERSION + 2, "versions 2 to 3");
}

static void an_older_init_is_told_apart(void **state)
{
    greet_in(*state, PROTOCOL_VERSION - 1, PROTOCOL_VERSION - 1, "versions 0 to 0");
}

static void an_init_of_the_release_before_is_spoken_to(void **state)
{
    struct stage *stage = *state;
    size_t length = offsetof(struct protocol_hello, oldest);
    struct protocol_hello hello = { .header = protocol_header(PROTOCOL_HELLO, length, 0, 0) };

    say(stage, &hello, length, NULL, 0);
    assert_false(agent_is_lost(stage->agent));
    assert_string_equal(agent_hello(stage->agent)->scratch, "/tmp/.sandglass");
}

static void the_scratch_of_a_direct_init_of_the_release_before_is_known(void **state)
{
    struct stage *stage = *state;
    size_t length = offsetof(struct protocol_hello, oldest);
    struct protocol_hello hello = { .header = protocol_header(PROTOCOL_HELLO, length, 0, 0) };

    agent_assume_scratch(stage->agent, strdup("/state/box/.sandglass"));
    say(stage, &hello, length, NULL, 0);
    assert_string_equal(agent_hello(stage->agent)->scratch, "/state/box/.sandglass");
}

static void several_are_forgotten_at_once(void **state)
{
    struct stage *stage = *state;
    struct protocol_forget_many forget;

    greet_as(stage, FEATURE_FORGET_MANY);
    for (uint64_t number = 1; number < PROTOCOL_MAX_FORGOTTEN; number++)
        agent_forget(stage->agent, number);
    assert_int_equal(recv(stage->init, &forget, sizeof(forget), MSG_DONTWAIT), -1);
    agent_forget(stage->agent, PROTOCOL_MAX_FORGOTTEN);
    assert_int_equal(recv(stage->init, &forget, sizeof(forget), MSG_DONTWAIT), sizeof(forget));
    assert_non_null(protocol_forget_many_decode(&forget, sizeof(forget)));
    assert_int_equal(forget.count, PROTOCOL_MAX_FORGOTTEN);
    for (uint64_t i = 0; i < forget.count; i++)
        assert_int_equal(forget.processes[i], i + 1);
}

static void what_is_to_be_forgotten_is_not_listed(void **state)
{
    struct stage *stage = *state;
    struct asked asked = { 0 };
    struct protocol_done done = { 0 };

    greet_as(stage, FEATURE_FORGET_MANY);
    agent_forget(stage->agent, 41);
    agent_list(stage->agent, &asked.request, on_done);
    (void)hear(stage, PROTOCOL_FORGET_MANY);
    done.header = protocol_header(PROTOCOL_DONE, sizeof(done), 0, hear(stage, PROTOCOL_LIST));
    say(stage, &done, sizeof(done), NULL, 0);
    assert_int_equal(asked.answers, 1);
}

static void one_is_forgotten_when_some_time_has_passed(void **state)
{
    struct stage *stage = *state;
    struct pollfd heard = { .fd = stage->init, .events = POLLIN };

    greet_as(stage, FEATURE_FORGET_MANY);
    agent_forget(stage->agent, 41);
    for (int i = 0; i < 1000 && poll(&heard, 1, 0) == 0; i++)
        loop_turn(stage->loop, 20);
    (void)hear(stage, PROTOCOL_FORGET_MANY);
}

static void an_init_of_before_is_told_to_forget_one_by_one(void **state)
{
    struct stage *stage = *state;

    greet_as(stage, 0);
    agent_forget(stage->agent, 41);
    (void)hear(stage, PROTOCOL_FORGET);
}

static struct protocol_ran ran_for(uint64_t request)
{
    return (struct protocol_ran){
        .header = protocol_header(PROTOCOL_RAN, sizeof(struct protocol_ran), 41, request),
        .pid = 3,
        .end = { .code = 7, .cpu_us = 5 },
    };
}

static void one_message_tells_start_and_end(void **state)
{
    struct stage *stage = *state;
    struct asked asked;
    struct protocol_ran ran;
    int ends[2];

    greet(stage);
    ran = ran_for(begin_start(stage, &asked, false));
    assert_int_equal(pipe(ends), 0);
    say(stage, &ran, sizeof(ran), (int[]){ ends[0], ends[0] }, 2);
    assert_int_equal(asked.answers, 1);
    assert_int_equal(asked.request.err.code, ERR_NONE);
    assert_int_equal(asked.request.result.started.pid, 3);
    assert_true(asked.request.result.started.has_ended);
    assert_int_equal(stage->exited, 1);
    assert_int_equal(stage->end.code, 7);
    close(asked.request.result.started.pipes.output);
    close(asked.request.result.started.pipes.errors);
    close(ends[0]);
    close(ends[1]);
}

static void who_has_written_nothing_needs_no_pipes(void **state)
{
    struct stage *stage = *state;
    struct asked asked;
    struct protocol_ran ran;

    greet(stage);
    ran = ran_for(begin_start(stage, &asked, false));
    say(stage, &ran, sizeof(ran), NULL, 0);
    assert_int_equal(asked.request.err.code, ERR_NONE);
    assert_true(asked.request.result.started.has_ended);
    assert_int_equal(asked.request.result.started.pipes.output, -1);
    assert_int_equal(asked.request.result.started.pipes.errors, -1);
    assert_int_equal(stage->exited, 1);
}

static void a_terminal_comes_along_all_the_same(void **state)
{
    struct stage *stage = *state;
    struct asked asked;
    struct protocol_ran ran;

    greet(stage);
    ran = ran_for(begin_start(stage, &asked, true));
    ran.flags = START_TTY;
    say(stage, &ran, sizeof(ran), NULL, 0);
    assert_int_equal(stage->lost, 1);
    assert_int_equal(stage->exited, 0);
}

static void an_end_is_heard_when_nobody_waits_for_the_start_any_more(void **state)
{
    struct stage *stage = *state;
    struct asked asked;
    struct protocol_ran ran;
    int ends[2];

    greet(stage);
    ran = ran_for(begin_start(stage, &asked, false));
    agent_cancel(&asked.request);
    assert_int_equal(pipe(ends), 0);
    say(stage, &ran, sizeof(ran), (int[]){ ends[0], ends[0] }, 2);
    assert_int_equal(asked.answers, 0);
    assert_int_equal(stage->exited, 1);
    assert_int_equal(stage->lost, 0);
    close(ends[0]);
    close(ends[1]);
}

/* --- what an init that dies has not read ------------------------------------------------------ */

static void hang_up(struct stage *stage)
{
    close(stage->init);
    stage->init = -1;
    turn(stage);
    assert_int_equal(stage->lost, 1);
}

static void a_start_that_was_not_read_is_known(void **state)
{
    struct stage *stage = *state;
    struct asked asked;

    greet(stage);
    ask_to_start(stage, &asked, false);
    hang_up(stage);
    assert_true(asked.request.err.code && asked.request.is_untaken);
    assert_true(asked.request.err.retryable);
}

static void a_start_after_the_end_was_not_read(void **state)
{
    struct stage *stage = *state;
    struct asked asked;

    greet(stage);
    shutdown(stage->init, SHUT_RDWR);
    ask_to_start(stage, &asked, false);
    hang_up(stage);
    assert_true(asked.request.err.code && asked.request.is_untaken);
}

static void a_start_that_was_read_may_have_run(void **state)
{
    struct stage *stage = *state;
    struct asked asked;

    greet(stage);
    (void)begin_start(stage, &asked, false);
    hang_up(stage);
    assert_true(asked.request.err.code && !asked.request.is_untaken);
    assert_false(asked.request.err.retryable);
    assert_non_null(strstr(asked.request.err.hint, "may have started"));
}

static void another_request_that_was_read_may_be_repeated(void **state)
{
    struct stage *stage = *state;
    struct asked asked = { 0 };

    greet(stage);
    ask_something(stage, &asked.request);
    hang_up(stage);
    assert_string_equal(asked.request.err.name, "sandbox_connection_lost");
    assert_true(asked.request.err.retryable);
}

static void a_start_before_one_that_was_not_read_may_have_run(void **state)
{
    struct stage *stage = *state;
    struct asked first;
    struct asked second;

    greet(stage);
    (void)begin_start(stage, &first, false);
    ask_to_start(stage, &second, false);
    hang_up(stage);
    assert_true(first.request.err.code && !first.request.is_untaken);
    assert_true(second.request.err.code && second.request.is_untaken);
    assert_false(first.request.err.retryable);
    assert_true(second.request.err.retryable);
}

/* --- the bad init ----------------------------------------------------------------------------- */

static void messages_that_init_never_sends_end_the_connection(void **state)
{
    struct stage *stage = *state;
    struct protocol_plain list = { protocol_header(PROTOCOL_LIST, sizeof(list), 0, 1) };
    struct asked asked = { 0 };

    greet(stage);
    ask_something(stage, &asked.request);
    say(stage, &list, sizeof(list), NULL, 0);
    assert_int_equal(stage->lost, 1);
    assert_int_equal(asked.answers, 1);
    assert_int_equal(asked.request.err.code, ERR_BACKEND);
}

static void an_end_for_another_start_is_not_told(void **state)
{
    struct stage *stage = *state;
    struct asked asked;
    struct protocol_ran ran;
    int ends[2];

    greet(stage);
    ran = ran_for(begin_start(stage, &asked, false));
    ran.header.process = 42;
    assert_int_equal(pipe(ends), 0);
    say(stage, &ran, sizeof(ran), (int[]){ ends[0], ends[0] }, 2);
    assert_int_equal(asked.request.err.code, ERR_BACKEND);
    assert_int_equal(stage->exited, 0);
    assert_int_equal(stage->lost, 1);
    close(ends[0]);
    close(ends[1]);
}

static void nothing_comes_before_hello(void **state)
{
    struct stage *stage = *state;
    struct protocol_exited exited = {
        .header = protocol_header(PROTOCOL_EXITED, sizeof(exited), 41, 0),
    };

    say(stage, &exited, sizeof(exited), NULL, 0);
    assert_int_equal(stage->lost, 1);
    assert_int_equal(stage->exited, 0);
}

static void descriptors_of_the_wrong_kind_are_refused_and_closed(void **state)
{
    struct stage *stage = *state;
    struct asked asked;
    struct protocol_started started;
    int file = memfd_create("file", MFD_CLOEXEC);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    size_t before;

    greet(stage);
    before = count_descriptors();
    started = started_for(begin_start(stage, &asked, false), 0);
    say(stage, &started, sizeof(started), (int[]){ file, null }, 2);
    assert_int_equal(stage->lost, 1);
    assert_int_equal(asked.answers, 1);
    assert_int_equal(asked.request.err.code, ERR_BACKEND);
    assert_int_equal(count_descriptors(), before - 1);
    close(file);
    close(null);
}

static void the_write_end_is_no_output(void **state)
{
    struct stage *stage = *state;
    struct asked asked;
    struct protocol_started started;
    int ends[2];

    greet(stage);
    assert_int_equal(pipe(ends), 0);
    started = started_for(begin_start(stage, &asked, false), 0);
    say(stage, &started, sizeof(started), (int[]){ ends[1], ends[0] }, 2);
    assert_int_equal(stage->lost, 1);
    close(ends[0]);
    close(ends[1]);
}

static void a_terminal_is_the_master_of_one(void **state)
{
    struct stage *stage = *state;
    struct asked asked;
    struct protocol_started started;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    greet(stage);
    started = started_for(begin_start(stage, &asked, true), START_TTY);
    say(stage, &started, sizeof(started), &null, 1);
    assert_int_equal(stage->lost, 1);
    close(null);
}

static void other_descriptors_than_asked_for_are_refused(void **state)
{
    struct stage *stage = *state;
    struct asked asked;
    struct protocol_started started;
    int ends[2];

    greet(stage);
    assert_int_equal(pipe(ends), 0);
    started = started_for(begin_start(stage, &asked, false), START_STDIN);
    say(stage, &started, sizeof(started), (int[]){ ends[1], ends[0], ends[0] }, 3);
    assert_int_equal(asked.answers, 1);
    assert_int_equal(asked.request.err.code, ERR_BACKEND);
    assert_int_equal(stage->lost, 1);
    close(ends[0]);
    close(ends[1]);
}

static void too_many_descriptors_are_refused_and_closed(void **state)
{
    struct stage *stage = *state;
    struct protocol_done done = {
        .header = protocol_header(PROTOCOL_DONE, sizeof(done), 0, 1),
    };
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    size_t before;

    greet(stage);
    before = count_descriptors();
    say(stage, &done, sizeof(done), (int[]){ fd, fd, fd, fd, fd, fd }, 6);
    assert_int_equal(stage->lost, 1);
    assert_int_equal(count_descriptors(), before - 1);
    close(fd);
}

static void an_answer_of_the_wrong_type_fails_the_request(void **state)
{
    struct stage *stage = *state;
    struct asked asked;
    struct protocol_done done = { 0 };

    greet(stage);
    done.header =
        protocol_header(PROTOCOL_DONE, sizeof(done), 41, begin_start(stage, &asked, false));
    say(stage, &done, sizeof(done), NULL, 0);
    assert_int_equal(asked.answers, 1);
    assert_int_equal(asked.request.err.code, ERR_BACKEND);
    assert_int_equal(stage->lost, 1);
}

static void only_regular_files_are_taken_for_files(void **state)
{
    struct stage *stage = *state;
    _Alignas(8) char bytes[256];
    struct protocol_file_done done = { 0 };
    struct asked asked = { 0 };
    int directory = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long length;

    greet(stage);
    agent_file(stage->agent, &(struct agent_file){ .kind = FILE_OPEN_READ, .path = "/x" },
               &asked.request, on_done);
    done.header.request = hear(stage, PROTOCOL_FILE);
    length = protocol_file_done_encode(bytes, sizeof(bytes), &done, "");
    say(stage, bytes, (size_t)length, &directory, 1);
    assert_int_equal(asked.answers, 1);
    assert_int_equal(asked.request.err.code, ERR_BACKEND);
    assert_int_equal(asked.request.result.file.fd, -1);
    assert_int_equal(stage->lost, 1);
    close(directory);
}

static void a_file_that_was_given_up_while_it_was_opened_leaves_nothing(void **state)
{
    struct stage *stage = *state;
    struct agent_file file = { .kind = FILE_OPEN_WRITE, .path = "/dir/x" };
    _Alignas(8) char bytes[512];
    struct protocol_file_done done = { 0 };
    const struct protocol_file *heard;
    struct protocol_file_texts texts;
    struct asked asked = { 0 };
    long length;

    greet(stage);
    agent_file(stage->agent, &file, &asked.request, on_done);
    done.header.request = hear(stage, PROTOCOL_FILE);
    agent_cancel_write(&asked.request, file.path);
    length = protocol_file_done_encode(bytes, sizeof(bytes), &done, ".sandglass-1");
    say(stage, bytes, (size_t)length, NULL, 0);
    assert_int_equal(asked.answers, 0);
    length = recv(stage->init, bytes, sizeof(bytes), MSG_DONTWAIT);
    assert_true(length > 0);
    heard = protocol_file_decode(bytes, (size_t)length, &texts);
    assert_non_null(heard);
    assert_int_equal(heard->kind, FILE_COMMIT);
    assert_int_equal(heard->flags, FILE_ABANDON);
    assert_string_equal(texts.path, "/dir/x");
    assert_string_equal(texts.second, ".sandglass-1");
    assert_int_equal(stage->lost, 0);
}

/* --- its own life ----------------------------------------------------------------------------- */

static void a_hangup_fails_everything_that_is_open(void **state)
{
    struct stage *stage = *state;
    struct asked asked[3] = { 0 };

    greet(stage);
    for (int i = 0; i < 3; i++)
        ask_something(stage, &asked[i].request);
    close(stage->init);
    stage->init = -1;
    turn(stage);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(asked[i].answers, 1);
        assert_int_equal(asked[i].request.err.code, ERR_BACKEND);
    }
    assert_int_equal(stage->lost, 1);

    asked[0] = (struct asked){ 0 };
    ask_something(stage, &asked[0].request);
    assert_int_equal(asked[0].answers, 0);
    turn(stage);
    assert_int_equal(asked[0].answers, 1);
    assert_int_equal(asked[0].request.err.code, ERR_BACKEND);
    assert_int_equal(stage->lost, 1);
}

static void a_cancelled_request_is_never_answered(void **state)
{
    struct stage *stage = *state;
    struct asked asked;
    struct protocol_started started;
    int ends[2];
    size_t before;

    greet(stage);
    assert_int_equal(pipe(ends), 0);
    before = count_descriptors();
    started = started_for(begin_start(stage, &asked, false), 0);
    agent_cancel(&asked.request);
    agent_cancel(&asked.request);
    say(stage, &started, sizeof(started), (int[]){ ends[0], ends[0] }, 2);
    assert_int_equal(asked.answers, 0);
    assert_int_equal(stage->lost, 0);
    assert_int_equal(count_descriptors(), before);
    close(ends[0]);
    close(ends[1]);
}

static void it_may_be_freed_in_its_own_callback(void **state)
{
    struct stage *stage = *state;
    struct protocol_exited exited = {
        .header = protocol_header(PROTOCOL_EXITED, sizeof(exited), 41, 0),
    };
    struct asked asked = { 0 };

    greet(stage);
    ask_something(stage, &asked.request);
    stage->frees_in_callback = true;
    say(stage, &exited, sizeof(exited), NULL, 0);
    assert_int_equal(stage->exited, 1);
    assert_int_equal(stage->lost, 0);
    assert_int_equal(asked.answers, 0);
}

static void what_the_socket_does_not_take_is_sent_later_in_order(void **state)
{
    enum { COUNT = 3000 };
    struct stage *stage = *state;
    static struct asked asked[COUNT];

    greet(stage);
    for (int i = 0; i < COUNT; i++) {
        asked[i] = (struct asked){ 0 };
        ask_something(stage, &asked[i].request);
    }
    for (int i = 0; i < COUNT; i++) {
        struct protocol_done done = { 0 };
        uint64_t request = hear(stage, PROTOCOL_RESIZE);

        assert_int_equal(request, asked[i].request.id);
        done.header = protocol_header(PROTOCOL_DONE, sizeof(done), 0, request);
        say(stage, &done, sizeof(done), NULL, 0);
        assert_int_equal(asked[i].answers, 1);
    }
}

static void the_queue_has_an_end(void **state)
{
    enum { COUNT = 200 };
    struct stage *stage = *state;
    static char large[100 * 1024];
    const char *env[] = { large, NULL };
    static struct asked asked[COUNT];
    unsigned refused = 0;

    memset(large, 'x', sizeof(large) - 1);
    greet(stage);
    for (int i = 0; i < COUNT; i++) {
        struct agent_start start = { .number = 100 + (uint64_t)i,
                                     .argv = (const char *const[]){ "true", NULL },
                                     .env = env };

        asked[i] = (struct asked){ 0 };
        agent_start(stage->agent, &start, &asked[i].request, on_done);
        assert_int_equal(asked[i].answers, 0);
    }
    turn(stage);
    for (int i = 0; i < COUNT; i++)
        refused += asked[i].request.err.code == ERR_LIMIT && asked[i].answers == 1;
    assert_in_range(refused, 50, COUNT - 50);
    assert_int_equal(stage->lost, 0);
}

static void file_operations_wait_for_each_other(void **state)
{
    enum { COUNT = 30 };
    struct stage *stage = *state;
    static struct asked asked[COUNT];
    unsigned heard = 0;

    greet(stage);
    for (int i = 0; i < COUNT; i++) {
        asked[i] = (struct asked){ 0 };
        agent_file(stage->agent, &(struct agent_file){ .kind = FILE_STAT, .path = "/x" },
                   &asked[i].request, on_done);
    }
    for (; heard < PROTOCOL_MAX_FILES; heard++)
        (void)hear(stage, PROTOCOL_FILE);
    assert_int_equal(recv(stage->init, &(char){ 0 }, 1, MSG_DONTWAIT), -1);
    for (int i = 0; i < COUNT; i++) {
        struct protocol_file_done done = { .header.request = asked[i].request.id };
        _Alignas(8) char bytes[256];
        long length = protocol_file_done_encode(bytes, sizeof(bytes), &done, "");

        say(stage, bytes, (size_t)length, NULL, 0);
        assert_int_equal(asked[i].answers, 1);
        if (heard < COUNT) {
            (void)hear(stage, PROTOCOL_FILE);
            heard++;
        }
    }
}

static void a_file_operation_that_cannot_be_sent_after_its_wait_fails(void **state)
{
    enum { COUNT = PROTOCOL_MAX_FILES + 2 };
    struct stage *stage = *state;
    static struct asked asked[COUNT];
    static char path[4000];
    int small = 1;
    struct protocol_file_done done = { 0 };
    _Alignas(8) char bytes[256];
    long length;

    memset(path, 'x', sizeof(path) - 1);
    greet(stage);
    for (int i = 0; i < COUNT; i++) {
        bool is_long = i == PROTOCOL_MAX_FILES;

        asked[i] = (struct asked){ 0 };
        agent_file(stage->agent,
                   &(struct agent_file){ .kind = FILE_MOVE,
                                         .path = is_long ? path : "/x",
                                         .second = is_long ? path : "/y" },
                   &asked[i].request, on_done);
    }
    for (int i = 0; i < PROTOCOL_MAX_FILES; i++)
        (void)hear(stage, PROTOCOL_FILE);
    /* The socket takes no message as long as that any more. */
    assert_int_equal(setsockopt(stage->daemon, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
    done.header.request = asked[0].request.id;
    length = protocol_file_done_encode(bytes, sizeof(bytes), &done, "");
    say(stage, bytes, (size_t)length, NULL, 0);
    assert_int_equal(asked[PROTOCOL_MAX_FILES].answers, 1);
    assert_int_not_equal(asked[PROTOCOL_MAX_FILES].request.err.code, ERR_NONE);
    assert_int_equal(hear(stage, PROTOCOL_FILE), asked[COUNT - 1].request.id);
    assert_int_equal(stage->lost, 0);
}

static void a_retired_agent_fails_what_is_open_and_tells_nobody_else(void **state)
{
    struct stage *stage = *state;
    struct asked asked[2] = { 0 };

    greet(stage);
    ask_something(stage, &asked[0].request);
    ask_something(stage, &asked[1].request);
    agent_cancel(&asked[1].request);
    agent_retire(steal_ptr(&stage->agent));
    assert_int_equal(asked[0].answers, 0); /* its caller may be on the stack */
    turn(stage);
    assert_int_equal(asked[0].answers, 1);
    assert_int_equal(asked[0].request.err.code, ERR_BACKEND);
    assert_int_equal(asked[1].answers, 0);
    assert_int_equal(stage->lost, 0);
}

static void requests_that_make_no_sense_are_not_sent(void **state)
{
    struct stage *stage = *state;
    struct asked asked = { 0 };
    struct agent_start start = { .number = 1, .argv = (const char *const[]){ NULL } };

    greet(stage);
    agent_start(stage->agent, &start, &asked.request, on_done);
    assert_int_equal(asked.answers, 0);
    turn(stage);
    assert_int_equal(asked.answers, 1);
    assert_int_equal(asked.request.err.code, ERR_INVALID);
    start.argv = (const char *const[]){ "true", NULL };
    start.cwd = "relative";
    agent_start(stage->agent, &start, &asked.request, on_done);
    turn(stage);
    assert_string_equal(asked.request.err.name, "bad_working_directory");
    assert_int_equal(recv(stage->init, &(char){ 0 }, 1, MSG_DONTWAIT), -1);
}

static void the_connection_of_a_released_agent_stays(void **state)
{
    struct stage *stage = *state;
    int fd = agent_release(steal_ptr(&stage->agent));
    char byte;

    assert_true(fd >= 0);
    loop_turn(stage->loop, 0);
    assert_int_equal(recv(stage->init, &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    fd_close(fd);
    assert_int_equal(recv(stage->init, &byte, 1, MSG_DONTWAIT), 0);
    assert_int_equal(agent_release(NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_STAGE(what_init_says_first_is_kept),
        ON_STAGE(a_start_is_answered_once_with_pipes_that_do_not_block),
        ON_STAGE(a_failure_tells_stage_and_reason),
        ON_STAGE(an_end_reaches_the_handler),
        ON_STAGE(who_remembers_nothing_is_not_asked_for_a_list),
        ON_STAGE(who_remembers_something_is_asked_for_a_list),
        ON_STAGE(a_newer_init_is_told_apart),
        ON_STAGE(an_older_init_is_told_apart),
        ON_STAGE(an_init_of_the_release_before_is_spoken_to),
        ON_STAGE(the_scratch_of_a_direct_init_of_the_release_before_is_known),
        ON_STAGE(several_are_forgotten_at_once),
        ON_STAGE(what_is_to_be_forgotten_is_not_listed),
        ON_STAGE(one_is_forgotten_when_some_time_has_passed),
        ON_STAGE(an_init_of_before_is_told_to_forget_one_by_one),
        ON_STAGE(one_message_tells_start_and_end),
        ON_STAGE(who_has_written_nothing_needs_no_pipes),
        ON_STAGE(a_terminal_comes_along_all_the_same),
        ON_STAGE(an_end_is_heard_when_nobody_waits_for_the_start_any_more),
        ON_STAGE(a_start_that_was_not_read_is_known),
        ON_STAGE(a_start_after_the_end_was_not_read),
        ON_STAGE(a_start_that_was_read_may_have_run),
        ON_STAGE(another_request_that_was_read_may_be_repeated),
        ON_STAGE(a_start_before_one_that_was_not_read_may_have_run),
        ON_STAGE(an_end_for_another_start_is_not_told),
        ON_STAGE(messages_that_init_never_sends_end_the_connection),
        ON_STAGE(nothing_comes_before_hello),
        ON_STAGE(descriptors_of_the_wrong_kind_are_refused_and_closed),
        ON_STAGE(the_write_end_is_no_output),
        ON_STAGE(a_terminal_is_the_master_of_one),
        ON_STAGE(other_descriptors_than_asked_for_are_refused),
        ON_STAGE(too_many_descriptors_are_refused_and_closed),
        ON_STAGE(an_answer_of_the_wrong_type_fails_the_request),
        ON_STAGE(only_regular_files_are_taken_for_files),
        ON_STAGE(a_file_that_was_given_up_while_it_was_opened_leaves_nothing),
        ON_STAGE(a_hangup_fails_everything_that_is_open),
        ON_STAGE(a_cancelled_request_is_never_answered),
        ON_STAGE(it_may_be_freed_in_its_own_callback),
        ON_STAGE(the_connection_of_a_released_agent_stays),
        ON_STAGE(what_the_socket_does_not_take_is_sent_later_in_order),
        ON_STAGE(the_queue_has_an_end),
        ON_STAGE(file_operations_wait_for_each_other),
        ON_STAGE(a_file_operation_that_cannot_be_sent_after_its_wait_fails),
        ON_STAGE(a_retired_agent_fails_what_is_open_and_tells_nobody_else),
        ON_STAGE(requests_that_make_no_sense_are_not_sent),
    };

    return cmocka_run_group_tests_name("core/agent", tests, NULL, NULL);
}
