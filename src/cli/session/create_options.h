/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The options of a new session, which `run` and `session create` share. */

#include "cli/cli.h"
#include "cli/variables.h"

struct create_args {
    const char *key;
    const char *template_name;
    const char *flavor;
    const char *backend;
    struct text_list labels;
    struct variable_args variables;
    struct text_list mounts;
    const char *memory;
    const char *cpus;
    const char *pids;
    const char *disk;
    const char *network;
    const char *idle_timeout;
    const char *max_lifetime;
    const char *on_timeout;
    bool no_preload;
    bool keep_files;
    const char *auto_restart;
};

extern const struct option create_options[];

/* The body of POST /sessions. `lease` may be NULL. -1 when a variable names nothing we have. */
int create_write_body(const struct create_args *args, const char *lease, struct buffer *body,
                      struct error *err);
