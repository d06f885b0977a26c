/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Declarations shared by the parts of init: settings, the table of processes, and jobs under way.
 * Everything is in static tables: init allocates nothing once it runs, and pages of a table stay
 * untouched until they are used.
 *
 * A process has a supervisor: a clone that shares init's memory and descriptors, starts the process
 * as its child, waits for it, and lives on as the reaper of its background processes. It reports to
 * the daemon itself where it can, and to init through `reports` and the event descriptor. The
 * fields under "the supervisor's" are written by it before it reports and only read by init after.
 */

#include "init/user.h"
#include "wire/protocol.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <sys/resource.h>

/* Sanitized code needs larger stacks; src/init/meson.build sets it there. */
#ifndef INIT_STACK_FACTOR
#define INIT_STACK_FACTOR 1
#endif

enum {
    FD_LISTEN = 3,
    FD_SECCOMP = 4,
    MAX_JOBS = 28,
    MAX_STREAMS = 8, /* that go on after their answer, until the daemon has read them */
    MAX_WATCHES = 4, /* that go on for as long as the daemon likes */
    SUPERVISOR_STACK = 4096 * INIT_STACK_FACTOR,
    JOB_STACK = 32 * 1024 * INIT_STACK_FACTOR,
    MAX_VARIABLES = 256, /* of --environment */
    WORKSPACE_SIZE = 1024,
    JOB_SPARE_STRINGS = 8 + MAX_VARIABLES,
};

/* Little of a table is ever touched. The tables lie behind all other data, in this order, so that the
 * touched entries lie close together and need few pages: the linker sorts by section names. */
#define TABLE_OF_STATES __attribute__((section(".bss.z.1")))
#define TABLE_OF_MEMORY __attribute__((section(".bss.z.2")))
#define TABLE_SELDOM_USED __attribute__((section(".bss.z.3")))

/* Where connections come from. */
enum origin {
    ORIGIN_PASSED,  /* a listening socket that was passed to init */
    ORIGIN_MADE,    /* a listening socket that init makes at socket_path */
    ORIGIN_RELAY,   /* the relay, whose own listening socket was passed or is made at socket_path */
    ORIGIN_DIALLED, /* init itself, which connects to the daemon's socket at socket_path */
};

enum process_state {
    PROCESS_FREE,
    PROCESS_STARTING,
    PROCESS_RUNNING,
    PROCESS_ENDED,
    PROCESS_LINGERING, /* forgotten, but with a supervisor or a message that has to go first */
};

enum report {
    REPORT_STARTED = 1 << 0,
    REPORT_FAILED = 1 << 1,
    REPORT_ENDED = 1 << 2,
    REPORT_LEFT = 1 << 3,         /* nothing of its tree is left */
    REPORT_TELL_STARTED = 1 << 4, /* init has to send it: the daemon does not know yet */
    REPORT_TELL_ENDED = 1 << 5,
};

/* Messages about a process that still have to be sent. */
enum pending {
    PENDING_STARTED = 1 << 0,
    PENDING_FAILED = 1 << 1,
    PENDING_EXITED = 1 << 2,
    PENDING_KILLED = 1 << 3,
};

struct process {
    uint64_t number;
    enum process_state state;
    uint32_t flags;
    bool is_for_root; /* judged by the requested name; the real uid is known after the lookup */
    int supervisor;   /* pid; 0 once nothing of the tree is left */
    int input;        /* outer ends: init's duplicates; -1 where there is none */
    int output;       /* the terminal's master when there is one */
    int errors;
    int inner[4]; /* the process's own ends, until it has started; the last: a zygote's control */
    int script;
    int control; /* a zygote's socket; of a process to be forked: a duplicate, until the fork */
    uint64_t zygote_number; /* of the zygote that may fork it; 0 without */
    int zygote_pid;
    uint64_t directory; /* a zygote's: the inode that it has begun in; 0 when it is not known */
    unsigned pending;
    uint64_t connection; /* of the START message */
    uint64_t start_request;
    struct job *job; /* until it has started */

    uint64_t kill_request; /* of the SIGKILL to the tree that is going on */
    bool killing;
    int64_t kill_deadline_us;
    int kill_error;
    unsigned kill_count;

