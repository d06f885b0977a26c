/* SPDX-License-Identifier: Apache-2.0 */
/* Port 49983 of a sandbox: envd, the agent of E2B, as its clients see it. */

#include "e2b/envd/envd.h"
#include "e2b/private.h"

static void get_health(struct request *request)
{
    e2b_reply_empty(request, 204);
}

static const struct route_answer health_answers[] = { { 204, "running" }, { 0 } };

static const struct route routes[] = {
    { HTTP_GET, "/health", get_health, "Whether the sandbox runs", .answers = health_answers },
    { 0 },
};

static const struct route *const tables[] = { routes, e2b_envd_state, e2b_envd_files,
                                              e2b_envd_methods, NULL };

const struct face e2b_envd_face = {
    .name = "e2b envd",
    .claim = e2b_claim_envd,
    .session_of = e2b_session_of,
    .identifies_at_home = true,
    .is_foreign = true,
    .identify = e2b_identify_envd,
    .fail = e2b_fail,
    .tables = tables,
};
