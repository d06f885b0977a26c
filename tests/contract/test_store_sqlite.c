#include "store_contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char directory[64];
static char path[96];

static struct store *open_sqlite(struct loop *loop)
{
    struct error err = { 0 };
    struct store *store;

    snprintf(directory, sizeof(directory), "/tmp/sandglass-store-XXXXXX");
    if (!mkdtemp(directory))
        return NULL;
    snprintf(path, sizeof(path), "%s/store.db", directory);
    store = store_open_sqlite(
        &(struct store_options){ .loop = loop, .path = path, .sync = "off", .boot_id = "boot" },
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

int main(void)
{
    return store_contract_run(&(struct store_contract){
        .name = "store/sqlite", .open = open_sqlite, .clean_up = clean_up });
}
