/* SPDX-License-Identifier: Apache-2.0 */
/* A real relay, in front of a real init, driven frame by frame. */

#include "client.h"

#include "base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* A process that was never started: a request about it is answered by init and changes nothing. */
enum { NOBODY = 4711 };

struct fixture {
    struct host host;
    struct client *client;
};

static int start(void **state)
{
    struct fixture *fixture = xnew(struct fixture);

    host_start(&fixture->host);
    fixture->client = client_new(fixture->host.path, fixture->host.key);
    *state = fixture;
    return 0;
}

static int start_unbound(void **state)
{
    struct fixture *fixture = xnew(struct fixture);

    host_start_unbound(&fixture->host);
    fixture->client = client_new(fixture->host.path, fixture->host.key);
    *state = fixture;
    return 0;
}

static int stop(void **state)
{
    struct fixture *fixture = *state;

    client_free(fixture->client);
    host_stop(&fixture->host);
    free(fixture);
    return 0;
}

static struct client *begun(void **state)
{
    struct fixture *fixture = *state;

    client_begin(fixture->client);
    return fixture->client;
}

static const char *text_of(struct client *client, uint16_t channel)
{
    return buffer_text(&client->channels[channel].out);
}

static struct protocol_totals totals_of(const struct relay_message_view *view)
{
    const struct protocol_totals *totals = protocol_totals_after(view->packet, view->length);

    assert_non_null(totals);
    return *totals;
}

/* --- the handshake ---------------------------------------------------------------------------- */

static void a_session_begins_with_hello(void **state)
{
    struct client *client = begun(state);
    const struct relay_message_view *view = client_take(client, PROTOCOL_HELLO, 0);
    struct protocol_hello hello;

    assert_int_equal(protocol_hello_decode(view->packet, view->length, &hello), 0);
    assert_true(hello.features & FEATURE_STREAMS);
    assert_int_equal(hello.processes, 0);
}

