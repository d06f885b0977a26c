/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program in a pod, as a stream. The receiver holds one end of a socket pair; the other is ours, and
 * bytes go between it and a WebSocket to the API server, which speaks v5.channel.k8s.io, or v4 before
 * Kubernetes 1.30: the first byte of each message is its channel.
 *
 *     receiver ── socket ══ messages of channel 0 ── API server ── kubelet ── standard input
 *     receiver ── socket ══ messages of channel 1 ── API server ── kubelet ── standard output
 *
 * Neither way holds more than a few reads: input is read while the server takes it, and messages while
 * the receiver does. Channel 3 says how the program ended, which a lost connection does not.
 */

#include "backend/kubernetes/kube_private.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "net/send_queue.h"
#include "wire/base64.h"
#include "wire/http/websocket.h"

#include <assert.h>
#include <errno.h>
#include <openssl/evp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

enum {
    CHANNEL_INPUT = 0,
    CHANNEL_OUTPUT = 1,
    CHANNEL_STATUS = 3,
    CHANNEL_NONE = -1, /* before the first byte of a message */
};

enum {
    INPUT_BYTES = 32 * 1024,       /* of one message; client->scratch is larger */
    INPUT_HIGH_WATER = 128 * 1024, /* the server has not taken so much: nothing more is read */
    OUTPUT_MAXIMUM = 4 * 1024 * 1024,
    REFUSAL_MAXIMUM = 16 * 1024,
    READS_PER_TURN = 4,
    LOOK_US = 1000 * 1000, /* while the socket is not read from */
    KEY_BYTES = 16,
};

enum exec_state {
    EXEC_STARTING, /* the server has not answered */
    EXEC_REFUSED,  /* it has, and its reason comes */
    EXEC_OPEN,     /* the receiver has its socket */
    EXEC_DRAINING, /* the server has ended; the receiver has not taken everything */
};

enum exec_input {
    INPUT_BLOCKED, /* the server takes no more; on_writable opens it */
    INPUT_OPEN,
};

struct exec_job {
    enum exec_state state;
    struct list node;
    struct kube_client *client; /* borrowed */
    struct kube_exec *exec; /* borrowed until it is answered, then NULL; its `private` is this */
    struct http_call *http; /* borrowed from the client; NULL when it has ended */
    int status;
    int64_t timeout_ms;
    struct timer timer;
    char *accept;           /* owned: what proves that the server speaks WebSocket */
    struct io_watch socket; /* our end; the fd is owned */
    enum exec_input input;
    struct websocket_reader reader;
    int channel;         /* of the message that is read */
    struct buffer words; /* of a refusal, or of channel 3 */
    struct send_queue output;
};

static void job_free(struct exec_job *job)
{
    if (job->exec)
        job->exec->private = NULL;
    if (job->http)
        http_call_cancel(job->http);
    timer_stop(&job->timer);
    io_watch_stop(&job->socket);
    fd_close(job->socket.fd);
    send_queue_fini(&job->output);
    buffer_fini(&job->words);
    list_remove(&job->node);
    free(job->accept);
    free(job);
}

void kube_execs_free(struct kube_client *client)
{
    struct exec_job *job;

    while ((job = list_first(&client->execs, struct exec_job, node)))
        job_free(job);
}

/* The receiver's end of the socket pair, or -1 with the reason. */
static void job_answer(struct exec_job *job, int fd, const struct error *err)
{
    struct kube_exec *exec = steal_ptr(&job->exec);

    exec->private = NULL;
    exec->fd = fd;
    exec->status = job->status;
    exec->err = err ? *err : (struct error){ 0 };
    if (fd < 0)
        job_free(job);
    exec->done(exec);
}

/* --- the receiver's side ---------------------------------------------------------------------- */

static void on_socket_ready(struct io_watch *watch, unsigned events);

