/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One request. faces.c makes it, finds its route, reads its body, looks up its session and calls
 * the handler, which answers now or later.
 *
 * It lives until the exchange is over and nothing that was begun for it is under way any more.
 * Code that waits for a callback calls request_begin() first, and the callback begins with
 *
 *     if (request_finish(request))
 *         return;
 *
 * which is true when the client has left meanwhile; then the request may be gone. `on_gone`
 * releases what the handler holds beyond that, and comes once, when the exchange is over.
 */

#include "base/buffer.h"
#include "base/error.h"
#include "base/id.h"
#include "core/session/session.h"
#include "core/shares.h"
#include "face/face.h"
#include "net/http_server.h"
#include "service/find.h"
#include "wire/json.h"

#include <stdbool.h>

struct relay_identity;

enum {
    REQUEST_KEY_MAXIMUM = 256, /* bytes of an Idempotency-Key */
    REQUEST_SEGMENTS = 12,
    REQUEST_PARAMETERS = 24,
    REQUEST_BODY_MAXIMUM = 24 * 1024 * 1024,
    REQUEST_REPLY_MAXIMUM = 256 * 1024 * 1024,
};

struct request {
    struct faces *faces;              /* borrowed */
    const struct face *face;          /* borrowed */
    void *context;                    /* borrowed: of the face, see struct face_entry */
    struct core *core;                /* borrowed */
    struct http_exchange *exchange;   /* borrowed; NULL when it is over */
    const struct route *route;        /* borrowed; NULL when there is none */
    char *path;                       /* owned: the segments, each a text of its own */
    char *segments[REQUEST_SEGMENTS]; /* of the path, decoded; borrowed */
    size_t segment_count;
    const char *rest; /* of a proxy route: the target from the slash behind its path; borrowed */
    struct {
        char *name, *value; /* owned */
    } parameters[REQUEST_PARAMETERS];
    size_t parameter_count;
    char *renamed;         /* owned: "OLD=NEW, …" of the old names that it uses; NULL without */
    struct error *problem; /* owned: what is wrong with the target, told to those who may know */
    char *owner;           /* owned; "" without authentication, NULL while it is not known */
    char *principal;       /* owned; "" when authentication is off */
    char *on_behalf_of;    /* owned */
    unsigned roles;        /* enum role */
    bool any_owner;        /* an administrator */
    bool is_operator;      /* without authentication: may ask for every owner's sessions */
    bool is_head;
    bool by_cookie;                /* the caller is known by a login of the dashboard */
    char key_id[ID_SIZE];          /* of the caller's API key; "" without one */
    int64_t credentials_expire_us; /* wall clock; 0: never */
    bool has_own_host;             /* it came by a host name of its face */
    json_t *body;                  /* owned; an object, empty without a body */
    json_t *message;               /* owned: of MCP, the whole document; NULL if it is malformed */
    struct mask *secrets;          /* owned; for the audit log: what no line may tell */
    bool lacks_secrets;            /* they are not known: its session has ended, or there is none */
    char *audited; /* owned: of the body, what the audit log may have; NULL without one */
    int64_t began_us;
    struct share share;            /* of the open requests of its principal */
    struct share bytes;            /* of the bodies that its principal sends */
    struct buffer text;            /* owned: a body that was parsed on a thread */
    struct buffer chunks;          /* owned: a body whose length was not known */
    http_body_fn *on_chunks;       /* with that */
    const struct buffer *raw_body; /* borrowed: of a route with a JSON body, once it was read */
    struct list stream;            /* in faces->streams, if it is one */
    struct list open;              /* in faces->requests, until the exchange is over */

    struct relay_identity *relay; /* owned: of a request that another node has relayed, or NULL */
    bool is_relayed;              /* another node answers it */
    unsigned repeats;             /* how often it was begun anew */

    char session_id[ID_SIZE];
    struct session *session; /* borrowed; valid only while the handler is called, NULL if ended */
    const char *ended_json;  /* borrowed likewise: the final record of one that has ended */
    const char *end_reason;  /* borrowed, with ended_json */

    void *state; /* the handler's own */
    void (*on_gone)(struct request *request);
    unsigned pending;
};

/* --- life ------------------------------------------------------------------------------------ */

void request_begin(struct request *request);
bool request_finish(struct request *request);

/* --- the front door: door.c ------------------------------------------------------------------ */

/* Refuses what comes from a web page of another origin, by a name that is not the daemon's, or from
 * a program in a sandbox. */
int request_check_source(const struct request *request, struct error *err);

/* For `identify` of a face: by its credentials; a program in a sandbox by its execution. */
void request_identify(struct request *request, request_fn *then);

/* The same for a request that another node has relayed: that node has found out. */
void request_identify_relayed(struct request *request, request_fn *then);

/* Whether `owner=` may be asked for. */
static inline bool request_may_name_owner(const struct request *request)
{
    return request->any_owner || request->is_operator;
}

/* --- the body: body.c ------------------------------------------------------------------------- */

