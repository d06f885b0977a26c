/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A stateful interpreter in a session: code after code in one process, so that a run finds the
 * state (variables, functions, the working directory) that the run before has left.
 *
 * Underneath it is a background execution of a driver, see drivers/: it shows in the history, lives
 * as long as the sandbox and is found again by the next daemon. While no code runs it does not keep
 * its session from being idle. A driver that is gone, for any reason, is replaced by the next run,
 * which reports it. Runs of one context wait for each other, in their order.
 */

#include "base/buffer.h"
#include "base/error.h"
#include "base/id.h"
#include "base/list.h"
#include "core/run/context/driver.h"
#include "core/run/execution.h"
#include "core/run/no_network.h"
#include "core/session/session.h"
#include "loop/loop.h"
#include "wire/json.h"

#define ID_CONTEXT "ctx_"

enum { CONTEXTS_MAXIMUM = 64 }; /* of a session */
enum { CONTEXT_CODE_MAXIMUM = 4 * 1024 * 1024, CONTEXT_MESSAGE_MAXIMUM = 16 * 1024 * 1024 };

enum context_run_state {
    RUN_WAITING, /* for others, or for the sandbox */
    RUN_ACTIVE,
    RUN_OK,
    RUN_ERROR, /* the code raised one */
    RUN_INTERRUPTED,
    RUN_TIMEOUT,
    RUN_CRASHED,   /* its interpreter has ended: see cause */
    RUN_CANCELLED, /* the context was restarted or removed, or the session has ended */
    RUN_FAILED,    /* it never ran: see err */
    RUN_STATES
};

/* Why an active run is being stopped; the first reason stays. */
enum context_run_stop {
    RUN_STOP_NONE,
    RUN_STOP_CANCELLED,
    RUN_STOP_TIMED_OUT,
};

const char *context_run_state_name(enum context_run_state state);

struct context;
struct context_record;
struct language;
struct context_run;

/* Called from the loop, never inside context_run_start(). */
struct context_handler {
    /* Whether the handler takes more now; when it does again, it calls context_run_resume(). */
    bool (*has_room)(const struct context_run *run);
    void (*on_output)(struct context_run *run, bool is_stderr, const void *data, size_t length);

    /* "display", "result" or "error": as the driver said it, an object without its type. */
    void (*on_message)(struct context_run *run, const char *type, const json_t *message);

    /* The handler has had no room for too long: it has to call context_run_leave(), or it may miss
     * output. */
    void (*on_stalled)(struct context_run *run);

    /* Once; the run is gone when this returns. */
    void (*on_done)(struct context_run *run);
};

struct context_run {
    struct context *context;               /* borrowed; NULL in on_done when it is being removed */
    const struct context_handler *handler; /* borrowed; NULL without a listener */
    void *user;
    enum context_run_state state;
    uint64_t number;  /* in its context, from 1; 0: it only starts the interpreter */
    int exit_code;    /* bash: of the last command; -1 without */
    struct error err; /* RUN_FAILED */
    char *cause;      /* owned; why the interpreter of this run ended, or NULL */
    char *replaced;   /* owned; why the interpreter before was gone at its beginning, or NULL */
    bool is_driver_killed; /* its interpreter ignored the interrupt; the next run gets a new one */
    unsigned dropped;      /* messages that were too large or malformed */
    const struct config_rule *warning; /* borrowed: the rule for commands that warns, or NULL */
    struct output_tail tail;           /* of both streams and of the error */
    int64_t duration_us;
    uint64_t bytes[2]; /* of stdout and stderr */

    /* private, here and below */
    struct list node; /* context->runs */
    struct session_hold hold;
    struct buffer input; /* for the driver, not written yet */
    struct timer timer;
    int64_t timeout_ms, began_us;
    enum context_run_stop stop;
    bool is_interrupted; /* SIGINT was sent: an error that follows is its consequence */
    bool is_stalled;
    unsigned interrupts; /* because of time or because it was cancelled */
    bool is_over[2];     /* stdout and stderr have reported its end */
    enum context_run_state end;
    char token[DRIVER_TOKEN_SIZE];
    struct context_record *record; /* owned; for the history; NULL when it only starts */
};

struct context_stream {
    struct context *context; /* borrowed */
    struct driver_parser parser;
    struct spool_follower follower;
    uint64_t offset;
    bool is_skipping; /* output of an earlier daemon's run, until the next run begins */
};

struct context {
    struct core *core;       /* borrowed */
    struct session *session; /* borrowed */
    struct list node;        /* *session_contexts(session) */
    char id[ID_SIZE];
    const struct language *language; /* borrowed */
    char *cwd, *env_json;            /* owned; may be NULL */
    struct stamp created;
    struct execution *execution; /* a reference: the driver; NULL without one */
    struct execution_watcher watcher;
    struct context_stream streams[2];
    struct list runs; /* the first one is running, or about to */
    uint64_t last_number;
    unsigned replacements;
    char *cause; /* owned; why the last driver has ended, NULL when the next run needs no new one */
    struct deferred next, release;
};

/* Python, bash or javascript; texts are copied. Its driver is started by the first run. */
struct context *context_new(struct session *session, const char *language, const char *cwd,
                            const char *env_json, struct error *err);

/* The context of this name and language, made if missing; the next daemon finds it again. */
struct context *context_open(struct session *session, const char *language, const char *name,
                             struct error *err);
struct context *context_find(const struct session *session, const char *id);

/* All runs of the context are cancelled and its process tree is killed. */
void context_remove(struct context *context);

/* A new interpreter replaces the old one; all runs of the context are cancelled. */
void context_restart(struct context *context);

/* As ^C: the code that runs ends with an error, the interpreter stays. */
int context_interrupt(struct context *context, struct error *err);

/* timeout_ms is -1 for exec.timeout, 0 for none; code NULL only starts the interpreter. NULL with
 * an error, or a run that ends with on_done. */
struct context_run *context_run_start(struct context *context, const char *code, size_t length,
                                      int64_t timeout_ms, const struct context_handler *handler,
                                      void *user, struct error *err);
void context_run_resume(struct context_run *run);

/* The warning for the caller when the run has ended, or NULL. The text of a rule for commands is
 * written to `text` (RULE_TEXT_SIZE). */
const char *context_run_warning(const struct context_run *run, char *text);

/* The listener leaves; with `cancels` the run is interrupted, or does not even begin. */
void context_run_leave(struct context_run *run, bool cancels);

/* Interrupts it, and kills the interpreter if that does not end it within exec.grace; on_done
 * comes.
 */
void context_run_cancel(struct context_run *run);

void context_write_json(const struct context *context, struct json_writer *json, const char *key);

/* --- called by sessions and executions -------------------------------------------------------- */

/* The execution of an earlier daemon is the driver of a context. */
void context_restore(struct session *session, struct execution *execution);

void contexts_end_all(struct session *session, const struct end_reason *reason);
void contexts_drop_all(struct core *core); /* for core_free(): no callbacks */
