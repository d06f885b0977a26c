/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The caller of a request, as its credentials prove. */

#include "base/id.h"

#include <stdbool.h>
#include <stdint.h>

enum role {
    ROLE_USER = 1 << 0,
    ROLE_APPROVER = 1 << 1,
    ROLE_ADMIN = 1 << 2,
    ROLE_DELEGATE = 1 << 3,
};

enum { OWNER_MAXIMUM = 256 };

/* All texts are owned and never NULL once it is filled. */
struct caller {
    char *owner;        /* of the sessions that the request is about; "" for none */
    char *principal;    /* the authenticated name; "" when authentication is off */
    char *on_behalf_of; /* the attribution header as it was sent; not proved */
    unsigned roles;
    bool is_operator;     /* without authentication: root or the daemon's own user */
    char key_id[ID_SIZE]; /* of the API key; "" without one */
    int64_t expires_us;   /* of the credentials, wall clock; 0: never */
};

void caller_fini(struct caller *caller); /* safe on a zeroed one */

static inline void scoped_caller_fini(struct caller *caller)
{
    caller_fini(caller);
}

static inline bool caller_is(const struct caller *caller, enum role role)
{
    return caller->roles & (unsigned)role;
}

/* The owner whom a delegate means by a value of the attribution header; allocated. With "" it is
 * the principal itself. */
char *caller_owner(const char *principal, const char *on_behalf_of);

/* 0 for a name that is no role. */
unsigned role_parse(const char *name);
const char *role_name(enum role role);

#define role_for_each(role, mask)                                      \
    for (unsigned role = ROLE_USER; role <= ROLE_DELEGATE; role <<= 1) \
        if ((mask)&role)

/* Whether a text can name an owner or a principal: UTF-8 of at most OWNER_MAXIMUM bytes without
 * control characters. */
bool owner_is_valid(const char *text);
