#pragma once

/*
 * One request. The router makes it, finds its route, reads its body, looks up its session and calls
 * the handler, which answers now or later.
 *
 * It lives until the exchange is over and nothing that was begun for it is under way any more.
 * Whoever waits for a callback says so with api_begin(), and the callback begins with
 *
 *     if (api_finish(request))
 *         return;
 *
 * which is true when the client has left meanwhile; then the request may be gone. `on_gone`
 * releases what the handler holds beyond that, and comes once, when the exchange is over.
 */

#include "api/api.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/id.h"
#include "core/session/session.h"
#include "core/shares.h"
#include "net/http_server.h"
#include "service/find.h"
#include "wire/json.h"

#include <stdbool.h>

struct api_audit;
struct mcp;
struct tools;

struct api {
    struct api_parts parts;
    struct api_audit *audit; /* owned; NULL when nothing is written */
    struct tools *tools;     /* owned */
    struct mcp *mcp;         /* owned */
    char *openapi;           /* owned; made when it is first asked for */
    struct list streams;     /* struct api_request: answers that are Server-Sent Events */
};

enum {
    API_SEGMENTS = 12,
    API_PARAMETERS = 24,
    API_BODY_MAXIMUM = 24 * 1024 * 1024,
    API_REPLY_MAXIMUM = 256 * 1024 * 1024,
};

enum api_body {
    API_NO_BODY,
    API_JSON_BODY,
    API_BYTES_BODY,
    API_MESSAGE_BODY, /* JSON that the handler reads itself */
};

/* What {session} in the path has to be. */
enum api_session { API_NO_SESSION, API_LIVE_SESSION, API_ANY_SESSION };

/* Who may use a route. */
enum api_access {
    API_CALLERS,  /* everybody who is somebody */
    API_ANYBODY,  /* without credentials too; there is no owner then */
    API_ADMINS,   /* where there is authentication */
    API_PROGRAMS, /* programs in a sandbox, over its storage socket, and nobody else */
};

struct api_request;
typedef void api_handler_fn(struct api_request *request);

/* A field that json_field cannot describe, because it has more than one type. */
struct api_extra {
    const char *name;
    const char *schema; /* JSON schema */
};

struct api_parameter {
    const char *name; /* in the query */
    const char *type; /* of its schema: "string", "integer", "number", "boolean" */
    const char *help;
};

struct api_answer {
    int status;
    const char *help;
};

struct api_route {
    enum http_method method;
    const char *path; /* "/api/v1/sessions/{session}" */
    api_handler_fn *handle;
    const char *summary;
    enum api_body body;
    enum api_session session;
    const struct json_field *fields;
    size_t field_count;
    const struct api_extra *extras;         /* ends with a row without a name; may be NULL */
    const struct api_parameter *parameters; /* as extras */
    const struct api_answer *answers;       /* ends with status 0 */
    enum api_access access;
    bool approvers;  /* an approver finds everybody's sessions here */
    bool any_origin; /* the URL itself is the permission: any web page may use it that has it */
};

struct api_request {
    struct api *api;                /* borrowed */
    struct core *core;              /* borrowed */
    struct http_exchange *exchange; /* borrowed; NULL when it is over */
    const struct api_route *route;  /* borrowed */
    char *path;                     /* owned: the segments, each a text of its own */
    char *segments[API_SEGMENTS];   /* of the path, decoded; borrowed */
    size_t segment_count;
    struct {
        char *name, *value; /* owned */
    } parameters[API_PARAMETERS];
    size_t parameter_count;
    struct error *problem; /* owned: what is wrong with the target, told to those who may know */
    char *owner;           /* owned; "" for nobody, NULL while that is not known */
    char *principal;       /* owned; "" when nobody had to prove who he is */
    char *on_behalf_of;    /* owned */
    unsigned roles;        /* enum role */
    bool any_owner;        /* an administrator */
    bool is_operator;      /* without authentication: may ask for every owner's sessions */
    bool is_head;
    json_t *body;         /* owned; an object, empty without a body */
    struct mask *secrets; /* owned; for the audit log: what no line may tell */
    char *audited;        /* owned: of the body, what the audit log may have; NULL without one */
    int64_t began_us;
    struct share share; /* of the open requests of its principal */
    struct list stream; /* in api->streams, if it is one */

    char session_id[ID_SIZE];
    struct session *session; /* borrowed; valid only while the handler is called, NULL if ended */
    const char *ended_json;  /* borrowed likewise: the final record of one that has ended */

    void *state; /* the handler's own */
    void (*on_gone)(struct api_request *request);
    unsigned pending;
};

/* --- life ------------------------------------------------------------------------------------ */

void api_begin(struct api_request *request);
bool api_finish(struct api_request *request);

/* --- the front door: door.c ------------------------------------------------------------------ */

/* Whether it comes from a web page or by a name that is not ours. */
int api_check_source(const struct api_request *request, struct error *err);

/* Whether `owner=` may be asked for. */
static inline bool api_may_name_owner(const struct api_request *request)
{
    return request->any_owner || request->is_operator;
}

/* Finds out who asks and whether he may, then calls `then`, now or later; answers otherwise. */
void api_identify(struct api_request *request, api_handler_fn *then);

