/* SPDX-License-Identifier: Apache-2.0 */
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

/* The name of the error that ends a connection to an init that speaks other versions. */
#define AGENT_OTHER_VERSION "sandbox_version"

/* Bytes that a process had written when its end was reported. Where init's pipes are ours the number
 * is not reported: all of the bytes are in the pipes then. */
struct agent_totals {
    bool are_known;
    uint64_t output, errors;
};

struct agent_exit {
    int code;   /* -1 when killed */
    int signal; /* 0 unless killed */
    int64_t wall_us;
    int64_t cpu_us;
    uint64_t max_rss_bytes;
    unsigned survivors;
    struct agent_totals totals;
};

/* Where the streams of a process that was started before continue: the offset of the first byte
 * that each pipe will give, and how many bytes of input are inside the sandbox. Not known where
 * init's pipes are ours: these continue where they were left. */
struct agent_bases {
    bool are_known;
    uint64_t input, output, errors;
};

/* Descriptors are the receiver's to own; -1 where there is none. Input and output of a terminal
 * have one each, as those of pipes have. */
struct agent_pipes {
    int input;
    int output;
    int errors;
    bool terminal;            /* the output is no pipe, but our end of a terminal */
    bool input_is_buffered;   /* written bytes are inside only when on_taken() says so */
    struct agent_bases bases; /* of on_process() */
};

static inline void agent_pipes_close(const struct agent_pipes *pipes)
{
    fd_close(pipes->input);
    fd_close(pipes->output);
    fd_close(pipes->errors);
}

struct agent_handler {
    void (*on_exited)(struct agent *agent, uint64_t number, const struct agent_exit *end);

    /* Answers agent_list(): a process that init remembers. `end` is NULL while it runs. */
    void (*on_process)(struct agent *agent, uint64_t number, int pid,
                       const struct agent_pipes *pipes, const struct agent_exit *end);
    /* Of a process whose input is buffered: so many bytes of the process's input are inside, of all
     * that were written since its start. May be NULL. */
    void (*on_taken)(struct agent *agent, uint64_t number, uint64_t total);

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
struct loop *agent_loop(const struct agent *agent);

/* The connection has ended; on_lost is called at the end of the turn. */
bool agent_is_lost(const struct agent *agent);

/* The time of init's last message, by the loop's clock; 0 before the first. */
int64_t agent_heard_us(const struct agent *agent);

/* Takes the path over, which may be NULL: the directory for scripts, for an init of the first release,
 * whose hello does not name it. */
void agent_assume_scratch(struct agent *agent, char *path);

/* Init's description of itself; NULL before its first message. */
const struct protocol_hello *agent_hello(const struct agent *agent);

/* The other end is closed, whether the loop has noticed it yet or not. */
bool agent_has_hung_up(const struct agent *agent);

/* The one place that decides whether descriptors of files and terminals pass: true when they are of
 * pipes and stream sockets alone, made by a bridge. False before init's first message. */
bool agent_has_streams(const struct agent *agent);

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
    const char *cwd;         /* "" for init's workspace, or the user's home without one */
    const char *script_path; /* NULL without a script */
    const void *script;      /* its content, not NULL with script_path */
    size_t script_length;
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

/* Input that is written after the answer finds the terminal in its new size. `request` may be NULL. */
void agent_resize(struct agent *agent, uint64_t number, unsigned columns, unsigned rows,
                  struct agent_request *request, agent_done_fn *done);

/* Both are no error for a process that is gone. `request` may be NULL; a FORGET has no answer. */
void agent_close_stdin(struct agent *agent, uint64_t number, struct agent_request *request,
                       agent_done_fn *done);
void agent_forget(struct agent *agent, uint64_t number);

void agent_list(struct agent *agent, struct agent_request *request, agent_done_fn *done);

/*
 * FILE_OPEN_READ and FILE_OPEN_WRITE give a descriptor of a regular file, FILE_UNPACK and WRITE one
 * of a stream socket, on which only calls with MSG_DONTWAIT are sure not to wait, and FILE_LIST,
 * GLOB, GREP, PACK, WATCH and READ one of a pipe: see protocol.h for its content. A few operations
 * run at a time; the agent queues the others. For the content of files see agent/files.h.
 */
struct agent_file {
    enum protocol_file_kind kind;
    const char *user;
    const char *path;
    const char *second; /* NULL without one */
    const char *third;  /* NULL without one */
    uint32_t flags, mode, depth, limit, context;
    uint64_t bytes;
    uint64_t offset; /* FILE_READ */
    struct protocol_version expected;
};

void agent_file(struct agent *agent, const struct agent_file *file, struct agent_request *request,
                agent_done_fn *done);

/* A stream to a TCP port of the sandbox's loopback or, with port 0, to the unix socket at `path`:
 * result.file.fd, on which only calls with MSG_DONTWAIT are sure not to wait. It is made with the
 * rights of `user` and counts as a file operation until it is answered. */
void agent_connect(struct agent *agent, const char *user, unsigned port, const char *path,
                   struct agent_request *request, agent_done_fn *done);

/* The TCP ports that programs of the sandbox listen on: a pipe in result.file.fd, with a NOTE_PORT
 * for each and a NOTE_LAST. See listing_start_ports(). */
void agent_ports(struct agent *agent, struct agent_request *request, agent_done_fn *done);

/* Asks for nothing: `done` comes with an error when the connection ends. For work that needs the
 * agent later; agent_cancel() ends it. While request->is_open the agent is there. */
void agent_attend(struct agent *agent, struct agent_request *request, agent_done_fn *done);

/* For an open request of a dead init: whether init is known not to have seen the request. */
bool agent_is_untaken(const struct agent_request *request);

/* The caller gives up: `done` will not come, and descriptors that still arrive are closed. The
 * operation happens all the same. A request that is not open is left alone. */
void agent_cancel(struct agent_request *request);

/* The same for a file that may be being opened for writing at `path`: the temporary file that its
 * answer still names is removed. */
void agent_cancel_write(struct agent_request *request, const char *path);
