/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The cookie of a browser that has logged in to the dashboard: a login (auth/login.h) with the
 * signature of the vault, so that it outlives a restart of the daemon and counts on every node of a
 * cluster.
 *
 * No other web page can use it. It is sent to this site only (SameSite=Strict) and scripts cannot read
 * it (HttpOnly). Other ports of the same host are the same site for browsers, so a request that says it
 * was caused by a page of another origin (Sec-Fetch-Site) is not identified by the cookie either, and
 * one that changes something needs the header X-Sandglass-Page, which a page of another origin cannot
 * send without asking the daemon first.
 *
 * Credentials in the headers count before the cookie.
 */

#include "auth/login.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct caller;
struct config;
struct request;

/* Whether the request has the cookie and no other credentials. */
bool cookie_is_used(const struct request *request);

/* The caller whom the cookie stands for. ERR_UNAUTHORIZED, or ERR_FORBIDDEN "page_header_missing". */
int cookie_resume(const struct request *request, struct caller *out, struct error *err);

/* The login in the cookie, if its signature is right; 0 or -1. */
int cookie_read(const struct request *request, struct login *login, struct error *err);

/* Adds the cookie with this login to the answer, and takes it back. */
int cookie_give(struct request *request, const struct login *login, struct error *err);
void cookie_take(struct request *request);

/* --- the setting dashboard.url ----------------------------------------------------------------- */

/* Whether this is the origin of the dashboard as browsers see it, or the name of its host. */
bool cookie_origin_is(const struct config *config, const char *origin);
bool cookie_origin_has_host(const struct config *config, const char *host, size_t length);
