/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Authentication: checks the credentials of a request and finds the owner that they stand for.
 *
 * none   Every process that can open the unix socket may ask, and over TCP every process that can
 *        read the file with the token (local_token.h). The owner is what X-Sandglass-On-Behalf-Of
 *        says, or "".
 * keys   An API key (keys.h). The owner is its principal.
 * jwt    A signed token (jwt.h). The owner is its subject.
 *
 * With keys and jwt the header changes nothing, except for a principal with the role delegate: then
 * the owner is "principal/value". So that this can never be the name of another principal, '/' and '%'
 * in the name of a principal are escaped in owners.
 *
 * Valid credentials are remembered, so a known caller costs one hash. An address that keeps
 * sending wrong credentials has to wait; that never holds up callers who are known.
 */

#include "auth/caller.h"
#include "base/error.h"
#include "base/list.h"
#include "loop/loop.h"

struct auth;
struct auth_waiter;
struct config;
struct http_head;
struct http_peer;
struct json_writer;
struct login;
struct store;

struct auth_parts {
    struct loop *loop; /* all borrowed; all outlive it */
    const struct config *config;
    struct store *store; /* for when a key was last used; may be NULL */
};

/* NULL when keys that have to be there cannot be read. */
struct auth *auth_new(const struct auth_parts *parts, struct error *err);
void auth_free(struct auth *auth); /* NULL is fine; tells all who wait */
SCOPED_DEFINE(auth_free, struct auth);

/* Without authentication: lets clients find the token for this TCP port; does nothing otherwise. */
int auth_serve_port(struct auth *auth, int state_dir, unsigned port, struct error *err);

/* Reads keys again, at SIGHUP. They are also read when their file changes. */
void auth_reload(struct auth *auth);

enum auth_result {
    AUTH_REFUSED = -1, /* ERR_UNAUTHORIZED, ERR_INVALID, ERR_LIMIT or ERR_UNAVAILABLE */
    AUTH_KNOWN = 0,
    AUTH_WAIT = 1, /* the keys to check with are on their way: auth_wait(), then ask again */
};

/* Without an auth (NULL), as with mode none. */
enum auth_result auth_resolve(struct auth *auth, const struct http_head *head,
                              const struct http_peer *peer, struct caller *out, struct error *err);

/* The same for a login whose signature was checked; `on_behalf_of` is what the attribution header
 * says. ERR_UNAUTHORIZED for one that has expired or was ended, and for one whose key is no longer
 * valid; without an auth (NULL) there are no logins. */
int auth_resume(struct auth *auth, const struct login *login, const char *on_behalf_of,
                struct caller *out, struct error *err);

/* The login is refused from now on; this process remembers that until it expires. */
void auth_end_login(struct auth *auth, const struct login *login);

/* After AUTH_WAIT: on_ready comes once, from the loop. Embedded by the caller. */
typedef void auth_ready_fn(struct auth_waiter *waiter);

struct auth_waiter {
    auth_ready_fn *on_ready;
    struct list node;
};

void auth_wait(struct auth *auth, struct auth_waiter *waiter, auth_ready_fn *on_ready);

/* ERR_UNAVAILABLE when the file with the keys has not been readable for a while: then no key, or no
 * token, is valid. */
int auth_check(struct auth *auth, struct error *err);

/* Whether this principal may make another request now; ERR_LIMIT otherwise. */
int auth_admit(struct auth *auth, const struct caller *caller, struct error *err);

/* {"keys":[{id, principal, roles, created_at, expires_at, revoked_at, last_used_at}]}: all that may
 * be known of them. */
void auth_write_keys(struct auth *auth, struct json_writer *json);

/* How long to wait, after ERR_LIMIT of the functions above, in seconds; at least 1. */
int64_t auth_retry_after_s(const struct auth *auth);
