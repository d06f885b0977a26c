/* SPDX-License-Identifier: Apache-2.0 */
/* Lines that we did not write are never taken for ours, and those that we write always are. */

#include "audit/chain.h"
#include "base/alloc.h"
#include "base/scoped.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_written(const char *members)
{
    scoped(buffer_fini) struct buffer line = BUFFER_INIT(1 << 20);
    struct chain chain = CHAIN_START, reader = CHAIN_START;

    if (strchr(members, '\n'))
        return;
    chain_append(&chain, members, &line);
    if (line.overflowed)
        return;
    line.data[line.length - 1] = '\0';
    assert(chain_check_line(&reader, (const char *)line.data, line.length - 1, true) == CHAIN_GOOD);
    assert(reader.sequence == chain.sequence && strcmp(reader.hash, chain.hash) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    scoped(free) char *text = xstrndup((const char *)data, size);
    struct chain chain = CHAIN_START;

    (void)chain_check_line(&chain, text, strlen(text), true);
    assert(strlen(chain.hash) == SHA256_TEXT_SIZE - 1);
    (void)chain_check_line(&chain, text, strlen(text), false);
    (void)chain_read_head(&chain, text);
    check_written(text);
    return 0;
}
