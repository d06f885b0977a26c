/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "config/config.h"
#include "core/run/context/context.h"
#include "mcp/private.h"
#include "service/sessions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *mcp_client_key(const char *client_id)
{
    return xasprintf(MCP_KEY "%s", client_id);
}

char *mcp_client_labels(const char *client_id)
{
    return xasprintf("{\"" MCP_LABEL "\":\"%s\"}", client_id);
}

bool mcp_client_is_leased(const char *client_id)
{
    return id_is_valid(client_id, ID_MCP_PIPE);
}

/* --- life ------------------------------------------------------------------------------------ */

static bool is_busy(const struct mcp_client *client)
{
    return client->channel || !list_is_empty(&client->requests) || client->attached > 0;
}

/* The client has sent nothing for too long: it has left without DELETE. */
static void on_idle(struct timer *timer)
{
    struct mcp_client *client = container_of(timer, struct mcp_client, idle);

    if (is_busy(client))
        mcp_client_touch(client);
    else
        mcp_client_end(client, NULL, NULL);
}

void mcp_client_touch(struct mcp_client *client)
{
    int64_t idle_ms = client->mcp->parts.config->mcp.idle_timeout_ms;

    list_remove(&client->node);
    list_append(&client->mcp->recent, &client->node);
    if (!client->channel && idle_ms > 0)
        timer_arm_in(&client->idle, idle_ms * 1000);
}

/* Ends the client that has been idle for the longest time, if there are too many. */
static int make_room(struct mcp *mcp, struct error *err)
{
    struct mcp_client *client;

    if (mcp->clients.count < MCP_CLIENTS_MAXIMUM)
        return 0;
    list_for_each (client, &mcp->recent, node) {
        if (!is_busy(client)) {
            mcp_client_end(client, NULL, NULL);
            return 0;
        }
    }
    return error_named(err, ERR_LIMIT, "too_many_clients", "the limit of %d MCP clients is reached",
                       MCP_CLIENTS_MAXIMUM);
}

struct mcp_client *mcp_client_new(struct mcp *mcp, const struct caller_identity *caller,
                                  const char *prefix, const char *id, struct error *err)
{
    struct mcp_client *client;

    if (make_room(mcp, err) < 0)
        return NULL;
    client = xnew(struct mcp_client);
    client->mcp = mcp;
    if (id)
        snprintf(client->id, sizeof(client->id), "%s", id);
    else
        id_make(client->id, prefix);
    mcp_identity_set(&client->identity, caller);
    list_init(&client->requests);
    list_init(&client->streams);
    list_init(&client->links);
    timer_init(&client->idle, mcp->parts.loop, on_idle);
    map_put(&mcp->clients, client->id, client);
    mcp_client_touch(client);
    log_info("mcp client connected", kv("client", client->id), kv("owner", client->identity.owner));
    return client;
}

static struct session *find_own_session(const struct mcp *mcp, const char *owner, const char *id)
{
    scoped(free) char *key = xasprintf("%s\n" MCP_KEY "%s", owner, id);

    return map_get(&mcp->parts.core->sessions_by_key, key);
}

/* Code that an earlier daemon was asked to run: its answer is not waited for any more, and the next call
 * would have to. */
static void interrupt_lost_calls(struct session *session)
{
    struct context *context;

    list_for_each (context, session_contexts(session), node)
        (void)context_interrupt(context, NULL);
}

struct mcp_client *mcp_client_find(struct mcp *mcp, const struct caller_identity *caller,
                                   const char *id)
{
    struct mcp_client *client = map_get(&mcp->clients, id);
    struct session *session;

    if (client)
        return identity_has_owner_of(caller, &client->identity) ? client : NULL;
    if (!id_is_valid(id, ID_MCP_CLIENT) && !id_is_valid(id, ID_MCP_PIPE))
        return NULL;
    session = find_own_session(mcp, caller->owner, id);
    if (!session)
        return NULL;
    client = mcp_client_new(mcp, caller, NULL, id, NULL);
    if (!client)
        return NULL;
    memcpy(client->session_id, session_id(session), sizeof(client->session_id));
    interrupt_lost_calls(session);
    return client;
}

/* --- links ----------------------------------------------------------------------------------- */

static void link_free(struct mcp_client *client, struct mcp_link *link)
{
    list_remove(&link->node);
    client->link_count--;
    free(link->uri);
    free(link->name);
    free(link->mime);
    free(link);
}

