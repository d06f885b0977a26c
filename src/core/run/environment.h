/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The environment of a program, made from nothing: of the daemon's own variables only those of the
 * allowlist sandbox.env_pass reach it. In this order, the later one wins:
 *
 *     defaults           unbuffered Python, pip that installs; PATH only where the sandbox sees the
 *                        files of this host, else init knows it
 *     sandbox.env_pass   the allowlist, with the daemon's values
 *     sandbox.env_set    set by the settings
 *     session            its env, then its secrets
 *     request            its env, then its secrets
 *     identity           SANDGLASS_SESSION_ID, SANDGLASS_EXECUTION_ID
 */

#include <stdbool.h>
#include <stddef.h>

struct backend;
struct config;
struct error;
struct execution_request;
struct session;

struct environment {
    char **items; /* owned, with its texts: NAME=value, NULL-terminated; NULL while it is empty */
    size_t count;
};

void environment_fini(struct environment *environment);

/* Sets NAME=value; a variable of that name is replaced. */
void environment_set(struct environment *environment, const char *name, const char *value);
bool environment_has(const struct environment *environment, const char *name);

/* The variables of an object of texts; `field` names it in errors, NULL is an empty object. */
int environment_add_json(struct environment *environment, const char *field, const char *json,
                         struct error *err);

/* Adds the variables of every program of that backend: defaults, the allowlist and the
 * settings. */
void environment_add_common(struct environment *environment, const struct config *config,
                            const struct backend *backend);

/* Adds LC_CTYPE in place of a LANG of C.UTF-8 from the allowlist, where no layer has set a locale. It
 * means the same, and a program that starts reads one file for it instead of twelve. */
void environment_add_locale(struct environment *environment, const struct config *config);

int environment_add_request(struct environment *environment,
                            const struct execution_request *request, struct error *err);

/* The whole environment of an execution. ERR_CONFLICT "secrets_lost" where the secrets of the
 * session cannot be unsealed any more. */
int environment_make(struct environment *environment, const struct session *session,
                     const struct execution_request *request, const char *execution_id,
                     struct error *err);
