/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/operator/engine_look.h"

#include "backend/docker/engine.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "config/config.h"
#include "daemon/privileges.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REQUEST_TIMEOUT_MS = 3000, CHILD_TIMEOUT_MS = 5000, ANSWER_MAXIMUM = 4 * 1024 * 1024 };

/* --- in the child ---------------------------------------------------------------------------- */

struct question {
    struct engine_call call;
    struct loop *loop; /* borrowed */
    json_t *answer;    /* owned; NULL without one */
};

static void on_answer(struct engine_call *call)
{
    struct question *question = container_of(call, struct question, call);

    question->answer = call->body ? json_incref(call->body) : NULL;
    loop_stop(question->loop);
}

static json_t *ask(struct loop *loop, struct engine *engine, const char *path, struct error *err)
{
    struct question question = { .loop = loop };

    engine_request(engine, &question.call, HTTP_GET, path, NULL, NULL, 0, REQUEST_TIMEOUT_MS,
                   on_answer);
    loop_run(loop);
    *err = question.call.err;
    if (err->code == ERR_NONE && !json_is_object(question.answer))
        error_set(err, ERR_BACKEND, "%s has no answer to %s", engine_host(engine), path);
    return question.answer;
}

static void become_daemon(const struct config *config, struct error *err)
{
    struct identity identity;

    if (identity_find(config->user, &identity, err) < 0)
        return;
    if (config_engine_socket(config))
        identity_keep_group(&identity, config_engine_socket(config));
    (void)identity_assume(&identity, err);
}

static json_t *ask_all(const struct config *config, struct error *err)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    const struct engine_options options = {
        .loop = loop,
        .host = config->docker.host,
        .ca = config->docker.tls.ca,
        .certificate = config->docker.tls.cert,
        .key = config->docker.tls.key,
    };
    scoped(engine_free) struct engine *engine = engine_new(&options, err);
    json_t *info = engine ? ask(loop, engine, "/info", err) : NULL;
    json_t *version = engine && err->code == ERR_NONE ? ask(loop, engine, "/version", err) : NULL;

    return json_pack("{s:o?, s:o?, s:s}", "info", info, "version", version, "api",
                     engine ? engine_version(engine) : "");
}

static _Noreturn void tell_all(const struct config *config, int fd)
{
    struct error err = { 0 };
    json_t *document = NULL;

    become_daemon(config, &err);
    if (err.code == ERR_NONE)
        document = ask_all(config, &err);
    if (err.code != ERR_NONE)
        document = json_pack("{s:s, s:s}", "error", err.message, "hint", err.hint);
    _exit(json_dumpfd(document, fd, 0) < 0);
}

/* --- in the parent --------------------------------------------------------------------------- */

/* Whether all of it came in time. */
static bool read_answer(int fd, struct buffer *out)
{
    int64_t deadline_us = clock_now_us(&clock_system) + CHILD_TIMEOUT_MS * 1000LL;

    for (;;) {
        struct pollfd ready = { .fd = fd, .events = POLLIN };
        int64_t left_ms = (deadline_us - clock_now_us(&clock_system)) / 1000;
        void *room = buffer_reserve(out, 4096);
        ssize_t got;

        if (left_ms <= 0 || !room || (poll(&ready, 1, (int)left_ms) < 0 && errno != EINTR))
            return false;
        if (!ready.revents)
            continue;
        got = read(fd, room, 4096);
        if (got <= 0)
            return got == 0;
        buffer_advance(out, (size_t)got);
    }
}

static void take_answer(struct engine_look *look, struct buffer *text)
{
    json_t *document = json_loadb((const char *)text->data, text->length, 0, NULL);
    const char *problem = json_string_value(json_object_get(document, "error"));
    const char *hint = json_string_value(json_object_get(document, "hint"));
    const char *api = json_string_value(json_object_get(document, "api"));

    if (problem || !document) {
        error_set(&look->err, ERR_UNAVAILABLE, "%s",
                  problem ? problem : "the question to the container engine failed");
        error_hint(&look->err, "%s", hint ? hint : "");
    } else {
        look->info = json_incref(json_object_get(document, "info"));
        look->version = json_incref(json_object_get(document, "version"));
        snprintf(look->api, sizeof(look->api), "%s", api ? api : "");
    }
    json_decref(document);
}

void engine_look_run(struct engine_look *look, const struct config *config)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(ANSWER_MAXIMUM);
    scoped(fd_close) int reader = -1;
    int pipes[2];
    pid_t pid;

    *look = (struct engine_look){ 0 };
    if (pipe2(pipes, O_CLOEXEC) < 0 || (pid = fork()) < 0) {
        error_sys(&look->err, "ask the container engine");
        return;
    }
    if (pid == 0)
        tell_all(config, pipes[1]);
    close(pipes[1]);
    reader = pipes[0];
    if (read_answer(reader, &text)) {
        take_answer(look, &text);
    } else {
        error_set(&look->err, ERR_UNAVAILABLE, "container engine: no answer in %d s",
                  CHILD_TIMEOUT_MS / 1000);
        error_hint(&look->err, "see whether the engine runs, and whether docker.host is its "
                               "address");
    }
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
}

void engine_look_fini(struct engine_look *look)
{
    json_decref(look->info);
    json_decref(look->version);
}
