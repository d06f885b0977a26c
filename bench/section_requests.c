/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small requests in a second: one thread, many kept-alive connections, one request at a time on
 * each. The servers take turns.
 */

#include "engine.h"

#include "base/alloc.h"
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS = 32, ANSWER_SIZE = 64 << 10 };

struct connection {
    int fd;
    size_t length;
    char *answer;
};

struct load {
    int epoll_fd;
    char request[512];
    struct connection connections[CONNECTIONS];
    uint64_t done;
};

static int send_request(struct load *load, struct connection *connection, struct error *err)
{
    size_t length = strlen(load->request);

    connection->length = 0;
    if (send(connection->fd, load->request, length, MSG_NOSIGNAL) != (ssize_t)length)
        return error_sys(err, "send");
    return 0;
}

/* 1 when the whole answer is there, 0 when more has to come. */
static int check_answer(struct connection *connection, struct error *err)
{
    const char *body = memmem(connection->answer, connection->length, "\r\n\r\n", 4);
    const char *length;

    if (!body)
        return 0;
    connection->answer[connection->length] = '\0';
    length = strcasestr(connection->answer, "\r\ncontent-length: ");
    if (strncmp(connection->answer, "HTTP/1.1 200", 12) != 0 || !length || length > body)
        return error_set(err, ERR_BACKEND, "unexpected answer: %.120s", connection->answer);
    return connection->length - (size_t)(body + 4 - connection->answer) >=
           strtoul(length + 18, NULL, 10);
}

static int receive(struct load *load, struct connection *connection, struct error *err)
{
    ssize_t got = recv(connection->fd, connection->answer + connection->length,
                       ANSWER_SIZE - 1 - connection->length, MSG_DONTWAIT);
    int whole;

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got <= 0)
        return error_set(err, ERR_UNAVAILABLE, "the server closed a connection");
    connection->length += (size_t)got;
    whole = check_answer(connection, err);
    if (whole <= 0)
        return whole;
    load->done++;
    return send_request(load, connection, err);
}

static int load_open(struct load *load, const char *url, const char *target, struct error *err)
{
    load->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    snprintf(load->request, sizeof(load->request), "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n",
             target);
    for (int i = 0; i < CONNECTIONS; i++)
        load->connections[i].fd = -1;
    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *connection = &load->connections[i];
        struct epoll_event event = { .events = EPOLLIN, .data.ptr = connection };

        connection->answer = xmalloc(ANSWER_SIZE);
        connection->fd = bench_connect(url, err);
        if (connection->fd < 0)
            return -1;
        epoll_ctl(load->epoll_fd, EPOLL_CTL_ADD, connection->fd, &event);
    }
    return 0;
}

static void load_close(struct load *load)
{
    for (int i = 0; i < CONNECTIONS; i++) {
        fd_close(load->connections[i].fd);
        free(load->connections[i].answer);
    }
    fd_close(load->epoll_fd);
    free(load);
}

/* Requests in a second. Answers that are still under way at the end are awaited: the connections
 * are used again. */
static double load_run(struct load *load, double seconds, struct error *err)
{
    double begin = bench_now_us();
    double end = begin + seconds * 1e6;
    struct epoll_event events[CONNECTIONS];

    load->done = 0;
    for (int i = 0; i < CONNECTIONS; i++)
        if (send_request(load, &load->connections[i], err) < 0)
            return -1;
    while (bench_now_us() < end) {
        int count = epoll_wait(load->epoll_fd, events, CONNECTIONS, 5000);

        if (count == 0)
            return error_set(err, ERR_TIMEOUT, "no answer");
        for (int i = 0; i < count; i++)
            if (receive(load, events[i].data.ptr, err) < 0)
                return -1;
    }
    return (double)load->done / ((bench_now_us() - begin) / 1e6);
}

static double run_slice(const struct subject *subject, const char *target, double seconds,
                        struct error *err)
{
    struct load *load = xnew(struct load);
    double rate = load_open(load, subject->place, target, err) < 0 ? -1
                                                                   : load_run(load, seconds, err);

    load_close(load);
    return rate;
}

static void run_slices(struct engine *engine, const char *target)
{
    struct samples rates[ENGINE_SUBJECTS] = { 0 };
    struct error errors[ENGINE_SUBJECTS] = { 0 };

    for (size_t at = 0; at < engine->slices * engine->count; at++) {
        size_t i = at % engine->count;
        const struct subject *subject = &engine->subjects[i];
        double rate = run_slice(subject, subject->ops ? target : "/",
                                engine->seconds / engine->slices, &errors[i]);

        if (rate >= 0)
            samples_add(&rates[i], rate);
    }
    for (size_t i = 0; i < engine->count; i++) {
        const char *name = engine->subjects[i].name;

        if (errors[i].code)
            engine_put_error(engine, "requests", name, &errors[i]);
        else
            engine_put_samples(engine, "requests", name, "per second", &rates[i]);
        samples_fini(&rates[i]);
    }
}

void engine_requests(struct engine *engine)
{
    const struct subject *subject = engine_subject(engine, "sandglass");
    struct bench_box box = { 0 };
    struct error err = { 0 };
    struct worker worker;
    char target[160];

    if (!subject)
        return;
    worker_init(&worker, subject, 0);
    if (subject->ops->make(&worker, &box, &err) < 0) {
        engine_put_error(engine, "requests", subject->name, &err);
    } else {
        snprintf(target, sizeof(target), "/api/v1/sessions/%s", box.name);
        run_slices(engine, target);
        (void)subject->ops->destroy(&worker, &box, NULL);
    }
    worker_fini(&worker);
}
