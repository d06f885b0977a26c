/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The dashboard: a page for people at / and /ui, made of files that the program carries.
 *
 *     dashboard.c      the faces: the page, its files, their headers
 *     login.c    credentials or a one-time token for a cookie (face/cookie.h), and back
 *     tickets.h  one-time tokens
 *     assets.h   the files of the page: made by web/build, none without Node
 *
 * Everything else that the page shows it asks the REST face for, as any client does.
 */

#include "base/error.h"
#include "base/scoped.h"

struct auth;
struct config;
struct core;
struct face;
struct loop;
struct dashboard;
struct web_asset;

struct dashboard_parts {
    struct loop *loop; /* all borrowed; all outlive it */
    const struct config *config;
    struct auth *auth;              /* NULL: there are no logins */
    const struct web_asset *assets; /* ends with a row without a name */

    /* Begins to listen on a port of loopback, where the daemon listens on no port yet; gives the
     * port, 0 on error. NULL: it cannot. */
    unsigned (*listen)(void *context, struct error *err);
    void *listen_context; /* borrowed */
};

/* Their context is the dashboard: / and what is below /ui. */
extern const struct face web_page_face;
extern const struct face web_face;

struct dashboard *dashboard_new(const struct dashboard_parts *parts);
void dashboard_free(struct dashboard *dashboard); /* NULL is fine */
SCOPED_DEFINE(dashboard_free, struct dashboard);

/* The daemon listens there for browsers: "127.0.0.1:7070". The first one counts. */
void dashboard_serve_at(struct dashboard *dashboard, const char *address, unsigned port);
