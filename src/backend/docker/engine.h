/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Client of the Docker Engine API, which Podman serves too: requests with JSON answers, the stream
 * of events, pulling an image, and a program in a container with its input and output as a socket.
 *
 * Everything is asynchronous on the loop. The objects below are embedded by the caller, zeroed
 * before the first use, and kept until `done` or the cancelling function; `done` comes once, from
 * the loop, never inside the call that started the work. In it the object may be freed or used
 * again. Cancelling an object that is not under way does nothing.
 *
 * The version of the API is negotiated by GET /_ping before the first request, and again after the
 * connection has failed, because another engine may listen there now. Requests that come meanwhile
 * wait for it, and fail with it.
 *
 * Errors: an answer of 400 and above has the engine's own words as its message (ERR_INVALID 400,
 * ERR_UNAUTHORIZED 401, ERR_FORBIDDEN 403, ERR_NOT_FOUND 404, ERR_CONFLICT 409, ERR_LIMIT 429,
 * ERR_NO_SPACE where the message is about a full disk, otherwise ERR_BACKEND). An engine that
 * cannot be reached or does not answer in time is ERR_UNAVAILABLE with a hint that names the remedy
 * and, for a failed connection, with sys_errno. An answer that is not an engine's (HTML, cut off,
 * endless, a status without words in JSON, as proxies give it) is ERR_BACKEND: it says nothing
 * about a container. Podman's 500 for a name that is taken or a container in the wrong state is
 * ERR_CONFLICT, as it is in Docker.
 */

#include "base/error.h"
#include "base/scoped.h"
#include "loop/loop.h"
#include "wire/http/http.h"

#include <jansson.h>

struct engine;

struct engine_options {
    struct loop *loop; /* borrowed */
    const char *host;  /* unix:///PATH, unix:PATH, tcp://HOST[:PORT], http[s]://HOST[:PORT] */
    /* PEM files, "" or NULL: none. One of them is enough to make tcp:// mean TLS. */
    const char *ca;          /* trusted instead of the system's authorities */
    const char *certificate; /* shown to the engine, with its key */
    const char *key;
};

/* The options are copied. NULL: the address or a file is unusable. Nothing is connected yet. */
struct engine *engine_new(const struct engine_options *options, struct error *err);

/* Cancels everything without reporting it, and ends the streams of execs. Not from a callback of
 * the engine. NULL is fine. */
void engine_free(struct engine *engine);
SCOPED_DEFINE(engine_free, struct engine);

const char *engine_host(const struct engine *engine);    /* as given */
bool engine_is_unix(const struct engine *engine);        /* a unix socket of this host */
const char *engine_version(const struct engine *engine); /* negotiated, "1.41"; or "" */

/* --- one request ----------------------------------------------------------------------------- */

struct engine_call;
typedef void engine_done_fn(struct engine_call *call);

struct engine_call {
    engine_done_fn *done;
    int status; /* 0 when no answer came */
    /* The answer; NULL when it is empty or another type of content. Borrowed and valid until `done`
     * returns: json_incref() keeps it. Where an answer has a counter over 2^63, all its numbers are
     * reals: read those that matter with json_number_value(). */
    json_t *body;
    struct error err; /* ERR_NONE for 2xx and 304 */

    void *private; /* the module's own; NULL while it is not under way */
};

/*
 * `path` is without the prefix of the version, with its escapes: "/containers/json?all=1" (see
 * http_escape()). `content_type` NULL: JSON. The body is copied; NULL with 0 is none. `timeout_ms`
 * runs from now to the end of the answer; 0 is no limit.
 */
void engine_request(struct engine *engine, struct engine_call *call, enum http_method method,
                    const char *path, const char *content_type, const void *body,
                    size_t body_length, int64_t timeout_ms, engine_done_fn *done);
void engine_cancel(struct engine_call *call);

/* The next request is not sent on a connection that is open already: it shows whether the engine
 * listens. */
void engine_connect_anew(struct engine *engine);

/* Whether the call is under way; false in `done`. */
static inline bool engine_is_asked(const struct engine_call *call)
{
    return call->private;
}

