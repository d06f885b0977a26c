#pragma once

/* What a new session is like: the create options that `run` and `session create` share. */

#include "cli/cli.h"

struct json_writer;

struct create_args {
    const char *key;
    const char *template_name;
    const char *flavor;
    const char *backend;
    struct text_list labels;
    struct text_list env;
    const char *memory;
    const char *cpus;
    const char *pids;
    const char *disk;
    const char *network;
    const char *idle_timeout;
    const char *max_lifetime;
    const char *on_timeout;
    bool no_preload;
    const char *auto_restart;
};

extern const struct option create_options[];

/* The body of POST /sessions. `lease` may be NULL. -1 when an --env names nothing we have. */
int create_write_body(const struct create_args *args, const char *lease, struct buffer *body,
                      struct error *err);

/* {"K":"V", …} of K=V texts under `key`; a bare K takes the value that we have ourselves. */
int env_write(const struct text_list *pairs, struct json_writer *json, const char *key,
              struct error *err);