void mcp_client_note_link(struct mcp_client *client, const char *uri, const char *name,
                          const char *mime, uint64_t size)
{
    struct mcp_link *link, *following;

    list_for_each_safe (link, following, &client->links, node)
        if (str_equal(link->uri, uri))
            link_free(client, link);
    if (client->link_count == MCP_LINKS_MAXIMUM)
        link_free(client, list_first(&client->links, struct mcp_link, node));
    link = xnew(struct mcp_link);
    link->uri = xstrdup(uri);
    link->name = xstrdup(name);
    link->mime = xstrdup(mime);
    link->size = size;
    list_append(&client->links, &link->node);
    client->link_count++;
}

void mcp_client_free(struct mcp_client *client)
{
    struct mcp_link *link, *following;

    mcp_streams_end(client);
    timer_stop(&client->idle);
    list_remove(&client->node);
    map_remove(&client->mcp->clients, client->id);
    list_for_each_safe (link, following, &client->links, node)
        link_free(client, link);
    mcp_identity_fini(&client->identity);
    mcp_wishes_free(client->wishes);
    free(client);
}

/* --- the end --------------------------------------------------------------------------------- */

/* One session that goes with its client. */
struct session_ending {
    struct session_op op;
    struct mcp_ending *ending;
};

struct mcp_ending {
    struct list node;
    struct mcp *mcp; /* borrowed */
    mcp_done_fn *done;
    void *user;
    struct deferred deferred;
    size_t pending, count;
    struct session_ending sessions[];
};

static void ending_free(struct mcp_ending *ending)
{
    for (size_t i = 0; i < ending->count; i++)
        session_op_cancel(&ending->sessions[i].op);
    loop_undefer(ending->mcp->parts.loop, &ending->deferred);
    list_remove(&ending->node);
    free(ending);
}

void mcp_endings_free(struct mcp *mcp)
{
    struct mcp_ending *ending, *following;

    list_for_each_safe (ending, following, &mcp->endings, node)
        ending_free(ending);
}

void mcp_ending_forget(struct mcp_ending *ending)
{
    if (ending)
        ending->done = NULL;
}

static void finish(struct mcp_ending *ending)
{
    mcp_done_fn *done = ending->done;
    void *user = ending->user;

    ending_free(ending);
    if (done)
        done(user);
}

static void on_finish(struct deferred *deferred)
{
    finish(container_of(deferred, struct mcp_ending, deferred));
}

/* A session whose end takes too long is told as an error, and ends without us. */
static void on_ended(struct session_op *op)
{
    struct mcp_ending *ending = container_of(op, struct session_ending, op)->ending;

    if (--ending->pending == 0)
        finish(ending);
}

/* A daemon that stops leaves them to the next one, to which the client may come back. */
static size_t count_sessions(const struct mcp_client *client, const struct session_filter *filter)
{
    const struct session *session = NULL;
    size_t count = 0;

    if (client->mcp->parts.core->stopping)
        return 0;
    while ((session = session_filter_next(filter, client->mcp->parts.core, session)))
        count++;
    return count;
}

static struct mcp_ending *end_sessions(const struct mcp_client *client)
{
    struct core *core = client->mcp->parts.core;
    scoped(free) char *label = xasprintf(MCP_LABEL "=%s", client->id);
    scoped(session_filter_fini) struct session_filter filter = { .owner = client->identity.owner,
                                                                 .states = ~(1u << SESSION_ENDED) };
    struct mcp_ending *ending;
    struct session *session, *following;
    size_t count;

    (void)session_filter_add_label(&filter, label);
    count = count_sessions(client, &filter);
    ending = xcalloc(1, sizeof(struct mcp_ending) + count * sizeof(struct session_ending));
    ending->mcp = client->mcp;
    ending->count = ending->pending = count;
    following = count ? session_filter_next(&filter, core, NULL) : NULL;
    for (size_t at = 0; at < count; at++) {
        session = following;
        following = session_filter_next(&filter, core, session);
        ending->sessions[at].ending = ending;
        session_end(session, END_DELETED, MCP_END_DETAIL, &ending->sessions[at].op, on_ended);
    }
    return ending;
}

struct mcp_ending *mcp_client_end(struct mcp_client *client, mcp_done_fn *done, void *user)
{
    struct mcp *mcp = client->mcp;
    struct mcp_request *request, *following;
    struct mcp_ending *ending;

    log_info("mcp client disconnected", kv("client", client->id));
    list_for_each_safe (request, following, &client->requests, node)
        mcp_request_drop(request);
    ending = end_sessions(client);
    ending->done = done;
    ending->user = user;
    list_append(&mcp->endings, &ending->node);
    if (ending->count == 0)
        loop_defer(mcp->parts.loop, &ending->deferred, on_finish);
    mcp_client_free(client);
    return ending;
}
