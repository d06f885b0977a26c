/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A real Redis server for a test: on a unix socket in a temporary directory, which both go with it. */

#include <stdbool.h>
#include <sys/types.h>

struct redis_server {
    char directory[64];
    char socket[96];
    char url[128];
    pid_t pid; /* 0: it does not run */
};

/* Makes the directory and starts it, with these settings in addition ("--name", "value", …, NULL; or
 * NULL). False when there is no redis-server on this host. */
bool redis_server_start(struct redis_server *server, const char *const *settings);
void redis_server_kill(struct redis_server *server); /* SIGKILL; its files stay */
void redis_server_start_again(struct redis_server *server, const char *const *settings);
void redis_server_stop(struct redis_server *server);          /* a zeroed one is fine */
bool redis_server_answers(const struct redis_server *server); /* at its socket */

/* A command over a connection of its own; the words are split at spaces. The answer as text ("" for
 * none), valid until the next call; an error as it is. */
const char *redis_server_ask(const struct redis_server *server, const char *command);
long long redis_server_number(const struct redis_server *server, const char *command);
