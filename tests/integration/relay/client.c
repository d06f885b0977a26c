/* SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

#include "base/alloc.h"
#include "base/scoped.h"
#include "wire/inside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { BUFFER_LIMIT = 512 * 1024 * 1024 };

/* --- coming and going ------------------------------------------------------------------------- */

static void forget_all(struct client *client)
{
    for (unsigned i = 0; i < RELAY_CHANNELS; i++) {
        buffer_fini(&client->channels[i].out);
        client->channels[i] = (struct client_channel){ 0 };
    }
    for (unsigned i = 0; i < client->message_count; i++)
        free((void *)(uintptr_t)client->messages[i].view.packet);
    client->message_count = 0;
    buffer_consume(&client->sequenced, client->sequenced.length);
    client->received = client->told = client->kept_from = client->written = 0;
}

struct client *client_new(const char *path, const uint8_t key[RELAY_KEY_SIZE])
{
    struct client *client = xnew(struct client);

    signal(SIGPIPE, SIG_IGN);

    snprintf(client->path, sizeof client->path, "%s", path);
    memcpy(client->key, key, RELAY_KEY_SIZE);
    client->fd = client->fd_out = -1;
    client->attached_in = client->attached_out = -1;
    client->cut_in = -1;
    client->acknowledges = true;
    client->window = RELAY_WINDOW;
    client->sequenced = BUFFER_INIT(BUFFER_LIMIT);
    client->in = BUFFER_INIT(BUFFER_LIMIT);
    return client;
}

void client_free(struct client *client)
{
    if (!client)
        return;
    client_cut(client);
    fd_close(client->attached_in);
    fd_close(client->attached_out);
    forget_all(client);
    buffer_fini(&client->sequenced);
    buffer_fini(&client->in);
    free(client);
}

void client_cut(struct client *client)
{
    int status;

    if (client->fd >= 0)
        close(client->fd);
    if (client->fd_out >= 0 && client->fd_out != client->fd)
        close(client->fd_out);
    client->fd = client->fd_out = -1;
    if (client->pump) {
        assert_int_equal(waitpid(client->pump, &status, 0), client->pump);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        client->pump = 0;
    }
    buffer_consume(&client->in, client->in.length);
}

static void read_all(int fd, void *bytes, size_t length)
{
    char *to = bytes;

    while (length) {
        struct pollfd wait = { fd, POLLIN, 0 };
        ssize_t count;

        assert_int_equal(poll(&wait, 1, 60000), 1);
        count = read(fd, to, length);
        assert_true(count > 0);
        to += count;
        length -= (size_t)count;
    }
}

static void connect_directly(struct client *client)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    client->fd = client->fd_out = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(client->fd >= 0);
    memcpy(address.sun_path, client->path, strlen(client->path));
    assert_int_equal(connect(client->fd, (struct sockaddr *)&address, sizeof address), 0);
}

/* The pump gets the other ends as its stdin and stdout. */
static void connect_by_pump(struct client *client)
{
    char argument[128];
    int in[2], out[2];

    if (client->way == CLIENT_PUMP_SOCKET) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in), 0);
        out[0] = in[1];
        out[1] = in[0];
    } else {
        assert_int_equal(pipe2(in, O_CLOEXEC), 0);
        assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    }
    snprintf(argument, sizeof argument, "--pump=%s", client->path);
    client->pump = fork();
    assert_true(client->pump >= 0);
    if (!client->pump) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        execl(getenv("SANDGLASS_INIT"), "sandglass-init", argument, NULL);
        _exit(112);
    }
    close(in[0]);
    if (out[1] != in[0])
        close(out[1]);
    client->fd = out[0];
    client->fd_out = in[1];
}

static void use_attached(struct client *client)
{
    client->fd = steal_fd(&client->attached_out);
    client->fd_out = steal_fd(&client->attached_in);
    client->way = CLIENT_PUMP_PIPES;
}

