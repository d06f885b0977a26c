/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A crowd of clients that do everything at once: pipeline, send in odd pieces, read slowly, half
 * close, leave and reset at any moment. Whoever stays gets every answer whole and in order, and
 * afterwards nothing is left. The seed is printed; give it as the argument to see a run again.
 */

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/list.h"
#include "loop/loop.h"
#include "net/http_server.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { CLIENTS = 64, LIVES = 1500, LARGEST = 300 * 1000, DEADLINE_S = 90 };

static uint64_t seed;

static uint64_t chance(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

static uint8_t pattern(uint64_t key, size_t at)
{
    return (uint8_t)(key * 131 + at * 7 + (at >> 11));
}

/* --- the server's side --------------------------------------------------------------------- */

/* What a handler keeps for one exchange. */
struct task {
    struct list link;
    struct http_exchange *exchange;
    struct timer timer;
    uint64_t key;
    size_t length;
    size_t written;
};

struct crowd {
    struct loop *loop;
    struct http_server *server;
    struct list tasks;
};

static void on_task_close(struct http_exchange *exchange)
{
    struct task *task = http_exchange_user(exchange);

    timer_stop(&task->timer);
    list_remove(&task->link);
    free(task);
}

static void task_write(struct http_exchange *exchange)
{
    struct task *task = http_exchange_user(exchange);
    uint8_t piece[8192];

    while (task->written < task->length && http_respond_pending(exchange) < HTTP_HIGH_WATER) {
        size_t length = MIN(sizeof(piece), task->length - task->written);

        for (size_t i = 0; i < length; i++)
            piece[i] = pattern(task->key, task->written + i);
        http_respond_write(exchange, piece, length);
        task->written += length;
    }
    if (task->written == task->length)
        http_respond_end(exchange);
}

static void on_task_timer(struct timer *timer)
{
    struct task *task = container_of(timer, struct task, timer);

    http_respond_start(task->exchange, 200, NULL, chance(2) ? (int64_t)task->length : -1);
    http_respond_on_drain(task->exchange, task_write);
    task_write(task->exchange);
}

static void on_echo_drain(struct http_exchange *exchange)
{
    http_exchange_resume_body(exchange);
}

static void on_echo_data(struct http_exchange *exchange, const uint8_t *data, size_t length)
{
    if (length)
        http_respond_write(exchange, data, length);
    else
        http_respond_end(exchange);
    if (http_respond_pending(exchange) >= HTTP_HIGH_WATER)
        http_exchange_pause_body(exchange);
}

static void on_whole_body(struct http_exchange *exchange, struct buffer *body)
{
    http_respond(exchange, 200, NULL, body->data, body->length);
}

/* "/now/KEY/LENGTH", "/later/KEY/LENGTH", "/echo", "/body" */
static void on_request(void *context, struct http_exchange *exchange)
{
    struct crowd *crowd = context;
    struct task *task = xnew(struct task);
    const char *path = http_exchange_head(exchange)->path;
    char kind[8] = "";

    task->exchange = exchange;
    timer_init(&task->timer, crowd->loop, on_task_timer);
    list_append(&crowd->tasks, &task->link);
    http_exchange_set_user(exchange, task);
    http_exchange_on_close(exchange, on_task_close);
    if (strcmp(path, "/echo") == 0) {
        http_respond_start(exchange, 200, NULL, -1);
        http_respond_on_drain(exchange, on_echo_drain);
        http_exchange_stream_body(exchange, on_echo_data);
    } else if (strcmp(path, "/body") == 0) {
        http_exchange_read_body(exchange, LARGEST, on_whole_body);
    } else {
        assert_int_equal(sscanf(path, "/%7[a-z]/%" SCNu64 "/%zu", kind, &task->key, &task->length),
                         3);
        timer_arm_in(&task->timer, strcmp(kind, "now") == 0 ? 0 : (int64_t)chance(20000));
    }
}

/* --- the clients' side --------------------------------------------------------------------- */

struct expectation {
    uint64_t key;
    size_t length;
};

struct client {
    int fd;
    struct buffer request;
    size_t sent;
    struct expectation expected[8];
    size_t expected_count;
    size_t answered;
    size_t received; /* of the answer that comes now */
    struct http_parser *parser;
    size_t leaves_after; /* bytes received or sent; 0: stays */
    bool half_closes;
    size_t moved;
};

static void client_add_body(struct client *client, const struct expectation *expected, bool chunked)
{
    for (size_t at = 0; at < expected->length;) {
        size_t piece = MIN(expected->length - at, (size_t)(1 + chance(20000)));

        if (chunked)
            buffer_appendf(&client->request, "%zX\r\n", piece);
        for (size_t i = 0; i < piece; i++)
            buffer_append_byte(&client->request, pattern(expected->key, at + i));
        if (chunked)
            buffer_append_text(&client->request, "\r\n");
        at += piece;
    }
    if (chunked)
        buffer_append_text(&client->request, "0\r\n\r\n");
}

static void client_add_request(struct client *client)
{
    struct expectation *expected = &client->expected[client->expected_count++];
    unsigned kind = (unsigned)chance(4);
    bool chunked = chance(2);

    *expected = (struct expectation){ chance(1000), chance(chance(4) ? 2000 : LARGEST) };
    if (kind < 2) {
        buffer_appendf(&client->request, "GET /%s/%" PRIu64 "/%zu HTTP/1.1\r\nHost: a\r\n\r\n",
                       kind ? "now" : "later", expected->key, expected->length);
        return;
    }
    buffer_appendf(&client->request, "POST /%s HTTP/1.1\r\nHost: a\r\n",
                   kind == 2 ? "echo" : "body");
    if (chunked)
        buffer_append_text(&client->request, "Transfer-Encoding: chunked\r\n\r\n");
    else
        buffer_appendf(&client->request, "Content-Length: %zu\r\n\r\n", expected->length);
    client_add_body(client, expected, chunked);
}

static void client_start(struct client *client, const struct crowd *crowd)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)http_server_port(crowd->server)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    size_t requests = 1 + chance(ARRAY_LENGTH(client->expected));

    *client = (struct client){ .request = BUFFER_INIT(64 << 20) };
    client->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(client->fd >= 0);
    assert_int_equal(connect(client->fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(fcntl(client->fd, F_SETFL, O_NONBLOCK), 0);
    client->parser = http_parser_new(HTTP_KIND_RESPONSE, NULL);
    while (client->expected_count < requests)
        client_add_request(client);
    client->half_closes = chance(4) == 0;
    client->leaves_after = chance(3) ? 0 : 1 + chance(2 * client->request.length);
}

static void client_stop(struct client *client, bool with_reset)
{
    struct linger now = { .l_onoff = 1 };

    if (with_reset)
        setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(client->fd);
    client->fd = -1;
    buffer_fini(&client->request);
    http_parser_free(client->parser);
}

static void client_send(struct client *client)
{
    size_t left = client->request.length - client->sent;
    ssize_t sent;

    if (!left)
        return;
    sent = send(client->fd, client->request.data + client->sent,
                MIN(left, (size_t)(1 + chance(chance(3) ? 30000 : 20))), MSG_NOSIGNAL);
    if (sent < 0) {
        assert_int_equal(errno, EAGAIN);
        return;
    }
    client->sent += (size_t)sent;
    client->moved += (size_t)sent;
    if (client->sent == client->request.length && client->half_closes)
        shutdown(client->fd, SHUT_WR);
}

static void client_take(struct client *client, const uint8_t *data, size_t length)
{
    for (size_t at = 0;;) {
        const struct expectation *expected = &client->expected[client->answered];
        const uint8_t *body;
        size_t body_length;
        size_t used;

        switch (
            http_parser_feed(client->parser, data + at, length - at, &used, &body, &body_length)) {
        case HTTP_NEED_MORE:
            return;
        case HTTP_HEAD_DONE:
            assert_true(client->answered < client->expected_count);
            assert_int_equal(http_parser_head(client->parser)->status, 200);
            client->received = 0;
            break;
        case HTTP_BODY:
            for (size_t i = 0; i < body_length; i++)
                assert_int_equal(body[i], pattern(expected->key, client->received + i));
            client->received += body_length;
            break;
        case HTTP_DONE:
            assert_int_equal(client->received, expected->length);
            client->answered++;
            http_parser_next(client->parser);
            break;
        case HTTP_BAD:
            fail_msg("a malformed answer: %s", http_parser_reason(client->parser));
        }
        at += used;
    }
}

static void client_receive(struct client *client)
{
    uint8_t bytes[40000];
    ssize_t length = recv(client->fd, bytes, chance(3) ? sizeof(bytes) : 1 + chance(100), 0);

    if (length < 0) {
        assert_int_equal(errno, EAGAIN);
        return;
    }
    client->moved += (size_t)length;
    client_take(client, bytes, (size_t)length);
    if (length == 0)
        assert_int_equal(client->answered, client->expected_count);
}

/* Whether its life is over. */
static bool client_live(struct client *client)
{
    if (client->leaves_after && client->moved >= client->leaves_after) {
        client_stop(client, chance(2));
        return true;
    }
    if (chance(2))
        client_send(client);
    if (chance(2))
        client_receive(client);
    if (client->answered < client->expected_count)
        return false;
    client_stop(client, false);
    return true;
}

static size_t count_open_files(void)
{
    DIR *directory = opendir("/proc/self/fd");
    size_t count = 0;

    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

static void crowd_live(struct crowd *crowd, struct client *clients)
{
    unsigned started = CLIENTS;
    unsigned alive = CLIENTS;
    time_t deadline = time(NULL) + DEADLINE_S;

    for (size_t i = 0; i < CLIENTS; i++)
        client_start(&clients[i], crowd);
    while (alive) {
        assert_true(time(NULL) < deadline);
        for (size_t i = 0; i < CLIENTS; i++) {
            if (clients[i].fd < 0 || !client_live(&clients[i]))
                continue;
            if (started < LIVES) {
                client_start(&clients[i], crowd);
                started++;
            } else {
                alive--;
            }
        }
        loop_turn(crowd->loop, 0);
    }
}

static void a_crowd_gets_all_its_answers_and_leaves_nothing_behind(void **state UNUSED)
{
    struct crowd crowd = { .loop = loop_new(&clock_system) };
    struct client clients[CLIENTS];
    time_t deadline;
    size_t before;

    list_init(&crowd.tasks);
    crowd.server = http_server_new(crowd.loop, NULL, on_request, &crowd);
    assert_int_equal(http_server_listen(crowd.server, "127.0.0.1:0", NULL), 0);
    before = count_open_files();
    crowd_live(&crowd, clients);
    deadline = time(NULL) + DEADLINE_S;
    while (count_open_files() != before || !list_is_empty(&crowd.tasks)) {
        assert_true(time(NULL) < deadline);
        loop_turn(crowd.loop, 10);
    }
    http_server_free(crowd.server);
    loop_free(crowd.loop);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crowd_gets_all_its_answers_and_leaves_nothing_behind),
    };

    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)time(NULL) * 2654435761U + 1;
    printf("# seed %" PRIu64 "\n", seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
