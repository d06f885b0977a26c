#include "store_contract.h"

static struct store *open_memory(struct loop *loop)
{
    return store_open_memory(&(struct store_options){ .loop = loop });
}

int main(void)
{
    return store_contract_run(
        &(struct store_contract){ .name = "store/memory", .open = open_memory });
}
