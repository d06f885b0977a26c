#pragma once

/*
 * Inside of executions: what execution*.c share.
 *
 *     execution.c         the object: references, watchers, its record, its end
 *     execution_spawn.c     the run: from the request to init and back, and stopping it
 *     execution_request.c   the request becomes an execution
 *     execution_prepare.c  what is run: arguments, environment, script
 *     execution_stdin.c   input
 *     execution_recover.c after a restart: records meet what init remembers
 *     execution_json.c    as the API shows it
 */

#include "base/buffer.h"
#include "core/run/execution.h"
#include "core/run/execution_prepare.h"
#include "core/sandbox/sandbox.h"
#include "core/shares.h"

struct execution {
    struct execution_facts facts;
    struct share share, terminal_share; /* while it waits or runs */
    struct core *core;                  /* borrowed */
    struct session *session;            /* borrowed; NULL once the session is gone from memory */
    struct list node;                   /* *session_executions(session) */
    struct list watchers;
    struct mask *mask; /* a reference; outlives the session; NULL without secrets */
    bool terminal;
    bool needs_client; /* see struct execution_request */
    enum spool_full output_full;
    struct spool *out, *err;         /* owned; err is NULL with a terminal */
    struct spool_share *spool_share; /* borrowed; NULL while nothing was written, and at the end */
    struct execution_loss *loss;     /* owned; NULL unless lost output is being recorded */
    struct stream_order *order;      /* owned; NULL with a terminal */
    struct execution_run *run;       /* owned: what is needed only while it runs */
    unsigned references;
    struct deferred notify, release;
    struct timer alone; /* armed while one that needs a client has none */
};

/* --- the run --------------------------------------------------------------------------------- */

enum stop_stage {
    STOP_NONE,
    STOP_START, /* init has not answered its start yet, or after a restart not listed it */
    STOP_TERM,
    STOP_KILL
};

/* For the client of an execution that needs one: after its connection broke, to come with its first
 * one, and after a restart of the daemon. */
enum {
    CLIENT_PATIENCE_US = 2 * 1000 * 1000,
    CLIENT_FIRST_PATIENCE_US = 10 * 1000 * 1000,
    CLIENT_RESTART_PATIENCE_US = 30 * 1000 * 1000,
};

enum { SIGNAL_QUEUE = 16, STDIN_MAXIMUM = 8 * 1024 * 1024 };

struct execution_signal {
    int number;
    enum protocol_scope scope;
};

struct execution_run {
    struct execution *execution; /* borrowed */
    struct session_hold hold;
    bool in_use;
    const struct language *language; /* of the code it runs, or NULL: more of it may follow */
    struct program program;          /* until it is attached */
    struct agent_request start;
    uint64_t generation; /* the one asked for; 0 for any */
    unsigned repeats;    /* uses begun again, because init never saw the start */
    bool starting;       /* init has not answered yet */
    bool attached;       /* its pipes are ours */
    bool is_listed;      /* init said that it remembers it, since the last connection */

    struct timer clock; /* timeout, from the request on; then the grace, then giving up */
    enum stop_stage stop;
    int64_t asked_us;            /* when init was to answer, in STOP_START and STOP_KILL */
    enum execution_state wanted; /* how it ends when it was stopped; RUNNING when it was not */
    bool is_tree_left;           /* the program has ended; the rest of its tree is being killed */

    struct agent_request signal;
    bool signalling;
    struct execution_signal signals[SIGNAL_QUEUE]; /* not sent yet */
    unsigned signal_count;

    struct backend_op inspect; /* was it the OOM killer? */
    bool inspecting;

    bool ending; /* the state below is set; output is being completed */
    enum execution_state end_state;
    struct agent_exit end; /* code -1 without one */
    bool recorded;         /* the end is committed */
    bool recording;
    struct store_ticket ticket;
    uint64_t recorded_bytes; /* of both streams, in the record */

    unsigned columns, rows;
    bool is_resized; /* while it was being started */
    bool wants_stdin;
    int stdin_fd; /* owned; -1 without */
    struct io_watch stdin_ready;
    struct buffer stdin_data; /* from the request, not written yet */
    size_t stdin_written;
    bool stdin_ends;   /* end of file follows the data */
    bool stdin_closed; /* no more input is taken */
};

struct execution_run *execution_run_new(struct execution *execution);
void execution_run_free(struct execution_run *run);

/* --- execution.c ----------------------------------------------------------------------------- */

struct execution *execution_new(struct session *session, const char *id);

/* Both streams of a program that runs or ran; the files are found again by the id. What its record,
 * NULL without one, knows of and they do not have is lost. */
void execution_open_outputs(struct execution *execution, const struct execution_record *record);

/* One that needs a client is cancelled when none comes in that time. */
void execution_expect_client(struct execution *execution, int64_t patience_us);

void execution_changed(struct execution *execution); /* watchers are told at the end of the turn */
void execution_save(struct execution *execution);

/* Ends it: output is completed, then it is recorded and everybody is told. `reason` may be NULL. */
void execution_begin_end(struct execution *execution, enum execution_state state,
                         const char *reason);

/* Goes on with the end as far as it can go now. */
void execution_continue_end(struct execution *execution);

/* --- execution_spawn.c ------------------------------------------------------------------------- */

void execution_hold_ready(struct session_hold *hold);
void execution_use_lost(struct session_hold *hold);
/* TERM to the whole tree, KILL after exec.grace; it ends in that state. */
void execution_stop(struct execution *execution, enum execution_state as);
void execution_arm_timeout(struct execution *execution);
/* With `has_ended` output is taken when the end is, which follows. */
void execution_attach(struct execution *execution, const struct agent_pipes *pipes, bool has_ended);
/* Init has it: it started now, at the latest. */
void execution_note_start(struct execution *execution);
void execution_on_exit(struct execution *execution, const struct agent_exit *end);
void execution_queue_signal(struct execution *execution, int number, enum protocol_scope scope);
void execution_send_signals(struct execution *execution);

/* The run ends now, for the outside: nothing of it is called back any more. */
void execution_leave_sandbox(struct execution *execution);

/* --- execution_stdin.c ----------------------------------------------------------------------- */

void execution_stdin_attach(struct execution_run *run, const struct agent_pipes *pipes);
void execution_stdin_detach(struct execution_run *run);
