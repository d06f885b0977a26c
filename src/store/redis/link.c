/* SPDX-License-Identifier: Apache-2.0 */
#include "store/redis/link.h"

#include "base/alloc.h"
#include "base/backoff.h"
#include "base/macros.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    STEP_TIMEOUT_US = 5 * 1000 * 1000, /* for finding, connecting and greeting, each */
    ANSWER_TIMEOUT_US = 15 * 1000 * 1000,
    OUTPUT_MAXIMUM = 1024 * 1024 * 1024,
    READ_BYTES = 64 * 1024,
};

static const struct backoff retry = { .first = 50 * 1000, .most = 2 * 1000 * 1000 };

static void on_retry(struct timer *timer);

/* --- the end of a connection ---------------------------------------------------------------- */

static void close_socket(struct redis_link *link)
{
    io_watch_stop(&link->socket);
    fd_close(link->socket.fd);
    link->socket.fd = -1;
    redisReaderFree(link->reader);
    link->reader = NULL;
    buffer_clear(&link->output);
    link->sent = 0;
    timer_stop(&link->timer);
    timer_stop(&link->overdue);
}

static void fail_requests(struct redis_link *link)
{
    struct list requests = LIST_INIT(requests);
    struct redis_request *request;

    list_move_all(&link->requests, &requests);
    while ((request = list_first(&requests, struct redis_request, node))) {
        list_remove(&request->node);
        request->on_reply(request, NULL);
    }
}

static void lose(struct redis_link *link)
{
    if (link->state == LINK_STOPPED || link->state == LINK_WAITING)
        return;
    close_socket(link);
    link->state = LINK_WAITING;
    link->failures++;
    link->timer.on_expire = on_retry;
    timer_arm_in(&link->timer, backoff_delay(&retry, link->failures));
    fail_requests(link);
    link->owner->on_away(link, &link->err);
}

static void lose_by_errno(struct redis_link *link, const char *what)
{
    error_sys(&link->err, "%s %s", what, link->target ? link->target : "redis");
    link->err.code = ERR_UNAVAILABLE;
    lose(link);
}

void redis_link_drop(struct redis_link *link, const struct error *err)
{
    link->err = *err;
    lose(link);
}

/* --- requests and answers ------------------------------------------------------------------- */

static void want(struct redis_link *link)
{
    bool has_output = link->output.length > link->sent;

    io_watch_start(&link->socket, link->loop, link->socket.fd,
                   IO_READ | (has_output ? IO_WRITE : 0), link->socket.on_ready);
}

static int send_output(struct redis_link *link)
{
    while (link->sent < link->output.length) {
        ssize_t count = send(link->socket.fd, link->output.data + link->sent,
                             link->output.length - link->sent, MSG_NOSIGNAL);

        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return errno == EAGAIN ? 0 : -1;
        link->sent += (size_t)count;
    }
    buffer_clear(&link->output);
    link->sent = 0;
    return 0;
}

static void queue(struct redis_link *link, struct redis_request *request,
                  const struct redis_word *words, size_t count)
{
    request->link = link;
    list_append(&link->requests, &request->node);
    buffer_appendf(&link->output, "*%zu\r\n", count);
    for (size_t i = 0; i < count; i++) {
        buffer_appendf(&link->output, "$%zu\r\n", words[i].length);
        buffer_append(&link->output, words[i].data, words[i].length);
        buffer_append_text(&link->output, "\r\n");
    }
    if (!timer_is_armed(&link->overdue))
        timer_arm_in(&link->overdue, ANSWER_TIMEOUT_US);
}

/* The rest is sent when the socket is writable; the next read reports a failure. */
void redis_link_send(struct redis_link *link, struct redis_request *request,
                     const struct redis_word *words, size_t count)
{
    assert(link->state == LINK_READY);
    queue(link, request, words, count);
    (void)send_output(link);
    want(link);
}

static void on_overdue(struct timer *timer)
{
    struct redis_link *link = container_of(timer, struct redis_link, overdue);

    if (list_is_empty(&link->requests))
        return;
    errno = ETIMEDOUT;
    lose_by_errno(link, "wait for an answer of");
}

