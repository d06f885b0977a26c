/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Authentication of a front. Apart from client.h, whose `caller` is another one than that of src/auth. */

struct auth;
struct config;
struct loop;

enum { FRONT_KEY_SIZE = 80 };

struct auth *front_auth_new(struct loop *loop, const struct config *config);
void front_auth_free(struct auth *auth); /* NULL is fine */

/* Settings for keys in a file at `path`: of ann, a user, and of root, an administrator. */
void front_keys_make(struct config *config, char *path, char ann[FRONT_KEY_SIZE],
                     char root[FRONT_KEY_SIZE]);
void front_keys_revoke_ann(const char *path);
void front_keys_forget(void);
