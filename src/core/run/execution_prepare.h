/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The first of the three steps of a start: prepare, spawn, attach. A request becomes a program that
 * init can run: arguments, environment (see environment.h) and script.
 */

#include "base/error.h"

#include <stdbool.h>

struct agent;
struct backend;
struct config;
struct execution_request;
struct language;
struct session;

struct program {
    char **argv; /* owned, with its texts; NULL-terminated, here and below */
    char **env;
    char *cwd, *user;
    char *script_name; /* NULL without a script; its path is the argument behind the interpreter */
    char *script;      /* its content; NULL without a script */
    size_t script_length;
    bool may_use_sh;                 /* shell text: /bin/sh where there is no bash */
    const struct language *language; /* of a script that is code; NULL otherwise */
};

/* -1 when the request is wrong; then there is nothing to release. */
int program_prepare(struct program *program, const struct session *session,
                    const struct execution_request *request, const char *execution_id,
                    struct error *err);

/* A Python that waits for its script, see python_zygote.h. */
void program_prepare_zygote(struct program *program, const struct config *config,
                            const struct backend *backend, const char *name);

/* There is no bash: the shell text is run by /bin/sh. */
void program_use_sh(struct program *program);

/* Sets the path of the script, which depends on the sandbox. */
int program_place_script(struct program *program, const struct agent *agent, struct error *err);
void program_drop_script(struct program *program); /* it was sent */
void program_fini(struct program *program);