static int connect_plain(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memcpy(address.sun_path, path, strlen(path));
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* Reads to the end; how much there was. */
static size_t read_to_end(int fd)
{
    char bytes[1024];
    size_t total = 0;
    ssize_t count;

    while ((count = read(fd, bytes, sizeof bytes)) > 0)
        total += (size_t)count;
    return total;
}

static void wrong_peers_are_closed_without_a_word(void **state)
{
    struct fixture *fixture = *state;
    struct client *client = begun(state);
    struct {
        struct relay_frame frame;
        struct relay_login login;
    } wrong = {
        .frame = { .length = sizeof wrong.login, .type = RELAY_LOGIN },
        .login = { .version = RELAY_VERSION, .flags = RELAY_LOGIN_NEW },
    };
    size_t greeting = sizeof(struct relay_frame) + sizeof(struct relay_greeting);
    int fd = connect_plain(fixture->host.path);

    assert_int_equal(write(fd, &wrong, sizeof wrong), sizeof wrong);
    assert_int_equal(read_to_end(fd), greeting);
    close(fd);
    fd = connect_plain(fixture->host.path);
    assert_int_equal(write(fd, "GET / HTTP/1.1\r\n\r\n", 18), 18);
    (void)read_to_end(fd);
    close(fd);
    fd = connect_plain(fixture->host.path);
    wrong.frame.length = UINT32_MAX;
    assert_int_equal(write(fd, &wrong.frame, sizeof wrong.frame), sizeof wrong.frame);
    (void)read_to_end(fd);
    close(fd);

    client_ask(client, PROTOCOL_FORGET, NOBODY, 5); /* the session did not notice */
    (void)client_take(client, PROTOCOL_DONE, 0);
}

static void a_wrong_key_gets_no_further(void **state)
{
    struct fixture *fixture = *state;
    struct relay_greeting greeting;
    struct {
        struct relay_frame frame;
        struct relay_login login;
    } answer = {
        .frame = { .length = sizeof answer.login, .type = RELAY_LOGIN },
        .login = { .version = RELAY_VERSION, .flags = RELAY_LOGIN_NEW },
    };
    uint8_t key[RELAY_KEY_SIZE];
    int fd = connect_plain(fixture->host.path);

    memcpy(key, fixture->host.key, sizeof key);
    key[7] ^= 1;
    assert_int_equal(lseek(fd, 0, SEEK_CUR), -1);
    assert_int_equal(recv(fd, &answer.frame, sizeof answer.frame, MSG_WAITALL),
                     sizeof answer.frame);
    assert_int_equal(recv(fd, &greeting, sizeof greeting, MSG_WAITALL), sizeof greeting);
    answer.frame = (struct relay_frame){ .length = sizeof answer.login, .type = RELAY_LOGIN };
    relay_sign_login(key, &greeting, sizeof greeting, &answer.login);
    assert_int_equal(write(fd, &answer, sizeof answer), sizeof answer);
    assert_int_equal(read_to_end(fd), 0);
    close(fd);
}

/* A login in the place of the key, a key that is cut, and a second key: the relay takes none of them. */
static void a_relay_without_a_key_takes_one(void **state)
{
    struct fixture *fixture = *state;
    struct {
        struct relay_frame frame;
        uint8_t key[RELAY_KEY_SIZE];
    } bind = { .frame = { .length = sizeof bind.key, .type = RELAY_BIND }, .key = { 1 } };
    struct relay_frame login = { .length = sizeof(struct relay_login), .type = RELAY_LOGIN };
    size_t greeting = sizeof(struct relay_frame) + sizeof(struct relay_greeting);
    int fd = connect_plain(fixture->host.path);
    int late;

    assert_int_equal(write(fd, &login, sizeof login), sizeof login);
    assert_int_equal(read_to_end(fd), greeting);
    close(fd);
    fd = connect_plain(fixture->host.path);
    assert_int_equal(write(fd, &bind, sizeof bind - 1), sizeof bind - 1);
    shutdown(fd, SHUT_WR);
    assert_int_equal(read_to_end(fd), greeting);
    close(fd);

    late = connect_plain(fixture->host.path); /* greeted before there is a key */
    fixture->client->binds = true;
    (void)begun(state);
    (void)client_take(fixture->client, PROTOCOL_HELLO, 0);
    (void)!write(late, &bind, sizeof bind); /* the relay may have been weary of waiting for it */
    assert_int_equal(read_to_end(late), greeting);
    close(late);
    (void)begun(state); /* with the key that it has */
}

/* More than the relay has places for. They are let go one after the other, and the bridge gets in. */
static void peers_that_say_nothing_are_dropped(void **state)
{
    struct fixture *fixture = *state;
    int fds[6];

    for (unsigned i = 0; i < 6; i++)
        fds[i] = connect_plain(fixture->host.path);
    (void)begun(state);
    for (unsigned i = 0; i < 6; i++)
        close(fds[i]);
}

static void the_latest_login_wins(void **state)
{
    struct fixture *fixture = *state;
    struct client *first = begun(state);
    struct client *second = client_new(fixture->host.path, fixture->host.key);
    int64_t deadline = client_deadline_ms(60000);

    client_begin(second);
    while (client_turn(first, 100))
        assert_true(client_deadline_ms(0) < deadline);
    (void)client_take(second, PROTOCOL_HELLO, 0);
    assert_memory_equal(first->boot, second->boot, RELAY_BOOT_SIZE);
    assert_int_equal(client_resume(first), -1); /* its session is over */
    client_ask(second, PROTOCOL_FORGET, NOBODY, 9);
    (void)client_take(second, PROTOCOL_DONE, 0);
    client_free(second);
}

/* --- processes -------------------------------------------------------------------------------- */

static void a_program_gives_its_output_and_its_totals(void **state)
{
    struct client *client = begun(state);
    struct client_process process;
    struct protocol_totals totals;

    client_start(client, &process, 1, "echo out; echo error >&2; read line", START_STDIN);
    client_end(client, process.in);
    client_ask(client, PROTOCOL_CLOSE_STDIN, 1, 2);
    totals = totals_of(client_take(client, PROTOCOL_EXITED, 1));
    assert_int_equal(totals.output, 4);
    assert_int_equal(totals.errors, 6);
    client_wait(client, client->channels[process.out].is_end_kept &&
                            client->channels[process.errors].is_end_kept);
    assert_string_equal(text_of(client, process.out), "out\n");
    assert_string_equal(text_of(client, process.errors), "error\n");
}

static void a_short_program_is_told_at_once(void **state)
{
    struct client *client = begun(state);
    struct client_process process;

    client_start(client, &process, 1, "echo hello", 0);
    client_wait(client, !process.out || client->channels[process.out].has_end);
    assert_string_equal(text_of(client, process.out), "hello\n");
}

static void input_reaches_a_program_before_its_end(void **state)
{
    struct client *client = begun(state);
    struct client_process process;
    char expected[32];
    size_t total = 3000000;
    char *bytes = xmalloc(total);
    size_t done = 0;

    memset(bytes, 'x', total);
    client_start(client, &process, 1, "sleep 0.2; wc -c", START_STDIN);
    while (done < total) {
        done += client_write(client, process.in, bytes + done, total - done);
        client_wait(client,
                    client->channels[process.in].allowed > client->channels[process.in].sent ||
                        done == total);
    }
    client_end(client, process.in);
    client_ask(client, PROTOCOL_CLOSE_STDIN, 1, 77);
    (void)client_take(client, PROTOCOL_EXITED, 1);
    (void)client_take(client, PROTOCOL_DONE, 1);
    client_wait(client, client->channels[process.out].has_end);
    snprintf(expected, sizeof expected, "%zu\n", total);
    assert_string_equal(text_of(client, process.out), expected);
    assert_int_equal(client->channels[process.in].taken, total);
    free(bytes);
}

static void input_that_nobody_reads_is_closed(void **state)
{
    struct client *client = begun(state);
    struct client_process process;

    client_start(client, &process, 1, "exec <&-; sleep 1000", START_STDIN);
    client_wait(client, client->channels[process.in].is_closed);
    client_end(client, process.in);
    client_wait(client, client->channels[process.in].is_done);
}

static void a_terminal_is_two_channels(void **state)
{
    struct client *client = begun(state);
    struct client_process process;
    const struct relay_message_view *view;
    struct protocol_resize resize = {
        .header = protocol_header(PROTOCOL_RESIZE, sizeof resize, 1, 3),
        .columns = 33,
        .rows = 12,
    };

    client_start(client, &process, 1, "read line; echo got $line; stty size; exit 3", START_TTY);
    assert_true(process.in && process.out);
    client_send(client, &resize, sizeof resize, NULL, 0);
    (void)client_take(client, PROTOCOL_DONE, 1);
    client_wait(client, client->channels[process.in].allowed);
    assert_int_equal(client_write(client, process.in, "hello\n", 6), 6);
    view = client_take(client, PROTOCOL_EXITED, 1);
    client_wait(client, client->channels[process.out].has_end);
    assert_non_null(strstr(text_of(client, process.out), "got hello\r\n12 33\r\n"));
    assert_int_equal(totals_of(view).output, client->channels[process.out].total);
}

static void a_script_comes_before_its_start(void **state)
{
    static const char script[] = "echo from a script\n";
    struct client *client = begun(state);
    struct fixture *fixture = *state;
    struct client_process process;
    char packet[4096];
    char path[128];
    const char *const argv[] = { "/bin/sh", path, NULL };
    const char *const env[] = { NULL };
    struct protocol_start fixed = {
        .header = { .process = 1, .request = 1 },
        .flags = START_SCRIPT,
        .umask = 022,
    };
    struct protocol_start_texts texts = {
        .user = "",
        .cwd = "",
        .script_path = path,
        .argv = argv,
        .env = env,
    };
    struct relay_descriptor descriptor = {
        .channel = RELAY_BRIDGE_CHANNEL + 5,
        .kind = RELAY_CONTENT,
        .base = sizeof script - 1,
    };
    struct client_channel *content = &client->channels[descriptor.channel];
    long length;

    snprintf(path, sizeof path, "%s/script", fixture->host.dir);
    length = protocol_start_encode(packet, sizeof packet, &fixed, &texts);
    assert_true(length > 0);
    content->allowed = RELAY_WINDOW;
    assert_int_equal(client_write(client, descriptor.channel, script, 5), 5);
    assert_int_equal(client_write(client, descriptor.channel, script + 5, sizeof script - 6),
                     sizeof script - 6);
    client_send(client, packet, (size_t)length, &descriptor, 1);
    client_take_start(client, &process, 1);
    client_wait(client, content->is_done && client->channels[process.out].has_end);
    assert_string_equal(text_of(client, process.out), "from a script\n");
}

static void forgetting_a_process_frees_its_channels(void **state)
{
    struct client *client = begun(state);
    struct client_process process;

    for (uint64_t number = 1; number <= 1000; number++) {
        client_start(client, &process, number, "echo x", 0);
        if (process.out)
            client_wait(client, client->channels[process.out].has_end);
        client_ask(client, PROTOCOL_FORGET, number, number);
        (void)client_take(client, PROTOCOL_DONE, number);
        if (number % 200 == 0)
            client_begin(client);
    }
}

/* --- windows ---------------------------------------------------------------------------------- */

static void nothing_is_sent_beyond_the_window(void **state)
{
    struct client *client = begun(state);
    struct client_process process;
    struct client_channel *channel;

    client->acknowledges = false;
    client_start(client, &process, 1, "seq 1 1000000", 0);
    channel = &client->channels[process.out];
    client_wait(client, channel->come == RELAY_WINDOW);
    client_ask(client, PROTOCOL_FORGET, NOBODY, 5);
    (void)client_take(client, PROTOCOL_DONE, 0);
    assert_int_equal(channel->come, RELAY_WINDOW);
    client->window = 100;
    client_keep(client, process.out, RELAY_WINDOW);
    client_wait(client, channel->come == RELAY_WINDOW + 100);
    client->acknowledges = true;
    client->window = RELAY_WINDOW;
    client_keep(client, process.out, channel->come);
    client_wait(client, channel->has_end);
    assert_int_equal(channel->total, 6888896);
}

/* Outputs that nobody reads must not stop others. */
static void stuck_streams_leave_room_for_others(void **state)
{
    struct client *client = begun(state);
    struct client_process process;
    int64_t deadline = client_deadline_ms(60000);

    client->acknowledges = false;
    for (uint64_t number = 1; number <= 40; number++)
        client_start(client, &process, number, "cat /dev/zero", 0);
    client_start(client, &process, 100, "seq 1 100000", 0);
    while (!client->channels[process.out].has_end) {
        client_go_on(client, deadline, "the program ends");
        if (client->channels[process.out].come > client->channels[process.out].kept)
            client_keep(client, process.out, client->channels[process.out].come);
    }
    assert_int_equal(client->channels[process.out].total, 588895);
}

/* --- sessions --------------------------------------------------------------------------------- */

static char *expected_lines(unsigned count, size_t *out_length)
{
    struct buffer text;

    text = BUFFER_INIT(64 * 1024 * 1024);
    for (unsigned i = 1; i <= count; i++)
        assert_int_equal(buffer_appendf(&text, "%u\n", i), 0);
    *out_length = text.length;
    return buffer_steal_text(&text);
}

/* Input, output and messages over a connection that is cut after `step` bytes, and then after so many
 * more that each frame gets through in the end. */
static void run_with_cuts(struct client *client, uint64_t number, long step)
{
    struct client_process process;
    size_t length;
    scoped(free) char *lines = expected_lines(2000, &length);
    size_t done = 0;
    int64_t deadline = client_deadline_ms(60000);

    client->cut_in = step;
    client_start(client, &process, number, "cat", START_STDIN);
    while (!client->channels[process.out].has_end) {
        bool is_open = done < length;

        if (client->cut_in < 0)
            client->cut_in = client->cuts % 2 ? step + 20000 : step;
        if (is_open)
            done += client_write(client, process.in, lines + done,
                                 length - done < 700 ? length - done : 700);
        if (is_open && done == length) {
            client_end(client, process.in);
            client_ask(client, PROTOCOL_CLOSE_STDIN, number, 1);
        }
        client_go_on(client, deadline, "the program ends");
    }
    assert_int_equal(client->channels[process.out].out.length, length);
    assert_memory_equal(text_of(client, process.out), lines, length);
    (void)client_take(client, PROTOCOL_EXITED, number);
    client->cut_in = -1;
}

static void a_cut_after_any_byte_loses_nothing(void **state)
{
    struct client *client = begun(state);
    uint64_t number = 1;

    for (long step = 0; step < 5000; step += step < 200 ? 1 : 97)
        run_with_cuts(client, number++, step);
    assert_true(client->cuts > 250);
}

/* As a daemon that is killed: only what was kept is known, and where. */
static void a_new_session_goes_on_where_output_was_kept(void **state)
{
    struct client *client = begun(state);
    struct client_process process;
    const unsigned count = 1000000;
    size_t length;
    scoped(free) char *lines = expected_lines(count, &length);
    scoped(buffer_fini) struct buffer spool = { 0 };
    bool is_over = false;
    unsigned rounds = 0;

    spool = BUFFER_INIT(64 * 1024 * 1024);
    client_start(client, &process, 1, "seq 1 1000000; exit 7", 0);
    while (!is_over) {
        struct client_channel *channel = &client->channels[process.out];
        uint64_t skip = spool.length - channel->base;
        int64_t deadline = client_deadline_ms(60000);

        assert_true(channel->base <= spool.length);
        while (!channel->is_end_kept && channel->come - channel->base < skip + 70000)
            client_go_on(client, deadline, "more output");
        assert_int_equal(
            buffer_append(&spool, text_of(client, process.out) + skip, channel->out.length - skip),
            0);
        is_over = channel->is_end_kept;
        if (is_over)
            break;
        rounds++;
        client_begin(client);
        client_ask(client, PROTOCOL_LIST, 0, 1);
        process.out = client_take(client, PROTOCOL_PROCESS, 1)->descriptors[0].channel;
    }
    assert_true(rounds > 10);
    assert_int_equal(spool.length, length);
    assert_memory_equal(buffer_text(&spool), lines, length);
}

static void an_end_is_told_again_with_bases_and_totals(void **state)
{
    struct client *client = begun(state);
    struct client_process process;
    const struct relay_message_view *view;
    const struct protocol_bases *bases;

    client_start(client, &process, 1, "echo out; echo error >&2; cat >/dev/null", START_STDIN);
    client_wait(client, client->channels[process.in].allowed);
    (void)client_write(client, process.in, "abc", 3);
    client_wait(client, client->channels[process.out].come == 4);
    client_keep(client, process.out, 4);
    client_ask(client, PROTOCOL_FORGET, NOBODY, 5);
    (void)client_take(client, PROTOCOL_DONE, 0);

    client_begin(client);
    client_ask(client, PROTOCOL_LIST, 0, 1);
    view = client_take(client, PROTOCOL_PROCESS, 1);
    bases = protocol_bases_after(view->packet, view->length);
    assert_non_null(bases);
    assert_int_equal(bases->input, 3);
    assert_int_equal(bases->output, 4);
    assert_int_equal(totals_of(view).output, 4);
    assert_int_equal(view->count, 3);
    assert_int_equal(view->descriptors[0].base, 3);
    process.in = view->descriptors[0].channel;
    client_end(client, process.in);
    client_ask(client, PROTOCOL_CLOSE_STDIN, 1, 2);
    assert_int_equal(totals_of(client_take(client, PROTOCOL_EXITED, 1)).errors, 6);
}

/* A daemon that stops closes its pipes: what it has not kept is there for the next one. */
static void closed_output_of_a_process_waits_for_the_next_session(void **state)
{
    struct client *client = begun(state);
    struct client_process process;

    client->acknowledges = false;
    client_start(client, &process, 1, "echo one; sleep 0.1; echo two", 0);
    client_wait(client, client->channels[process.out].come >= 4);
    client_close_channel(client, process.out);
    client_wait(client, client->channels[process.out].has_end);
    client->acknowledges = true;
    client_begin(client);
    client_ask(client, PROTOCOL_LIST, 0, 1);
    process.out = client_take(client, PROTOCOL_PROCESS, 1)->descriptors[0].channel;
    client_wait(client, client->channels[process.out].has_end);
    assert_string_equal(text_of(client, process.out), "one\ntwo\n");
}

/* --- files ------------------------------------------------------------------------------------ */

static const struct relay_message_view *
ask_file(struct client *client, enum protocol_file_kind kind, const char *path, uint64_t request)
{
    char packet[8192];
    struct protocol_file fixed = { .header = { .request = request }, .kind = kind, .depth = 1 };
    struct protocol_file_texts texts = { .user = "", .path = path, .second = "" };
    long length = protocol_file_encode(packet, sizeof packet, &fixed, &texts);

    assert_true(length > 0);
    client_send(client, packet, (size_t)length, NULL, 0);
    return client_take(client, PROTOCOL_FILE_DONE, 0);
}

static void a_list_comes_through_a_channel(void **state)
{
    struct fixture *fixture = *state;
    struct client *client = begun(state);
    const struct relay_message_view *view = ask_file(client, FILE_LIST, fixture->host.dir, 4);
    struct client_channel *channel;

    assert_int_equal(view->count, 1);
    assert_int_equal(view->descriptors[0].kind, RELAY_OUTPUT);
    channel = &client->channels[view->descriptors[0].channel];
    client_wait(client, channel->is_end_kept);
    assert_true(channel->out.length > sizeof(struct protocol_entry));
}

static void a_regular_file_is_not_passed(void **state)
{
    struct client *client = begun(state);
    const struct relay_message_view *view = ask_file(client, FILE_OPEN_READ, "/etc/passwd", 4);
    struct protocol_file_done done;

    memcpy(&done, view->packet, sizeof done);
    assert_int_equal(view->count, 0);
    assert_int_equal(done.error, EOPNOTSUPP);
}

static struct protocol_note last_note(struct client *client, uint16_t channel)
{
    const struct buffer *out = &client->channels[channel].out;
    struct protocol_note_view note;

    assert_true(protocol_note_decode(out->data, out->length, &note) > 0);
    assert_int_equal(note.fixed.kind, NOTE_LAST);
    return note.fixed;
}

static void write_all(struct client *client, uint16_t channel, const char *bytes, size_t length)
{
    for (size_t done = 0; done < length;) {
        client_wait(client, client->channels[channel].allowed > client->channels[channel].sent);
        done += client_write(client, channel, bytes + done, length - done);
    }
}

/* A socket: the content goes in, its end too, and a note comes back. */
static void an_upload_goes_through_a_channel_of_both_directions(void **state)
{
    struct fixture *fixture = *state;
    struct client *client = begun(state);
    size_t length;
    scoped(free) char *lines = expected_lines(300000, &length);
    char path[128];
    const struct relay_message_view *view;
    uint16_t channel;

    snprintf(path, sizeof path, "%s/upload", fixture->host.dir);
    view = ask_file(client, FILE_WRITE, path, 4);
    assert_int_equal(view->count, 1);
    assert_int_equal(view->descriptors[0].kind, RELAY_BOTH);
    channel = view->descriptors[0].channel;
    write_all(client, channel, lines, length);
    client_end(client, channel);
    client_wait(client, client->channels[channel].is_done && client->channels[channel].has_end);
    assert_int_equal(last_note(client, channel).amount, length);
    assert_int_equal(last_note(client, channel).error, 0);
}

/* The reader of a download has gone: what comes later is dropped, and the number is free again. */
static void a_download_can_be_closed(void **state)
{
    struct client *client = begun(state);
    struct fixture *fixture = *state;
    struct client_process process;
    const struct relay_message_view *view;
    char path[128];
    uint16_t channel;

    client_start(client, &process, 1, "head -c 9000000 /dev/zero >large", 0);
    client_wait(client, client_has(client, PROTOCOL_EXITED, 1) || !process.out ||
                            client->channels[process.out].has_end);
    snprintf(path, sizeof path, "%s/large", fixture->host.dir);
    client->acknowledges = false;
    view = ask_file(client, FILE_READ, path, 4);
    assert_int_equal(view->count, 1);
    channel = view->descriptors[0].channel;
    client_wait(client, client->channels[channel].come > 0);
    client_close_channel(client, channel);
    client_wait(client, client->channels[channel].has_end);
    assert_true(client->channels[channel].total < 9000000);
    client_keep(client, channel, client->channels[channel].total);
    client_ask(client, PROTOCOL_LIST, 0, 5);
    (void)client_take(client, PROTOCOL_DONE, 0);
}

/* A terminal answers while other channels have more to send than the connection takes. How much that is
 * depends on when its program gets the processor, so the soonest answer counts. */
static void a_flood_does_not_hold_up_a_terminal(void **state)
{
    struct client *client = begun(state);
    struct client_process flood, terminal;
    struct client_channel *shown;
    uint64_t least = UINT64_MAX;

    client->discards = true;
    for (uint64_t number = 1; number <= 4; number++)
        client_start(client, &flood, number, "cat /dev/zero", 0);
    client_start(client, &terminal, 100, "stty -echo; echo up; cat", START_TTY);
    shown = &client->channels[terminal.out];
    client_wait(client, shown->come >= strlen("up\r\n"));
    for (unsigned i = 0; i < 20; i++) {
        uint64_t before = shown->come;
        uint64_t flooded = client->received;

        write_all(client, terminal.in, "x\n", 2);
        client_wait(client, shown->come >= before + 2);
        least = client->received - flooded < least ? client->received - flooded : least;
    }
    assert_true(least < 64u * 1024 * 1024);
}

/* More than one page of everything, each with its input. */
static void all_processes_have_their_channels(void **state)
{
    enum { COUNT = 300 };
    static struct client_process processes[COUNT];
    struct client *client = begun(state);

    for (unsigned i = 0; i < COUNT; i++)
        client_start(client, &processes[i], i + 1, "cat; echo end >&2", START_STDIN);
    for (unsigned i = 0; i < COUNT; i++)
        write_all(client, processes[i].in, "hello\n", 6);
    for (unsigned i = 0; i < COUNT; i++) {
        client_end(client, processes[i].in);
        client_ask(client, PROTOCOL_CLOSE_STDIN, i + 1, i + 1);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        client_wait(client, client->channels[processes[i].out].has_end &&
                                client->channels[processes[i].errors].has_end);
        assert_string_equal(text_of(client, processes[i].out), "hello\n");
        assert_string_equal(text_of(client, processes[i].errors), "end\n");
    }
}

/* --- hostile frames --------------------------------------------------------------------------- */

struct hostile {
    const char *what;
    struct relay_frame frame;
};

/* Each of them ends the connection and the session, and nothing else. */
static void a_broken_rule_ends_the_session(void **state)
{
    struct client *client = begun(state);
    struct client_process process;
    struct hostile table[] = {
        { "unknown type", { .type = 99 } },
        { "a greeting", { .type = RELAY_GREETING, .length = 48 } },
        { "a second login", { .type = RELAY_LOGIN, .length = sizeof(struct relay_login) } },
        { "huge data", { .type = RELAY_DATA, .channel = 1, .length = UINT32_MAX } },
        { "data of no channel", { .type = RELAY_DATA, .length = 4 } },
        { "data of an unknown channel", { .type = RELAY_DATA, .channel = 999, .length = 4 } },
        { "data for an output", { .type = RELAY_DATA, .channel = 2, .length = 4 } },
        { "data at another offset",
          { .type = RELAY_DATA, .channel = 1, .length = 4, .offset = 1 } },
        { "data beyond the window", { .type = RELAY_DATA, .channel = 1, .length = 60000 } },
        { "an end at another offset",
          { .type = RELAY_END, .channel = 1, .length = 8, .offset = 7 } },
        { "an end of an output", { .type = RELAY_END, .channel = 2, .length = 8 } },
        { "an ack of too much", { .type = RELAY_ACK, .channel = 2, .length = 8, .offset = 999 } },
        { "an ack of an input", { .type = RELAY_ACK, .channel = 1, .length = 8 } },
        { "an end kept before it came",
          { .type = RELAY_ACK, .channel = 2, .length = 8, .flags = RELAY_ACK_END } },
        { "a close of an input", { .type = RELAY_CLOSE, .channel = 1 } },
        { "received too much", { .type = RELAY_RECEIVED, .offset = 1ull << 40 } },
        { "received half a frame", { .type = RELAY_RECEIVED, .offset = 3 } },
        { "content that is closed", { .type = RELAY_CLOSE, .channel = RELAY_BRIDGE_CHANNEL } },
        { "content at an offset",
          { .type = RELAY_DATA, .channel = RELAY_BRIDGE_CHANNEL, .length = 4, .offset = 4 } },
        { "a message of nothing", { .type = RELAY_MESSAGE, .length = 8 } },
        { "a message of zeros", { .type = RELAY_MESSAGE, .length = 64 } },
    };
    static char zeros[65536];

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int64_t deadline = client_deadline_ms(60000);
        bool is_long = table[i].frame.length > sizeof zeros;

        client_begin(client);
        client_start(client, &process, i + 1, "cat", START_STDIN);
        client_wait(client, client->channels[process.in].allowed);
        if (table[i].frame.channel == 1)
            table[i].frame.channel = process.in;
        if (table[i].frame.channel == 2)
            table[i].frame.channel = process.out;
        client_put_raw(client, &table[i].frame, sizeof table[i].frame);
        client_put_raw(client, zeros, is_long ? 0 : table[i].frame.length);
        while (client_turn(client, 100))
            if (client_deadline_ms(0) > deadline)
                fail_msg("the relay takes %s", table[i].what);
        assert_int_equal(client_resume(client), -1);
    }
    client_begin(client);
    (void)client_take(client, PROTOCOL_HELLO, 0);
}

