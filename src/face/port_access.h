/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Access to a port: the owner of its session by credentials, and every holder of a signed URL.
 *
 * A URL below a path of the daemon has the permission in its path, so that everything that a page
 * loads from beside itself has it too, and needs no cookie. A URL with a host name of its own has
 * it in a parameter once; the browser is sent on without it, with a cookie for that host alone.
 *
 * A stranger gets 404, as for a session that does not exist; an expired permission gets 403.
 */

#include "core/port_token.h"
#include "face/face.h"
#include "face/port_proxy.h"

struct config;
struct error;
struct request;

/* Below this path: TOKEN/… */
#define PORT_SHARED_PATH "/api/v1/ports/"

/* Whether the text is a permission, and for what. ERR_NOT_FOUND "url_not_found", or ERR_FORBIDDEN
 * "url_expired". */
int port_permission_read(const struct request *request, const char *text, struct port_token *out,
                         struct error *err);

/* Goes on to the port that the permission is for. Of `target` port and generation are filled in. */
void port_permission_use(struct request *request, const struct port_token *token,
                         struct port_target *target);

/* A new one, as a whole URL where the address of the daemon is known, else as a path; and as a
 * path. The vault is open. The caller frees both. */
char *port_url_write(const struct request *request, const char *token_text,
                     const struct port_token *token);
char *port_path_write(const char *token_text);

/* The face of host names {port}-{session}.DOMAIN (setting ports.domain). Its context is the
 * config. */
extern const struct face port_face;
