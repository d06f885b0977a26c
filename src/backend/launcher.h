#pragma once

/*
 * The daemon's end of the launcher: starts it from the bytes that this program carries, sets it up,
 * and sends it requests. Started while the daemon still has the rights of who started it; the
 * launcher and its keeper are the only ones that keep them.
 *
 * One that dies is replaced, with back-off (see keeper.h). Requests wait meanwhile, and those that
 * it was asked are asked again, except for creating, which fails and may be tried again: what is
 * half made has to be destroyed first. No request waits for longer than half a minute.
 */

#include "base/error.h"
#include "base/list.h"
#include "loop/loop.h"
#include "wire/launch.h"

#include <stdbool.h>
#include <sys/types.h>

struct config;
struct launcher;

/* What the launcher calls a template that sandbox.template names by its path. */
#define LAUNCHER_CONFIGURED_TEMPLATE "configured"

struct launcher_options {
    struct loop *loop;           /* borrowed */
    const struct config *config; /* borrowed */
    const char *state_path;      /* borrowed: an existing directory */
    uid_t uid;                   /* who the daemon is going to be */
    gid_t gid;
};

/* Waits until the launcher is set up. NULL on error. */
struct launcher *launcher_start(const struct launcher_options *options, struct error *err);

/* The launcher ends; sandboxes go on. Open calls are answered with NULL. NULL is fine. */
void launcher_stop(struct launcher *launcher);

/* What this host allows. */
const struct launch_host *launcher_host(const struct launcher *launcher);
pid_t launcher_pid(const struct launcher *launcher);

/* Whether it is there: -1 with the reason while it is not. */
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
    /* As it is sent, and sent again. */
    _Alignas(struct launch_header) unsigned char message[sizeof(struct launch_create)];
};

/* `message` begins with a header, which is filled in here. `done` comes from the loop. */
void launcher_send(struct launcher *launcher, struct launcher_call *call, enum launch_type type,
                   void *message, size_t length, launcher_done_fn *done);

/* The answer will not be looked at; a pidfd that still comes is closed. */
void launcher_cancel(struct launcher *launcher, struct launcher_call *call);

/* An answer with an error as one for people; -1. */
int launcher_error(const struct launch_reply *reply, const char *what, struct error *err);