/* False when the connection has ended meanwhile. */
static bool take_reply(struct redis_link *link, const redisReply *reply)
{
    struct redis_request *request = list_first(&link->requests, struct redis_request, node);
    const redisReader *reader = link->reader;

    if (!request) {
        if (link->owner->on_message)
            link->owner->on_message(link, reply);
        return link->reader == reader;
    }
    list_remove(&request->node);
    timer_stop(&link->overdue);
    if (!list_is_empty(&link->requests))
        timer_arm_in(&link->overdue, ANSWER_TIMEOUT_US);
    request->on_reply(request, reply);
    return link->reader == reader;
}

static bool take_replies(struct redis_link *link)
{
    for (;;) {
        void *reply = NULL;
        bool goes_on;

        if (redisReaderGetReply(link->reader, &reply) != REDIS_OK) {
            error_set(&link->err, ERR_UNAVAILABLE, "%s does not talk like Redis: %s", link->target,
                      link->reader->errstr);
            lose(link);
            return false;
        }
        if (!reply)
            return true;
        goes_on = take_reply(link, reply);
        freeReplyObject(reply);
        if (!goes_on)
            return false;
    }
}

static void read_input(struct redis_link *link)
{
    static char input[READ_BYTES];
    ssize_t count = recv(link->socket.fd, input, sizeof(input), 0);

    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count <= 0) {
        const char *why = tls_failure(link->tls);

        if (count == 0)
            errno = ECONNRESET;
        error_sys(&link->err, "the connection to %s ended", link->target);
        if (*why)
            error_set(&link->err, ERR_UNAVAILABLE, "TLS with %s: %s", link->target, why);
        link->err.code = ERR_UNAVAILABLE;
        lose(link);
        return;
    }
    (void)redisReaderFeed(link->reader, input, (size_t)count);
    (void)take_replies(link);
}

static void on_stream(struct io_watch *watch, unsigned events)
{
    struct redis_link *link = container_of(watch, struct redis_link, socket);

    if ((events & IO_WRITE) && send_output(link) < 0) {
        lose_by_errno(link, "write to");
        return;
    }
    if (events & IO_WRITE)
        want(link);
    if (events & IO_READ)
        read_input(link);
}

/* --- greeting ------------------------------------------------------------------------------- */

static void connect_to(struct redis_link *link, const char *target, bool to_sentinel);

static void refuse(struct redis_link *link, const char *what, const redisReply *reply)
{
    bool says_why = reply->type == REDIS_REPLY_ERROR;

    error_named(&link->err, ERR_UNAVAILABLE, "redis_refused", "%s refuses %s: %s", link->target,
                what, says_why ? reply->str : "an answer of another kind");
    lose(link);
}

static void take_role(struct redis_link *link, const redisReply *reply)
{
    const char *role = redis_reply_has_words(reply, 1) ? reply->element[0]->str : NULL;

    if (!str_equal(role, "master")) {
        error_named(&link->err, ERR_UNAVAILABLE, "redis_refused",
                    "%s is not a master (its role is %s)", link->target, role ? role : "unknown");
        lose(link);
        return;
    }
    timer_stop(&link->timer);
    link->state = LINK_READY;
    link->failures = 0;
    link->owner->on_ready(link);
}

static void on_greeted(struct redis_request *request, const redisReply *reply)
{
    static const char *const what[] = { "the password", "the database", "to tell its role" };
    struct redis_link *link = request->link;
    size_t which = (size_t)(request - link->greetings);

    if (!reply)
        return;
    if (reply->type == REDIS_REPLY_ERROR)
        refuse(link, what[which], reply);
    else if (which == GREETING_ROLE)
        take_role(link, reply);
}

