/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/spill.h"

#include "agent/scratch.h"
#include "base/alloc.h"
#include "base/id.h"

#include <stdlib.h>

enum { PENDING_MAXIMUM = 1024 * 1024 };

static char *make_path(const struct agent *agent, const char *name)
{
    scoped(free) char *file = NULL;
    char id[ID_SIZE];
    struct error err;

    id_make(id, ID_REQUEST);
    file = xasprintf("%s-%.8s.txt", name, id + 4);
    return agent_scratch_path(agent, file, &err);
}

static void give_up(struct spill *spill)
{
    spill->is_failed = spill->bytes == 0;
    spill->is_partial = true;
    spill->limit = 0;
    buffer_clear(&spill->pending);
}

static void take(struct spill *spill, const void *data, size_t length)
{
    uint64_t room = spill->limit > spill->bytes ? spill->limit - spill->bytes : 0;
    size_t fits = (size_t)MIN((uint64_t)length, room);

    if (fits < length)
        spill->is_partial = true;
    if (fits == 0)
        return;
    if (file_writer_add(&spill->writer, data, fits) < 0)
        give_up(spill);
    else
        spill->bytes += fits;
}

static void on_committed(struct file_writer *writer)
{
    struct spill *spill = container_of(writer, struct spill, writer);

    spill->is_failed = writer->err.code != ERR_NONE;
    spill->on_closed(spill);
}

static void close_now(struct spill *spill)
{
    if (spill->is_failed)
        spill->on_closed(spill);
    else
        file_writer_commit(&spill->writer, spill->agent, 0, NULL, on_committed);
}

/* After a failure the next bytes are given up. */
static void on_room(struct file_writer *writer)
{
    struct spill *spill = container_of(writer, struct spill, writer);

    if (!spill->is_closing)
        spill->on_room(spill);
}

static void on_opened(struct file_writer *writer)
{
    struct spill *spill = container_of(writer, struct spill, writer);

    spill->is_open = true;
    writer->on_room = on_room;
    if (writer->err.code)
        give_up(spill);
    else
        take(spill, spill->pending.data, spill->pending.length);
    buffer_clear(&spill->pending);
    if (spill->is_closing)
        close_now(spill);
    else if (spill_has_room(spill))
        spill->on_room(spill);
}

bool spill_start(struct spill *spill, struct agent *agent, const char *name, uint64_t limit_bytes)
{
    spill->path = make_path(agent, name);
    if (!spill->path)
        return false;
    spill->limit = limit_bytes;
    spill->pending = BUFFER_INIT(PENDING_MAXIMUM);
    file_writer_open(&spill->writer, agent, spill->path, 0600, on_opened);
    return true;
}

bool spill_has_room(const struct spill *spill)
{
    return !spill->path || (spill->is_open && !file_writer_is_full(&spill->writer));
}

void spill_add(struct spill *spill, const void *data, size_t length)
{
    if (spill->is_open)
        take(spill, data, length);
    else if (buffer_append(&spill->pending, data, length) < 0)
        spill->is_partial = true;
}

void spill_close(struct spill *spill, struct agent *agent)
{
    spill->is_closing = true;
    spill->agent = agent;
    if (spill->is_open)
        close_now(spill);
}

void spill_fini(struct spill *spill, struct agent *agent)
{
    file_writer_fini(&spill->writer, agent);
    buffer_fini(&spill->pending);
    free(steal_ptr(&spill->path));
}
