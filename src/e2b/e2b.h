/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The E2B face: the API that the published clients of E2B speak, so that they can be pointed at this
 * daemon by E2B_API_URL and E2B_SANDBOX_URL and nothing else. A sandbox of E2B is a session of ours.
 *
 *     e2b_face        the control plane: /sandboxes, /templates, …; callers by X-API-Key
 *     e2b_envd_face   port 49983 of a sandbox: processes, files
 *     e2b_code_face   port 49999 of a sandbox: the code interpreter
 *     e2b_port_face   every other port of a sandbox
 *
 * Requests for a sandbox are recognised by E2b-Sandbox-Id and E2b-Sandbox-Port, or by the host name
 * {port}-{id}.DOMAIN. All four have the same object.
 */

#include "base/scoped.h"

struct core;
struct e2b;
struct face;
struct loop;

struct e2b_parts {
    struct loop *loop; /* all borrowed; all outlive it */
    struct core *core;
    const char *domain; /* the setting ports.domain; NULL or "": there are no host names */
};

struct e2b *e2b_new(const struct e2b_parts *parts);
void e2b_free(struct e2b *e2b); /* NULL is fine */
SCOPED_DEFINE(e2b_free, struct e2b);

extern const struct face e2b_face;
extern const struct face e2b_envd_face;
extern const struct face e2b_code_face;
extern const struct face e2b_port_face;
