/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Inside of the MCP server. */

#include "base/buffer.h"
#include "base/id.h"
#include "base/list.h"
#include "base/map.h"
#include "core/session/session.h"
#include "loop/loop.h"
#include "mcp/mcp.h"
#include "net/http_server.h"
#include "service/identity.h"
#include "tools/tool.h"
#include "wire/jsonrpc.h"

#define ID_MCP_CLIENT "mcp_" /* over HTTP */
#define ID_MCP_PIPE "mcl_"   /* its sessions go with its connection */

/* The key and the label that tell whose a session is. */
#define MCP_KEY "mcp:"
#define MCP_LABEL TOOL_CLIENT_LABEL
#define MCP_END_DETAIL "its MCP client disconnected"

enum {
    MCP_CLIENTS_MAXIMUM = 1000,
    MCP_REQUESTS_MAXIMUM = 64, /* of one client at a time */
    MCP_MESSAGE_MAXIMUM = 24 * 1024 * 1024,
    MCP_ANSWER_MAXIMUM = 96 * 1024 * 1024,
    MCP_REPLAY_BYTES = 8 * 1024 * 1024, /* of one client, kept for Last-Event-ID */
    MCP_STREAMS_MAXIMUM = 96,           /* of one client, ended ones that are kept included */
    MCP_LINKS_MAXIMUM = 256,
    MCP_HEARTBEAT_US = 15 * 1000 * 1000,
};

/* Codes beyond those of JSON-RPC. */
enum {
    MCP_SESSION_NOT_FOUND = -32001,
    MCP_RESOURCE_NOT_FOUND = -32002,
    MCP_HEADER_MISMATCH = -32020,
    MCP_VERSION_UNSUPPORTED = -32022,
};

#define MCP_VERSION_STATELESS "2026-07-28"
#define MCP_META "io.modelcontextprotocol/"

struct mcp_client;
struct mcp_request;

struct mcp {
    struct mcp_parts parts;
    struct map clients;    /* by id; struct mcp_client */
    struct list recent;    /* the same, least recently used first */
    struct list unbound;   /* struct mcp_request without a client: stateless ones */
    struct list places;    /* struct mcp_place: sessions being opened */
    struct timer grace;    /* for sessions of clients on pipes of an earlier daemon */
    struct list endings;   /* struct mcp_ending */
    struct worker *parser; /* owned; of large messages on pipes, NULL before the first */
};

/* --- who ------------------------------------------------------------------------------------- */

/* A copy, whose texts are its own. */
void mcp_identity_set(struct caller_identity *copy, const struct caller_identity *identity);
void mcp_identity_fini(struct caller_identity *copy);

/* --- where messages go ----------------------------------------------------------------------- */

struct mcp_channel;

struct mcp_channel_ops {
    /* From now on this request is answered here; NULL: no need to know. */
    void (*begin)(struct mcp_channel *channel, struct mcp_request *request);
    /* A message that is not the last one. */
    void (*notify)(struct mcp_channel *channel, const void *text, size_t length);
    /* The answer to a request; the status is for HTTP. */
    void (*finish)(struct mcp_channel *channel, int status, const void *text, size_t length);
    /* There will be no answer: the request was cancelled. */
    void (*close)(struct mcp_channel *channel);
    /* The client does not take what was sent: what can be left out should be. */
    bool (*is_full)(const struct mcp_channel *channel);
};

struct mcp_channel {
    const struct mcp_channel_ops *ops;
};

/* An HTTP exchange and who is told of it. */
struct mcp_exchange {
    struct http_exchange *http; /* borrowed */
    void (*on_gone)(struct mcp_exchange *exchange);
    void (*on_data)(struct mcp_exchange *exchange, const uint8_t *data, size_t length);
    void (*on_drain)(struct mcp_exchange *exchange);
};

/* --- a client -------------------------------------------------------------------------------- */

struct mcp_link {
    struct list node;
    char *uri, *name, *mime; /* owned */
    uint64_t size;
};

