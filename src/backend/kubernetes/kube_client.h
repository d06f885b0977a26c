/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Client of a Kubernetes API server: requests with JSON answers, one list that is watched, and a program
 * in a pod with its input and output as a socket.
 *
 * Everything is asynchronous on the loop. The objects below are embedded by the caller, zeroed before
 * the first use, and kept until `done` or the cancelling function; `done` comes once, from the loop,
 * never inside the call that started the work. In it the object may be freed or used again. Cancelling
 * an object that is not under way does nothing.
 *
 * A token of a file is read again once a minute and when the server says 401; certificates in files are
 * when they have been replaced. An answer of 429, or of
 * 503 with Retry-After, is waited for as long as the server asks, within the timeout of the request.
 *
 * Errors: the server's own words are the message, and `status` tells what it answered. A quota that is
 * used up is ERR_LIMIT ("quota_exceeded"), a request that RBAC or an admission plugin refuses ERR_BACKEND
 * ("kubernetes_forbidden"), a login that fails ERR_BACKEND ("kubernetes_unauthorized"), as no user of the
 * daemon could mend it. A server that cannot be reached, that fails (5xx) or does not answer in time is
 * ERR_UNAVAILABLE ("kubernetes_unavailable"): that says nothing about a pod.
 */

#include "backend/kubernetes/kube_config.h"
#include "base/error.h"
#include "base/scoped.h"
#include "loop/loop.h"
#include "wire/http/http.h"

#include <jansson.h>

struct kube_client;

struct kube_client_options {
    struct loop *loop;          /* borrowed */
    struct kube_config *config; /* taken over: it is empty afterwards */
    const char *namespace;      /* copied */
    const char *state_path;     /* where certificates lie for the moment in which they are read */
};

/* NULL: a file is unusable. Nothing is connected yet. */
struct kube_client *kube_client_new(const struct kube_client_options *options, struct error *err);

/* Cancels everything without reporting it, and ends the streams of execs. Not from a callback of the
 * client. NULL is fine. */
void kube_client_free(struct kube_client *client);
SCOPED_DEFINE(kube_client_free, struct kube_client);

const char *kube_client_url(const struct kube_client *client);
const char *kube_client_namespace(const struct kube_client *client);

/* --- one request ------------------------------------------------------------------------------ */

struct kube_call;
typedef void kube_done_fn(struct kube_call *call);

struct kube_call {
    kube_done_fn *done;
    int status; /* 0 when no answer came */
    /* The answer; NULL when there is none. Borrowed and valid until `done` returns. */
    json_t *body;
    struct error err; /* ERR_NONE for 2xx */

    void *private; /* the module's own; NULL while it is not under way */
};

/* `path` has its escapes, and begins with /api or /apis. The body is JSON and copied; NULL is none.
 * `timeout_ms` runs from now to the end of the answer, with all repetitions. */
void kube_request(struct kube_client *client, struct kube_call *call, enum http_method method,
                  const char *path, const char *body, int64_t timeout_ms, kube_done_fn *done);

/* A GET whose answer has only the metadata of the object, where the server can leave the rest out. */
void kube_request_metadata(struct kube_client *client, struct kube_call *call, const char *path,
                           int64_t timeout_ms, kube_done_fn *done);
void kube_cancel(struct kube_call *call);

/* Whether it is under way; not in `done`. */
static inline bool kube_is_asked(const struct kube_call *call)
{
    return call->private;
}

/* --- a list that is watched ------------------------------------------------------------------- */

struct kube_watch;

struct kube_watch_handler {
    /* An object is there, or has changed; or it was deleted, and this is the last of it. Borrowed. */
    void (*on_object)(struct kube_watch *watch, const json_t *object, bool is_deleted);
    /* A whole list has been told by on_object since on_list_begin: others do not exist. */
    void (*on_list_begin)(struct kube_watch *watch);
    void (*on_list_end)(struct kube_watch *watch);
    /* The server gives no list, or no stream: may come several times in a row. */
    void (*on_down)(struct kube_watch *watch, const struct error *err);
};

struct kube_watch {
    const struct kube_watch_handler *handler; /* borrowed */
    void *private;                            /* the module's own; NULL while stopped */
};

/* Lists the objects at `path` that the selector lets through, and watches them from there on, until
 * kube_watch_stop(). A stream that has ended goes on where it stopped; where the server no longer knows
 * that place, the list is read again. Not stopped from its own callbacks. */
void kube_watch_start(struct kube_client *client, struct kube_watch *watch, const char *path,
                      const char *selector, const struct kube_watch_handler *handler);
void kube_watch_stop(struct kube_watch *watch);
bool kube_watch_is_up(const struct kube_watch *watch); /* what it told is current */

/* --- a program in a pod, as a stream ---------------------------------------------------------- */

struct kube_exec;
typedef void kube_exec_fn(struct kube_exec *exec);

struct kube_exec {
    kube_exec_fn *done;
    int fd;           /* the receiver's to own; -1 when it failed */
    int status;       /* of the server's answer; 0 without one */
    struct error err; /* ERR_NONE on success */

    void *private; /* the module's own; NULL while it is not under way */
};

/*
 * Starts a program in a container of a running pod, and gives a connected stream socket that does not
 * block: what is written there is its standard input, what is read is its standard output. The stream
 * ends when the program or the connection does; the program notices it by the end of its input.
 * `argv` ends with NULL.
 */
void kube_exec_open(struct kube_client *client, struct kube_exec *exec, const char *pod,
                    const char *container, const char *const *argv, int64_t timeout_ms,
                    kube_exec_fn *done);

/* Before `done`; a stream that was given is ended by closing it. */
void kube_exec_cancel(struct kube_exec *exec);
