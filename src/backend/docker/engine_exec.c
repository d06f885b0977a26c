/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program in a container, as a stream: the container's first program, or one that the engine's
 * exec starts. The receiver holds one end of a socket pair; bytes go between our end and the
 * connection to the engine:
 *
 *     receiver ── socket ══ http_call_write() ── engine ── standard input
 *     receiver ── socket ══ without frame headers ── engine ── standard output
 *
 * Neither way holds more than a few reads: input is read while the engine takes it, and the answer
 * of the engine while the receiver does.
 */

#include "backend/docker/engine_private.h"
#include "base/alloc.h"
#include "net/send_queue.h"
#include "wire/engine_stream.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

enum {
    INPUT_BYTES = 64 * 1024,       /* of one read, as large as engine->scratch */
    INPUT_HIGH_WATER = 128 * 1024, /* the engine has not taken so much: nothing more is read */
    OUTPUT_MAXIMUM = 1024 * 1024,
    READS_PER_TURN = 4,
    LOOK_US = 1000 * 1000,       /* while the socket is not read from */
    LINGER_US = 5 * 1000 * 1000, /* for the end of a program whose receiver has left */
};

enum exec_state {
    EXEC_CREATING,  /* the engine prepares the program */
    EXEC_STARTING,  /* and starts it, or connects us with the first one */
    EXEC_OPEN,      /* the receiver has its socket */
    EXEC_DRAINING,  /* the engine has ended; the receiver has not taken everything */
    EXEC_ABANDONED, /* the receiver has closed; the engine has not taken everything, or not ended */
};

enum exec_input {
    INPUT_BLOCKED, /* the engine takes no more; on_writable opens it */
    INPUT_OPEN,
    INPUT_ENDED,
};

struct exec_job {
    struct engine_flight flight; /* the start, and then the stream */
    enum exec_state state;
    struct engine_call create;
    struct engine_exec *exec; /* borrowed until it is answered, then NULL; its `private` is this */
    int64_t deadline_us;      /* of the answer; 0: none */
    struct io_watch socket;   /* our end; the fd is owned */
    enum exec_input input;
    struct engine_stream splitter;
    struct send_queue output;
    struct timer timer;
    size_t lingering_bytes; /* how much the engine had not taken when the timer was armed */
};

static struct exec_job *job_from(struct engine_flight *flight)
{
    return container_of(flight, struct exec_job, flight);
}

static void job_free(struct engine_flight *flight)
{
    struct exec_job *job = job_from(flight);

    if (job->exec)
        job->exec->private = NULL;
    engine_cancel(&job->create);
    timer_stop(&job->timer);
    io_watch_stop(&job->socket);
    fd_close(job->socket.fd);
    send_queue_fini(&job->output);
    engine_flight_fini(flight);
    free(job);
}

/* The receiver's end of the socket pair, or -1 with the reason. */
static void job_answer(struct exec_job *job, int fd, const struct error *err)
{
    struct engine_exec *exec = steal_ptr(&job->exec);

    exec->private = NULL;
    exec->fd = fd;
    exec->err = err ? *err : (struct error){ 0 };
    if (fd < 0)
        job_free(&job->flight);
    exec->done(exec);
}

/* --- the receiver's side --------------------------------------------------------------------- */

static void on_socket_ready(struct io_watch *watch, unsigned events);

static void job_watch(struct exec_job *job)
{
    bool reads = job->state == EXEC_OPEN && job->input == INPUT_OPEN;
    unsigned events = (reads ? IO_READ : 0U) | (job->output.pending ? IO_WRITE : 0U);

    if (!events)
        io_watch_stop(&job->socket);
    else if (events != job->socket.events)
        io_watch_start(&job->socket, job->flight.engine->loop, job->socket.fd, events,
                       on_socket_ready);
    if (job->state == EXEC_OPEN && !reads && !timer_is_armed(&job->timer))
        timer_arm_in(&job->timer, LOOK_US);
}

/* One read: whether there may be more. */
static bool input_read(struct exec_job *job)
{
    uint8_t *scratch = job->flight.engine->scratch;
    ssize_t length = recv(job->socket.fd, scratch, INPUT_BYTES, MSG_DONTWAIT);

    if (length > 0)
        http_call_write(job->flight.http, scratch, (size_t)length);
    else if (length == 0 || (errno != EAGAIN && errno != EINTR))
        job->input = INPUT_ENDED;
    return length > 0;
}

static bool receiver_has_left(const struct exec_job *job)
{
    struct pollfd look = { .fd = job->socket.fd };

    return poll(&look, 1, 0) == 1 && look.revents & (POLLHUP | POLLERR | POLLNVAL);
}

/* Input that the receiver wrote before it closed still goes to the engine, as on any socket.
 * Further output of the program is dropped. */