static void frames_that_may_be_ignored_are(void **state)
{
    struct client *client = begun(state);
    struct relay_frame unknown = { .length = 3, .type = 77, .flags = RELAY_MAY_IGNORE };
    struct relay_frame ping = { .length = 8, .type = RELAY_PING };

    client_put(client, &unknown, "abc");
    client_put_raw(client, &ping, sizeof ping);
    client_put_raw(client, "12345678", 8);
    client_wait(client, client->pongs == 1);
    client_cut(client);
    assert_int_equal(client_resume(client), 0);
    assert_int_equal(client->sequenced.length, 0); /* it was counted */
}

static void what_the_sandbox_uses_is_told(void **state)
{
    struct client *client = begun(state);
    struct relay_frame measure = { .type = RELAY_MEASURE };

    for (unsigned i = 1; i <= 3; i++) {
        client_put_raw(client, &measure, sizeof measure);
        client_wait(client, client->usages == i);
        assert_true(client->usage.memory_bytes > 0);
        assert_true(client->usage.pids > 0);
    }
    client_cut(client);
    assert_int_equal(client_resume(client), 0); /* none of it was counted */
}

/* --- the pump --------------------------------------------------------------------------------- */

static void run_over_pumps(void **state, enum client_way way)
{
    struct fixture *fixture = *state;
    uint64_t number = 1;

    fixture->client->way = way;
    (void)begun(state);
    for (long step = 10; step < 3000; step += 211)
        run_with_cuts(fixture->client, number++, step);
    assert_true(fixture->client->cuts > 10);
}

