/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Inside of executions: declarations shared by execution*.c.
 *
 *     execution.c          the object: references, watchers, its record
 *     execution_request.c  a request becomes an execution
 *     execution_prepare.c  first step of its start: arguments, environment, script
 *     execution_spawn.c    second step: the request to init, and its answer
 *     execution_attach.c   third step: its streams are followed
 *     execution_stdin.c    input
 *     execution_output.c   the spools of its streams
 *     execution_control.c  signals, the size of its terminal, stopping it
 *     execution_end.c      from the exit of the program to the record
 *     execution_recover.c  after a restart: records meet what init remembers
 *     execution_json.c     as the API shows it
 */

#include "base/buffer.h"
#include "core/run/execution.h"
#include "core/run/execution_prepare.h"
#include "core/sandbox/sandbox.h"
#include "core/shares.h"

struct execution_output {
    struct spool *out, *err;     /* owned; err is NULL with a terminal */
    struct stream_order *order;  /* owned; NULL with a terminal */
    struct spool_share *share;   /* borrowed; NULL while nothing was written, and at the end */
    struct execution_loss *loss; /* owned; NULL unless lost output is being recorded */
    enum spool_full full;
};

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
    struct execution_output output;
    struct execution_run *run; /* owned: state that is needed only while it runs */
    unsigned references;
    struct deferred notify, release;
    struct timer alone; /* armed while a client is needed and there is none */
};

/* --- the run: what an execution needs only while it runs -------------------------------------- */

/* How far its start has come. */
enum run_phase {
    PHASE_WAITING,  /* for the sandbox; after a restart of the daemon, for init to list it */
    PHASE_SPAWNING, /* init has not answered yet */
    PHASE_ATTACHED, /* its streams are ours */
    PHASE_LISTED,   /* attached, and init has listed it since the connection was made again */
    RUN_PHASES
};

/* How it is being stopped, see execution_control.c. */
enum stop_stage {
    STOP_NONE,
    STOP_SPAWN,  /* init has not answered its start yet, or after a restart not listed it */
    STOP_RECORD, /* the stop is being recorded */
    STOP_TERM,
    STOP_KILL,
    STOP_SWEEP, /* the program has ended; the rest of its tree is being killed */
    STOP_STAGES
};

/* Whether its end is in the store. */
enum record_stage {
    RECORD_STALE, /* not, or output came since it was written */
    RECORD_WRITING,
    RECORD_WRITTEN,
};

enum input_state {
    INPUT_NONE, /* the program was started without stdin */
    INPUT_OPEN,
    INPUT_ENDING,  /* end of file follows the input not written yet */
    INPUT_CLOSING, /* no more input is taken; a sandbox elsewhere has not answered for the end */
    INPUT_CLOSED,  /* no more input is taken */
};

/* For the client of an execution that needs one: after its connection broke, to come with its first
 * one, and after a restart of the daemon. */
enum {
    CLIENT_PATIENCE_US = 2 * 1000 * 1000,
    CLIENT_FIRST_PATIENCE_US = 10 * 1000 * 1000,
    CLIENT_RESTART_PATIENCE_US = 30 * 1000 * 1000,
};

enum {
    SIGNAL_QUEUE = 16,
    STDIN_MAXIMUM = 8 * 1024 * 1024,
    INPUT_WINDOW = 256 * 1024, /* bytes of input that may be under way to a sandbox elsewhere */
};

/* Of an execution with a key, where nodes share the store: its record is written before the program
 * starts. Successors: none → asked → written | none. */
enum first_record_state { FIRST_RECORD_NONE, FIRST_RECORD_ASKED, FIRST_RECORD_WRITTEN };

struct run_spawn {
    struct program program; /* until it is attached */
    struct agent_request request;
    uint64_t generation; /* the one asked for; 0 for any */
    unsigned repeats;    /* holds begun again, because init never saw the request */
    enum first_record_state record;
};

struct run_stop {
    enum stop_stage stage;
    enum execution_state as; /* how it ends when it was stopped; RUNNING when it was not */
    struct timer clock;      /* timeout, from the request on; then the grace, then giving up */
    int64_t asked_us;        /* when init was to answer, in STOP_SPAWN, STOP_KILL and STOP_SWEEP */
};

struct run_signals {
    struct agent_request request; /* open while one is on its way */
    struct run_signal {
        int number;
        enum protocol_scope scope;
    } queue[SIGNAL_QUEUE]; /* not sent yet */
    unsigned count;
};

struct run_end {
    enum execution_state state; /* final once the end has begun: output is being completed */
    struct agent_exit exit;     /* code -1 without one */
    struct backend_op inspect;  /* was it the OOM killer? `done` is NULL unless that is asked */
    enum record_stage record;
    struct store_ticket ticket;
    uint64_t recorded_bytes; /* of both streams, in the record */
};

struct run_input {
    enum input_state state;
    int fd; /* owned; -1 without */
    struct io_watch ready;
    struct buffer data; /* from the request, not accepted yet */
    size_t written;     /* of it */
    bool is_buffered;   /* the pipe is a bridge's: see on_taken() in agent.h */
    bool is_uncounted;  /* an earlier daemon has written an unknown number of bytes */
    bool has_end;       /* of a terminal: the character that ends its input is among the accepted */
    uint64_t accepted;  /* bytes since its start that were written, or are kept */
    uint64_t taken;     /* of them, with is_buffered: inside the sandbox */
    struct buffer kept; /* with is_buffered: bytes from `taken` to `accepted` */
    size_t piped;       /* of these: in the pipe */
    struct input_end *end; /* owned; on its way; NULL without */
};

