#pragma once

/*
 * The backends of one daemon: the default one, and the others that its settings name. Each sandbox
 * has one of them, and is asked of that one only.
 *
 * A backend that could not be opened is absent, as is one that nothing but the record of a sandbox
 * names. An absent backend refuses every operation with the reason: its sandboxes are neither used
 * nor taken for dead until a daemon has the backend again.
 */

#include "backend/backend.h"

struct backends;

/* Who may name it; each includes the ones before. */
enum backend_access {
    BACKEND_OF_NOBODY,   /* a session has named it, when it could */
    BACKEND_OF_RECORDS,  /* sandboxes of an earlier daemon */
    BACKEND_OF_SETTINGS, /* flavors and templates */
    BACKEND_OF_CALLERS,  /* requests for a session */
};

struct backends *backends_new(struct loop *loop);
void backends_free(struct backends *backends); /* NULL is fine; closes all, and sandboxes go on */

/* Takes the backend over. The first one is the default. */
void backends_add(struct backends *backends, struct backend *backend, enum backend_access access);

/* One that could not be opened, and why. */
void backends_add_absent(struct backends *backends, const char *name, const struct error *why,
                         enum backend_access access);

/* In the order in which they were added. */
size_t backends_count(const struct backends *backends);
struct backend *backends_at(const struct backends *backends, size_t index);
enum backend_access backends_access_at(const struct backends *backends, size_t index);

/* Whether one of them keeps programs in its sandboxes away from nothing of this host. */
bool backends_share_host(const struct backends *backends);

struct backend *backends_default(const struct backends *backends);

/* By name; NULL when the settings do not name it. "" is the default. */
struct backend *backends_find(const struct backends *backends, const char *name);

/* By the name in the record of a sandbox: one that the settings do not name is absent from now on. */
struct backend *backends_of_record(struct backends *backends, const char *name);

/* By the name that a session was opened with: one that sessions may not name any more is absent for
 * it, even where a flavor still has it. "" is the default. */
struct backend *backends_of_session(struct backends *backends, const char *name);

/* By the name in a request. NULL with ERR_INVALID and the names that are allowed. */
struct backend *backends_of_request(const struct backends *backends, const char *name,
                                    struct error *err);

/* What it is, in a few words; NULL for a name that is not in names.h. */
const char *backend_summary(const struct backend *backend);

/* Why it is absent; NULL for one that is open. */
const struct error *backend_absence(const struct backend *backend);

/* Why it can make no sandbox: it is absent, or it is `none`. NULL for the others. */
const struct error *backend_refusal(const struct backend *backend);
struct backend *absent_backend_new(struct loop *loop, const char *name, const struct error *why);
