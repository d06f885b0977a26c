/* SPDX-License-Identifier: Apache-2.0 */
/* Every port of a sandbox that is neither envd nor the code interpreter. */

#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "core/session/session.h"
#include "e2b/private.h"
#include "face/port_proxy.h"
#include "face/port_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct e2b_target target_of(const struct request *request)
{
    const struct e2b *e2b = request->context;

    return e2b_target_read(http_exchange_head(request->exchange), e2b->parts.domain);
}

/* The host name that the caller of create wants servers to see; "${PORT}" in it is the port. */
static char *masked_host(const char *mask, unsigned port)
{
    const char *place = mask ? strstr(mask, "${PORT}") : NULL;

    if (!mask)
        return NULL;
    return place ? xasprintf("%.*s%u%s", (int)(place - mask), mask, port, place + strlen("${PORT}"))
                 : xstrdup(mask);
}

static void serve(struct request *request)
{
    static const char *const withheld[] = { "e2b-sandbox-id", "e2b-sandbox-port",
                                            "e2b-traffic-access-token", "x-access-token", NULL };
    const struct http_head *head = http_exchange_head(request->exchange);
    const char *authorization = http_head_header(head, "authorization");
    struct e2b_target target = target_of(request);
    struct session *session = e2b_session(request);
    scoped(e2b_notes_fini) struct e2b_notes notes = { 0 };
    scoped(free) char *host = NULL;

    if (!session) {
        e2b_fail_gone(request, target.shown_id);
        return;
    }
    e2b_notes_read(&notes, session);
    host = masked_host(notes.mask_host, target.port);
    port_proxy_start(
        request, session,
        &(struct port_target){ .port = target.port,
                               .door = PORT_DOOR_HOST,
                               .target = head->target,
                               .prefix = "",
                               .host = host,
                               .is_shared = notes.is_public,
                               .keeps_authorization = authorization &&
                                                      !port_is_own_credential(authorization),
                               .withholds = withheld });
}

static void fail_closed(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
    struct json_writer json = JSON_WRITER(&text);
    struct e2b_target target = target_of(request);

    json_begin_object(&json, NULL);
    json_put_text(&json, "sandboxId", target.shown_id);
    json_put_text(&json, "message", "The sandbox is running but port is not open");
    json_put_int(&json, "port", target.port);
    json_put_int(&json, "code", 502);
    json_end_object(&json);
    request_reply(request, 502, &text);
}

static void fail(struct request *request, const struct error *err)
{
    if (str_equal(err->name, "port_closed"))
        fail_closed(request);
    else if (err->code == ERR_GONE || err->code == ERR_NOT_FOUND)
        e2b_fail_gone(request, target_of(request).shown_id);
    else
        e2b_fail(request, err);
}

/* Every path and method is the server's inside. */
static const struct route whole = {
    .method = HTTP_GET,
    .path = "/{path}",
    .handle = serve,
    .body = ROUTE_NO_BODY,
    .is_proxy = true,
    .any_origin = true,
};

static const struct route *const tables[] = { NULL };

const struct face e2b_port_face = {
    .name = "e2b port",
    .claim = e2b_claim_port,
    .session_of = e2b_session_of,
    .identifies_at_home = true,
    .is_foreign = true,
    .route = &whole,
    .identify = e2b_identify_port,
    .fail = fail,
    .tables = tables,
};