static void greet(struct redis_link *link)
{
    const struct redis_url *url = link->url;
    char db[16];

    link->state = LINK_GREETING;
    for (size_t i = 0; i < LINK_GREETINGS; i++)
        link->greetings[i].on_reply = on_greeted;
    if (url->password) {
        struct redis_word words[] = { REDIS_WORD("AUTH"),
                                      REDIS_WORD(url->user ? url->user : "default"),
                                      REDIS_WORD(url->password) };

        queue(link, &link->greetings[GREETING_AUTH], words, ARRAY_LENGTH(words));
    }
    if (url->db) {
        snprintf(db, sizeof(db), "%u", url->db);
        queue(link, &link->greetings[GREETING_SELECT],
              (struct redis_word[]){ REDIS_WORD("SELECT"), REDIS_WORD(db) }, 2);
    }
    queue(link, &link->greetings[GREETING_ROLE], (struct redis_word[]){ REDIS_WORD("ROLE") }, 1);
}

/* A sentinel that is restarted, or does not know the master, is not the only one. */
static void on_master(struct redis_request *request, const redisReply *reply)
{
    struct redis_link *link = request->link;
    scoped(free) char *target = NULL;

    if (!reply)
        return;
    if (!redis_reply_has_words(reply, 2)) {
        refuse(link, "the address of the master", reply);
        return;
    }
    target = xasprintf(strchr(reply->element[0]->str, ':') ? "[%s]:%s" : "%s:%s",
                       reply->element[0]->str, reply->element[1]->str);
    close_socket(link);
    connect_to(link, target, false);
}

static void ask_sentinel(struct redis_link *link)
{
    struct redis_word words[] = { REDIS_WORD("SENTINEL"), REDIS_WORD("get-master-addr-by-name"),
                                  REDIS_WORD(link->url->master) };

    link->state = LINK_ASKING;
    link->asked_sentinel.on_reply = on_master;
    queue(link, &link->asked_sentinel, words, ARRAY_LENGTH(words));
}

/* --- connecting ----------------------------------------------------------------------------- */

static void on_step_overdue(struct timer *timer);

static void connected(struct redis_link *link)
{
    if (link->tls) {
        scoped(free) char *host = xstrndup(link->target, strcspn(link->target, ":"));

        io_watch_stop(&link->socket);
        link->socket.fd = tls_connect(link->tls, link->socket.fd, host);
        if (link->socket.fd < 0) {
            lose_by_errno(link, "begin TLS with");
            return;
        }
    }
    link->reader = redisReaderCreate();
    link->socket.on_ready = on_stream;
    if (link->to_sentinel)
        ask_sentinel(link);
    else
        greet(link);
    (void)send_output(link);
    want(link);
}

static void on_connect(struct io_watch *watch, unsigned events UNUSED)
{
    struct redis_link *link = container_of(watch, struct redis_link, socket);
    socklen_t length = sizeof(errno);
    int number = 0;

    (void)getsockopt(watch->fd, SOL_SOCKET, SO_ERROR, &number, &length);
    if (number == 0) {
        connected(link);
        return;
    }
    errno = number;
    lose_by_errno(link, "connect to");
}

static void set_option(int fd, int level, int option, int value)
{
    (void)setsockopt(fd, level, option, &value, sizeof(value));
}

