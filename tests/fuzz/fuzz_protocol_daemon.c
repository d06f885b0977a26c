/* SPDX-License-Identifier: Apache-2.0 */
/* What an init may send, and the entries of a list: nothing is read beyond the end, and what is
 * taken keeps its promises. */

#include "wire/protocol.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What a relay has added lies inside the message. */
static void check_added(const char *message, size_t size)
{
    const char *totals = (const void *)protocol_totals_after(message, size);
    const char *bases = (const void *)protocol_bases_after(message, size);

    assert(!totals || totals + sizeof(struct protocol_totals) == message + size);
    assert(!bases || bases + sizeof(struct protocol_bases) == totals);
}

static void check_messages(const void *message, size_t size)
{
    const struct protocol_exited *exited = protocol_exited_decode(message, size);
    const struct protocol_failed *failed = protocol_failed_decode(message, size);
    const struct protocol_process *process = protocol_process_decode(message, size);
    const struct protocol_ran *ran = protocol_ran_decode(message, size);
    const struct protocol_started *started = protocol_started_decode(message, size);
    struct protocol_hello hello;
    const char *temporary;

    if (exited)
        assert(exited->end.code >= -1 && exited->end.code <= 255 && exited->end.signal >= 0);
    if (failed)
        assert(failed->stage > STAGE_NONE && failed->stage < STAGES && failed->error > 0);
    if (process)
        assert(process->pid > 0 && protocol_pipe_count(process->flags) <= PROTOCOL_MAX_FDS);
    if (ran)
        assert(ran->pid > 0 && !ran->end.survivors && ran->end.code <= 255);
    if (started)
        assert(started->pid > 0 && protocol_pipe_count(started->flags) <= PROTOCOL_MAX_FDS);
    if (protocol_file_done_decode(message, size, &temporary))
        assert(strlen(temporary) < PROTOCOL_MAX_TEMPORARY);
    (void)protocol_done_decode(message, size);
    (void)protocol_taken_decode(message, size);
    if (!protocol_hello_decode(message, size, &hello))
        assert(strlen(hello.scratch) < sizeof(hello.scratch));
    if (exited || ran || process)
        check_added(message, size);
    if (protocol_storage_decode(message, size))
        assert(size == sizeof(struct protocol_plain));
}

static void check_entries(const char *bytes, size_t size)
{
    struct protocol_entry_view entry;
    size_t at = 0;
    long used;

    while ((used = protocol_entry_decode(bytes + at, size - at, &entry)) > 0) {
        at += (size_t)used;
        assert(at <= size);
        assert(entry.is_last || entry.fixed.path_length);
        assert(!memchr(entry.path, 0, entry.fixed.path_length));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *message = malloc(size ? size : 1);

    assert(message);
    memcpy(message, data, size);
    check_entries(message, size);
    if (size >= sizeof(struct protocol_header))
        ((struct protocol_header *)(void *)message)->length = (uint32_t)size;
    check_messages(message, size);
    free(message);
    return 0;
}
