#pragma once

/*
 * The first of the three steps of a start: prepare, spawn, attach. A request becomes a program that
 * init can run: arguments, environment (see environment.h) and script.
 */

#include "base/error.h"

#include <stdbool.h>

struct config;
struct execution_request;
struct language;
struct sandbox;
struct session;

struct program {
    char **argv; /* owned, with its texts; NULL-terminated, here and below */
    char **env;
    char *cwd, *user;
    char *script_name; /* NULL without a script; its path is the argument behind the interpreter */
    int script_fd;     /* owned; -1 without */
    bool may_use_sh;   /* shell text: /bin/sh where there is no bash */
    const struct language *language; /* of a script that is code; NULL otherwise */
};

#define PROGRAM_INIT ((struct program){ .script_fd = -1 })

/* -1 when the request is wrong; then there is nothing to release. */
int program_prepare(struct program *program, const struct session *session,
                    const struct execution_request *request, const char *execution_id,
                    struct error *err);

/* A Python that waits for its script, see python_zygote.h. */
int program_prepare_zygote(struct program *program, const struct config *config, const char *name,
                           struct error *err);

/* There is no bash: the shell text is run by /bin/sh. */
void program_use_sh(struct program *program);

/* Sets the path of the script, which depends on the sandbox. */
void program_place_script(struct program *program, const struct sandbox *sandbox);
void program_fini(struct program *program);
