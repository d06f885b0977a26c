/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The login of a registry: a name and a password from the caller, or from the config.json of
 * `docker login`. Credential helpers are not run.
 */

#include "base/error.h"

#include <stddef.h>

struct registry_login {
    char *user;     /* owned; NULL: anonymous */
    char *password; /* owned */
    char *helper;   /* owned: the program that would know more; NULL: none */
};

void registry_login_fini(struct registry_login *login);

static inline void scoped_registry_login_fini(struct registry_login *login)
{
    registry_login_fini(login);
}

/* From a file with the password, "-" for stdin; one line end at its end does not count. */
int registry_login_read(struct registry_login *login, const char *user, const char *password_file,
                        struct error *err);

/* From $DOCKER_CONFIG/config.json or ~/.docker/config.json; a file that is not there says nothing. */
int registry_login_find(struct registry_login *login, const char *registry, struct error *err);

/* Parses the text of a config.json. The registry is "docker.io", "HOST" or "HOST:PORT". */
int registry_login_parse(struct registry_login *login, const char *registry, const void *data,
                         size_t length, struct error *err);

/* "Basic …", allocated; NULL for anonymous. */
char *registry_login_basic(const struct registry_login *login);
