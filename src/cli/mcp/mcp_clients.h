#pragma once

/*
 * The programs that can start `sandglass mcp` themselves: where each keeps its configuration, and
 * what has to stand there. A file is changed by adding one entry to it, or replacing the one with
 * the same name; everything else stays as it is, and a file that cannot be read is left alone.
 */

#include "base/buffer.h"
#include "base/error.h"

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

/* What is to be started, and under which name. */
struct mcp_entry {
    const char *name;
    const char *program;
    const char *url; /* of the daemon; NULL for the usual one */
};

/* Where its configuration is, allocated; NULL without a home. */
char *mcp_client_path(const struct mcp_client_kind *kind, struct error *err);

/* What has to stand in the file, for people to copy. */
void mcp_client_describe(const struct mcp_client_kind *kind, const struct mcp_entry *entry,
                         struct buffer *out);

enum mcp_change { MCP_ADDED, MCP_REPLACED, MCP_UNCHANGED };

/* Puts the entry into the file, which is replaced as a whole, or made. */
int mcp_client_write(const struct mcp_client_kind *kind, const struct mcp_entry *entry,
                     const char *path, enum mcp_change *out_change, struct error *err);