static void job_watch(struct exec_job *job)
{
    bool reads = job->state == EXEC_OPEN && job->input == INPUT_OPEN;
    unsigned events = (reads ? IO_READ : 0U) | (job->output.pending ? IO_WRITE : 0U);

    if (!events)
        io_watch_stop(&job->socket);
    else if (events != job->socket.events)
        io_watch_start(&job->socket, job->client->loop, job->socket.fd, events, on_socket_ready);
    if (job->state == EXEC_OPEN && !reads && !timer_is_armed(&job->timer))
        timer_arm_in(&job->timer, LOOK_US);
}

static void send_frame(struct exec_job *job, enum websocket_kind kind, uint8_t *content,
                       size_t length)
{
    uint8_t head[WEBSOCKET_HEAD_MAXIMUM];
    uint8_t mask[4];

    if (getrandom(mask, sizeof(mask), 0) != sizeof(mask))
        memset(mask, 0x5a, sizeof(mask));
    websocket_mask(content, length, mask, 0);
    http_call_write(job->http, head, websocket_put_head(head, kind, length, mask));
    http_call_write(job->http, content, length);
}

/* What the receiver has closed ends the program: its input ends with the connection. */
static void job_abandon(struct exec_job *job)
{
    uint8_t code[2] = { 0x03, 0xe8 }; /* 1000: a normal end */

    send_frame(job, WEBSOCKET_CLOSE, code, sizeof(code));
    http_call_end(job->http);
    job_free(job);
}

enum read_result { READ_SOME, READ_NOTHING, READ_ENDED };

static enum read_result input_read(struct exec_job *job)
{
    uint8_t *scratch = job->client->scratch;
    ssize_t length = recv(job->socket.fd, scratch + 1, INPUT_BYTES, MSG_DONTWAIT);

    if (length == 0 || (length < 0 && errno != EAGAIN && errno != EINTR))
        return READ_ENDED;
    if (length < 0)
        return READ_NOTHING;
    scratch[0] = CHANNEL_INPUT;
    send_frame(job, WEBSOCKET_BINARY, scratch, (size_t)length + 1);
    return READ_SOME;
}

/* False: the job has gone. */
static bool job_take_input(struct exec_job *job)
{
    for (unsigned reads = 0; reads < READS_PER_TURN; reads++) {
        enum read_result result = input_read(job);

        if (result == READ_ENDED) {
            job_abandon(job);
            return false;
        }
        if (result == READ_NOTHING)
            return true;
        if (http_call_pending(job->http) >= INPUT_HIGH_WATER) {
            job->input = INPUT_BLOCKED;
            return true;
        }
    }
    return true;
}

/* False: the job has gone. */
static bool job_flush(struct exec_job *job)
{
    enum send_queue_result result = send_queue_flush(&job->output, job->socket.fd);

    if (job->state == EXEC_DRAINING && result != SEND_QUEUE_BLOCKED) {
        job_free(job);
        return false;
    }
    if (job->state == EXEC_DRAINING)
        return true;
    if (result == SEND_QUEUE_BROKEN) {
        job_abandon(job);
        return false;
    }
    if (result == SEND_QUEUE_BLOCKED)
        http_call_pause(job->http);
    else
        http_call_resume(job->http);
    return true;
}

static void on_socket_ready(struct io_watch *watch, unsigned events)
{
    struct exec_job *job = container_of(watch, struct exec_job, socket);

    if (events & IO_WRITE && job->output.pending && !job_flush(job))
        return;
    if (events & IO_READ && job->state == EXEC_OPEN && job->input == INPUT_OPEN &&
        !job_take_input(job))
        return;
    job_watch(job);
}

static bool receiver_has_left(const struct exec_job *job)
{
    struct pollfd look = { .fd = job->socket.fd };

    return poll(&look, 1, 0) == 1 && look.revents & (POLLHUP | POLLERR | POLLNVAL);
}

