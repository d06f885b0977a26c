/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A login of the dashboard: what the cookie of a browser says instead of the credentials that it was
 * exchanged for. It holds no secret. A key is named by its id, so that a login ends with its key and has
 * the roles that the key has now; a token has an end of its own, which its login shares.
 *
 *     1.MODE.ID.ISSUED.EXPIRES.ROLES.OPERATOR.KEY.PRINCIPAL.ON_BEHALF_OF
 *
 * Times are microseconds of the wall clock, the last two texts are in hexadecimal digits, an empty text
 * is "-". The text is signed by its user (face/cookie.h); an unsigned one is never read.
 */

#include "auth/caller.h"
#include "base/id.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ID_LOGIN "log_"

enum { LOGIN_TEXT_SIZE = 2 * ID_SIZE + 3 * 24 + 4 * OWNER_MAXIMUM + 32 };

struct login {
    int mode; /* enum config_auth when it was made: it counts in that mode alone */
    char id[ID_SIZE];
    int64_t issued_us;
    int64_t expires_us;
    unsigned roles;   /* without a key */
    bool is_operator; /* as in struct caller */
    char key_id[ID_SIZE];
    char principal[OWNER_MAXIMUM + 1];
    char on_behalf_of[OWNER_MAXIMUM + 1];
};

void login_write(const struct login *login, char out[LOGIN_TEXT_SIZE]);

/* 0, or -1 when it is not such a text. */
int login_read(struct login *login, const char *text);

/* The value of a cookie in a Cookie header: where it begins, and its length; NULL without it. */
const char *login_find_cookie(const char *header, const char *name, size_t *out_length);
