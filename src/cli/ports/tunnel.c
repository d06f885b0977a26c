/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/ports/tunnel.h"

#include "base/alloc.h"
#include "base/list.h"
#include "base/str.h"
#include "net/http_client.h"
#include "net/listener.h"
#include "net/stream_relay.h"
#include "wire/json.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RETRY_US = 250 * 1000,
    PATIENCE_US = 60 * 1000 * 1000, /* of one connection, for the daemon to be back */
    PORT_MAXIMUM = 65535,
    REFUSAL_MAXIMUM = 64 * 1024,
    REST_MAXIMUM = 256 * 1024,
    NOTE_PAUSE_US = 5 * 1000 * 1000,
};

static const int ending_signals[] = { SIGINT, SIGTERM, SIGHUP };

struct tunnel {
    struct cli *cli; /* borrowed */
    const struct tunnel_wish *wish;
    struct listener *listener; /* owned */
    char *target;              /* owned */
    struct list connections;
    struct signal_watch signals[ARRAY_LENGTH(ending_signals)];
    int64_t noted_us; /* the last time that something was said about a connection */
    enum { TUNNEL_RUNS, TUNNEL_ENDS, TUNNEL_FAILS } state;
    bool is_alone; /* its end is that of the loop */
    struct error err;
};

enum connection_state {
    CONNECTION_ASKING,  /* the daemon */
    CONNECTION_WAITING, /* to ask again */
    CONNECTION_OPEN,
};

struct connection {
    struct tunnel *tunnel; /* borrowed */
    struct list node;
    enum connection_state state;
    int fd;                 /* owned; -1 once the relay has it */
    struct http_call *call; /* while it asks */
    int status;
    struct buffer refusal;
    struct timer retry;
    int64_t deadline_us;
    struct stream_relay relay;
};

/* --- ports ----------------------------------------------------------------------------------- */

static bool read_port(const char *text, size_t length, unsigned least, unsigned *out_port)
{
    char digits[8] = "";
    uint64_t port;

    if (length == 0 || length >= sizeof(digits))
        return false;
    memcpy(digits, text, length);
    if (str_to_u64(digits, &port) < 0 || port < least || port > PORT_MAXIMUM)
        return false;
    *out_port = (unsigned)port;
    return true;
}

bool tunnel_read_ports(const char *text, struct tunnel_wish *wish)
{
    const char *colon = strchr(text, ':');

    if (!colon)
        return read_port(text, strlen(text), 1, &wish->remote) && (wish->local = wish->remote);
    return read_port(text, (size_t)(colon - text), 0, &wish->local) &&
           read_port(colon + 1, strlen(colon + 1), 1, &wish->remote);
}

/* --- the end --------------------------------------------------------------------------------- */

static void connection_free(struct connection *connection)
{
    if (connection->call)
        http_call_cancel(connection->call);
    timer_stop(&connection->retry);
    stream_relay_stop(&connection->relay);
    fd_close(connection->fd);
    buffer_fini(&connection->refusal);
    list_remove(&connection->node);
    free(connection);
}

static void fail_tunnel(struct tunnel *tunnel, const struct error *err)
{
    if (tunnel->state != TUNNEL_RUNS)
        return;
    tunnel->state = TUNNEL_FAILS;
    tunnel->err = *err;
    if (tunnel->is_alone)
        loop_stop(tunnel->cli->loop);
}

/* A page of a browser tries again and again: once in a while is enough. */
static void note(struct tunnel *tunnel, const struct error *err)
{
    int64_t now_us = loop_now_us(tunnel->cli->loop);

    if (tunnel->noted_us && now_us - tunnel->noted_us < NOTE_PAUSE_US)
        return;
    tunnel->noted_us = now_us;
    cli_note("%s", err->message);
}

/* --- asking ---------------------------------------------------------------------------------- */

static void on_relay_end(struct stream_relay *relay)
{
    connection_free(container_of(relay, struct connection, relay));
}