static void on_timer(struct timer *timer)
{
    struct exec_job *job = container_of(timer, struct exec_job, timer);
    struct error err = { 0 };

    if (job->exec) {
        kube_error_timeout(&err, job->client, job->timeout_ms);
        job_answer(job, -1, &err);
    } else if (job->state == EXEC_OPEN && receiver_has_left(job)) {
        job_abandon(job);
    } else if (job->state == EXEC_OPEN && job->input != INPUT_OPEN) {
        timer_arm_in(timer, LOOK_US);
    }
}

/* --- messages of the server ------------------------------------------------------------------- */

static void take_run(struct exec_job *job, const uint8_t *run, size_t length)
{
    if (job->channel == CHANNEL_NONE && length) {
        job->channel = *run++;
        length--;
    }
    if (job->channel == CHANNEL_OUTPUT && length)
        (void)send_queue_write(&job->output, job->socket.fd, run, length);
    else if (job->channel == CHANNEL_STATUS)
        (void)buffer_append(&job->words, run, length);
}

static void take_control(struct exec_job *job, const uint8_t *content, size_t length)
{
    uint8_t copy[WEBSOCKET_CONTROL_MAXIMUM];

    if (websocket_control(&job->reader) != WEBSOCKET_PING)
        return;
    if (length)
        memcpy(copy, content, length);
    send_frame(job, WEBSOCKET_PONG, copy, length);
}

/* False: the server breaks the rules. */
static bool take_messages(struct exec_job *job, const uint8_t *data, size_t length)
{
    for (;;) {
        const uint8_t *run;
        size_t run_length, used;
        enum websocket_event event =
            websocket_next(&job->reader, data, length, &used, &run, &run_length);

        data += used;
        length -= used;
        switch (event) {
        case WEBSOCKET_NEED_MORE:
            return true;
        case WEBSOCKET_BAD:
            return false;
        case WEBSOCKET_BEGIN:
            job->channel = CHANNEL_NONE;
            break;
        case WEBSOCKET_RUN:
            take_run(job, run, run_length);
            break;
        case WEBSOCKET_CONTROL:
            take_control(job, run, run_length);
            break;
        case WEBSOCKET_END:
            break;
        }
    }
}

static void job_drain(struct exec_job *job)
{
    job->state = EXEC_DRAINING;
    timer_stop(&job->timer);
    if (job_flush(job))
        job_watch(job);
}

static void on_data(struct http_call *http, const uint8_t *data, size_t length)
{
    struct exec_job *job = http_call_user(http);

    if (job->state == EXEC_REFUSED) {
        (void)buffer_append(&job->words, data, MIN(length, REFUSAL_MAXIMUM - job->words.length));
        return;
    }
    if (!take_messages(job, data, length)) {
        log_debug("the API server sends a malformed stream", kv("server", job->client->config.url));
        http_call_cancel(steal_ptr(&job->http));
        job_drain(job);
        return;
    }
    if (job->output.pending && job_flush(job))
        job_watch(job);
}

/* --- opening ---------------------------------------------------------------------------------- */

static bool speaks_websocket(const struct exec_job *job, const struct http_head *head)
{
    const char *accept = http_head_header(head, "sec-websocket-accept");
    const char *protocol = http_head_header(head, "sec-websocket-protocol");

    return str_equal(accept, job->accept) &&
           (str_equal(protocol, "v5.channel.k8s.io") || str_equal(protocol, "v4.channel.k8s.io"));
}

static void job_open(struct exec_job *job)
{
    struct error err = { 0 };
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0) {
        error_sys(&err, "make a socket for an exec");
        job_answer(job, -1, &err);
        return;
    }
    job->state = EXEC_OPEN;
    job->socket.fd = pair[0];
    timer_stop(&job->timer);
    job_answer(job, pair[1], NULL);
}

static void on_head(struct http_call *http, const struct http_head *head)
{
    struct exec_job *job = http_call_user(http);
    struct error err = { 0 };

    job->status = head->status;
    if (head->status != 101) {
        job->state = EXEC_REFUSED;
    } else if (speaks_websocket(job, head)) {
        job_open(job);
    } else {
        error_named(&err, ERR_UNAVAILABLE, "kubernetes_unavailable",
                    "%s speaks no WebSocket that carries an exec", job->client->config.url);
        error_hint(&err, "see whether a proxy before the API server passes upgrades on");
        job_answer(job, -1, &err);
    }
}

