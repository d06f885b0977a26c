/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The programs that can start `sandglass mcp` themselves: where each keeps its configuration, and
 * what has to stand there. A file is changed by adding one entry to it, or replacing the one with
 * the same name; everything else stays as it is, and a file that cannot be read is left alone.
 */

#include "base/buffer.h"
#include "base/error.h"
#include "cli/options.h"

#include <stdbool.h>

struct mcp_client_kind {
    const char *name;   /* as on the command line; NULL ends the table */
    const char *title;  /* as its makers call it */
    bool in_config_dir; /* below $XDG_CONFIG_HOME rather than $HOME */
    const char *file;
    const char *member; /* of the document that holds the entries; NULL: it is TOML */
    bool has_type;      /* an entry says that it is "stdio" */
};

extern const struct mcp_client_kind mcp_client_kinds[];

const struct mcp_client_kind *mcp_client_kind_find(const char *name); /* or NULL */

/* An entry in the configuration of a client: the program to start, and its name. */
struct mcp_entry {
    const char *name;
    const char *program;
    const char *url;                 /* of the daemon; NULL for the usual one */
    const struct text_list *options; /* of the session, as words of a command line */
};

/* Where its configuration is, allocated; NULL without a home. */
char *mcp_client_path(const struct mcp_client_kind *kind, struct error *err);

/* The text of the entry, for people to copy into the file. */
void mcp_client_describe(const struct mcp_client_kind *kind, const struct mcp_entry *entry,
                         struct buffer *out);

enum mcp_change { MCP_ADDED, MCP_REPLACED, MCP_UNCHANGED, MCP_REMOVED, MCP_ABSENT };

/* Puts the entry into the file, which is replaced as a whole, or made. */
int mcp_client_write(const struct mcp_client_kind *kind, const struct mcp_entry *entry,
                     const char *path, enum mcp_change *out_change, struct error *err);

/* Takes the entry of this name out of the file; nothing else changes. */
int mcp_client_remove(const struct mcp_client_kind *kind, const char *name, const char *path,
                      enum mcp_change *out_change, struct error *err);