/* --- who decides about money: approvals.c ----------------------------------------------------- */

/* With authentication the roles approver and admin decide for everybody. Without, an owner decides
 * for himself, and a caller who is nobody, the operator of this host, for all. */
bool api_is_approver(const struct api_request *request, const char *owner);
int api_check_approver(const struct api_request *request, const char *owner, struct error *err);

/* Begins an answer of Server-Sent Events. */
void api_stream_start(struct api_request *request);

/* --- the audit log: audit.c ------------------------------------------------------------------ */

struct api_audit *api_audit_new(struct api *api); /* NULL without a log */
void api_audit_free(struct api_audit *audit);     /* NULL is fine */

/* The caller is known: finds what no line about the request may tell. */
void api_audit_begin(struct api_request *request);

/* Keeps what may be told of the body, before a handler takes it apart. */
void api_audit_body(struct api_request *request);

/* The exchange is over. */
void api_audit_request(struct api_request *request);

/* --- what was asked -------------------------------------------------------------------------- */

/* The value of a {name} in the route's path. */
const char *api_path(const struct api_request *request, const char *name);

/* A parameter of the query; NULL without one. */
const char *api_parameter(const struct api_request *request, const char *name);
int api_parameter_u64(const struct api_request *request, const char *name, uint64_t maximum,
                      uint64_t *out_value, struct error *err); /* absent: unchanged */
int api_parameter_bool(const struct api_request *request, const char *name, bool *out_value,
                       struct error *err);
int api_parameter_ms(const struct api_request *request, const char *name, int64_t maximum_ms,
                     int64_t *out_ms, struct error *err);
const char *api_header(const struct api_request *request, const char *name);

/* The body by the route's table of fields. */
int api_decode(const struct api_request *request, void *out, struct error *err);

/* A field of the body that has more than one type, taken out of it; the caller owns the reference.
 * NULL when it is absent or null. */
json_t *api_take_field(struct api_request *request, const char *name);

/* --- the session of the route, found again after waiting ------------------------------------- */

/* For whom the request acts; borrowed from it. */
struct identity api_identity(const struct api_request *request);

/* NULL with ERR_NOT_FOUND or ERR_GONE. */
struct session *api_session_again(const struct api_request *request, struct error *err);

/* Finds the session that `reference` names, as for a route with {session}, then calls the handler
 * with request->session set; answers 404 or 410 otherwise. */
void api_find_session(struct api_request *request, const char *reference, enum api_session kind,
                      api_handler_fn *then);

/* --- answers --------------------------------------------------------------------------------- */

void api_reply(struct api_request *request, int status, struct buffer *json);

/* The same when everything that was put until now is recorded; takes the text over. */
void api_reply_recorded(struct api_request *request, int status, struct buffer *json);
void api_reply_empty_object(struct api_request *request, int status);
void api_fail(struct api_request *request, const struct error *err);

/* With a status that the error's code does not have. */
void api_fail_status(struct api_request *request, int status, const struct error *err);

/* 410 with the final record of the session as JSON. */
void api_fail_ended(struct api_request *request, const char *session_id, const char *reason,
                    const char *record_json);
int api_status(enum error_code code);

/* {"code","message","hint","retryable"} under `key`. */
void api_write_error(struct json_writer *json, const char *key, const struct error *err);

/* --- tables ---------------------------------------------------------------------------------- */

extern const struct api_route api_session_routes[];
extern const struct api_route api_approval_routes[];
extern const struct api_route api_budget_routes[];
extern const struct api_route api_context_routes[];
extern const struct api_route api_wait_routes[];
extern const struct api_route api_control_routes[];
extern const struct api_route api_execution_routes[];
extern const struct api_route api_input_routes[];
extern const struct api_route api_output_routes[];
extern const struct api_route api_execute_routes[];
extern const struct api_route api_file_routes[];
extern const struct api_route api_search_routes[];
extern const struct api_route api_edit_routes[];
extern const struct api_route api_archive_routes[];
extern const struct api_route api_watch_routes[];
extern const struct api_route api_event_routes[];
extern const struct api_route api_scope_routes[];
extern const struct api_route api_mcp_routes[];
extern const struct api_route api_system_routes[];
extern const struct api_route api_storage_routes[];
extern const struct api_route api_teardown_routes[];
extern const struct api_route api_history_routes[];
extern const struct api_route api_kept_routes[];
extern const struct api_route api_tool_routes[];

/* All of them: 1 and the next route, or 0 at the end. Start with *position = 0. */
bool api_next_route(size_t *position, const struct api_route **out_route);

enum api_match { API_MATCH, API_NO_PATH, API_NO_METHOD };

/* Fills request->route from its segments. With API_NO_METHOD `allow` lists the methods there are.
 */
enum api_match api_match_route(struct api_request *request, enum http_method method,
                               struct buffer *allow);

/* Splits and decodes the target of a request. */
int api_parse_target(struct api_request *request, const char *target, const char *query,
                     struct error *err);

/* Undoes percent escapes. `decoded` has room for the text and a NUL. */
void api_unescape(const char *text, size_t length, char *decoded);

void api_make_openapi(struct buffer *out);