struct mcp_client {
    struct mcp *mcp;           /* borrowed */
    struct mcp_wishes *wishes; /* owned; NULL: its own session is like any other */
    struct list node;
    char id[ID_SIZE];
    struct caller_identity identity;
    const char *version;         /* the version of `initialize`; NULL before */
    struct mcp_channel *channel; /* borrowed: of a client on a pipe; NULL over HTTP */
    struct list requests;        /* struct mcp_request */
    struct list streams;         /* struct mcp_stream, oldest first */
    size_t stream_count, replay_bytes;
    size_t attached; /* streams that are connected */
    uint64_t next_stream;
    struct list links; /* struct mcp_link, oldest first */
    size_t link_count;
    char session_id[ID_SIZE]; /* of its own session; "" before the first */
    struct timer idle;
    bool is_ending;
};

/* NULL when there are too many. `prefix` is one of the two kinds of ids; `id` is taken up again, or
 * NULL for a new one. */
struct mcp_client *mcp_client_new(struct mcp *mcp, const struct caller_identity *caller,
                                  const char *prefix, const char *id, struct error *err);

/* The caller's own client with this id; after a restart of the daemon one of which a session is
 * left is known again. NULL otherwise. */
struct mcp_client *mcp_client_find(struct mcp *mcp, const struct caller_identity *caller,
                                   const char *id);

/* Something came from it: its time begins anew. */
void mcp_client_touch(struct mcp_client *client);

/* Ends it with everything it has: requests, streams, its session, and all it made when it is on a
 * pipe. `done` comes from the loop when all that is gone, unless it is NULL. */
typedef void mcp_done_fn(void *user);
struct mcp_ending;
struct mcp_ending *mcp_client_end(struct mcp_client *client, mcp_done_fn *done, void *user);
void mcp_endings_free(struct mcp *mcp);
void mcp_ending_forget(
    struct mcp_ending *ending); /* its end is not waited for any more; NULL is fine */

/* Only the memory. */
void mcp_client_free(struct mcp_client *client);

/* A file that a tool has told of. */
void mcp_client_note_link(struct mcp_client *client, const char *uri, const char *name,
                          const char *mime, uint64_t size);

/* "mcp:" + id, allocated: the key of its own session. */
char *mcp_client_key(const char *client_id);

/* {"mcp": id}, allocated: the labels of a session that goes with its client. */
char *mcp_client_labels(const char *client_id);

/* The client of a session, by its label; "" without one. */
void mcp_session_client(const struct session *session, char id[ID_SIZE]);

/* Whether everything that this client makes goes with it. */
bool mcp_client_is_leased(const char *client_id);

/* --- a request ------------------------------------------------------------------------------- */

struct mcp_request {
    struct mcp *mcp;             /* borrowed */
    struct mcp_client *client;   /* borrowed; NULL for one that stands alone */
    struct mcp_channel *channel; /* borrowed */
    struct caller_identity identity;
    char guest[ID_SIZE]; /* client of another node in whose name it is; "" for one of this node */
    const char *version; /* of the protocol */
    bool is_stateless;   /* from 2026-07-28 on */
    char *id;            /* owned: JSON */
    json_t *params;      /* owned; an object, or NULL */
    struct list node;    /* of the client, or among the unbound */

    /* The work of its method; NULL without. */
    void *work;
    void (*release)(struct mcp_request *request); /* stops and frees it */
    void (*cancel)(struct mcp_request *request);  /* ends soon in mcp_request_close() */
};

/* Where a message came from. */
struct mcp_source {
    struct mcp *mcp;
    struct mcp_client *client; /* NULL: none */
    const struct caller_identity *caller;
    struct mcp_channel *channel;
    bool is_stateless;
    const char *guest;         /* without a client: the one of another node; NULL: none */
    const char *guest_version; /* with that: of the protocol */
};

/* Answers a request, now or later. */
void mcp_request_start(const struct mcp_source *source, const struct jsonrpc_message *message);

