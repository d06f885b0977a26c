/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Inside of the engine's client.
 *
 * A *flight* is one exchange: it waits for the version of the API, becomes a call of HTTP, and ends
 * with success or with the error that the user of the client sees. Requests, events, pulls and
 * execs each have a flight inside and know nothing of versions, statuses and unreachable engines.
 *
 * All that the engine owns is linked into engine->flights, each object by the flight inside it, so
 * that engine_free() finds everything.
 */

#include "backend/docker/engine.h"
#include "base/buffer.h"
#include "base/list.h"
#include "net/http_client.h"
#include "wire/json.h"

enum { NS_PER_S = 1000 * 1000 * 1000 };

enum {
    ENGINE_ANSWER_MAXIMUM = 16 * 1024 * 1024,
    ENGINE_LINE_MAXIMUM = 64 * 1024,
    ENGINE_CONNECT_TIMEOUT_MS = 30 * 1000, /* until a stream is open, and for the version */
};

/* --- engine_flight.c ------------------------------------------------------------------------- */

struct engine_flight;

struct engine_flight_ops {
    /* Where flight_request.path is NULL: asked when the version is known; allocated. */
    char *(*make_path)(struct engine_flight *flight);
    /* For an answer of success: 2xx, 304, or that to an upgrade; may be NULL. */
    void (*on_head)(struct engine_flight *flight, const struct http_head *head);
    void (*on_data)(struct engine_flight *flight, const uint8_t *data, size_t length);
    void (*on_writable)(struct engine_flight *flight); /* of an upgraded one; may be NULL */
    /* Once for each engine_flight_send(), last; NULL is success. Each of the callbacks may free. */
    void (*on_end)(struct engine_flight *flight, const struct error *err);
    /* The object around the flight, and the flight with engine_flight_fini(). */
    void (*free)(struct engine_flight *flight);
};

struct flight_request {
    enum http_method method;
    bool is_unversioned;      /* the path is used as it is */
    bool upgrades;            /* to a plain stream of bytes */
    const char *path;         /* borrowed, as are the next two; NULL: see make_path */
    const char *content_type; /* NULL: none */
    const void *body;
    size_t body_length;
};

enum flight_state {
    FLIGHT_IDLE,    /* before engine_flight_send(), and after on_end */
    FLIGHT_WAITING, /* for the version: `kept` is the request */
    FLIGHT_CALLING, /* `http` is there */
    FLIGHT_REFUSED, /* the answer is an error, and its body comes */
};

/* Podman leaves the type of some answers out. */
enum flight_content { CONTENT_OTHER, CONTENT_JSON, CONTENT_UNNAMED };

struct engine_flight {
    const struct engine_flight_ops *ops; /* borrowed */
    struct engine *engine;               /* borrowed */
    struct list node;                    /* of engine->flights */
    struct list waiting;                 /* of engine->waiting */
    enum flight_state state;
    struct http_call *http; /* borrowed from the client */
    struct timer timer;
    int64_t timeout_ms;
    int status; /* 0 before the head of the answer */
    enum flight_content content;
    struct flight_request kept; /* owned copies; empty unless it waits */
    struct buffer refusal;      /* the body of an error */
};

void engine_flight_init(struct engine_flight *flight, struct engine *engine,
                        const struct engine_flight_ops *ops);
void engine_flight_fini(struct engine_flight *flight); /* cancels it; on_end does not come */

/* Starts an idle flight. The data of the request is copied. For the timeout see
 * engine_flight_set_timeout(). */
void engine_flight_send(struct engine_flight *flight, const struct flight_request *request,
                        int64_t timeout_ms);

/* From now, and for the whole flight: it fails then. 0: never. */
void engine_flight_set_timeout(struct engine_flight *flight, int64_t timeout_ms);

/* Ends the flight with an error: on_end comes before this returns. */
void engine_flight_fail(struct engine_flight *flight, const struct error *err);

/* --- engine.c -------------------------------------------------------------------------------- */

enum version_state { VERSION_UNKNOWN, VERSION_ASKED, VERSION_KNOWN };

enum { ENGINE_VERSION_SIZE = 16 };

struct engine {
    struct loop *loop;        /* borrowed */
    char *host;               /* owned, as given */
    bool is_unix;             /* a socket of this host */
    struct http_client *http; /* owned */
    struct list flights;      /* of everything that is owned */
    struct list waiting;      /* flights that wait for the version */
    enum version_state version_state;
    char version[ENGINE_VERSION_SIZE];
    int64_t date_s;            /* by the engine's clock, when the version was asked; 0: unknown */
    struct engine_flight ping; /* asks for the version */
    uint8_t *scratch;          /* owned: buffer for the input of execs */
};

/* Asks for the version unless that is under way; the waiting flights continue with the answer. */
void engine_ask_version(struct engine *engine);

/* Another engine may listen now: the next flight negotiates the version again. */
void engine_forget_version(struct engine *engine);

/* Sends the waiting flights, or fails them. For engine.c and engine_flight.c. */
void engine_flight_release(struct engine_flight *flight, const struct error *err);

/* --- engine_error.c -------------------------------------------------------------------------- */

/* The error of an answer with a status of failure. */
void engine_error_from_answer(struct error *err, const struct engine_flight *flight);

/* The error of the HTTP client, with the engine's address and a remedy. */
void engine_error_from_http(struct error *err, const struct engine *engine,
                            const struct error *cause);

/* Words of the engine for a message: without control characters, of bounded length. */
enum { ENGINE_TEXT_SIZE = 304 };
void engine_text_clean(const char *text, char out_text[ENGINE_TEXT_SIZE]);

/* --- engine_json.c --------------------------------------------------------------------------- */

/* Any document; NULL when it is malformed. */
json_t *engine_json_read(const void *data, size_t length);

/* A stream of JSON objects, one in each line. */
struct engine_lines;

struct engine_lines *engine_lines_new(void);
void engine_lines_free(struct engine_lines *lines);  /* also from on_line */
void engine_lines_clear(struct engine_lines *lines); /* drops buffered bytes; not from on_line */

typedef void engine_line_fn(void *context, json_t *line);

/* Gives each whole line to `on_line`; once that has freed the lines, no more of them. -1: a line is
 * no JSON object or too long, and the lines are still there. */
int engine_lines_feed(struct engine_lines *lines, const void *data, size_t length,
                      engine_line_fn *on_line, void *context, struct error *err);
