#pragma once

/*
 * The daemon's end of the protocol with one sandbox's init. It owns the connected socket.
 *
 * Requests are answered once, from the loop. When the connection breaks, every open request fails
 * with ERR_BACKEND and on_lost is called once; the owner then decides whether the sandbox is dead
 * (its pidfd says so) or has to be connected to again. The daemon treats init as hostile: every
 * message is checked, and every descriptor is verified to be of the expected kind.
 */

#include "base/error.h"
#include "loop/loop.h"
#include "wire/protocol.h"

#include <stdbool.h>
#include <stdint.h>

struct agent;

struct agent_exit {
    int code;   /* -1 when killed */
    int signal; /* 0 unless killed */
    int64_t wall_us;
    int64_t cpu_us;
    uint64_t max_rss_bytes;
    unsigned survivors;
};

/* Descriptors are the receiver's to own; -1 where there is none. With a terminal, `output` is its
 * master and input goes there too. */
struct agent_pipes {
    int input;
    int output;
    int errors;
    bool terminal;
};

struct agent_handler {
    void (*on_exited)(struct agent *agent, uint64_t number, const struct agent_exit *end);

    /* Answers agent_list(): a process that init remembers. `end` is NULL while it runs. */
    void (*on_process)(struct agent *agent, uint64_t number, int pid,
                       const struct agent_pipes *pipes, const struct agent_exit *end);
    /* A program of this process has connected to the storage socket; `fd` is the callee's. */
    void (*on_storage)(struct agent *agent, uint64_t number, int fd);
    void (*on_lost)(struct agent *agent, const struct error *err);
};

/* Takes over the socket; the handler is borrowed. */
struct agent *agent_new(struct loop *loop, int fd, const struct agent_handler *handler, void *user);
void agent_free(
    struct agent *agent); /* NULL is fine; no more callbacks, open requests are dropped */

/* The owner is done with the agent, but others may have open requests: these fail at the end of the
 * turn, then the agent is freed. on_lost is not called. NULL is fine. */
void agent_retire(struct agent *agent);

/* As agent_free(), but returns the socket, or -1 when it is closed already: the connection stays
 * for as long as the caller keeps the socket. */
int agent_release(struct agent *agent);
void *agent_user(const struct agent *agent);

/* The connection has ended; on_lost is called at the end of the turn. */
bool agent_is_lost(const struct agent *agent);

/* The time of init's last message, by the loop's clock; 0 before the first. */
int64_t agent_heard_us(const struct agent *agent);

/* Init's description of itself; NULL before its first message. */
const struct protocol_hello *agent_hello(const struct agent *agent);

struct agent_request;
typedef void agent_done_fn(struct agent_request *request);

/* Embedded by the caller and kept until `done`. */
struct agent_request {
    agent_done_fn *done;
    struct error err;          /* ERR_NONE on success */
    bool is_untaken;           /* it failed with the connection, and init has never seen it */
    int sys_errno;             /* errno from init, 0 otherwise */
    enum protocol_stage stage; /* agent_start: where it failed */
    union {
        struct {
            struct agent_pipes pipes;
            int pid;
            bool has_ended; /* on_exited follows at once */
        } started;
        struct {
            struct protocol_stat stat;
            int fd; /* the receiver owns it; -1 without one */
            char temporary[PROTOCOL_MAX_TEMPORARY];
        } file;
        unsigned processes; /* agent_signal to a tree: how many it had */
    } result;
    uint64_t number; /* of the process; 0 without one */

    struct agent *agent;

    /* the agent's own */
    bool is_open; /* neither answered nor cancelled */
    struct agent_request *next;
    uint64_t id;
    enum protocol_type type;
    uint32_t flags; /* of a process; the kind of a file operation */
};

struct agent_start {
    uint64_t number; /* unique in this sandbox, never reused */
    const char *const *argv;
    const char *const *env;
    const char *user;        /* name or number, "" for init's own */
    const char *cwd;         /* "" for the user's home */
    const char *script_path; /* NULL without a script */
    int script_fd;           /* borrowed; -1 without */
    bool wants_stdin;
    bool terminal;
    bool is_zygote; /* see init/zygote.h */
    bool may_fork;  /* from a zygote */
    unsigned columns, rows;
    unsigned nofile;
    uint64_t file_size_bytes;
};

void agent_start(struct agent *agent, const struct agent_start *start,
                 struct agent_request *request, agent_done_fn *done);

/* SIGKILL to a tree is answered when nothing of the tree is left. `request` may be NULL: the caller
 * needs no answer. */
void agent_signal(struct agent *agent, uint64_t number, int signal_number,
                  enum protocol_scope scope, struct agent_request *request, agent_done_fn *done);

/* These have no answer: a process that is gone needs none of them. */
void agent_resize(struct agent *agent, uint64_t number, unsigned columns, unsigned rows);
void agent_close_stdin(struct agent *agent, uint64_t number);
void agent_forget(struct agent *agent, uint64_t number);

void agent_list(struct agent *agent, struct agent_request *request, agent_done_fn *done);

/* The daemon calls neither of these two; the tests of init do. A ping is answered once init has
 * taken every message before it. A shutdown kills every process inside and is answered; init ends
 * after the answer, so on_lost follows. */
void agent_ping(struct agent *agent, struct agent_request *request, agent_done_fn *done);
void agent_shutdown(struct agent *agent, struct agent_request *request, agent_done_fn *done);

/*
 * FILE_OPEN_READ and FILE_OPEN_WRITE give a descriptor of a regular file, FILE_UNPACK one of a
 * stream socket, on which only calls with MSG_DONTWAIT are sure not to wait, and FILE_LIST, GLOB,
 * GREP, PACK and WATCH one of a pipe: see protocol.h for its content. A few operations run at a
 * time; the agent queues the others.
 */
struct agent_file {
    enum protocol_file_kind kind;
    const char *user;
    const char *path;
    const char *second; /* NULL without one */
    const char *third;  /* NULL without one */
    uint32_t flags, mode, depth, limit, context;
    uint64_t bytes;
    struct protocol_version expected;
};

void agent_file(struct agent *agent, const struct agent_file *file, struct agent_request *request,
                agent_done_fn *done);

/* For an open request of a dead init: whether init is known not to have seen the request. */
bool agent_is_untaken(const struct agent_request *request);

/* The caller gives up: `done` will not come, and descriptors that still arrive are closed. The
 * operation happens all the same. A request that is not open is left alone. */
void agent_cancel(struct agent_request *request);

/* The same for a file that may be being opened for writing at `path`: the temporary file that its
 * answer still names is removed. */
void agent_cancel_write(struct agent_request *request, const char *path);
