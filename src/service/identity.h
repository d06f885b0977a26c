/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* For whom a request acts, as its face has found out: what decides which sessions it reaches. */

#include "base/str.h"

#include <stdbool.h>

struct caller_identity {
    const char *owner;        /* borrowed; "" without authentication */
    const char *on_behalf_of; /* borrowed; "" without one */
    bool any_owner;           /* an administrator: reaches the sessions of every owner */
};

/* Whether both act for one owner; an administrator for their own. */
static inline bool identity_has_owner_of(const struct caller_identity *identity,
                                         const struct caller_identity *other)
{
    return str_equal(identity->owner, other->owner);
}
