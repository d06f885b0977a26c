/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/redis_server.h"

#include <hiredis/hiredis.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { ARGUMENTS = 48, START_TRIES = 6000 };

static void run(const struct redis_server *server, const char *const *settings)
{
    const char *arguments[ARGUMENTS] = {
        "redis-server",
        "--port",
        "0",
        "--unixsocket",
        server->socket,
        "--dir",
        server->directory,
        "--save",
        "",
        "--appendonly",
        "no",
        "--logfile",
        "log",
    };
    size_t count = 13;

    while (settings && *settings && count < ARGUMENTS - 1)
        arguments[count++] = *settings++;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execvp(arguments[0], (char *const *)arguments);
    _exit(127);
}

bool redis_server_answers(const struct redis_server *server)
{
    redisContext *context = redisConnectUnix(server->socket);
    bool good = context && !context->err;

    if (context)
        redisFree(context);
    return good;
}

static bool start(struct redis_server *server, const char *const *settings)
{
    server->pid = fork();
    if (server->pid == 0)
        run(server, settings);
    for (int i = 0; i < START_TRIES; i++) {
        if (redis_server_answers(server))
            return true;
        if (waitpid(server->pid, NULL, WNOHANG) == server->pid) {
            server->pid = 0;
            return false;
        }
        usleep(10 * 1000);
    }
    redis_server_kill(server);
    return false;
}

bool redis_server_start(struct redis_server *server, const char *const *settings)
{
    *server = (struct redis_server){ 0 };
    snprintf(server->directory, sizeof(server->directory), "/tmp/sandglass-redis-XXXXXX");
    if (!mkdtemp(server->directory))
        return false;
    snprintf(server->socket, sizeof(server->socket), "%s/socket", server->directory);
    snprintf(server->url, sizeof(server->url), "unix://%s", server->socket);
    if (start(server, settings))
        return true;
    redis_server_stop(server);
    return false;
}

void redis_server_start_again(struct redis_server *server, const char *const *settings)
{
    assert_true(start(server, settings));
}

void redis_server_kill(struct redis_server *server)
{
    if (!server->pid)
        return;
    (void)kill(server->pid, SIGKILL);
    (void)waitpid(server->pid, NULL, 0);
    server->pid = 0;
}

void redis_server_stop(struct redis_server *server)
{
    char command[128];

    redis_server_kill(server);
    if (!server->directory[0])
        return;
    snprintf(command, sizeof(command), "rm -rf %s", server->directory);
    (void)!system(command);
    server->directory[0] = '\0';
}

static redisReply *ask(const struct redis_server *server, const char *command)
{
    redisContext *context = redisConnectUnix(server->socket);
    redisReply *reply;

    assert_true(context && !context->err);
    reply = redisCommand(context, command);
    assert_non_null(reply);
    redisFree(context);
    return reply;
}

const char *redis_server_ask(const struct redis_server *server, const char *command)
{
    static char text[4096];
    redisReply *reply = ask(server, command);

    snprintf(text, sizeof(text), "%s", reply->str ? reply->str : "");
    freeReplyObject(reply);
    return text;
}

long long redis_server_number(const struct redis_server *server, const char *command)
{
    redisReply *reply = ask(server, command);
    long long number = reply->type == REDIS_REPLY_INTEGER ? reply->integer : -1;

    freeReplyObject(reply);
    return number;
}
