/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which backend the next sandbox of a session gets: the one that its caller has named, else that of
 * its flavor, else that of its template, else the default. Where several of them name one, they have
 * to name the same.
 */

#include "backend/backends.h"

struct config_flavor;
struct core;

/* Borrowed; each may be NULL, and texts may be "". */
struct backend_wishes {
    const char *owner; /* of the session; looked at in checks alone */
    const char *asked; /* by the caller */
    const struct config_flavor *flavor;
    const char *template_name;
};

/* Never NULL: a backend that the settings do not name any more is absent. */
struct backend *backend_choose(const struct core *core, const struct backend_wishes *wishes);

/* The same for a request, before anything is made: NULL with the reason when the caller may not name
 * it, when the settings keep the owner from it, when the wishes differ, or when the backend is absent or cannot do what the flavor needs. */
struct backend *backend_check_wishes(const struct core *core, const struct backend_wishes *wishes,
                                     struct error *err);
