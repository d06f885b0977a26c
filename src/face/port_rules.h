/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Rules for the headers between a client and an HTTP server inside of a sandbox, as pure functions.
 *
 * The server inside is not trusted, and neither is its page: it must never act with the authority
 * of the daemon. Below a path of the daemon it shares the daemon's host, so that nothing passes
 * which concerns a whole host: cookies, redirects to elsewhere, storage, authentication. By a host
 * name of its own it is an origin of its own, and only headers that reach beyond that are held
 * back. Credentials of the daemon never go in.
 */

#include "base/id.h"
#include "wire/http/http.h"

#include <stdbool.h>
#include <stddef.h>

/* How the client reached the port. */
enum port_door {
    PORT_DOOR_PATH, /* below a path of the daemon's own host */
    PORT_DOOR_HOST, /* by a host name of its own */
};

/* The cookie that opens a host name, and the parameter of a URL that becomes it. */
#define PORT_COOKIE "sandglass-port"
#define PORT_PARAMETER "sandglass"

/* Everything that a page from below a path may do: scripts, but no origin. */
#define PORT_PATH_POLICY                                                           \
    "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads " \
    "allow-pointer-lock allow-presentation allow-orientation-lock"

/* Whether a header, whose name is in lower case, goes in as it is; and out. Headers of
 * a single connection never do, nor do those that the functions below are for. */
bool port_header_enters(enum port_door door, const struct http_head *head, const char *name);
bool port_header_leaves(enum port_door door, const struct http_head *head, const char *name);

/* Whether the value of Authorization may be a credential of this daemon. */
bool port_is_own_credential(const char *authorization);

/* Location of an answer. `prefix` stands before the paths of the server, "" without one, and `host`
 * is what the server was told to be. NULL: it must not be followed from here. Freed by the caller. */
char *port_location_rewrite(enum port_door door, const char *prefix, const char *host,
                            const char *location);

/* A Cookie header without our own cookie; NULL when nothing is left. The caller frees it. */
char *port_cookies_enter(const char *cookies);

/* A Set-Cookie header that is good for this host alone; NULL for one that would be ours. */
char *port_cookie_leave(const char *cookie);

/* The value of our cookie among those of a request: of the one with this number, counted from 0,
 * because a page of a sibling may have set another for the whole domain. NULL when there are not so
 * many. The caller frees it. */
char *port_cookie_find(const char *cookies, unsigned number);

/* The target without our parameter, which begins with exactly one slash; *out_value is the
 * parameter's, NULL without one. The caller frees both. */
char *port_target_split(const char *target, char **out_value);

/* {port}-{session}.DOMAIN, in any case, maybe with the port of the listener behind it. In place of
 * the underscore of an id a dash will do. */
struct port_name {
    unsigned port;
    char session_id[ID_SIZE];
};

bool port_name_read(const char *host, const char *domain, struct port_name *out);

/* 1 to 65535, in decimal digits alone. */
bool port_number_read(const char *text, size_t length, unsigned *out_port);

/* ports.domain is [SCHEME://]DOMAIN[:PORT]: where the domain begins, and how long it is. */
const char *port_domain_find(const char *setting, size_t *out_length);

/* Whether a request with our cookie comes from a page of the same host or from no page, or only
 * opens the page. `origin` is the host's own. */
bool port_is_same_origin(const struct http_head *head, const char *origin);