struct terminal_size {
    unsigned columns, rows;
};

struct run_terminal {
    struct terminal_size size;    /* the one wanted */
    struct terminal_size sent;    /* the one that init was given; 0 when that is not known */
    struct agent_request request; /* open while a size is on its way: input waits for its answer */
};

struct execution_run {
    struct execution *execution; /* borrowed */
    struct session_hold hold;
    enum run_phase phase;
    const struct language *language; /* borrowed: of the code it runs; NULL without */
    struct run_spawn spawn;
    struct run_stop stop;
    struct run_signals signals;
    struct run_end end;
    struct run_input input;
    struct run_terminal terminal;
};

void run_set_phase(struct execution_run *run, enum run_phase phase);
bool run_is_attached(const struct execution_run *run);
bool run_is_ending(const struct execution_run *run);
bool run_is_stopped(const struct execution_run *run); /* its end was asked for */
bool run_holds_sandbox(const struct execution_run *run);

struct execution_run *execution_run_new(struct execution *execution);
void execution_run_free(struct execution_run *run);

/* --- execution.c ------------------------------------------------------------------------------ */

struct execution *execution_new(struct session *session, const char *id);

/* An execution that needs a client is cancelled when no client comes in that time. */
void execution_expect_client(struct execution *execution, int64_t patience_us);

void execution_changed(struct execution *execution); /* calls watchers at the end of the turn */
void execution_set_error(struct execution *execution, const char *text); /* secrets are masked */
void execution_save(struct execution *execution);

/* Calls `then` once everything that was put into the store until now is written, or the store has
 * failed to take it; not when the execution does not run any more by then, or the daemon stops. */
typedef void execution_written_fn(struct execution *execution, const struct error *err);
void execution_when_written(struct execution *execution, execution_written_fn *then);

/* The run ends now, for the outside: no callback of it is called any more. */
void execution_leave_sandbox(struct execution *execution);

/* --- execution_output.c ----------------------------------------------------------------------- */

/* Both streams of a program that runs or ran; the files are found again by the id. Bytes that the
 * record, NULL without one, counts and the files do not have are lost. */
void execution_open_outputs(struct execution *execution, const struct execution_record *record);
void execution_close_outputs(struct execution *execution);

/* No more output is kept of it: it may be evicted from now on. */
void execution_end_share(struct execution *execution);

/* The program writes no more; then the bytes in the pipes, or under way, are taken. */
void execution_finish_outputs(struct execution *execution);

/* No pipe of the sandbox will come any more: bytes that were under way are lost. */
void execution_end_outputs(struct execution *execution);
bool execution_outputs_are(const struct execution *execution, bool (*what)(const struct spool *));
uint64_t execution_output_bytes(const struct execution *execution); /* of both streams */

/* A program may succeed and its output be lost: the record says so. */
void execution_note_lost_output(struct execution *execution);

/* --- execution_spawn.c ------------------------------------------------------------------------ */

void execution_hold_ready(struct session_hold *hold);
void execution_hold_lost(struct session_hold *hold);

/* --- execution_attach.c ----------------------------------------------------------------------- */

/* Init has started the process. With `has_ended` the output is taken together with the end, which
 * follows. */
void execution_begin_running(struct execution *execution, const struct agent_pipes *pipes,
                             bool has_ended);
void execution_attach(struct execution *execution, const struct agent_pipes *pipes, bool has_ended);

/* It is attached already, and the connection was made again. Pipes of our own kernel are the same
 * ones; others continue where the bases say. */
void execution_reattach(struct execution *execution, const struct agent_pipes *pipes);

/* Init has it: it started now, at the latest. */
void execution_note_start(struct execution *execution);

/* --- execution_control.c ---------------------------------------------------------------------- */

/* TERM to the whole tree, KILL after exec.grace; it ends in that state. */
void execution_stop(struct execution *execution, enum execution_state as);

/* An earlier daemon has stopped it, if the record of an execution that has not ended has such a
 * reason: that goes on when init has listed it. */
void execution_restore_stop(struct execution *execution, const char *recorded);
void execution_on_clock(struct timer *timer);
void execution_arm_timeout(struct execution *execution);

/* Init was asked to start it, and has `sandbox.silence_timeout` to say anything at all. */
void execution_expect_start(struct execution *execution);

/* The program has ended: the rest of its tree is killed, and execution_begin_end() follows. */
void execution_sweep(struct execution *execution);
void execution_queue_signal(struct execution *execution, int number, enum protocol_scope scope);
void execution_send_signals(struct execution *execution);
void execution_send_size(struct execution *execution); /* of its terminal, if init has another */

/* --- execution_end.c -------------------------------------------------------------------------- */

void execution_on_exit(struct execution *execution, const struct agent_exit *end);

/* Ends the execution: output is completed, then the end is recorded and watchers are called.
 * `reason` may be NULL. */
void execution_begin_end(struct execution *execution, enum execution_state state,
                         const char *reason);

/* Goes on with the end as far as it can go now. */
void execution_continue_end(struct execution *execution);

/* --- execution_recover.c ---------------------------------------------------------------------- */

/* Processes without an execution, of this session or (NULL) of all: nothing waits for their end. */
void strays_drop(struct core *core, const char *session_id);

/* --- execution_stdin.c ------------------------------------------------------------------------ */

void execution_stdin_attach(struct execution_run *run, const struct agent_pipes *pipes);

/* The connection was made again. Input that is not inside goes into the new pipe. */
void execution_stdin_reattach(struct execution_run *run, const struct agent_pipes *pipes);
void execution_stdin_detach(struct execution_run *run);
