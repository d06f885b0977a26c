/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MCP on stdio, as a client that starts its server would use it: from the start of the process to
 * the first result of a tool, and one call more.
 */

#include "engine.h"

#include "base/alloc.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { LINE_MAXIMUM = 1 << 20, PATIENCE_MS = 30 * 1000 };

struct mcp {
    pid_t pid;
    int in, out; /* owned: of the server */
    struct buffer line;
    const char *program; /* borrowed */
    const char *url;     /* borrowed */
};

static const char hello[] =
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":"
    "\"2025-06-18\",\"capabilities\":{},\"clientInfo\":{\"name\":\"bench\",\"version\":\"1\"}}}\n";
static const char ready[] = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";
static const char call[] = "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\",\"params\":{"
                           "\"name\":\"bash\",\"arguments\":{\"command\":\"true\"}}}\n";

static int mcp_open(struct mcp *mcp, struct error *err)
{
    const char *const argv[] = { mcp->program, "mcp", "--url", mcp->url, NULL };
    posix_spawn_file_actions_t actions;
    int in[2], out[2], failure;

    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
        return error_sys(err, "make a pipe");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    failure = posix_spawn(&mcp->pid, argv[0], &actions, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    mcp->in = in[1];
    mcp->out = out[0];
    mcp->line = BUFFER_INIT(LINE_MAXIMUM);
    errno = failure;
    return failure ? error_sys(err, "start %s", argv[0]) : 0;
}

static void mcp_close(struct mcp *mcp)
{
    close(mcp->in);
    close(mcp->out);
    buffer_fini(&mcp->line);
    if (mcp->pid > 0)
        (void)waitpid(mcp->pid, NULL, 0);
}

/* Lines until the answer with this id; what the server tells otherwise is passed over. */
static int mcp_await(struct mcp *mcp, const char *id, struct error *err)
{
    for (;;) {
        struct pollfd watch = { .fd = mcp->out, .events = POLLIN };
        const char *end = memchr(mcp->line.data, '\n', mcp->line.length);
        void *place;
        ssize_t got;

        if (end) {
            size_t length = (size_t)(end + 1 - (const char *)mcp->line.data);
            bool found = memmem(mcp->line.data, length, id, strlen(id));
            bool failed = memmem(mcp->line.data, length, "\"isError\":true", 14) ||
                          memmem(mcp->line.data, length, "\"error\":", 8);

            if (found && failed)
                return error_set(err, ERR_BACKEND, "the tool failed: %.300s",
                                 buffer_text(&mcp->line));
            buffer_consume(&mcp->line, length);
            if (found)
                return 0;
            continue;
        }
        if (poll(&watch, 1, PATIENCE_MS) != 1)
            return error_set(err, ERR_TIMEOUT, "the server does not answer");
        place = buffer_reserve(&mcp->line, 65536);
        got = place ? read(mcp->out, place, 65536) : -1;
        if (got <= 0)
            return error_set(err, ERR_BACKEND, "the server has ended");
        buffer_advance(&mcp->line, (size_t)got);
    }
}

static int mcp_send(struct mcp *mcp, const char *text, struct error *err)
{
    if (write(mcp->in, text, strlen(text)) != (ssize_t)strlen(text))
        return error_sys(err, "send to the server");
    return 0;
}

static int mcp_greet(struct mcp *mcp, struct error *err)
{
    if (mcp_open(mcp, err) < 0 || mcp_send(mcp, hello, err) < 0 ||
        mcp_await(mcp, "\"id\":1", err) < 0)
        return -1;
    return mcp_send(mcp, ready, err);
}

static int mcp_call(struct mcp *mcp, struct error *err)
{
    return mcp_send(mcp, call, err) < 0 ? -1 : mcp_await(mcp, "\"id\":2", err);
}

/* --- trials ---------------------------------------------------------------------------------- */

static struct mcp kept; /* the one that is called again and again */

static double first_result(struct trial *trial UNUSED, struct error *err)
{
    struct mcp mcp = { .program = kept.program, .url = kept.url };
    double begin = bench_now_us();
    double took = mcp_greet(&mcp, err) < 0 || mcp_call(&mcp, err) < 0 ? -1 : bench_now_us() - begin;

    mcp_close(&mcp);
    return took;
}

static double one_more(struct trial *trial UNUSED, struct error *err)
{
    double begin = bench_now_us();

    return mcp_call(&kept, err) < 0 ? -1 : bench_now_us() - begin;
}

void engine_mcp(struct engine *engine)
{
    const struct subject *subject = engine_subject(engine, "sandglass");
    struct trial_limits limits = { .seconds = engine->seconds,
                                   .at_least = 5,
                                   .at_most = engine->at_most };
    struct trial trials[] = {
        { .row = "mcp_first", .subject = "sandglass", .run = first_result },
        { .row = "mcp_call", .subject = "sandglass", .run = one_more },
    };
    struct error err = { 0 };

    if (!subject || !engine->program)
        return;
    kept = (struct mcp){ .program = engine->program, .url = subject->place };
    if (mcp_greet(&kept, &err) < 0 || mcp_call(&kept, &err) < 0) {
        engine_put_error(engine, "mcp_first", "sandglass", &err);
    } else {
        trials_run(trials, ARRAY_LENGTH(trials), &limits);
        for (size_t i = 0; i < ARRAY_LENGTH(trials); i++)
            trial_write_json(&trials[i], "us", &engine->json);
    }
    mcp_close(&kept);
    trials_fini(trials, ARRAY_LENGTH(trials));
}