/* Classifies a failure by the message of the engine or of its runtime. */
bool engine_error_says(const struct error *err, const char *words);
bool engine_refused_name(const struct engine_call *call);    /* a container has it */
bool engine_refused_mount(const struct engine_call *call);   /* it does not see our files */
bool engine_refused_profile(const struct engine_call *call); /* it takes that for a path */
bool engine_refused_rlimit(const struct engine_call *call);  /* its runtime may not set one */

/* --- events ---------------------------------------------------------------------------------- */

struct engine_events;

struct engine_events_handler {
    /* The stream is open: list the objects now, to find missed changes. */
    void (*on_up)(struct engine_events *events);
    /* The event as the engine sends it; borrowed. It may be older than on_up, and its effect may be
     * in the list of on_up already. */
    void (*on_event)(struct engine_events *events, json_t *event);
    /* The stream has ended, or could not be opened; on_up follows when it is open again. May come
     * several times in a row. */
    void (*on_down)(struct engine_events *events, const struct error *err);
};

struct engine_events {
    const struct engine_events_handler *handler; /* borrowed */
    void *private;                               /* the module's own; NULL while stopped */
};

/* Events that this filter lets through ("label" and "sandglass.instance=NAME", or "type" and
 * "image"), until engine_events_stop(); connects again by itself. Callbacks may stop it. */
void engine_events_start(struct engine *engine, struct engine_events *events, const char *key,
                         const char *value, const struct engine_events_handler *handler);
void engine_events_stop(struct engine_events *events);
bool engine_events_are_up(const struct engine_events *events); /* the stream is open */

/* --- pulling an image ------------------------------------------------------------------------ */

struct engine_pull;
typedef void engine_pull_fn(struct engine_pull *pull);

struct engine_pull {
    engine_pull_fn *done;
    engine_pull_fn *on_progress; /* for every line of the engine: throttle it; may be NULL */
    struct error err;            /* ERR_NONE on success */
    uint64_t done_bytes;         /* of all layers that are known so far */
    uint64_t total_bytes;        /* grows while the engine finds layers; 0: not known */

    void *private; /* the module's own; NULL while it is not under way */
};

/*
 * `repository` and `tag` are as image_ref_parse() gives them; the tag may be a digest
 * ("sha256:…"). When the engine reports nothing for `stall_timeout_ms`, the pull fails as
 * ERR_UNAVAILABLE; 0 is no limit.
 */
void engine_pull_start(struct engine *engine, struct engine_pull *pull, const char *repository,
                       const char *tag, int64_t stall_timeout_ms, engine_pull_fn *on_progress,
                       engine_pull_fn *done);
void engine_pull_cancel(struct engine_pull *pull);

/* --- a program in a container, as a stream --------------------------------------------------- */

struct engine_exec;
typedef void engine_exec_fn(struct engine_exec *exec);

struct engine_exec {
    engine_exec_fn *done;
    int fd;           /* the receiver's to own; -1 when it failed */
    struct error err; /* ERR_NONE on success */

    void *private; /* the module's own; NULL while it is not under way */
};

/*
 * Starts a program in a running container and gives a connected, non-blocking stream socket: writes
 * go to its standard input, reads come from its standard output; standard error is dropped.
 * shutdown() closes the input. The stream ends when the program does, and when either side is
 * closed; the program notices it by the end of its input alone. `argv` and `env` end with NULL. The
 * program has the variables of the container; those of `env` ("NAME=value") override them; NULL:
 * none. `user` NULL is that of the container. A program that the engine cannot start gives a stream
 * as well: the engine writes its reason there and ends it.
 */
void engine_exec_open(struct engine *engine, struct engine_exec *exec, const char *container,
                      const char *const *argv, const char *const *env, const char *user,
                      int64_t timeout_ms, engine_exec_fn *done);

/*
 * The same with the first program of a container that is not yet started: its output is read from
 * the first byte on. The container has to have an open input ("OpenStdin").
 */
void engine_exec_attach(struct engine *engine, struct engine_exec *exec, const char *container,
                        int64_t timeout_ms, engine_exec_fn *done);

/* Before `done`; a stream that was given is ended by closing it. */
void engine_exec_cancel(struct engine_exec *exec);
