/* SPDX-License-Identifier: Apache-2.0 */
#include "mcp/mcp.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "core/session/scopes.h"
#include "loop/worker.h"
#include "mcp/private.h"

#include <stdlib.h>
#include <string.h>

/* --- who ------------------------------------------------------------------------------------- */

void mcp_identity_set(struct caller_identity *copy, const struct caller_identity *identity)
{
    *copy = (struct caller_identity){ .owner = xstrdup(identity->owner),
                                      .on_behalf_of = xstrdup(identity->on_behalf_of),
                                      .any_owner = identity->any_owner };
}

void mcp_identity_fini(struct caller_identity *copy)
{
    free((char *)copy->owner);
    free((char *)copy->on_behalf_of);
    *copy = (struct caller_identity){ 0 };
}

/* --- what an earlier daemon had -------------------------------------------------------------- */

void mcp_session_client(const struct session *session, char id[ID_SIZE])
{
    const char *labels = session_labels_json(session);
    scoped(json_decref) json_t *object = labels ? json_read(labels, strlen(labels), NULL) : NULL;
    const char *label = json_string_value(json_object_get(object, MCP_LABEL));

    id[0] = '\0';
    if (label && (id_is_valid(label, ID_MCP_PIPE) || id_is_valid(label, ID_MCP_CLIENT)))
        memcpy(id, label, strlen(label) + 1);
}

/* Ends sessions of pipe clients that have not come back after a restart of the daemon. */
static void on_grace_over(struct timer *timer)
{
    struct mcp *mcp = container_of(timer, struct mcp, grace);
    struct core *core = mcp->parts.core;
    struct session *session, *following;
    char id[ID_SIZE];

    session_for_each_safe (session, following, core) {
        mcp_session_client(session, id);
        if (mcp_client_is_leased(id) && !map_get(&mcp->clients, id))
            session_end(session, END_DELETED, MCP_END_DETAIL, NULL, NULL);
    }
}

/* --- the server ------------------------------------------------------------------------------ */

struct mcp *mcp_new(const struct mcp_parts *parts)
{
    struct mcp *mcp = xnew(struct mcp);

    mcp->parts = *parts;
    list_init(&mcp->recent);
    list_init(&mcp->unbound);
    list_init(&mcp->places);
    list_init(&mcp->endings);
    timer_init(&mcp->grace, parts->loop, on_grace_over);
    timer_arm_in(&mcp->grace, SCOPE_GRACE_US);
    return mcp;
}

static void drop_all(struct list *requests)
{
    struct mcp_request *request, *following;

    list_for_each_safe (request, following, requests, node)
        mcp_request_drop(request);
}

void mcp_free(struct mcp *mcp)
{
    struct mcp_client *client, *following;

    if (!mcp)
        return;
    worker_free(mcp->parser);
    timer_stop(&mcp->grace);
    list_for_each_safe (client, following, &mcp->recent, node) {
        drop_all(&client->requests);
        mcp_client_free(client);
    }
    drop_all(&mcp->unbound);
    mcp_places_free(mcp);
    mcp_endings_free(mcp);
    map_fini(&mcp->clients);
    free(mcp);
}

/* --- exchanges ------------------------------------------------------------------------------- */

void mcp_exchange_data(struct mcp_exchange *exchange, const uint8_t *data, size_t length)
{
    exchange->on_data(exchange, data, length);
}

void mcp_exchange_drained(struct mcp_exchange *exchange)
{
    if (exchange && exchange->on_drain)
        exchange->on_drain(exchange);
}

void mcp_exchange_gone(struct mcp_exchange *exchange)
{
    if (exchange)
        exchange->on_gone(exchange);
}
