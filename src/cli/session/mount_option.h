/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* --mount DIR[:PATH][:ro]: directories of this machine in a sandbox. */

#include "cli/cli.h"
#include "config/config.h"

struct json_writer;

/* Directories by their path without links, which other processes find too. */
int mount_option_read(const struct text_list *mounts, struct config_mounts *out, struct error *err);
void mount_option_fini(struct config_mounts *mounts);

/* As "mounts" of the body of POST /sessions; nothing without any. */
int mount_option_write(const struct text_list *mounts, struct json_writer *json, struct error *err);

/* Whether the daemon at cli->url is on this machine, whose directories are meant. */
bool mount_option_is_local(const struct cli *cli);

/* The daemon refuses a session because of its mounts: it does not allow them, or cannot make them. */
bool mount_option_is_refused(const struct error *err);

static inline void scoped_mount_option_fini(struct config_mounts *mounts)
{
    mount_option_fini(mounts);
}
