/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One run of a program in a session.
 *
 *     queued → running → exited | timeout | output_limit | cancelled | crashed
 *
 * An execution is known in memory while it runs and while it has watchers; afterwards its record is
 * in the store and its output in the spool, both readable until retention. It holds a session_hold
 * while it is queued or running, so the session is never idle meanwhile.
 */

#include "agent/agent.h"
#include "base/error.h"
#include "base/id.h"
#include "base/list.h"
#include "core/execution_state.h"
#include "core/output/displays.h"
#include "core/output/spool.h"
#include "core/output/stream_order.h"
#include "core/session/session.h"

struct execution_request {
    const char *const *argv; /* exactly one of argv, command and code */
    const char *command;     /* shell text */
    const char *code;
    size_t code_length;
    const char *language;     /* with code: "python" or "bash" */
    const char *env_json;     /* object of texts, or NULL */
    const char *secrets_json; /* as env_json; the values are never shown */
    const char *cwd, *user;   /* NULL: defaults */
    const char *key;          /* the caller's own id; a repeated one returns the same execution */
    const char *tag;          /* the caller's own text, kept with the request; need not be unique */
    const char *stdin_data;   /* whole input, then end of file; NULL without */
    size_t stdin_length;
    bool wants_stdin; /* input comes later through execution_write_stdin() */
    bool terminal;
    unsigned columns, rows;
    bool background;
    bool needs_client;       /* it ends when it has no watcher any more */
    int64_t timeout_ms;      /* -1: the setting's default; 0: none */
    uint64_t generation;     /* 0: any */
    const char *output_full; /* "drop", "block" or "stop"; NULL: the setting's */
    const char *context_id;  /* code is the driver of this context; NULL otherwise */
};

/* Whether a request with `code` could be run in a new session: checked before a session is made for
 * it. */
int execution_check_code(const struct core *core, const struct execution_request *request,
                         struct error *err);

struct execution;
struct execution_watcher;
typedef void execution_watch_fn(struct execution_watcher *watcher);

/* on_change reports new output, room for input and state changes, at the end of the turn; embedded
 * by the watcher. */
struct execution_watcher {
    execution_watch_fn *on_change;
    struct execution *execution; /* borrowed, while it is linked */
    struct list node;
};

/* The role of an execution in its session. */
enum execution_kind {
    EXECUTION_FOREGROUND,
    EXECUTION_BACKGROUND, /* answered at once */
    EXECUTION_DRIVER,     /* of a context: it does not keep its session from being idle */
};

/* The facts of an execution; its record has most of them. Owned by the execution, texts too. */
struct execution_facts {
    char id[ID_SIZE], session_id[ID_SIZE], sandbox_id[ID_SIZE];
    char *key, *request_json, *error, *reason; /* may be NULL */
    enum execution_state state;
    enum execution_kind kind;
    uint64_t generation, number;    /* the number is its tag in init's protocol */
    int pid;                        /* inside the sandbox; 0 before it has started */
    int exit_code, signal;          /* -1 and 0 without one */
    bool files_were_reset;          /* the first execution after the sandbox was replaced */
    struct end_reason reset_reason; /* with that: the end of the sandbox before */
    int64_t timeout_ms, cpu_us;
    uint64_t max_rss_bytes;
    struct stamp created, started, ended;
    struct error start_error; /* why it never ran, as the caller's answer; ERR_NONE otherwise */
};

const struct execution_facts *execution_facts(const struct execution *execution);
struct session *execution_session(const struct execution *execution); /* NULL: gone from memory */

/* Its state is final and in the store, so that an answer may promise it. An end that the store fails
 * to take counts as well: the caller is not kept waiting for a disk that is full. on_change of the
 * watchers reports it. */
bool execution_has_ended(const struct execution *execution);

/* Borrowed. With a terminal there is one stream: the others are NULL. */
struct spool *execution_stdout(const struct execution *execution);
struct spool *execution_stderr(const struct execution *execution);
struct stream_order *execution_stream_order(const struct execution *execution);

/* Executions of a session that wait or run, oldest first. The busy ones keep the session from being
 * idle: drivers of contexts are not among them. The first busy one may be NULL. */
size_t executions_count(const struct session *session);
size_t executions_count_busy(const struct session *session);
const struct execution *executions_first_busy(const struct session *session);

/* Of the executions of a session that are in memory, the one behind `execution`; with NULL the oldest.
 * NULL at the end. */
struct execution *executions_next(const struct session *session, const struct execution *execution);

/* The execution exists (queued) when this returns; NULL when the request is wrong. The reference is
 * the session's. A key that the session knows in memory returns that execution; the caller has to
 * look first for an earlier execution in the store. */
struct execution *execution_start(struct session *session, const struct execution_request *request,
                                  struct error *err);

void execution_ref(struct execution *execution); /* keeps it in memory */
void execution_unref(struct execution *execution);

void execution_watch(struct execution *execution, struct execution_watcher *watcher,
                     execution_watch_fn *on_change);
