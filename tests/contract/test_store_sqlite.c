/* SPDX-License-Identifier: Apache-2.0 */
#include "store_contract.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static char directory[64];
static char path[96];
static bool never_on_the_loop;

static struct store *open_sqlite(struct loop *loop)
{
    struct error err = { 0 };
    struct store *store;

    snprintf(directory, sizeof(directory), "/tmp/sandglass-store-XXXXXX");
    if (!mkdtemp(directory))
        return NULL;
    snprintf(path, sizeof(path), "%s/store.db", directory);
    store = store_open_sqlite(&(struct store_options){ .loop = loop,
                                                       .path = path,
                                                       .sync = "off",
                                                       .boot_id = "boot",
                                                       .never_on_the_loop = never_on_the_loop },
                              &err);
    if (!store)
        fprintf(stderr, "%s\n", err.message);
    return store;
}

static void clean_up(void)
{
    (void)unlink(path);
    (void)rmdir(directory);
}

/* No file can be written. */
static void set_failing(struct store *store, bool failing)
{
    struct rlimit limit;

    (void)store;
    (void)signal(SIGXFSZ, SIG_IGN);
    (void)getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = failing ? 0 : limit.rlim_max;
    (void)setrlimit(RLIMIT_FSIZE, &limit);
}

int main(int argc, char **argv)
{
    never_on_the_loop = argc > 1 && strcmp(argv[1], "slow") == 0;
    return store_contract_run(&(struct store_contract){ .name = "store/sqlite",
                                                        .open = open_sqlite,
                                                        .clean_up = clean_up,
                                                        .set_failing = set_failing });
}