static void job_abandon(struct exec_job *job)
{
    job->state = EXEC_ABANDONED;
    while (job->input != INPUT_ENDED && input_read(job))
        ;
    job->input = INPUT_ENDED;
    io_watch_stop(&job->socket);
    fd_close(steal_fd(&job->socket.fd));
    send_queue_fini(&job->output);
    http_call_end(job->flight.http);
    http_call_resume(job->flight.http);
    job->lingering_bytes = http_call_pending(job->flight.http);
    timer_arm_in(&job->timer, LINGER_US);
}

static void job_end_input(struct exec_job *job)
{
    if (receiver_has_left(job))
        job_abandon(job);
    else
        http_call_end(job->flight.http);
}

static void job_take_input(struct exec_job *job)
{
    unsigned reads = 0;

    while (reads++ < READS_PER_TURN && input_read(job)) {
        if (http_call_pending(job->flight.http) >= INPUT_HIGH_WATER) {
            job->input = INPUT_BLOCKED;
            return;
        }
    }
    if (job->input == INPUT_ENDED)
        job_end_input(job);
}

/* False: the job has gone. */
static bool job_flush(struct exec_job *job)
{
    enum send_queue_result result = send_queue_flush(&job->output, job->socket.fd);

    if (job->state == EXEC_DRAINING) {
        if (result == SEND_QUEUE_BLOCKED)
            return true;
        job_free(&job->flight);
        return false;
    }
    if (result == SEND_QUEUE_BROKEN)
        job_abandon(job);
    else if (result == SEND_QUEUE_BLOCKED)
        http_call_pause(job->flight.http);
    else
        http_call_resume(job->flight.http);
    return true;
}

static void on_socket_ready(struct io_watch *watch, unsigned events)
{
    struct exec_job *job = container_of(watch, struct exec_job, socket);

    if (events & IO_WRITE && job->output.pending && !job_flush(job))
        return;
    if (events & IO_READ && job->state == EXEC_OPEN && job->input == INPUT_OPEN)
        job_take_input(job);
    if (job->state != EXEC_ABANDONED)
        job_watch(job);
}

static void on_timer(struct timer *timer)
{
    struct exec_job *job = container_of(timer, struct exec_job, timer);
    size_t pending = job->flight.http ? http_call_pending(job->flight.http) : 0;

    if (job->state == EXEC_ABANDONED) {
        if (pending == job->lingering_bytes) {
            job_free(&job->flight);
            return;
        }
        job->lingering_bytes = pending;
        timer_arm_in(timer, LINGER_US);
    } else if (job->state == EXEC_OPEN && job->input != INPUT_OPEN) {
        if (receiver_has_left(job))
            job_abandon(job);
        else
            timer_arm_in(timer, LOOK_US);
    }
}

/* --- the engine's side ----------------------------------------------------------------------- */

static void on_writable(struct engine_flight *flight)
{
    struct exec_job *job = job_from(flight);

    if (job->state != EXEC_OPEN || job->input != INPUT_BLOCKED)
        return;
    job->input = INPUT_OPEN;
    job_watch(job);
}

static void on_data(struct engine_flight *flight, const uint8_t *data, size_t length)
{
    struct exec_job *job = job_from(flight);
    enum engine_stream_event event = ENGINE_STREAM_NEED_MORE;
    const uint8_t *run;
    size_t run_length;
    size_t used;
    struct error err;

    if (job->state != EXEC_OPEN)
        return;
    for (; length; data += used, length -= used) {
        event = engine_stream_next(&job->splitter, data, length, &used, &run, &run_length);
        if (event != ENGINE_STREAM_OUTPUT)
            break;
        (void)send_queue_write(&job->output, job->socket.fd, run, run_length);
    }
    if (event == ENGINE_STREAM_BAD) {
        error_set(&err, ERR_BACKEND, "the engine at %s sends a malformed stream",
                  flight->engine->host);
        engine_flight_fail(flight, &err);
    } else if (job->output.pending && job_flush(job) && job->state == EXEC_OPEN) {
        job_watch(job);
    }
}

static void job_open(struct exec_job *job)
{
    struct error err;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0) {
        error_sys(&err, "make a socket for an exec");
        engine_flight_fail(&job->flight, &err);
        return;
    }
    job->state = EXEC_OPEN;
    job->socket.fd = pair[0];
    engine_flight_set_timeout(&job->flight, 0);
    job_answer(job, pair[1], NULL);
}

static void on_head(struct engine_flight *flight, const struct http_head *head)
{
    struct error err;

    /* With another answer there is no way to send. */
    if (head->status == 101 ||
        (head->status == 200 && !head->chunked && head->content_length < 0)) {
        job_open(job_from(flight));
        return;
    }
    error_set(&err, ERR_BACKEND, "the engine at %s gives no stream, but status %d",
              flight->engine->host, head->status);
    engine_flight_fail(flight, &err);
}

static void job_drain(struct exec_job *job)
{
    job->state = EXEC_DRAINING;
    timer_stop(&job->timer);
    if (job_flush(job))
        job_watch(job);
}