static void a_pump_copies_between_pipes_and_the_relay(void **state)
{
    run_over_pumps(state, CLIENT_PUMP_PIPES);
}

static void a_pump_copies_between_a_socket_and_the_relay(void **state)
{
    run_over_pumps(state, CLIENT_PUMP_SOCKET);
}

static void much_output_goes_through_a_pump(void **state)
{
    struct fixture *fixture = *state;
    struct client *client = fixture->client;
    struct client_process process;

    client->way = CLIENT_PUMP_PIPES;
    client->discards = true;
    client_begin(client);
    client_start(client, &process, 1, "head -c 30000000 /dev/zero", 0);
    client_wait(client, client->channels[process.out].has_end);
    assert_int_equal(client->channels[process.out].total, 30000000);
}

/* An engine starts it with the variables of the container, and its environment is in /proc. */
static void a_pump_forgets_the_key(void **state)
{
    struct fixture *fixture = *state;
    struct client *client = fixture->client;
    char path[64], bytes[16384];
    ssize_t length;
    int fd;

    if (geteuid() != 0)
        skip(); /* it is not dumpable: only root may look */
    client->way = CLIENT_PUMP_PIPES;
    setenv("SANDGLASS_KEY", "5ec2e75ec2e7", 1);
    client_begin(client);
    unsetenv("SANDGLASS_KEY");
    snprintf(path, sizeof path, "/proc/%d/environ", (int)client->pump);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    length = read(fd, bytes, sizeof bytes);
    close(fd);
    assert_true(length > 0);
    assert_non_null(memmem(bytes, (size_t)length, "SANDGLASS_KEY=", 14));
    assert_null(memmem(bytes, (size_t)length, "5ec2", 4));
}

