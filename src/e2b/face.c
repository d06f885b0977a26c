/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/str.h"
#include "e2b/aliases.h"
#include "e2b/code.h"
#include "e2b/envd/recent.h"
#include "e2b/envd/watch.h"
#include "e2b/private.h"

#include <string.h>

struct e2b *e2b_new(const struct e2b_parts *parts)
{
    struct e2b *e2b = xnew(struct e2b);

    e2b->parts = *parts;
    e2b->started_us = clock_wall_us(loop_clock(parts->loop));
    e2b->aliases = e2b_aliases_new(parts->core);
    e2b->recents = recents_new(parts->loop);
    e2b->watchers = watchers_new();
    return e2b;
}

void e2b_free(struct e2b *e2b)
{
    if (!e2b)
        return;
    e2b_forget_hidden_runs(e2b);
    e2b_aliases_free(e2b->aliases);
    watchers_free(e2b->watchers);
    recents_free(e2b->recents);
    free(e2b);
}

/* --- whose request --------------------------------------------------------------------------- */

static struct e2b_target target_of(const struct e2b *e2b, const struct http_head *head)
{
    return e2b_target_read(head, e2b->parts.domain);
}

static enum face_claim claim_by(const struct e2b_target *target)
{
    return target->kind == E2B_TARGET_HOST ? FACE_CLAIM_HOST : FACE_CLAIM_PATH;
}

enum face_claim e2b_claim_envd(void *context, const struct http_head *head)
{
    struct e2b_target target = target_of(context, head);

    return target.port == E2B_PORT_ENVD ? claim_by(&target) : FACE_CLAIM_NONE;
}

static enum face_claim claim_code(void *context, const struct http_head *head)
{
    struct e2b_target target = target_of(context, head);

    return target.port == E2B_PORT_CODE ? claim_by(&target) : FACE_CLAIM_NONE;
}

/* Also for what is meant for a sandbox and malformed, which is refused. */
enum face_claim e2b_claim_port(void *context, const struct http_head *head)
{
    struct e2b_target target = target_of(context, head);

    return target.kind == E2B_TARGET_NONE ? FACE_CLAIM_NONE : claim_by(&target);
}

bool e2b_session_of(void *context, const struct http_head *head, char out_id[ID_SIZE])
{
    struct e2b_target target = target_of(context, head);

    memcpy(out_id, target.session_id, ID_SIZE);
    return *target.session_id;
}

/* /sandboxes/ID and what is below it. */
static bool session_of_path(void *context UNUSED, const struct http_head *head,
                            char out_id[ID_SIZE])
{
    static const char word[] = "/sandboxes/";
    const char *at = strstr(head->path, word);
    const char *id = at ? at + strlen(word) : "";

    return *id && e2b_id_read(id, strcspn(id, "/"), out_id);
}

static const char *const prefixes[] = {
    "/sandboxes", "/v2/sandboxes",  "/templates", "/v2/templates", "/v3/templates", "/snapshots",
    "/volumes",   "/volumecontent", "/secrets",   "/teams",        "/health",
};

static enum face_claim claim_control(void *context UNUSED, const struct http_head *head)
{
    for (size_t i = 0; i < ARRAY_LENGTH(prefixes); i++) {
        size_t length = strlen(prefixes[i]);

        if (strncmp(head->path, prefixes[i], length) == 0 &&
            (head->path[length] == '\0' || head->path[length] == '/'))
            return FACE_CLAIM_PATH;
    }
    return FACE_CLAIM_NONE;
}

/* --- the tables ------------------------------------------------------------------------------ */

/* A table with a word stands before one with {id} in its place. */
static const struct route *const control_tables[] = {
    e2b_create_routes, e2b_lifecycle_routes, e2b_metric_routes, e2b_list_routes,
    e2b_log_routes,    e2b_template_routes,  e2b_absent_routes, NULL,
};
static const struct route *const code_tables[] = { e2b_code_routes, NULL };

const struct face e2b_face = {
    .name = "e2b",
    .claim = claim_control,
    .session_of = session_of_path,
    .is_foreign = true,
    .identify = request_identify,
    .fail = e2b_fail,
    .tables = control_tables,
};

const struct face e2b_code_face = {
    .name = "e2b code",
    .claim = claim_code,
    .session_of = e2b_session_of,
    .identifies_at_home = true,
    .is_foreign = true,
    .identify = e2b_identify_code,
    .fail = e2b_code_fail,
    .tables = code_tables,
};
