/* SPDX-License-Identifier: Apache-2.0 */
#include "store_contract.h"

#include "store/memory/memory.h"

static struct store *open_memory(struct loop *loop)
{
    return store_open_memory(&(struct store_options){ .loop = loop });
}

static void set_failing(struct store *store, bool failing)
{
    store_memory_fail_next(store, failing ? ERR_NO_SPACE : ERR_NONE);
}

int main(void)
{
    return store_contract_run(&(struct store_contract){
        .name = "store/memory", .open = open_memory, .set_failing = set_failing });
}
