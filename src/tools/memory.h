/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The memory of the tools for a session: which incarnation of its sandbox the model knows, and
 * which files it has seen in which version. It is forgotten with the session. After a restart of
 * the daemon nothing is known: a model is then asked to read again what it wants to overwrite.
 */

#include "base/id.h"
#include "base/map.h"
#include "wire/protocol.h"

#include <stdbool.h>

struct session;
struct tools;

struct tool_memory {
    char session_id[ID_SIZE];
    uint64_t generation; /* of the sandbox that the model was last told about; 0: none yet */
    bool has_tip;        /* execute_python has told how it is meant */
    struct map files;    /* by path; private */
};

/* Made when there is none. */
struct tool_memory *tool_memory_of(struct tools *tools, const struct session *session);
void tool_memories_free(struct tools *tools);

/* The model knows this version of the file. */
void tool_memory_saw(struct tool_memory *memory, const char *path,
                     const struct protocol_stat *stat);

enum tool_knowledge { TOOL_NEVER_SEEN, TOOL_SEEN_OTHERWISE, TOOL_SEEN };
enum tool_knowledge tool_memory_knows(const struct tool_memory *memory, const char *path,
                                      const struct protocol_stat *stat);

/* Forgets the files that were read: they are gone. */
void tool_memory_forget_files(struct tool_memory *memory);
