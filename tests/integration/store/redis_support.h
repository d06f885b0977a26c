/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Several servers, and a proxy that loses answers, for tests of the Redis store. */

#include "harness/redis_server.h"
#include "store_contract.h"

/* Everything of a test: what is set is given back by its end. */
struct redis_place {
    struct loop *loop;
    struct redis_server servers[3];
    struct store *store;
    struct error err;
    pid_t helper; /* a proxy or a sentinel; 0: none */
};

int redis_place_setup(void **state); /* starts servers[0]; skips without one */
int redis_place_teardown(void **state);

/* Runs the helper in a process of its own. */
void redis_place_run(struct redis_place *place, const char *const *command);

/* A proxy at `path` that passes requests on to the server, and cuts the connection now and then
 * before an answer is through. */
void redis_place_cut(struct redis_place *place, const char *path);

/* A store of the place, with the url of servers[0] and the node "a" where nothing else is said;
 * place->err says why it is NULL. */
struct store *redis_place_open(struct redis_place *place, struct store_options options);

/* That nobody has at the moment, and that the kernel gives to nobody by itself: it is below the ephemeral
 * ones. */
int free_port(void);
