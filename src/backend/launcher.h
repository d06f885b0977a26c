/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The daemon's end of the launcher: starts it from the bytes that this program carries, sets it up,
 * and sends it requests. The launcher is started while the daemon still has the rights of its user;
 * only the launcher and its keeper retain them.
 *
 * A launcher that dies is replaced, with back-off (see keeper.h). Requests wait meanwhile, and
 * unanswered ones are sent again, except for CREATE, which fails and may be retried: a half-made
 * sandbox must be destroyed first. No request waits for longer than half a minute.
 */

#include "base/error.h"
#include "base/list.h"
#include "loop/loop.h"
#include "wire/launch.h"

#include <stdbool.h>
#include <sys/types.h>

struct config;
struct launcher;

/* The launcher's name for a template that sandbox.template gives as a path. */
#define LAUNCHER_CONFIGURED_TEMPLATE "configured"

struct launcher_options {
    struct loop *loop;           /* borrowed */
    const struct config *config; /* borrowed */
    const char *state_path;      /* borrowed: an existing directory */
    uid_t uid;                   /* of the daemon when it serves */
    gid_t gid;
};

/* Waits until the launcher is set up. NULL on error. */
struct launcher *launcher_start(const struct launcher_options *options, struct error *err);

/* The launcher ends; sandboxes go on. Open calls are answered with NULL. NULL is fine. */
void launcher_stop(struct launcher *launcher);

/* Features of this host. */
const struct launch_host *launcher_host(const struct launcher *launcher);
pid_t launcher_pid(const struct launcher *launcher);

/* -1 with the reason while the launcher is not running. */
int launcher_check(const struct launcher *launcher, struct error *err);

struct launcher_call;

/* `reply` is NULL when the launcher is gone; the receiver owns the pidfd, -1 for none. A list calls
 * it several times, until `more` is 0. */
typedef void launcher_done_fn(struct launcher_call *call, const struct launch_reply *reply,
                              int pidfd);

/* Embedded by the caller and kept until `done`. */
struct launcher_call {
    struct list link;
    uint64_t tag;
    enum launch_type type;
    launcher_done_fn *done;
    size_t length;
    /* The request, also for sending it again. */
    _Alignas(struct launch_header) unsigned char message[sizeof(struct launch_create_bound)];
};

/* `message` begins with a header, which is filled in here. `done` comes from the loop. */
void launcher_send(struct launcher *launcher, struct launcher_call *call, enum launch_type type,
                   void *message, size_t length, launcher_done_fn *done);

/* The answer will not be looked at; a pidfd that still comes is closed. */
void launcher_cancel(struct launcher *launcher, struct launcher_call *call);

/* An answer with an error as one for people; -1. */
int launcher_error(const struct launch_reply *reply, const char *what, struct error *err);
