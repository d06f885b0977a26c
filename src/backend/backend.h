#pragma once

/*
 * A backend builds walls and nothing else: it creates a sandbox with `sandglass-init` running in
 * it, connects to that init, tells what exists, freezes, measures and destroys. Everything that
 * happens inside goes through init's protocol.
 *
 * Operations are asynchronous: `done` comes once, from the loop, never inside the call. What must
 * be remembered to find a sandbox again after a restart is in `struct backend_sandbox`, which the
 * core stores before it uses the sandbox.
 */

#include "base/error.h"
#include "base/id.h"
#include "loop/loop.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct backend;
struct buffer;
struct config;

enum network_mode { NETWORK_NONE, NETWORK_OPEN, NETWORK_MODES };

struct sandbox_limits {
    uint64_t memory_bytes;
    uint64_t disk_bytes;
    uint32_t cpu_millis; /* 1000 is one core */
    uint32_t pids;
};

struct sandbox_spec {
    char id[ID_SIZE];          /* chosen and recorded by the core before create */
    const char *template_name; /* borrowed; "host" by default */
    struct sandbox_limits limits;
    uint32_t gpus; /* 0 unless the backend has the capability */
    enum network_mode network;
};

/* What a backend knows a sandbox by, across restarts of the daemon. */
struct backend_sandbox {
    char id[ID_SIZE];
    pid_t pid;           /* of init, as the daemon sees it; 0 where there is none */
    uint64_t start_time; /* of that pid, from /proc: a reused pid is not ours */
    uint32_t slot;       /* uid range or the like; 0 where there is none */
};

/* A program in a sandbox, by the name that it gives itself. */
struct sandbox_process {
    uint64_t cpu_us;
    uint32_t pid; /* 0: none */
    char name[20];
};

enum { USAGE_PROCESSES = 8 };

struct sandbox_usage {
    uint64_t cpu_us;
    uint64_t memory_bytes;
    uint64_t memory_peak_bytes;
    uint64_t disk_bytes;
    uint32_t pids;
    uint32_t oom_kills;                                /* since the sandbox was made */
    struct sandbox_process processes[USAGE_PROCESSES]; /* the busiest first, where they are known */
};

enum backend_verdict {
    BACKEND_ALIVE,
    BACKEND_DEAD,
    BACKEND_UNKNOWN, /* the backend could not tell; never taken for dead */
};

struct backend_op;
typedef void backend_done_fn(struct backend_op *op);

struct backend_op {
    backend_done_fn *done;
    struct error err; /* ERR_NONE on success */
    union {
        struct {
            struct backend_sandbox sandbox;
            int pidfd;   /* create, adopt: the receiver owns it; -1 where the backend has none */
            bool frozen; /* adopt: read from the kernel */
            /* create: what it really has, for backends that can tell; 0 elsewhere */
            struct sandbox_limits limits;
            uint32_t gpus;
        } made;
        struct sandbox_usage usage;
        struct {
            char (*ids)[ID_SIZE]; /* list: the receiver frees it */
            size_t count;
        } list;
    } result;
    void *private; /* the backend's own */
};

struct backend_capabilities {
    bool freeze;
    bool usage;
    bool limits;
    bool outlives_daemon;
    bool gpus;
    bool network;             /* keeps a sandbox away from the network of the host */
    bool disk;                /* limits what a sandbox's files take */
    bool templates;           /* and mounts: a sandbox has a file system of its own */
    bool serialize_per_owner; /* sandboxes of one owner are made one after the other */
};

struct backend_ops {
    const char *name;
    struct backend_capabilities capabilities;

    void (*free)(struct backend *backend);
    /* A failure that may pass (err.retryable) is tried again by the core, after
     * destroy(). */
    void (*create)(struct backend *backend, const struct sandbox_spec *spec, struct backend_op *op);

    /* A sandbox recorded by an earlier daemon: alive gives its pidfd; ERR_GONE says that it is
     * dead. */
    void (*adopt)(struct backend *backend, const struct backend_sandbox *sandbox,
                  struct backend_op *op);