static void on_head(struct http_call *call, const struct http_head *head)
{
    struct connection *connection = http_call_user(call);

    connection->status = head->status;
}

static void on_refusal(struct http_call *call, const uint8_t *data, size_t length)
{
    struct connection *connection = http_call_user(call);

    (void)buffer_append(&connection->refusal, data, length);
}

static void on_upgraded(struct http_call *call)
{
    struct connection *connection = http_call_user(call);
    scoped(buffer_fini) struct buffer rest = BUFFER_INIT(REST_MAXIMUM);
    int fd = http_call_release(call, &rest);

    connection->call = NULL;
    connection->state = CONNECTION_OPEN;
    stream_relay_start(&connection->relay, connection->tunnel->cli->loop, steal_fd(&connection->fd),
                       fd, on_relay_end);
    if (rest.length)
        stream_relay_put(&connection->relay, 0, rest.data, rest.length);
}

/* Whether the daemon, or the way to it, may be better in a moment. */
static bool is_passing(const struct connection *connection, const struct error *err)
{
    if (!connection->status)
        return err->code == ERR_UNAVAILABLE || err->code == ERR_BACKEND;
    return connection->status == 503 || connection->status == 504 || connection->status == 429;
}

static bool is_session_gone(const struct connection *connection)
{
    return connection->status == 404 || connection->status == 410 || connection->status == 401 ||
           connection->status == 403;
}

static void on_answer_end(struct http_call *call, const struct error *err)
{
    struct connection *connection = http_call_user(call);
    struct tunnel *tunnel = connection->tunnel;
    struct error why = { 0 };

    connection->call = NULL;
    if (err)
        why = *err;
    else
        reply_error(&why, connection->status, connection->refusal.data, connection->refusal.length);
    if (is_passing(connection, &why) && loop_now_us(tunnel->cli->loop) < connection->deadline_us) {
        connection->state = CONNECTION_WAITING;
        timer_arm_in(&connection->retry, RETRY_US);
        return;
    }
    if (is_session_gone(connection))
        fail_tunnel(tunnel, &why);
    else
        note(tunnel, &why);
    connection_free(connection);
}

static void ask(struct connection *connection)
{
    static const char *const headers[] = { "Connection", "Upgrade", "Upgrade", "tcp", NULL };
    static const struct http_call_handler handler = { .on_head = on_head,
                                                      .on_data = on_refusal,
                                                      .on_writable = on_upgraded,
                                                      .on_end = on_answer_end };
    struct tunnel *tunnel = connection->tunnel;

    connection->state = CONNECTION_ASKING;
    connection->status = 0;
    buffer_clear(&connection->refusal);
    connection->call = http_client_request(tunnel->cli->client, HTTP_GET, tunnel->target, NULL,
                                           NULL, 0, headers, &handler, connection);
}

static void on_retry(struct timer *timer)
{
    ask(container_of(timer, struct connection, retry));
}

static void on_accept(void *context, int fd, const struct address *peer UNUSED)
{
    struct tunnel *tunnel = context;
    struct connection *connection = xnew(struct connection);

    connection->tunnel = tunnel;
    connection->fd = fd;
    connection->refusal = BUFFER_INIT(REFUSAL_MAXIMUM);
    connection->deadline_us = loop_now_us(tunnel->cli->loop) + PATIENCE_US;
    timer_init(&connection->retry, tunnel->cli->loop, on_retry);
    list_append(&tunnel->connections, &connection->node);
    ask(connection);
}

/* No connection is idle here: a waiting one belongs to the client. */
static void on_exhausted(void *context UNUSED)
{
}

/* --- all of it ------------------------------------------------------------------------------- */

static void on_signal(struct signal_watch *watch, int number UNUSED)
{
    (void)watch;
    loop_stop(watch->loop);
}

