/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls about what this server does not have: snapshots, forks, volumes, secrets. Lists of them are
 * empty, one of them is not found, and making one is refused with 501, so that nothing is promised.
 */

#include "e2b/private.h"

static void reply_none(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64);

    buffer_append_text(&text, "[]");
    request_reply(request, 200, &text);
}

static void refuse_one(struct request *request)
{
    e2b_fail_status(request, 404, "not found");
}

/* --- of a sandbox, which has to be there ------------------------------------------------------ */

static void refuse_snapshot(struct request *request)
{
    e2b_fail_status(request, 501, "snapshots are not supported by this server");
}

static void post_snapshot(struct request *request)
{
    e2b_find(request, refuse_snapshot);
}

static void refuse_fork(struct request *request)
{
    e2b_fail_status(request, 501, "forks are not supported by this server");
}

static void post_fork(struct request *request)
{
    e2b_find(request, refuse_fork);
}

static void refuse_network(struct request *request)
{
    e2b_fail_status(request, 501,
                    "the network of a sandbox cannot be changed by this server; create another "
                    "sandbox");
}

static void put_network(struct request *request)
{
    e2b_find(request, refuse_network);
}

/* --- volumes and secrets --------------------------------------------------------------------- */

static void refuse_volume(struct request *request)
{
    e2b_fail_status(request, 501, "volumes are not supported by this server");
}

static void refuse_secret(struct request *request)
{
    e2b_fail_status(request, 501,
                    "secrets are not supported through this API; see 'sandglass' secrets of a "
                    "session");
}

/* --- the daemon ------------------------------------------------------------------------------ */

static void get_health(struct request *request)
{
    request_reply_empty_object(request, 200);
}

#define PLAIN .answers = e2b_any_answers
#define BODY .body = ROUTE_JSON_BODY, .answers = e2b_any_answers

const struct route e2b_absent_routes[] = {
    { HTTP_POST, "/sandboxes/{id}/snapshots", post_snapshot, "Make a snapshot", BODY },
    { HTTP_GET, "/snapshots", reply_none, "List snapshots", PLAIN },
    { HTTP_POST, "/sandboxes/{id}/fork", post_fork, "Fork a sandbox", BODY },
    { HTTP_PUT, "/sandboxes/{id}/network", put_network, "Change the network", BODY },
    { HTTP_GET, "/volumes", reply_none, "List volumes", PLAIN },
    { HTTP_POST, "/volumes", refuse_volume, "Make a volume", BODY },
    { HTTP_GET, "/volumes/{id}", refuse_one, "Show a volume", PLAIN },
    { HTTP_DELETE, "/volumes/{id}", refuse_one, "Remove a volume", PLAIN },
    { HTTP_GET, "/secrets", reply_none, "List secrets", PLAIN },
    { HTTP_POST, "/secrets", refuse_secret, "Make a secret", BODY },
    { HTTP_GET, "/secrets/{id}", refuse_one, "Show a secret", PLAIN },
    { HTTP_POST, "/secrets/{id}", refuse_one, "Change a secret", BODY },
    { HTTP_DELETE, "/secrets/{id}", refuse_one, "Remove a secret", PLAIN },
    { HTTP_GET, "/health", get_health, "Whether the daemon answers", PLAIN,
      .access = ROUTE_ANYBODY },
    { 0 },
};