/* The whole body, as http_exchange_read_body(). Answers 429 when its principal has too many bytes in
 * bodies already. The reader reports its length with request_body_came(). */
void request_read_body(struct request *request, size_t maximum, http_body_fn *on_body);
void request_body_came(struct request *request, const struct buffer *body);

/* Parses it; a large one on a thread, where it holds nobody up. request->raw_body is the text then;
 * `then` owns the document, which is NULL when the text cannot be read, and `err` says why. */
typedef void request_json_fn(struct request *request, json_t *document, const struct error *err);
void request_parse_body(struct request *request, struct buffer *body, request_json_fn *then);

/* The same for a body that is not plain JSON. */
struct body_format {
    /* Pure: it may run on a thread. NULL when the text cannot be read. */
    json_t *(*read)(const struct body_format *format, const struct buffer *text, struct error *err);
    const void *schema; /* borrowed, static */
    bool is_binary, is_envelope, is_compressed;
};
void request_parse_body_as(struct request *request, struct buffer *body,
                           const struct body_format *format, request_json_fn *then);

/* --- what was asked -------------------------------------------------------------------------- */

/* For whom the request acts; borrowed from it. */
struct caller_identity request_identity(const struct request *request);

/* The value of a {name} in the route's path. */
const char *request_path(const struct request *request, const char *name);

/* A parameter of the query; NULL without one. */
const char *request_parameter(const struct request *request, const char *name);
int request_parameter_u64(const struct request *request, const char *name, uint64_t maximum,
                          uint64_t *out_value, struct error *err); /* absent: unchanged */
/* The parameter `limit`: from 1 to the maximum. */
int request_parameter_limit(const struct request *request, uint64_t maximum, uint64_t *out_limit,
                            struct error *err);
int request_parameter_bool(const struct request *request, const char *name, bool *out_value,
                           struct error *err);
int request_parameter_ms(const struct request *request, const char *name, int64_t maximum_ms,
                         int64_t *out_ms, struct error *err);
const char *request_header(const struct request *request, const char *name);

/* The header Idempotency-Key; NULL without one. An error when it is empty or too long. */
int request_idempotency_key(const struct request *request, const char **out_key, struct error *err);

/* The body by the route's table of fields. */
int request_decode(const struct request *request, void *out, struct error *err);

/* A field of the body that has more than one type, taken out of it; the caller owns the reference.
 * NULL when it is absent or null. */
json_t *request_take_field(struct request *request, const char *name);

/* Whether the caller reaches the sessions of every owner on this route. */
bool request_reaches_all(const struct request *request);

/* Finds the session that `reference` names, as for a route with {session}, then calls the handler
 * with request->session set; answers 404 or 410 otherwise. */
void request_find_session(struct request *request, const char *reference, enum route_session kind,
                          request_fn *then);

/* --- answers --------------------------------------------------------------------------------- */

/* A success of a request that may change something is told when everything that was put into the
 * store until now is written, so that a daemon that is killed with the answer has kept it. May take
 * the text over. */
void request_reply(struct request *request, int status, struct buffer *json);

/* The same when it is on the disk, too; takes the text over. */
void request_reply_recorded(struct request *request, int status, struct buffer *json);

/* As request_reply(), with the result of work that is done: told even if the store has failed to
 * take its record. */
void request_reply_result(struct request *request, int status, struct buffer *json);
void request_reply_empty_object(struct request *request, int status);

/* As the face writes errors; nothing when the client has left. */
void request_fail(struct request *request, const struct error *err);

/* --- errors as most faces write them: errors.c ------------------------------------------------ */

/* For `fail` of a face: {"error": {"code","message","hint","retryable"}} with the status of the
 * error, and Retry-After where trying again helps. */
void request_fail_json(struct request *request, const struct error *err);
int request_status_of(const struct error *err);

/* {"code","message","hint","retryable"} under `key`; the caller ends the object. */
void request_write_error(const struct request *request, struct json_writer *json, const char *key,
                         const struct error *err);

/* The surface that the header X-Sandglass-Surface names: hints are written for its readers. */
enum surface request_surface(const struct request *request);
void request_put_retry_after(struct request *request, const struct error *err);

/* --- matching: match.c ------------------------------------------------------------------------ */

enum route_match { ROUTE_MATCH, ROUTE_NO_PATH, ROUTE_NO_METHOD };

/* Fills request->route from its segments, among the routes of its face. With ROUTE_NO_METHOD `allow`
 * lists the methods that the path has. */
enum route_match request_match_route(struct request *request, enum http_method method,
                                     struct buffer *allow);

/* Fills request->route with a proxy route, if one fits; request->segments are those before {path}. */
bool request_match_proxy(struct request *request, const char *target);

/* Splits and decodes the target of a request. */
int request_parse_target(struct request *request, const char *target, const char *query,
                         struct error *err);

/* Undoes percent escapes. `decoded` has room for the text and a NUL. */
void request_unescape(const char *text, size_t length, char *decoded);