static void open_socket(struct redis_link *link)
{
    const struct address *address = &link->lookup.address;

    link->state = LINK_CONNECTING;
    link->socket.fd =
        socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (link->socket.fd >= 0 && !address->is_unix) {
        set_option(link->socket.fd, IPPROTO_TCP, TCP_NODELAY, 1);
        set_option(link->socket.fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    }
    if (link->socket.fd < 0 || (connect(link->socket.fd, (const struct sockaddr *)&address->storage,
                                        address->length) < 0 &&
                                errno != EINPROGRESS))
        lose_by_errno(link, "connect to");
    else
        io_watch_start(&link->socket, link->loop, link->socket.fd, IO_WRITE, on_connect);
}

static void lookup_run(struct job *job)
{
    struct redis_link *link = container_of(job, struct redis_link, lookup.job);

    link->lookup.err = (struct error){ 0 };
    (void)address_parse(&link->lookup.address, link->lookup.target, &link->lookup.err);
}

static void lookup_done(struct job *job)
{
    struct redis_link *link = container_of(job, struct redis_link, lookup.job);

    if (link->state != LINK_RESOLVING)
        return;
    if (link->lookup.err.code == ERR_NONE) {
        open_socket(link);
        return;
    }
    link->err = link->lookup.err;
    link->err.code = ERR_UNAVAILABLE;
    lose(link);
}

/* Only a name has to wait for a thread. */
static bool is_number(const char *target)
{
    scoped(free) char *host = xstrndup(target, (size_t)(strrchr(target, ':') - target));
    struct in_addr address;

    return str_starts_with(target, "unix:") || target[0] == '[' ||
           inet_pton(AF_INET, host, &address) == 1;
}

static void connect_to(struct redis_link *link, const char *target, bool to_sentinel)
{
    char *copy = xstrdup(target);

    free(link->target);
    link->target = copy;
    link->to_sentinel = to_sentinel;
    link->state = LINK_RESOLVING;
    link->timer.on_expire = on_step_overdue;
    timer_arm_in(&link->timer, STEP_TIMEOUT_US);
    free(link->lookup.target);
    link->lookup.target = xstrdup(target);
    link->lookup.job = (struct job){ .run = lookup_run, .done = lookup_done };
    if (is_number(target)) {
        lookup_run(&link->lookup.job);
        lookup_done(&link->lookup.job);
        return;
    }
    if (!link->worker)
        link->worker = worker_new(link->loop, 1, "redis-names");
    worker_submit(link->worker, &link->lookup.job);
}

static void on_step_overdue(struct timer *timer)
{
    struct redis_link *link = container_of(timer, struct redis_link, timer);

    errno = ETIMEDOUT;
    lose_by_errno(link, link->to_sentinel ? "ask the sentinel" : "connect to");
}

static void try_now(struct redis_link *link)
{
    const struct redis_url *url = link->url;
    scoped(free) char *target = NULL;

    if (url->scheme == REDIS_UNIX)
        target = xasprintf("unix:%s", url->path);
    else
        target = xstrdup(url->hosts[link->sentinel++ % url->host_count]);
    connect_to(link, target, url->scheme == REDIS_SENTINEL);
}

static void on_retry(struct timer *timer)
{
    try_now(container_of(timer, struct redis_link, timer));
}

/* --- start and end -------------------------------------------------------------------------- */

int redis_link_init(struct redis_link *link, const struct redis_link_options *options,
                    struct error *err)
{
    const struct tls_files files = { .ca = options->ca };

    *link = (struct redis_link){ .loop = options->loop,
                                 .owner = options->owner,
                                 .url = options->url,
                                 .socket.fd = -1,
                                 .output = BUFFER_INIT(OUTPUT_MAXIMUM) };
    list_init(&link->requests);
    timer_init(&link->timer, link->loop, on_retry);
    timer_init(&link->overdue, link->loop, on_overdue);
    if (link->url->scheme != REDIS_TLS)
        return 0;
    link->tls = tls_new_client(link->loop, &files, err);
    return link->tls ? 0 : -1;
}

void redis_link_start(struct redis_link *link)
{
    assert(link->state == LINK_STOPPED);
    try_now(link);
}

void redis_link_fini(struct redis_link *link)
{
    if (!link->loop)
        return;
    link->state = LINK_STOPPED;
    close_socket(link);
    worker_free(link->worker);
    while (!list_is_empty(&link->requests))
        list_remove(link->requests.next);
    tls_free(link->tls);
    buffer_fini(&link->output);
    free(link->target);
    free(link->lookup.target);
    *link = (struct redis_link){ 0 };
}

/* --- answers -------------------------------------------------------------------------------- */

bool redis_reply_has_words(const redisReply *reply, size_t count)
{
    if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements < count)
        return false;
    for (size_t i = 0; i < count; i++)
        if (reply->element[i]->type != REDIS_REPLY_STRING)
            return false;
    return true;
}