void execution_unwatch(struct execution_watcher *watcher);

/* The secrets that are masked in its output for readers other than its caller; NULL without
 * secrets. */
struct mask *execution_mask(const struct execution *execution);

/* In memory only; NULL otherwise. */
struct execution *execution_find(struct core *core, const char *session_id, const char *id);

/* The running execution with this id, for a program that belongs to it; NULL once it has ended. */
struct execution *execution_find_running(const struct core *core, const char *id);
struct execution *execution_find_key(const struct session *session, const char *key);

/* The number of bytes accepted (0 when the pipe is full: on_change comes when it has room); -1 when
 * the execution has no stdin. They arrive, unless the program or the daemon ends before. */
ssize_t execution_write_stdin(struct execution *execution, const void *data, size_t length,
                              struct error *err);
int execution_close_stdin(struct execution *execution, struct error *err);

/* The end of the input that was accepted and has to arrive; 0 where it is inside at once. */
uint64_t execution_stdin_end(const struct execution *execution);

/* Whether the input up to that end has arrived: 1, or 0 when it is under way: on_change comes; -1 when
 * it will not arrive any more. */
int execution_stdin_is_taken(const struct execution *execution, uint64_t offset, struct error *err);

/* After execution_close_stdin(): whether a daemon that is killed now has closed it. False: on_change
 * comes. */
bool execution_stdin_has_ended(const struct execution *execution);

/* Bytes of input that are inside the sandbox since its start, and that were accepted beyond these.
 * False when it takes none, or the number is not known: an earlier daemon has written some. */
bool execution_stdin_count(const struct execution *execution, uint64_t *out_taken,
                           uint64_t *out_pending);
int execution_signal(struct execution *execution, int signal_number, bool tree, struct error *err);
int execution_resize(struct execution *execution, unsigned columns, unsigned rows,
                     struct error *err);

/* TERM to the whole tree, KILL after exec.grace; ends as cancelled. */
void execution_cancel(struct execution *execution);

/* The client that waited for it has left: cancels it, unless it has ended, or it is the daemon that
 * leaves and the next one takes it over. */
void execution_abandon(struct execution *execution);

/* --- called by the sandbox that owns the agent ------------------------------------------------ */

/* By the number that init knows it by; NULL when it is not in memory. */
struct execution *executions_find_number(const struct session *session, uint64_t number);

void executions_on_exited(struct session *session, uint64_t number, const struct agent_exit *end);

/* So many bytes of its input are inside the sandbox. */
void executions_on_taken(struct session *session, uint64_t number, uint64_t total);

/* After a restart of the daemon: init remembers this process. An unknown one is killed and
 * forgotten. */
void executions_on_process(struct session *session, uint64_t number, int pid,
                           const struct agent_pipes *pipes, const struct agent_exit *end);

/* Init has reported every process that it remembers; running records without a process ended with
 * the sandbox. */
void executions_on_listed(struct session *session);

/* At recovery: makes the running execution of a record known again, waiting for
 * executions_on_process(). */
struct execution *execution_restore(struct session *session, const struct execution_record *record);

/* The session is ending: every running execution ends with this reason; finished executions leave
 * memory when unwatched. */
void executions_end_all(struct session *session, const struct end_reason *reason);

/* --- afterwards ------------------------------------------------------------------------------- */

/* The spool of a stream of an execution that is no longer in memory; the caller frees it. */
struct spool *execution_open_output(struct core *core, const struct execution_record *record,
                                    bool is_stderr);

/* Keeps a display of its code, see core/output/displays.h, as part of its output: false when it is
 * too large, or the quotas of output leave no room. */
bool execution_keep_display(struct execution *execution, const char *type, const void *data,
                            size_t length, char out_hash[DISPLAY_HASH_SIZE]);

/* The order of both streams of an execution that is no longer in memory. */
struct stream_order *execution_open_stream_order(struct core *core, const char *id,
                                                 const struct spool *out, const struct spool *err);

/* The store has lost records of executions: all executions that are not over are written again. */
void executions_repair(struct core *core);

/* Saves the records of running executions that have lost output: the next daemon continues at the
 * recorded end. */
void executions_save_incomplete(struct core *core);

/* For core_free(): all executions leave memory, nothing else happens to them. */
void executions_drop_all(struct core *core);

/* The warning of a rule for commands, allocated; NULL when no rule warns. */
/* {"code","message","hint","retryable"} of what went wrong with an execution; null without a text. */
void execution_write_error(struct json_writer *json, const char *key, const char *state,
                           int exit_code, const char *text);

char *execution_warning(const struct execution *execution);

void execution_write_json(struct execution *execution, struct json_writer *json, const char *key,
                          bool with_output);

/* The values of `secrets` are taken out of the output; NULL for none. */
void execution_record_write_json(const struct execution_record *record, struct core *core,
                                 struct json_writer *json, const char *key, bool with_output,
                                 const struct mask *secrets);