    /* A connected SOCK_SEQPACKET socket to its init; the caller owns it. Does not block. ERR_GONE
     * when no init listens. */
    int (*connect)(struct backend *backend, const char *id, struct error *err);

    /* Limits of a pool member become those of the session that claims it. */
    void (*update)(struct backend *backend, const char *id, const struct sandbox_limits *limits,
                   struct backend_op *op);
    void (*freeze)(struct backend *backend, const char *id, bool frozen, struct backend_op *op);
    void (*inspect)(struct backend *backend, const char *id, struct backend_op *op);

    /* Idempotent and resumable: success means that nothing of it is left but files in the trash. */
    void (*destroy)(struct backend *backend, const char *id, struct backend_op *op);

    /* Everything of this instance that exists, recorded or not. */
    void (*list)(struct backend *backend, struct backend_op *op);

    /* Whether sandboxes can be made and removed now: -1 with the reason. NULL: always. */
    int (*check)(struct backend *backend, struct error *err);

    /* Whether what lies on the host for this sandbox is still there; a look, for each use. NULL:
     * nothing lies there. */
    bool (*is_whole)(struct backend *backend, const char *id);

    /* What holds for a sandbox that is made with these limits; 0 is no limit. NULL: all of them,
     * but for the disk where the backend does not limit it. */
    struct sandbox_limits (*limits_in_force)(const struct backend *backend,
                                             const struct sandbox_limits *limits);

    /* Appends a JSON object: what is really in force for this sandbox (read back, not assumed). */
    int (*report)(struct backend *backend, const char *id, struct buffer *json, struct error *err);
};

struct backend {
    const struct backend_ops *ops;
    struct loop *loop; /* borrowed */
};

/* The users of the host that sandboxes have, where the daemon was started as root: a range for each
 * slot. */
enum { SANDBOX_UID_FIRST = 0x40000000, SANDBOX_SLOTS = 12288 };

/* Whether programs of sandboxes run as this user of the host. */
bool backend_is_sandbox_user(const struct config *config, uid_t uid);

struct backend_options {
    struct loop *loop;           /* borrowed */
    const struct config *config; /* borrowed */
    int state_dir;               /* borrowed: the daemon's state directory */
    const char *state_path;      /* borrowed: its path */
    struct launcher *launcher;   /* borrowed; NULL for backends that need none */
};

/* By name: native, direct, none, and later docker, gvisor, kubernetes. NULL with an error that says
 * why not. */
struct backend *backend_open(const char *name, const struct backend_options *options,
                             struct error *err);
void backend_close(struct backend *backend); /* NULL is fine; sandboxes go on */

/* As the operations above, with the checks and the logging that all share. */
void backend_create(struct backend *backend, const struct sandbox_spec *spec,
                    struct backend_op *op);
void backend_adopt(struct backend *backend, const struct backend_sandbox *sandbox,
                   struct backend_op *op);
int backend_connect(struct backend *backend, const char *id, struct error *err);
void backend_update(struct backend *backend, const char *id, const struct sandbox_limits *limits,
                    struct backend_op *op);
void backend_freeze(struct backend *backend, const char *id, bool frozen, struct backend_op *op);
void backend_inspect(struct backend *backend, const char *id, struct backend_op *op);
void backend_destroy(struct backend *backend, const char *id, struct backend_op *op);
void backend_list(struct backend *backend, struct backend_op *op);
int backend_check(struct backend *backend, struct error *err);
bool backend_is_whole(struct backend *backend, const char *id);
struct sandbox_limits backend_limits_in_force(const struct backend *backend,
                                              const struct sandbox_limits *limits);
/* Refuses a limit that was asked for and that would not hold, by its name. 0 is not asked for. */
int backend_check_limits(const struct backend *backend, const struct sandbox_limits *asked,
                         struct error *err);
int backend_report(struct backend *backend, const char *id, struct buffer *json, struct error *err);
