/* SPDX-License-Identifier: Apache-2.0 */
#include "front_keys.h"

#include "auth/auth.h"
#include "auth/keys.h"
#include "config/config.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

static struct key_set keys;

struct auth *front_auth_new(struct loop *loop, const struct config *config)
{
    struct error err = { 0 };
    struct auth *auth = auth_new(&(struct auth_parts){ .loop = loop, .config = config }, &err);

    assert(auth);
    return auth;
}

void front_auth_free(struct auth *auth)
{
    auth_free(auth);
}

static void save(const char *path)
{
    struct error err = { 0 };

    assert(key_set_save(&keys, path, geteuid(), getegid(), &err) == 0);
}

void front_keys_make(struct config *config, char *path, char ann[FRONT_KEY_SIZE],
                     char root[FRONT_KEY_SIZE])
{
    _Static_assert((int)KEY_TEXT_SIZE <= (int)FRONT_KEY_SIZE, "a key fits");
    key_set_add(&keys, "ann", ROLE_USER, 1, 0, ann);
    key_set_add(&keys, "root", ROLE_USER | ROLE_ADMIN, 1, 0, root);
    save(path);
    config->auth.mode = AUTH_MODE_KEYS;
    config->auth.keys_file = path;
    config->auth.failure_limit = 30;
    config->http.rate_limit = 10000;
    config->http.rate_burst = 10000;
}

void front_keys_revoke_ann(const char *path)
{
    keys.items[0].revoked_us = 2 * 1000 * 1000;
    save(path);
}

void front_keys_forget(void)
{
    key_set_fini(&keys);
    keys = (struct key_set){ 0 };
}
