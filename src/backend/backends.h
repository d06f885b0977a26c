/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The backends of one daemon: the default one, and the others that its settings name. Each sandbox
 * belongs to one of them, and only that one is asked about it.
 *
 * A backend that could not be opened is absent, and so is one that only the record of a sandbox
 * names. An absent backend refuses every operation with the reason: its sandboxes are neither used
 * nor taken for dead until a daemon has the backend again.
 */

#include "backend/backend.h"

struct backends;

/* The sources that may name a backend; each value includes the ones before. */
enum backend_access {
    BACKEND_OF_NOBODY,   /* only sessions that were opened when it was allowed */
    BACKEND_OF_RECORDS,  /* sandboxes of an earlier daemon */
    BACKEND_OF_SETTINGS, /* flavors and templates */
    BACKEND_OF_CALLERS,  /* requests for a session */
};

struct backends *backends_new(struct loop *loop);
void backends_free(struct backends *backends); /* NULL is fine; closes all, and sandboxes go on */

/* Takes the backend over. The first one is the default. */
void backends_add(struct backends *backends, struct backend *backend, enum backend_access access);

/* A backend that could not be opened, and why. */
void backends_add_absent(struct backends *backends, const char *name, const struct error *why,
                         enum backend_access access);

/* Backends in the order of their addition. */
size_t backends_count(const struct backends *backends);
struct backend *backends_at(const struct backends *backends, size_t index);
enum backend_access backends_access_at(const struct backends *backends, size_t index);

/* Whether an open backend lets programs reach the network of this host. */
bool backends_share_host(const struct backends *backends);

struct backend *backends_default(const struct backends *backends);

/* By name; NULL when the settings do not name it. "" is the default. */
struct backend *backends_find(const struct backends *backends, const char *name);

/* By the name in the record of a sandbox. A backend that the settings do not name becomes
 * absent. */
struct backend *backends_of_record(struct backends *backends, const char *name);

/* By the name that a session was opened with. A backend that sessions may no longer name is absent,
 * even if a flavor still names it. "" is the default. */
struct backend *backends_of_session(struct backends *backends, const char *name);

/* By the name in a request. NULL with ERR_INVALID and the names that are allowed. */
struct backend *backends_of_request(const struct backends *backends, const char *name,
                                    struct error *err);

/* The short description from names.h; NULL for a name that is not there. */
const char *backend_summary(const struct backend *backend);

/* Why the backend is absent; NULL when it is open. */
const struct error *backend_absence(const struct backend *backend);

/* Why the backend cannot create sandboxes: it is absent, or it is `none`. NULL when it can. */
const struct error *backend_refusal(const struct backend *backend);
struct backend *absent_backend_new(struct loop *loop, const char *name, const struct error *why);