static void connect_socket(struct client *client)
{
    client_cut(client);
    if (client->way == CLIENT_DIRECT)
        connect_directly(client);
    else if (client->way == CLIENT_ATTACHED)
        use_attached(client);
    else if (client->way == CLIENT_OTHER)
        client->connect(client);
    else
        connect_by_pump(client);
}

static void read_greeting(struct client *client, struct relay_greeting *greeting)
{
    struct relay_frame frame;

    read_all(client->fd, &frame, sizeof frame);
    assert_int_equal(frame.type, RELAY_GREETING);
    assert_int_equal(frame.length, sizeof *greeting);
    read_all(client->fd, greeting, sizeof *greeting);
    assert_memory_equal(greeting->magic, RELAY_MAGIC, 4);
    memcpy(client->boot, greeting->boot, RELAY_BOOT_SIZE);
}

static void bind_relay(struct client *client)
{
    struct {
        struct relay_frame frame;
        uint8_t key[RELAY_KEY_SIZE];
    } bind = { .frame = { .length = sizeof bind.key, .type = RELAY_BIND } };

    memcpy(bind.key, client->key, sizeof bind.key);
    assert_int_equal(write(client->fd_out, &bind, sizeof bind), sizeof bind);
}

/* How much the relay has received; -1 when it has another session. */
static int64_t shake_hands(struct client *client, unsigned flags)
{
    struct {
        struct relay_frame frame;
        struct relay_login login;
    } answer = {
        .frame = { .length = sizeof answer.login, .type = RELAY_LOGIN },
        .login = {
            .version = RELAY_VERSION,
            .flags = (uint16_t)flags,
            .received = flags & RELAY_LOGIN_NEW ? 0 : client->received,
        },
    };
    struct relay_greeting greeting;
    struct relay_welcome welcome;
    struct relay_frame frame;

    connect_socket(client);
    read_greeting(client, &greeting);
    assert_int_equal(greeting.features & RELAY_UNBOUND, client->binds ? RELAY_UNBOUND : 0);
    if (client->binds)
        bind_relay(client);
    client->binds = false;
    memcpy(answer.login.session, client->session, RELAY_SESSION_SIZE);
    assert_int_equal(getrandom(answer.login.nonce, RELAY_NONCE_SIZE, 0), RELAY_NONCE_SIZE);
    relay_sign_login(client->key, &greeting, sizeof greeting, &answer.login);
    assert_int_equal(write(client->fd_out, &answer, sizeof answer), sizeof answer);
    read_all(client->fd, &frame, sizeof frame);
    assert_int_equal(frame.type, RELAY_WELCOME);
    assert_int_equal(frame.length, sizeof welcome);
    read_all(client->fd, &welcome, sizeof welcome);
    assert_true(
        relay_verify_welcome(client->key, &greeting, sizeof greeting, &answer.login, &welcome));
    assert_int_equal(fcntl(client->fd, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(fcntl(client->fd_out, F_SETFL, O_NONBLOCK), 0);
    return welcome.is_resumed ? (int64_t)welcome.received : -1;
}

void client_begin(struct client *client)
{
    client_cut(client);
    forget_all(client);
    assert_int_equal(getrandom(client->session, RELAY_SESSION_SIZE, 0), RELAY_SESSION_SIZE);
    assert_int_equal(shake_hands(client, RELAY_LOGIN_NEW), 0);
}

int client_resume(struct client *client)
{
    int64_t received = shake_hands(client, 0);

    if (received < 0) {
        client_cut(client);
        return -1;
    }
    assert_true((uint64_t)received >= client->kept_from);
    assert_true((uint64_t)received <= client->kept_from + client->sequenced.length);
    buffer_consume(&client->sequenced, (uint64_t)received - client->kept_from);
    client->kept_from = client->written = (uint64_t)received;
    client->told = client->received;
    return 0;
}

/* --- frames that go --------------------------------------------------------------------------- */

static bool count_down(struct client *client, size_t *length)
{
    if (client->cut_in < 0)
        return true;
    if (*length > (size_t)client->cut_in)
        *length = (size_t)client->cut_in;
    return *length > 0;
}

static void cut_and_resume(struct client *client)
{
    client->cuts++;
    client->cut_in = -1;
    client_cut(client);
    assert_int_equal(client_resume(client), 0);
}

static void flush(struct client *client)
{
    while (client->fd >= 0) {
        size_t done = client->written - client->kept_from;
        size_t length = client->sequenced.length - done;
        ssize_t count;

        if (!length)
            return;
        if (!count_down(client, &length)) {
            cut_and_resume(client);
            continue;
        }
        count = write(client->fd_out, client->sequenced.data + done, length);
        if (count < 0)
            return; /* reading tells why */
        client->written += (uint64_t)count;
        if (client->cut_in >= 0)
            client->cut_in -= count;
    }
}

void client_put(struct client *client, const struct relay_frame *frame, const void *payload)
{
    assert_true(relay_is_sequenced(frame));
    assert_int_equal(buffer_append(&client->sequenced, frame, sizeof *frame), 0);
    if (frame->length)
        assert_int_equal(buffer_append(&client->sequenced, payload, frame->length), 0);
    flush(client);
}

/* Between two frames only: whatever was begun goes first. */
void client_put_raw(struct client *client, const void *bytes, size_t length)
{
    int64_t deadline = client_deadline_ms(20000);

    flush(client);
    while (client->written < client->kept_from + client->sequenced.length && client->fd >= 0)
        client_go_on(client, deadline, "everything is written");
    if (client->fd >= 0)
        (void)!write(client->fd_out, bytes, length);
}

static void put_plain(struct client *client, enum relay_type type, uint16_t channel,
                      uint64_t offset, unsigned flags, const void *payload, size_t length)
{
    struct relay_frame frame = {
        .length = (uint32_t)length,
        .type = (uint8_t)type,
        .flags = (uint8_t)flags,
        .channel = channel,
        .offset = offset,
    };

    client_put(client, &frame, payload);
}

void client_send(struct client *client, const void *packet, size_t length,
                 const struct relay_descriptor *descriptors, unsigned count)
{
    scoped(free) char *payload = xmalloc(RELAY_MAX_MESSAGE);
    size_t prefix = relay_message_prefix(payload, descriptors, count);

    memcpy(payload + prefix, packet, length);
    put_plain(client, RELAY_MESSAGE, 0, 0, 0, payload, prefix + length);
}

void client_ask(struct client *client, enum protocol_type type, uint64_t process, uint64_t request)
{
    struct protocol_plain plain = {
        .header = protocol_header(type, sizeof plain, process, request),
    };

    client_send(client, &plain, sizeof plain, NULL, 0);
}

void client_keep(struct client *client, uint16_t number, uint64_t offset)
{
    struct client_channel *channel = &client->channels[number];
    struct relay_ack ack = { .window = client->window };
    bool is_end = channel->has_end && offset == channel->total && !channel->is_end_kept;

    channel->kept = offset;
    channel->is_end_kept |= is_end;
    put_plain(client, RELAY_ACK, number, offset, is_end ? RELAY_ACK_END : 0, &ack, sizeof ack);
}

void client_close_channel(struct client *client, uint16_t number)
{
    put_plain(client, RELAY_CLOSE, number, 0, 0, NULL, 0);
}

size_t client_write(struct client *client, uint16_t number, const void *bytes, size_t length)
{
    struct client_channel *channel = &client->channels[number];
    uint64_t room = channel->allowed - channel->sent;

    if (length > room)
        length = (size_t)room;
    if (length > RELAY_MAX_DATA)
        length = RELAY_MAX_DATA;
    if (!length)
        return 0;
    put_plain(client, RELAY_DATA, number, channel->sent, 0, bytes, length);
    channel->sent += length;
    return length;
}

void client_end(struct client *client, uint16_t number)
{
    struct relay_end end = { 0 };

    put_plain(client, RELAY_END, number, client->channels[number].sent, 0, &end, sizeof end);
}

/* --- frames that come ------------------------------------------------------------------------- */

static void tell_received(struct client *client)
{
    struct relay_frame frame = { .type = RELAY_RECEIVED, .offset = client->received };

    if (client->received - client->told < RELAY_RECEIVED_EVERY / 2 ||
        client->written < client->kept_from + client->sequenced.length)
        return; /* not in the middle of a frame */
    if (write(client->fd_out, &frame, sizeof frame) == sizeof frame)
        client->told = client->received;
}

static void take_message(struct client *client, const uint8_t *payload, size_t length)
{
    struct client_message *message = &client->messages[client->message_count++];
    void *packet;

    assert_true(client->message_count <= CLIENT_MAX_MESSAGES);
    assert_int_equal(relay_message_decode(payload, length, RELAY_OF_RELAY, &message->view), 0);
    packet = xmalloc(message->view.length);
    memcpy(packet, message->view.packet, message->view.length);
    message->view.packet = packet;
    message->is_read = false;
    for (unsigned i = 0; i < message->view.count; i++) {
        const struct relay_descriptor *descriptor = &message->view.descriptors[i];
        struct client_channel *channel = &client->channels[descriptor->channel];

        assert_int_equal(channel->kind, 0);
        buffer_fini(&channel->out);
        *channel = (struct client_channel){
            .kind = descriptor->kind,
            .base = descriptor->base,
            .come = descriptor->base,
            .kept = descriptor->base,
            .sent = descriptor->base,
            .taken = descriptor->base,
            .allowed = descriptor->base,
        };
        channel->out = BUFFER_INIT(BUFFER_LIMIT);
    }
}

static void take_ack(struct client_channel *channel, const struct relay_frame *frame,
                     const uint8_t *payload)
{
    struct relay_ack ack;

    memcpy(&ack, payload, sizeof ack);
    if (frame->channel < RELAY_BRIDGE_CHANNEL)
        assert_true(channel->kind == RELAY_INPUT || channel->kind == RELAY_BOTH);
    assert_true(frame->offset >= channel->taken && frame->offset <= channel->sent);
    channel->taken = frame->offset;
    if (frame->flags & RELAY_ACK_END) {
        channel->is_done = true;
        return;
    }
    assert_true(frame->offset + ack.window >= channel->allowed);
    channel->allowed = frame->offset + ack.window;
}

static void take_data(struct client *client, const struct relay_frame *frame,
                      const uint8_t *payload)
{
    struct client_channel *channel = &client->channels[frame->channel];

    assert_true(channel->kind == RELAY_OUTPUT || channel->kind == RELAY_BOTH);
    assert_false(channel->has_end);
    assert_int_equal(frame->offset, channel->come);
    channel->come += frame->length;
    assert_true(channel->come <= channel->kept + RELAY_MAX_WINDOW);
    if (!client->discards)
        assert_int_equal(buffer_append(&channel->out, payload, frame->length), 0);
    if (client->acknowledges && channel->come - channel->kept >= client->window / 4)
        client_keep(client, frame->channel, channel->come);
}

static void take_end(struct client *client, const struct relay_frame *frame, const uint8_t *payload)
{
    struct client_channel *channel = &client->channels[frame->channel];
    struct relay_end end;

    memcpy(&end, payload, sizeof end);
    assert_true(channel->kind == RELAY_OUTPUT || channel->kind == RELAY_BOTH);
    assert_false(channel->has_end);
    assert_int_equal(frame->offset, channel->come);
    channel->has_end = true;
    channel->total = frame->offset;
    channel->error = end.error;
    if (client->acknowledges)
        client_keep(client, frame->channel, channel->total);
}

static void take_received(struct client *client, uint64_t offset)
{
    assert_true(offset >= client->kept_from && offset <= client->written);
    buffer_consume(&client->sequenced, offset - client->kept_from);
    client->kept_from = offset;
}

/* Of a channel whose every direction is over, nothing is remembered. */
static void settle(struct client *client, uint16_t number)
{
    struct client_channel *channel = &client->channels[number];
    bool out_is_over = channel->kind == RELAY_INPUT || channel->is_end_kept;
    bool in_is_over = channel->kind == RELAY_OUTPUT || channel->is_done;

    if (out_is_over && in_is_over && channel->kind)
        channel->kind = 0; /* what has come can still be looked at */
}

static void take_frame(struct client *client, const struct relay_frame *frame,
                       const uint8_t *payload)
{
    struct client_channel *channel = &client->channels[frame->channel];
    struct relay_frame pong = { .length = 8, .type = RELAY_PONG };

    switch (frame->type) {
    case RELAY_MESSAGE:
        take_message(client, payload, frame->length);
        break;
    case RELAY_DATA:
        take_data(client, frame, payload);
        break;
    case RELAY_ACK:
        take_ack(channel, frame, payload);
        break;
    case RELAY_END:
        take_end(client, frame, payload);
        break;
    case RELAY_CLOSE:
        assert_true(channel->kind == RELAY_INPUT || channel->kind == RELAY_BOTH);
        channel->is_closed = true;
        break;
    case RELAY_RECEIVED:
        take_received(client, frame->offset);
        break;
    case RELAY_PING:
        client_put_raw(client, &pong, sizeof pong);
        client_put_raw(client, payload, 8);
        break;
    case RELAY_PONG:
        client->pongs++;
        break;
    case RELAY_USAGE:
        memcpy(&client->usage, payload, sizeof client->usage);
        client->usages++;
        break;
    default:
        fail_msg("a frame of type %u", frame->type);
    }
    if (frame->channel)
        settle(client, frame->channel);
}

static void take_frames(struct client *client)
{
    struct relay_frame frame;

    while (client->fd >= 0 && client->in.length >= sizeof frame) {
        scoped(free) uint8_t *payload = NULL;

        memcpy(&frame, client->in.data, sizeof frame);
        assert_null(relay_check(&frame, RELAY_OF_RELAY));
        if (client->in.length < sizeof frame + frame.length)
            return;
        payload = xmalloc(frame.length + 1);
        memcpy(payload, client->in.data + sizeof frame, frame.length);
        buffer_consume(&client->in, sizeof frame + frame.length);
        if (relay_is_sequenced(&frame))
            client->received += sizeof frame + frame.length;
        take_frame(client, &frame, payload);
        if (client->fd >= 0)
            tell_received(client);
    }
}

bool client_turn(struct client *client, int timeout_ms)
{
    static char bytes[256 * 1024];
    size_t waiting = client->kept_from + client->sequenced.length - client->written;
    struct pollfd wait[] = {
        { client->fd, POLLIN, 0 },
        { waiting ? client->fd_out : -1, POLLOUT, 0 },
    };
    size_t length = sizeof bytes;
    ssize_t count;

    if (client->fd < 0)
        return false;
    if (poll(wait, 2, timeout_ms) <= 0)
        return true;
    flush(client);
    if (!count_down(client, &length)) {
        cut_and_resume(client);
        return true;
    }
    count = read(client->fd, bytes, length);
    if (count < 0 && errno == EAGAIN)
        return true;
    if (count <= 0) {
        client_cut(client);
        return false;
    }
    if (client->cut_in >= 0)
        client->cut_in -= count;
    assert_int_equal(buffer_append(&client->in, bytes, (size_t)count), 0);
    take_frames(client);
    return client->fd >= 0;
}

int64_t client_deadline_ms(int ms)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + ms;
}

void client_go_on(struct client *client, int64_t deadline_ms, const char *condition)
{
    if (!client_turn(client, 100))
        fail_msg("the relay closed the connection before: %s", condition);
    if (client_deadline_ms(0) > deadline_ms)
        fail_msg("too late: %s", condition);
}

/* --- messages --------------------------------------------------------------------------------- */

static struct client_message *find_message(struct client *client, enum protocol_type type,
                                           uint64_t process)
{
    for (unsigned i = 0; i < client->message_count; i++) {
        const struct protocol_header *header = client->messages[i].view.packet;

        if (!client->messages[i].is_read && header->type == type &&
            (!process || header->process == process))
            return &client->messages[i];
    }
    return NULL;
}

bool client_has(struct client *client, enum protocol_type type, uint64_t process)
{
    return find_message(client, type, process) != NULL;
}

const struct relay_message_view *client_take(struct client *client, enum protocol_type type,
                                             uint64_t process)
{
    struct client_message *message;

    client_wait(client, find_message(client, type, process));
    message = find_message(client, type, process);
    message->is_read = true;
    return &message->view;
}

/* --- processes -------------------------------------------------------------------------------- */

void client_begin_start(struct client *client, uint64_t number, const char *text, uint32_t flags)
{
    static char packet[PROTOCOL_MAX_MESSAGE];
    const char *const argv[] = { "/bin/sh", "-c", text, NULL };
    const char *const env[] = { NULL };
    struct protocol_start fixed = {
        .header = { .process = number, .request = number },
        .flags = flags,
        .columns = 80,
        .rows = 24,
        .umask = 022,
    };
    struct protocol_start_texts texts = {
        .user = "",
        .cwd = "",
        .script_path = "",
        .argv = argv,
        .env = env,
    };
    long length = protocol_start_encode(packet, sizeof packet, &fixed, &texts);

    assert_true(length > 0);
    client_send(client, packet, (size_t)length, NULL, 0);
}

void client_take_start(struct client *client, struct client_process *process, uint64_t number)
{
    const struct relay_message_view *view;
    unsigned next = 0;

    client_wait(client, client_has(client, PROTOCOL_STARTED, number) ||
                            client_has(client, PROTOCOL_RAN, number));
    view = client_has(client, PROTOCOL_STARTED, number)
               ? client_take(client, PROTOCOL_STARTED, number)
               : client_take(client, PROTOCOL_RAN, number);
    *process = (struct client_process){ .number = number };
    if (next < view->count && view->descriptors[next].kind == RELAY_INPUT)
        process->in = view->descriptors[next++].channel;
    if (next < view->count)
        process->out = view->descriptors[next++].channel;
    if (next < view->count)
        process->errors = view->descriptors[next].channel;
}

void client_start(struct client *client, struct client_process *process, uint64_t number,
                  const char *text, uint32_t flags)
{
    client_begin_start(client, number, text, flags);
    client_take_start(client, process, number);
}

/* --- a real init ------------------------------------------------------------------------------ */

static int listen_at(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    memcpy(address.sun_path, path, strlen(path));
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

/* `option` may be NULL. */
static void execute_init(const struct host *host, const char *relay, const char *option)
{
    const char *argv[] = { "sandglass-init", "--direct", relay, option, NULL };
    char key[sizeof "SANDGLASS_KEY=" + 2 * RELAY_KEY_SIZE] = "SANDGLASS_KEY=";
    char *env[] = { host->is_unbound ? NULL : key, NULL };

    for (unsigned i = 0; i < RELAY_KEY_SIZE; i++)
        snprintf(key + sizeof "SANDGLASS_KEY=" - 1 + 2 * i, 3, "%02x", host->key[i]);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nothing running */
    if (chdir(host->dir) < 0)
        _exit(113);
    execve(getenv("SANDGLASS_INIT"), (char **)(uintptr_t)argv, env);
    _exit(112);
}

static void become_init(const struct host *host, int socket)
{
    if (dup2(socket, 3) < 0)
        _exit(113);
    if (socket == 3)
        fcntl(3, F_SETFD, 0);
    execute_init(host, "--relay", host->is_unbound ? "--unbound" : NULL);
}

static void become_attached_init(const struct host *host, int input, int output)
{
    char relay[sizeof host->path + 16];

    snprintf(relay, sizeof relay, "--relay=%s", host->path);
    if (dup2(input, 0) < 0 || dup2(output, 1) < 0)
        _exit(113);
    execute_init(host, relay, "--attached");
}

static void become_gated_init(const struct host *host)
{
    char relay[sizeof host->path + 16];
    char gate[32];

    snprintf(relay, sizeof relay, "--relay=%s", host->path);
    snprintf(gate, sizeof gate, "--gate=%u", host->port);
    execute_init(host, relay, gate);
}

static void prepare_host(struct host *host)
{
    assert_non_null(getenv("SANDGLASS_INIT"));
    *host = (struct host){ 0 };
    snprintf(host->dir, sizeof host->dir, "/tmp/sandglass-relay-test-XXXXXX");
    assert_non_null(mkdtemp(host->dir));
    snprintf(host->path, sizeof host->path, "%s/relay.sock", host->dir);
    assert_int_equal(getrandom(host->key, sizeof host->key, 0), sizeof host->key);
}

static void start_host(struct host *host)
{
    int socket;

    socket = listen_at(host->path);
    host->init = fork();
    assert_true(host->init >= 0);
    if (!host->init)
        become_init(host, socket);
    close(socket);
}

void host_start(struct host *host)
{
    prepare_host(host);
    start_host(host);
}

void host_start_unbound(struct host *host)
{
    prepare_host(host);
    host->is_unbound = true;
    start_host(host);
}

struct client *host_start_attached(struct host *host)
{
    struct client *client;
    int in[2], out[2];

    prepare_host(host);
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    host->init = fork();
    assert_true(host->init >= 0);
    if (!host->init)
        become_attached_init(host, in[0], out[1]);
    close(in[0]);
    close(out[1]);
    client = client_new(host->path, host->key);
    client->way = CLIENT_ATTACHED;
    client->attached_in = in[1];
    client->attached_out = out[0];
    return client;
}

/* Below the ephemeral ones, so that the kernel gives it to nobody by itself. */
static uint16_t find_port(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    uint16_t random;
    bool is_free;

    do {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        assert_int_equal(getrandom(&random, sizeof random, 0), sizeof random);
        address.sin_port = htons((uint16_t)(10000 + random % 20000));
        is_free = bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
        close(fd);
    } while (!is_free);
    return ntohs(address.sin_port);
}

int host_dial(const struct host *host)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons(host->port),
                                   .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

void host_start_gated(struct host *host)
{
    int64_t deadline = client_deadline_ms(60000);
    int fd;

    prepare_host(host);
    host->port = find_port();
    host->init = fork();
    assert_true(host->init >= 0);
    if (!host->init)
        become_gated_init(host);
    while ((fd = host_dial(host)) < 0) {
        assert_true(client_deadline_ms(0) < deadline);
        usleep(1000);
    }
    close(fd);
}

void host_stop(struct host *host)
{
    char command[128];

    if (host->init > 0) {
        kill(host->init, SIGTERM);
        assert_int_equal(waitpid(host->init, NULL, 0), host->init);
    }
    snprintf(command, sizeof command, "rm -rf %s", host->dir);
    assert_int_equal(system(command), 0);
}

pid_t host_find_relay(const struct host *host)
{
    char path[64];
    char line[256] = "";
    FILE *file;
    pid_t pid = 0;

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)host->init, (int)host->init);
    file = fopen(path, "re");
    if (file && fgets(line, sizeof line, file))
        pid = (pid_t)strtol(line, NULL, 10);
    if (file)
        fclose(file);
    return pid;
}