static void on_writable(struct http_call *http)
{
    struct exec_job *job = http_call_user(http);

    if (job->state != EXEC_OPEN || job->input != INPUT_BLOCKED)
        return;
    job->input = INPUT_OPEN;
    job_watch(job);
}

static void on_end(struct http_call *http, const struct error *cause)
{
    struct exec_job *job = http_call_user(http);
    struct error err = { 0 };

    job->http = NULL;
    if (job->state == EXEC_OPEN) {
        log_debug("an exec has ended", kv("server", job->client->config.url),
                  kv("status", job->words.length ? buffer_text(&job->words)
                               : cause           ? cause->message
                                                 : "connection closed"));
        job_drain(job);
        return;
    }
    if (cause)
        kube_error_from_http(&err, job->client, cause);
    else
        kube_error_from_answer(&err, job->client, job->status, job->words.data, job->words.length);
    if (job->status == 401)
        (void)kube_client_renew_token(job->client);
    job_answer(job, -1, &err);
}

/* What RFC 6455 has the server make of the key. */
static char *accept_of(const char *key)
{
    scoped(free) char *text = xasprintf("%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;

    if (EVP_Digest(text, strlen(text), digest, &length, EVP_sha1(), NULL) != 1)
        length = 0;
    return base64_encode(digest, length);
}

static void put_path(struct buffer *path, const struct kube_client *client, const char *pod,
                     const char *container, const char *const *argv)
{
    buffer_appendf(path, "/api/v1/namespaces/%s/pods/%s/exec?container=%s&stdin=true&stdout=true",
                   client->namespace, pod, container);
    for (; *argv; argv++) {
        (void)buffer_append_text(path, "&command=");
        (void)http_escape(path, *argv);
    }
}

static void job_send(struct exec_job *job, const char *path)
{
    static const struct http_call_handler handler = {
        .on_head = on_head,
        .on_data = on_data,
        .on_writable = on_writable,
        .on_end = on_end,
    };
    uint8_t bytes[KEY_BYTES] = { 0 };
    scoped(free) char *key = NULL;

    (void)!getrandom(bytes, sizeof(bytes), 0);
    key = base64_encode(bytes, sizeof(bytes));
    job->accept = accept_of(key);
    job->http =
        kube_client_call(job->client, HTTP_GET, path, NULL,
                         (const char *const[]){ "Connection", "Upgrade", "Upgrade", "websocket",
                                                "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key",
                                                key, "Sec-WebSocket-Protocol",
                                                "v5.channel.k8s.io, v4.channel.k8s.io", NULL },
                         &handler, job);
}

void kube_exec_open(struct kube_client *client, struct kube_exec *exec, const char *pod,
                    const char *container, const char *const *argv, int64_t timeout_ms,
                    kube_exec_fn *done)
{
    scoped(buffer_fini) struct buffer path = BUFFER_INIT(16 * 1024);
    struct exec_job *job = xnew(struct exec_job);

    assert(!exec->private && timeout_ms > 0);
    *exec = (struct kube_exec){ .done = done, .fd = -1, .private = job };
    job->client = client;
    job->exec = exec;
    job->timeout_ms = timeout_ms;
    job->socket.fd = -1;
    job->channel = CHANNEL_NONE;
    job->words = BUFFER_INIT(REFUSAL_MAXIMUM);
    send_queue_init(&job->output, OUTPUT_MAXIMUM);
    timer_init(&job->timer, client->loop, on_timer);
    list_init(&job->node);
    list_append(&client->execs, &job->node);
    timer_arm_in(&job->timer, timeout_ms * 1000);
    put_path(&path, client, pod, container, argv);
    job_send(job, buffer_text(&path));
}

void kube_exec_cancel(struct kube_exec *exec)
{
    if (exec->private)
        job_free(exec->private);
}