    /* the supervisor's */
    int socket; /* its own duplicate of the connection; -1 when init has to report */
    atomic_uint reports;
    int main_pid;
    int64_t started_us;
    uint32_t uid;
    uint32_t gid;
    int root; /* its fork parent, which its tree hangs on instead of the supervisor; 0 without */
    bool condemns; /* the zygote, which broke the protocol: init kills it */
    bool left_children;
    enum protocol_stage failed_stage;
    int failed_error;
    struct protocol_end end;
    char script_path[PROTOCOL_MAX_SCRIPT_PATH];
};

enum job_kind { JOB_FREE, JOB_START, JOB_FILE, JOB_CONNECT, JOB_PORTS };

/* The large part of a job, apart so that looking through the jobs touches no page of it. */
struct job_memory {
    alignas(4096) char message[PROTOCOL_MAX_MESSAGE];
    const char *strings[PROTOCOL_MAX_STRINGS + 2 + JOB_SPARE_STRINGS];
    struct user user;
    char variables[3 * 1024]; /* HOME= and the like */
    alignas(4096) char stack[JOB_STACK];
};

/* A message that takes longer than one turn: it stays in the buffer that it was received in. */
struct job {
    enum job_kind kind;
    struct process *process; /* JOB_START */
    int helper;              /* of all others: pid of the clone that works on it */
    int socket;              /* of all others: where the answer goes; borrowed */
    atomic_bool answered;    /* of all others: by the helper itself */
    uint64_t connection;
    uint64_t request;
    size_t length;

    /* decoded, pointing into the message */
    const struct protocol_start *start;
    struct protocol_start_texts texts;
    const struct protocol_file *file;
    const struct protocol_connect *connect;
    struct protocol_file_texts file_texts; /* JOB_CONNECT: user and path */

    struct job_memory *memory;
};

struct settings {
    bool direct;   /* a plain child instead of PID 1 */
    bool prepared; /* signals and descriptors were set by the parent, and are inherited */
    bool is_root;  /* may switch users */
    bool takes_environment;
    bool is_unbound;    /* the relay's key comes with the first connection */
    bool is_attached;   /* stdin and stdout are the first connection to the relay */
    uint16_t gate_port; /* where the gate listens; 0: there is none */
    enum origin origin;
    const char *socket_path;  /* NULL when the socket was passed */
    const char *default_user; /* as of --user; "": init's own */
    /* Where programs begin: of a direct sandbox init's own directory, the only one that it may write
     * to; elsewhere "" for the user's home. */
    const char *workspace;
    const char *default_home;   /* of that user; NULL: as in /etc/passwd */
    uint64_t keep_capabilities; /* bounding set of init and its children */
    const void *filter;         /* seccomp program for processes; NULL without */
    uint16_t filter_length;     /* in instructions */
    int own_pid;
    int relay_pid; /* 0 without one */
    int gate_pid;  /* 0 without one */
    int null_fd;   /* /dev/null, or -1 */
    int proc_fd;   /* /proc, or -1 */
    int event_fd;  /* supervisors write to it */
    struct rlimit nofile;
};

extern struct settings settings;
extern struct process processes[PROTOCOL_MAX_PROCESSES];

/* --- the tables ----------------------------------------------------------------------------- */

struct process *process_find(uint64_t number);     /* NULL when it is not remembered */
struct process *process_allocate(uint64_t number); /* NULL when the table is full */
void process_release(struct process *process);     /* closes all that it has */
void process_settle(struct process *process);      /* releases it if nothing keeps it */
void process_close_pipes(struct process *process);
void process_close_inner(struct process *process);
unsigned process_count(void); /* remembered */

/* The pid at the root of the process's tree. */
static inline int process_root(const struct process *process)
{
    return process->root ? process->root : process->supervisor;
}

/* How many entries of the table have ever been in use: the rest need not be looked at. */
unsigned process_places(void);

struct job *job_get_free(void); /* NULL when all are busy */
void job_release(struct job *job);
unsigned job_count_streams(void); /* that are answered and go on */
unsigned job_count_watches(void);
bool file_is_stream(
    const struct protocol_file *file); /* goes on after its answer, but not for ever */
struct job *job_find_helper(int pid);

/* --- reports of supervisors ----------------------------------------------------------------- */

/* By the supervisor: post wakes init up; note leaves the report until init wakes up anyway. */
void report_post(struct process *process, unsigned report);
void report_note(struct process *process, unsigned report);
void report_hint(void); /* wakes init up if it expects notes */

/* By init, before it sleeps. True when some report waits already. */
bool report_expect(bool is_expected);
struct process *report_next(void); /* NULL when there is no more */