static int check_session(struct cli *cli, const struct tunnel_wish *wish, struct error *err)
{
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(free) char *target = session_target(wish->session, "%s", "");

    if (cli_call(cli, HTTP_GET, target, NULL, &reply, err) < 0)
        return -1;
    if (!str_equal(field_text(reply.json, "state", ""), "ended"))
        return 0;
    return error_named(err, ERR_GONE, "session_ended", "session %s has ended: %s", wish->session,
                       field_text(reply.json, "end_reason", "unknown"));
}

static int listen_here(struct tunnel *tunnel, struct error *err)
{
    struct listener_events events = { on_accept, on_exhausted, tunnel };
    scoped(free) char *text = xasprintf("127.0.0.1:%u", tunnel->wish->local);
    struct address address;

    if (address_parse(&address, text, err) < 0)
        return -1;
    tunnel->listener = listener_new(tunnel->cli->loop, &address, &events, err);
    if (tunnel->listener)
        return 0;
    if (err->sys_errno == EADDRINUSE || err->sys_errno == EACCES)
        error_hint(err, "choose another port of this host: LOCAL:%u, or 0:%u for any",
                   tunnel->wish->remote, tunnel->wish->remote);
    return -1;
}

static int tell(struct tunnel *tunnel)
{
    unsigned local = listener_port(tunnel->listener);
    scoped(json_decref) json_t *document = NULL;
    scoped(free) char *line = NULL;

    if (tunnel->cli->json) {
        document = json_pack("{s:s, s:s, s:i, s:i}", "session", tunnel->wish->session, "address",
                             "127.0.0.1", "local", (int)local, "remote", (int)tunnel->wish->remote);
        return cli_print_json(tunnel->cli, document);
    }
    line = xasprintf("127.0.0.1:%u\n", local);
    cli_note("127.0.0.1:%u leads to port %u of %s; Ctrl-C ends it", local, tunnel->wish->remote,
             tunnel->wish->session);
    return cli_print(tunnel->cli, line, strlen(line));
}

struct tunnel *tunnel_open(struct cli *cli, const struct tunnel_wish *wish, struct error *err)
{
    struct tunnel *tunnel = xnew(struct tunnel);

    tunnel->cli = cli;
    tunnel->wish = wish;
    list_init(&tunnel->connections);
    tunnel->target = session_target(wish->session, "/ports/%u", wish->remote);
    if (listen_here(tunnel, err) == 0)
        return tunnel;
    tunnel_close(tunnel);
    return NULL;
}

void tunnel_close(struct tunnel *tunnel)
{
    struct connection *connection;

    if (!tunnel)
        return;
    while ((connection = list_first(&tunnel->connections, struct connection, node)))
        connection_free(connection);
    listener_free(tunnel->listener);
    free(tunnel->target);
    free(tunnel);
}

unsigned tunnel_port(const struct tunnel *tunnel)
{
    return listener_port(tunnel->listener);
}

/* A script that reads the address may end the tunnel at once. */
static int serve(struct tunnel *tunnel)
{
    int code;

    tunnel->is_alone = true;
    for (size_t i = 0; i < ARRAY_LENGTH(ending_signals); i++)
        signal_watch_start(&tunnel->signals[i], tunnel->cli->loop, ending_signals[i], on_signal);
    code = tell(tunnel);
    if (code == 0)
        loop_run(tunnel->cli->loop);
    for (size_t i = 0; i < ARRAY_LENGTH(ending_signals); i++)
        signal_watch_stop(&tunnel->signals[i]);
    return code;
}

int tunnel_run(struct cli *cli, const struct tunnel_wish *wish)
{
    struct tunnel *tunnel = NULL;
    struct error err = { 0 };
    int code;

    if (check_session(cli, wish, &err) == 0)
        tunnel = tunnel_open(cli, wish, &err);
    if (!tunnel)
        return cli_fail(cli, &err);
    code = serve(tunnel);
    if (tunnel->state == TUNNEL_FAILS) {
        cli->json = false; /* stdout has its document already */
        code = cli_fail(cli, &tunnel->err);
    }
    tunnel_close(tunnel);
    return code;
}
