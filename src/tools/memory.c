/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/memory.h"

#include "agent/files.h"
#include "base/alloc.h"
#include "core/core.h"
#include "core/session/session.h"
#include "tools/work.h"

#include <stdio.h>
#include <string.h>

enum { FILES_MAXIMUM = 512 }; /* of a session; a model that has seen more reads again */

struct seen {
    struct protocol_version version;
    char path[];
};

static bool is_same(const struct protocol_version *a, const struct protocol_version *b)
{
    return a->size == b->size && a->inode == b->inode && a->modified_us == b->modified_us;
}

/* --- files ----------------------------------------------------------------------------------- */

void tool_memory_forget_files(struct tool_memory *memory)
{
    struct map_slot *slot;

    map_for_each (slot, &memory->files)
        free(slot->value);
    map_fini(&memory->files);
    memory->files = (struct map){ 0 };
}

void tool_memory_saw(struct tool_memory *memory, const char *path, const struct protocol_stat *stat)
{
    struct seen *seen = map_get(&memory->files, path);

    if (!seen) {
        if (memory->files.count >= FILES_MAXIMUM)
            tool_memory_forget_files(memory);
        seen = xcalloc(1, sizeof(*seen) + strlen(path) + 1);
        memcpy(seen->path, path, strlen(path) + 1);
        map_put(&memory->files, seen->path, seen);
    }
    seen->version = file_version(stat);
}

enum tool_knowledge tool_memory_knows(const struct tool_memory *memory, const char *path,
                                      const struct protocol_stat *stat)
{
    const struct seen *seen = map_get(&memory->files, path);
    struct protocol_version now = file_version(stat);
    const struct map_slot *slot;

    if (seen)
        return is_same(&seen->version, &now) ? TOOL_SEEN : TOOL_SEEN_OTHERWISE;
    map_for_each (slot, &memory->files) { /* by another path */
        seen = slot->value;
        if (is_same(&seen->version, &now))
            return TOOL_SEEN;
    }
    return TOOL_NEVER_SEEN;
}

/* --- sessions -------------------------------------------------------------------------------- */

static void memory_free(struct tool_memory *memory)
{
    tool_memory_forget_files(memory);
    free(memory);
}

/* Sessions end without telling us: now and then those that are gone are looked for. */
static void drop_ended(struct tools *tools)
{
    struct map kept = { 0 };
    struct map_slot *slot;

    map_for_each (slot, &tools->memories) {
        struct tool_memory *memory = slot->value;

        if (map_get(&tools->core->sessions_by_id, memory->session_id))
            map_put(&kept, memory->session_id, memory);
        else
            memory_free(memory);
    }
    map_fini(&tools->memories);
    tools->memories = kept;
}

struct tool_memory *tool_memory_of(struct tools *tools, const struct session *session)
{
    struct tool_memory *memory = map_get(&tools->memories, session_id(session));

    if (memory)
        return memory;
    if (tools->memories.count >= 16 &&
        tools->memories.count > 2 * tools->core->sessions_by_id.count)
        drop_ended(tools);
    memory = xnew(struct tool_memory);
    snprintf(memory->session_id, sizeof(memory->session_id), "%s", session_id(session));
    map_put(&tools->memories, memory->session_id, memory);
    return memory;
}

void tool_memories_free(struct tools *tools)
{
    struct map_slot *slot;

    map_for_each (slot, &tools->memories)
        memory_free(slot->value);
    map_fini(&tools->memories);
}
