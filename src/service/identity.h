#pragma once

/* For whom a request acts, as its face has found out: what decides which sessions it reaches. */

#include "base/str.h"

#include <stdbool.h>

struct identity {
    const char *owner;        /* borrowed; "" without authentication */
    const char *on_behalf_of; /* borrowed; "" without one */
    bool any_owner;           /* an administrator: reaches the sessions of every owner */
};

/* Whether something that belongs to `owner` is within reach. */
static inline bool identity_reaches(const struct identity *identity, const char *owner)
{
    return identity->any_owner || str_equal(identity->owner ? identity->owner : "", owner);
}