/* A message that the client sends without waiting for an answer. */
void mcp_notification(struct mcp_client *client, const struct jsonrpc_message *message);

/* The client is gone, or cannot be answered: nothing is sent. */
void mcp_request_drop(struct mcp_request *request);

/* As cancelled: no answer, and the channel is told so. */
void mcp_request_close(struct mcp_request *request);

struct mcp_request *mcp_request_find(const struct mcp_client *client, const char *id);

/* Each ends the request. `data` is JSON or NULL. */
void mcp_request_fail(struct mcp_request *request, int code, const char *message, const char *data);

/* {"jsonrpc", "id", "result": { … }}: what every result has is there already. */
struct mcp_result {
    struct buffer text;
    struct json_writer json;
};

void mcp_result_begin(struct mcp_result *result, const struct mcp_request *request);

/* How long a client may cache the result; only where the protocol has it. */
void mcp_result_put_cache(struct mcp_result *result, const struct mcp_request *request,
                          int64_t ttl_ms, const char *scope);
void mcp_result_send(struct mcp_result *result, struct mcp_request *request);

bool mcp_request_speaks(const struct mcp_request *request, const char *version); /* or later */
const char *mcp_param_text(const struct mcp_request *request, const char *name); /* or NULL */

/* An error without a request that could be known. */
void mcp_write_failure(struct buffer *text, const char *id, int code, const char *message,
                       const char *data);

/* --- methods --------------------------------------------------------------------------------- */

typedef void mcp_method_fn(struct mcp_request *request);

mcp_method_fn mcp_initialize, mcp_ping, mcp_discover;
mcp_method_fn mcp_tools_list, mcp_tools_call;
mcp_method_fn mcp_resources_list, mcp_resources_templates, mcp_resources_read;

/* Whether `initialize` can be answered with a result. */
int mcp_initialize_check(const json_t *params, struct error *err);

/* A version with `initialize` that is known, as a constant; NULL otherwise. */
const char *mcp_version_find(const char *version);

/* The description of the sandboxes that a client gives to its model, from the settings;
 * allocated. */
char *mcp_instructions(const struct mcp *mcp);

/* {"supported": […], "requested": …} for an unknown one; allocated. */
char *mcp_version_data(const char *requested, bool is_stateless);

/* The stateless era: each request has _meta with the version it speaks, which is told here (NULL
 * without one), and with what its client can do. The check returns 0 or the code of an error, with
 * allocated `data` for it, or NULL. */
const char *mcp_meta_version(const json_t *params);
int mcp_meta_check(const json_t *params, char **out_data, struct error *err);

/* --- the session that a client wants --------------------------------------------------------- */

#define MCP_WISHES "sandglass-session" /* the header */

/* For the own session of a client. With a key the session stays when the client leaves. */
struct mcp_wishes {
    json_t *document; /* owned: the texts of the request */
    char *env;        /* owned */
    char *mounts;     /* owned */
    struct session_request request;
};

/* From the value of the header, a JSON object; NULL on failure. */
struct mcp_wishes *mcp_wishes_read(const char *text, struct error *err);
void mcp_wishes_free(struct mcp_wishes *wishes); /* NULL is fine */

/* --- in which session ------------------------------------------------------------------------ */

struct mcp_place;
typedef void mcp_place_fn(struct mcp_place *place);

/* Opens the session that a call works in, or finds it; `done` comes once, from the loop. */
struct mcp_place {
    struct list node;
    struct mcp *mcp; /* borrowed */
    struct session_op op;
    mcp_place_fn *done;      /* NULL: the result is not waited for any more */
    void *user;              /* of the waiting caller */
    char client_id[ID_SIZE]; /* "" for one that stands alone */
    bool is_own;             /* the client's own session: it goes with it */
    bool stays;              /* except when the client has given it a key */
    struct error err;
    char session_id[ID_SIZE];
    bool is_new;
};