static void a_pump_without_a_relay_says_so(void **state)
{
    int status;
    pid_t pid = fork();

    (void)state;
    if (!pid) {
        execl(getenv("SANDGLASS_INIT"), "sandglass-init", "--pump=/nowhere/relay.sock", NULL);
        _exit(112);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

/* As behind an engine that has died: nobody reads, and no end comes. */
static void a_pump_whose_output_is_stuck_leaves_with_the_relay(void **state)
{
    struct fixture *fixture = *state;
    struct client *client = fixture->client;
    struct client *next = client_new(fixture->host.path, fixture->host.key);
    struct client_process process;
    int64_t deadline = client_deadline_ms(60000);
    int status;

    client->way = CLIENT_PUMP_PIPES;
    client_begin(client);
    client_start(client, &process, 1, "cat /dev/zero", 0);
    client_begin(next); /* the relay closes the first connection; its pipes stay open */
    while (waitpid(client->pump, &status, WNOHANG) != client->pump)
        assert_true(client_turn(next, 20) && client_deadline_ms(0) < deadline);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    client->pump = 0;
    client_free(next);
}

/* --- attached --------------------------------------------------------------------------------- */

static int start_attached(void **state)
{
    struct fixture *fixture = xnew(struct fixture);

    fixture->client = host_start_attached(&fixture->host);
    *state = fixture;
    return 0;
}

static void the_first_connection_comes_through_stdin_and_stdout(void **state)
{
    struct client *client = begun(state);
    struct client_process process;

    (void)client_take(client, PROTOCOL_HELLO, 0);
    client_start(client, &process, 1, "head -c 3000000 /dev/zero; exit 7", 0);
    client_wait(client, client->channels[process.out].has_end);
    assert_int_equal(client->channels[process.out].total, 3000000);
    (void)client_take(client, PROTOCOL_EXITED, 1);
}

/* As when a daemon is killed: what the two pipes still hold is lost, and the next connection comes by
 * another pump. */
static void a_cut_of_the_attached_connection_loses_nothing(void **state)
{
    (void)state;
    for (long step = 1; step < 4000; step = step * 3 / 2 + 7) {
        struct fixture fixture;

        fixture.client = host_start_attached(&fixture.host);
        client_begin(fixture.client);
        run_with_cuts(fixture.client, 1, step);
        client_free(fixture.client);
        host_stop(&fixture.host);
    }
}

/* A program, init or the relay that had them, too, would keep them open. */
static void the_pump_alone_has_the_attached_pipes(void **state)
{
    struct fixture *fixture = *state;
    struct client *client = begun(state);
    struct client_process process;
    int64_t deadline = client_deadline_ms(60000);

    client_start(client, &process, 1, "sleep 1000", 0);
    kill(host_find_relay(&fixture->host), SIGKILL);
    while (client_turn(client, 100))
        assert_true(client_deadline_ms(0) < deadline);
    assert_int_equal(client_resume(client), 0);
}

static void an_attached_pump_that_is_stopped_does_not_stop_the_next_one(void **state)
{
    struct fixture *fixture = *state;
    struct client *next = client_new(fixture->host.path, fixture->host.key);
    struct client *client = begun(state);
    struct client_process process;

    client_start(client, &process, 1, "cat /dev/zero", 0);
    kill(host_find_relay(&fixture->host), SIGSTOP);
    next->way = CLIENT_PUMP_PIPES;
    client_begin(next);
    (void)client_take(next, PROTOCOL_HELLO, 0);
    client_free(next);
}

static void hostile_bytes_on_stdin_end_the_attached_connection_alone(void **state)
{
    struct fixture *fixture = *state;
    struct client *next = client_new(fixture->host.path, fixture->host.key);
    char bytes[4096];

    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(write(fixture->client->attached_in, bytes, sizeof bytes), sizeof bytes);
    while (read(fixture->client->attached_out, bytes, sizeof bytes) >
           0) /* a greeting and the end */
        ;
    client_begin(next);
    (void)client_take(next, PROTOCOL_HELLO, 0);
    client_free(next);
}

static void only_a_relay_with_a_path_can_be_attached(void **state)
{
    static const char *const others[] = { "--dial=/tmp/x", "--listen=/tmp/x", "--relay", NULL };

    (void)state;
    for (unsigned i = 0; i < sizeof others / sizeof others[0]; i++) {
        int status;
        pid_t pid = fork();

        if (!pid) {
            execl(getenv("SANDGLASS_INIT"), "sandglass-init", "--attached", others[i], NULL);
            _exit(112);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    }
}

/* --- ends ------------------------------------------------------------------------------------- */

static void the_relay_ends_with_init(void **state)
{
    struct fixture *fixture = *state;
    struct client *client = begun(state);
    int64_t deadline = client_deadline_ms(60000);

    (void)client_take(client, PROTOCOL_HELLO, 0);
    kill(fixture->host.init, SIGKILL);
    assert_int_equal(waitpid(fixture->host.init, NULL, 0), fixture->host.init);
    fixture->host.init = 0;
    while (client_turn(client, 100))
        assert_true(client_deadline_ms(0) < deadline);
}

#define WITH_RELAY(test) cmocka_unit_test_setup_teardown(test, start, stop)
#define UNBOUND(test) cmocka_unit_test_setup_teardown(test, start_unbound, stop)
#define ATTACHED(test) cmocka_unit_test_setup_teardown(test, start_attached, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_RELAY(a_session_begins_with_hello),
        WITH_RELAY(wrong_peers_are_closed_without_a_word),
        WITH_RELAY(a_wrong_key_gets_no_further),
        UNBOUND(a_relay_without_a_key_takes_one),
        WITH_RELAY(peers_that_say_nothing_are_dropped),
        WITH_RELAY(the_latest_login_wins),
        WITH_RELAY(a_program_gives_its_output_and_its_totals),
        WITH_RELAY(a_short_program_is_told_at_once),
        WITH_RELAY(input_reaches_a_program_before_its_end),
        WITH_RELAY(input_that_nobody_reads_is_closed),
        WITH_RELAY(a_terminal_is_two_channels),
        WITH_RELAY(a_script_comes_before_its_start),
        WITH_RELAY(forgetting_a_process_frees_its_channels),
        WITH_RELAY(nothing_is_sent_beyond_the_window),
        WITH_RELAY(stuck_streams_leave_room_for_others),
        WITH_RELAY(a_cut_after_any_byte_loses_nothing),
        WITH_RELAY(a_new_session_goes_on_where_output_was_kept),
        WITH_RELAY(an_end_is_told_again_with_bases_and_totals),
        WITH_RELAY(closed_output_of_a_process_waits_for_the_next_session),
        WITH_RELAY(a_list_comes_through_a_channel),
        WITH_RELAY(a_regular_file_is_not_passed),
        WITH_RELAY(an_upload_goes_through_a_channel_of_both_directions),
        WITH_RELAY(a_download_can_be_closed),
        WITH_RELAY(a_flood_does_not_hold_up_a_terminal),
        WITH_RELAY(all_processes_have_their_channels),
        WITH_RELAY(a_broken_rule_ends_the_session),
        WITH_RELAY(frames_that_may_be_ignored_are),
        WITH_RELAY(what_the_sandbox_uses_is_told),
        WITH_RELAY(a_pump_copies_between_pipes_and_the_relay),
        WITH_RELAY(a_pump_copies_between_a_socket_and_the_relay),
        WITH_RELAY(much_output_goes_through_a_pump),
        WITH_RELAY(a_pump_forgets_the_key),
        WITH_RELAY(a_pump_without_a_relay_says_so),
        WITH_RELAY(a_pump_whose_output_is_stuck_leaves_with_the_relay),
        ATTACHED(the_first_connection_comes_through_stdin_and_stdout),
        cmocka_unit_test(a_cut_of_the_attached_connection_loses_nothing),
        ATTACHED(the_pump_alone_has_the_attached_pipes),
        ATTACHED(an_attached_pump_that_is_stopped_does_not_stop_the_next_one),
        ATTACHED(hostile_bytes_on_stdin_end_the_attached_connection_alone),
        cmocka_unit_test(only_a_relay_with_a_path_can_be_attached),
        WITH_RELAY(the_relay_ends_with_init),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
