/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/str.h"
#include "mcp/private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool client_is_gone(const struct mcp_place *place)
{
    return !*place->client_id || !map_get(&place->mcp->clients, place->client_id);
}

static bool is_bound(const struct mcp_place *place)
{
    return !place->stays && (place->is_own || mcp_client_is_leased(place->client_id));
}

/* Ends a session that no client is going to know, or that should have ended with its client. */
static void end_if_unwanted(const struct mcp_place *place)
{
    if (place->op.session && place->op.created && is_bound(place) && client_is_gone(place))
        session_end(place->op.session, END_DELETED, MCP_END_DETAIL, NULL, NULL);
}

static void on_opened(struct session_op *op)
{
    struct mcp_place *place = container_of(op, struct mcp_place, op);

    list_remove(&place->node);
    place->err = op->err;
    if (!op->err.code) {
        memcpy(place->session_id, session_id(op->session), sizeof(place->session_id));
        place->is_new = op->created;
    }
    if (place->done)
        place->done(place);
    else
        end_if_unwanted(place);
    free(place);
}

static char *make_labels(const struct mcp_place *place)
{
    return *place->client_id && is_bound(place) ? mcp_client_labels(place->client_id) : NULL;
}

struct mcp_place *mcp_place_open(const struct mcp_request *request, const char *key,
                                 mcp_place_fn *done, void *user)
{
    struct mcp_place *place = xnew(struct mcp_place);
    const struct mcp_wishes *wishes = !key && request->client ? request->client->wishes : NULL;
    struct session_request wanted = wishes ? wishes->request : SESSION_REQUEST_INIT;
    scoped(free) char *own_key = NULL;
    scoped(free) char *labels = NULL;

    place->mcp = request->mcp;
    place->done = done;
    place->user = user;
    place->is_own = !key;
    place->stays = wanted.key;
    if (request->client)
        memcpy(place->client_id, request->client->id, sizeof(place->client_id));
    own_key = request->client ? mcp_client_key(request->client->id) : NULL;
    labels = make_labels(place);
    wanted.owner = request->identity.owner;
    wanted.on_behalf_of = request->identity.on_behalf_of;
    if (!wanted.key)
        wanted.key = key ? key : own_key;
    wanted.labels_json = labels;
    list_append(&request->mcp->places, &place->node);
    session_open(request->mcp->parts.core, &wanted, &place->op, on_opened);
    return place;
}

void mcp_place_abandon(struct mcp_place *place)
{
    place->done = NULL;
}

void mcp_places_free(struct mcp *mcp)
{
    struct mcp_place *place, *following;

    list_for_each_safe (place, following, &mcp->places, node) {
        session_op_cancel(&place->op);
        list_remove(&place->node);
        free(place);
    }
}