/* By `key`, or with NULL the client's own; a request without a client gets a new one. */
struct mcp_place *mcp_place_open(const struct mcp_request *request, const char *key,
                                 mcp_place_fn *done, void *user);

/* The result is not waited for any more; a session that is made all the same is ended, because no
 * client would know of it. */
void mcp_place_abandon(struct mcp_place *place);
void mcp_places_free(struct mcp *mcp);

/* --- HTTP answers ---------------------------------------------------------------------------- */

struct mcp_stream;

struct mcp_stream_options {
    bool accepts_json, accepts_events;
    bool can_resume; /* the client exists beyond this answer */
    bool is_primed;  /* the client knows events without data */
};

/* The answer to a POST. */
struct mcp_stream *mcp_stream_new(struct mcp *mcp, struct mcp_client *client,
                                  struct http_exchange *http,
                                  const struct mcp_stream_options *options);
struct mcp_channel *mcp_stream_channel(struct mcp_stream *stream);
struct mcp_exchange *mcp_stream_exchange(struct mcp_stream *stream);

/* Messages of the server's own, on a GET. NULL when there are too many. */
struct mcp_stream *mcp_stream_open(struct mcp_client *client, struct http_exchange *http);

/* Goes on behind the event with this id; NULL when it is not known any more. */
struct mcp_stream *mcp_stream_resume(struct mcp_client *client, struct http_exchange *http,
                                     const char *text);

/* The client ends. */
void mcp_streams_end(struct mcp_client *client);

/* A whole answer in JSON. */
void mcp_respond(struct mcp *mcp, struct http_exchange *http, int status, const void *text,
                 size_t length);

/* --- HTTP exchanges: http.c, pipe.c, for face.c ------------------------------------------------- */

/* An HTTP exchange that is the server's to answer: from one of the functions below, which may
 * return NULL when there is nothing more to be told, to mcp_exchange_gone(). */
struct mcp_exchange;

/* `is_guest`: its client is another node's, and the session that it works in is here. Its
 * requests are served without the client. `document` is what the body says, borrowed; NULL when it
 * is malformed. */
struct mcp_exchange *mcp_post(struct mcp *mcp, const struct caller_identity *caller,
                              struct http_exchange *http, bool is_guest, json_t *document,
                              const void *body, size_t length);

/* Answers a message that could not be read. */
void mcp_refuse_text(struct mcp *mcp, struct http_exchange *http, const struct error *err);
struct mcp_exchange *mcp_get(struct mcp *mcp, const struct caller_identity *caller,
                             struct http_exchange *http);
struct mcp_exchange *mcp_delete(struct mcp *mcp, const struct caller_identity *caller,
                                struct http_exchange *http);

/* The header Mcp-Session-Id of a client: its id, and behind a dot the node that has it, where there
 * are several. */
char *mcp_client_header(const struct mcp *mcp, const char *client_id); /* allocated */

/* The contents of such a header: the id, "" when there is no header; *out_node is allocated, NULL
 * when it names none. */
void mcp_client_header_read(const struct http_exchange *http, char out_id[ID_SIZE],
                            char **out_node);

/* The name of the protocol that a GET can upgrade to: a message in each line, both ways. */
#define MCP_UPGRADE "mcp-lines"

/* Whether this GET asks for that. Then, with what mcp_pipe() returns, the caller answers 101 and
 * hands over what comes. NULL with an error when there are too many. */
bool mcp_wants_pipe(const struct http_exchange *http);
struct mcp_exchange *mcp_pipe(struct mcp *mcp, const struct caller_identity *caller,
                              struct http_exchange *http, struct error *err);

/* Of a pipe: bytes came (length 0 is the end of them); what was written has been taken. */
void mcp_exchange_data(struct mcp_exchange *exchange, const uint8_t *data, size_t length);
void mcp_exchange_drained(struct mcp_exchange *exchange);

/* The exchange is over. NULL is fine. */
void mcp_exchange_gone(struct mcp_exchange *exchange);
