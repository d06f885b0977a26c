/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Remote calls of envd, by the Connect protocol: one request with its messages, in any
 * codec and compression. Methods read canonical JSON and write JSON; answers are converted here for
 * clients that want another codec.
 *
 * A method answers with exactly one of rpc_reply(), rpc_fail(), or, of a stream, rpc_start() …
 * rpc_end(). The call lives until its exchange is over; `release` gives back what the method
 * holds, once, when that is so.
 */

#include "e2b/private.h"
#include "wire/http/connect.h"
#include "wire/protobuf.h"

#include <stdbool.h>
#include <stdint.h>

struct rpc;
typedef void rpc_fn(struct rpc *rpc);

struct rpc_method {
    const char *service, *name; /* NULL at the end */
    const struct protobuf_field *input, *output;
    rpc_fn *handle;
    enum rpc_kind {
        RPC_CALL,
        RPC_ANSWERS_STREAM, /* one message in, many out */
        RPC_TAKES_STREAM,   /* many in, one out; handle() comes before the first */
    } kind;
    const char *keepalive; /* of an answer that is a stream: sent when it is idle */
    bool has_own_deadline; /* the method attends to timeout_ms itself */
};

enum { RPC_USER_SIZE = 64 };

struct rpc {
    struct request *request; /* borrowed */
    const struct rpc_method *method;
    struct connect_type type;
    json_t *input;            /* owned: canonical; of a stream the message that is being taken */
    int64_t timeout_ms;       /* 0 without one */
    char user[RPC_USER_SIZE]; /* as the sandbox knows them; "" for its default one */

    void *state;     /* the method's own */
    rpc_fn *release; /* NULL: it has none */
    rpc_fn *on_room; /* the client has taken the pending bytes; may be NULL */

    /* RPC_TAKES_STREAM, set by the method: a message has come, in rpc->input; the client has sent
     * all of them. A method that cannot take more calls rpc_pause() until it can. */
    rpc_fn *on_message, *on_end;

    enum rpc_state {
        RPC_READING,
        RPC_OPEN,      /* not answered yet */
        RPC_STREAMING, /* the answer has begun */
        RPC_OVER,
    } state_of_answer;
    bool is_paused, has_ended_input;
    bool is_taking;         /* messages of the stream are being taken, further up the stack */
    struct buffer received; /* of a stream: envelopes that were not taken yet */
    struct timer keepalive, deadline;
    int64_t keepalive_us;
};

/* For the handler of a route: the path names the method, of which there is a table. */
void rpc_handle(struct request *request, const struct rpc_method *methods);

/* The live session of the call; answers and gives NULL when it has ended. */
struct session *rpc_session(struct rpc *rpc);

/* The answer to a call: the text of a JSON object. */
void rpc_reply(struct rpc *rpc, struct buffer *json);
void rpc_reply_empty(struct rpc *rpc);

/* Ends it with an error, before or within the answer. */
void rpc_fail(struct rpc *rpc, enum connect_code code, const char *format, ...) PRINTF_LIKE(3, 4);
void rpc_fail_error(struct rpc *rpc, const struct error *err);

/* Breaks the connection: the client sees that the answer was cut, and asks whether the sandbox
 * runs. */
void rpc_abort(struct rpc *rpc);

/* --- an answer that is a stream --------------------------------------------------------------- */

void rpc_start(struct rpc *rpc);
void rpc_send(struct rpc *rpc, struct buffer *json);

/* False: the client should take something before more is sent; on_room() comes then. */
bool rpc_has_room(const struct rpc *rpc);
void rpc_end(struct rpc *rpc);

/* --- a request that is a stream --------------------------------------------------------------- */

void rpc_pause(struct rpc *rpc);
void rpc_resume(struct rpc *rpc);