static void on_end(struct engine_flight *flight, const struct error *err)
{
    struct exec_job *job = job_from(flight);

    switch (job->state) {
    case EXEC_CREATING:
    case EXEC_STARTING:
        assert(err); /* success has a head, which opens or fails it */
        job_answer(job, -1, err);
        return;
    case EXEC_OPEN:
        job_drain(job);
        return;
    case EXEC_DRAINING:
    case EXEC_ABANDONED:
        job_free(flight);
        return;
    }
}

/* --- the interface --------------------------------------------------------------------------- */

static const struct engine_flight_ops ops = {
    .on_head = on_head,
    .on_data = on_data,
    .on_writable = on_writable,
    .on_end = on_end,
    .free = job_free,
};

/* "BEFORE/NAME/AFTER"; the name is escaped. */
static void put_path(struct buffer *path, const char *before, const char *name, const char *after)
{
    (void)buffer_append_text(path, before);
    (void)http_escape(path, name);
    (void)buffer_append_text(path, after);
}

/* The answer is the stream. A body of NULL is none. */
static void job_ask_stream(struct exec_job *job, const char *path, const char *body)
{
    int64_t now_us = loop_now_us(job->flight.engine->loop);
    int64_t left_ms = job->deadline_us ? MAX((job->deadline_us - now_us) / 1000, (int64_t)1) : 0;
    struct flight_request request = {
        .method = HTTP_POST,
        .upgrades = true,
        .path = path,
        .content_type = body ? "application/json" : NULL,
        .body = body,
        .body_length = body ? strlen(body) : 0,
    };

    job->state = EXEC_STARTING;
    engine_flight_send(&job->flight, &request, left_ms);
}

static void job_start(struct exec_job *job, const char *id)
{
    scoped(buffer_fini) struct buffer path = BUFFER_INIT(4096);

    put_path(&path, "/exec/", id, "/start");
    job_ask_stream(job, buffer_text(&path), "{\"Detach\":false,\"Tty\":false}");
}

static void on_created(struct engine_call *create)
{
    struct exec_job *job = container_of(create, struct exec_job, create);
    const char *id = json_string_value(json_object_get(create->body, "Id"));
    struct error err = create->err;

    if (!err.code && (!id || !*id || strlen(id) > 256))
        error_set(&err, ERR_BACKEND, "the engine at %s makes an exec without an id",
                  job->flight.engine->host);
    if (err.code)
        job_answer(job, -1, &err);
    else
        job_start(job, id);
}

static json_t *array_of(const char *const *texts)
{
    json_t *array = json_array();

    for (; *texts; texts++)
        json_array_append_new(array, json_string(*texts));
    return array;
}

static char *create_body(const char *const *argv, const char *const *env, const char *user)
{
    scoped(json_decref)
        json_t *body = json_pack("{s:b, s:b, s:b, s:b, s:o}", "AttachStdin", 1, "AttachStdout", 1,
                                 "AttachStderr", 0, "Tty", 0, "Cmd", array_of(argv));

    if (env)
        json_object_set_new(body, "Env", array_of(env));
    if (user)
        json_object_set_new(body, "User", json_string(user));
    return json_dumps(body, JSON_COMPACT);
}

static struct exec_job *job_new(struct engine *engine, struct engine_exec *exec, int64_t timeout_ms,
                                engine_exec_fn *done)
{
    struct exec_job *job = xnew(struct exec_job);

    assert(!exec->private);
    *exec = (struct engine_exec){ .done = done, .fd = -1, .private = job };
    job->exec = exec;
    job->deadline_us = timeout_ms ? loop_now_us(engine->loop) + timeout_ms * 1000 : 0;
    job->socket.fd = -1;
    send_queue_init(&job->output, OUTPUT_MAXIMUM);
    timer_init(&job->timer, engine->loop, on_timer);
    engine_flight_init(&job->flight, engine, &ops);
    return job;
}

void engine_exec_open(struct engine *engine, struct engine_exec *exec, const char *container,
                      const char *const *argv, const char *const *env, const char *user,
                      int64_t timeout_ms, engine_exec_fn *done)
{
    scoped(buffer_fini) struct buffer path = BUFFER_INIT(4096);
    scoped(free) char *body = create_body(argv, env, user);
    struct exec_job *job = job_new(engine, exec, timeout_ms, done);

    assert(body);
    put_path(&path, "/containers/", container, "/exec");
    engine_request(engine, &job->create, HTTP_POST, buffer_text(&path), NULL, body, strlen(body),
                   timeout_ms, on_created);
}

/* Podman would look for the keys that detach a terminal in every stream. */
void engine_exec_attach(struct engine *engine, struct engine_exec *exec, const char *container,
                        int64_t timeout_ms, engine_exec_fn *done)
{
    scoped(buffer_fini) struct buffer path = BUFFER_INIT(4096);
    struct exec_job *job = job_new(engine, exec, timeout_ms, done);

    put_path(&path, "/containers/", container, "/attach?stream=1&stdin=1&stdout=1&detachKeys=");
    job_ask_stream(job, buffer_text(&path), NULL);
}

void engine_exec_cancel(struct engine_exec *exec)
{
    struct exec_job *job = exec->private;

    if (job)
        job_free(&job->flight);
}
