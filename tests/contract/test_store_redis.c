/* SPDX-License-Identifier: Apache-2.0 */
#include "store_contract.h"

#include "harness/redis_server.h"

#include <stdio.h>

static struct redis_server server;

static struct store *open_redis(struct loop *loop)
{
    struct store_options options = { .loop = loop,
                                     .boot_id = "boot",
                                     .node = "node 1",
                                     .redis = { .url = server.url, .sync = "none" } };
    struct error err = { 0 };
    struct store *store;

    (void)redis_server_ask(&server, "FLUSHALL");
    store = store_open_redis(&options, &err);
    if (!store)
        fprintf(stderr, "%s\n", err.message);
    return store;
}

/* It has no memory for more. */
static void set_failing(struct store *store, bool failing)
{
    (void)store;
    (void)redis_server_ask(&server, failing ? "CONFIG SET maxmemory 1" : "CONFIG SET maxmemory 0");
}

int main(void)
{
    int failed;

    if (!redis_server_start(&server, NULL)) {
        printf("1..0 # SKIP there is no redis-server here\n");
        return 0;
    }
    failed = store_contract_run(&(struct store_contract){ .name = "store/redis",
                                                          .open = open_redis,
                                                          .set_failing = set_failing,
                                                          .asks_server = true });
    redis_server_stop(&server);
    return failed;
}
