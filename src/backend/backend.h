/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A backend builds walls and nothing else: it creates a sandbox with `sandglass-init` running in
 * it, connects to that init, lists, freezes, measures and destroys. Everything that happens inside
 * goes through init's protocol.
 *
 * Operations are asynchronous: `done` comes once, from the loop, never inside the call. An
 * operation that returns true has answered already, and `done` does not come. `struct
 * backend_sandbox` has all that finds a sandbox again after a restart; the core stores it before it
 * uses the sandbox. The end of a sandbox is reported to its watch.
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
struct json_writer;

enum network_mode { NETWORK_NONE, NETWORK_OPEN, NETWORK_MODES };

/* The network access of a sandbox. The struct owns no memory and may be copied. */
struct network_policy {
    enum network_mode mode;
};

bool network_policy_equals(const struct network_policy *a, const struct network_policy *b);

enum sandbox_source_kind { SOURCE_TEMPLATE, SOURCE_KINDS };

/* The origin of a sandbox's files. */
struct sandbox_source {
    enum sandbox_source_kind kind;
    const char *name; /* borrowed; of a template: "host" by default */
};

bool sandbox_source_equals(const struct sandbox_source *a, const struct sandbox_source *b);

/* A directory of the host in one sandbox. Texts are borrowed. */
struct sandbox_mount {
    const char *host_path;
    const char *path; /* inside */
    bool read_only;
};

enum { SANDBOX_MOUNTS_MAXIMUM = 8 };

struct sandbox_limits {
    uint64_t memory_bytes;
    uint64_t disk_bytes;
    uint32_t cpu_millis; /* 1000 is one core */
    uint32_t pids;
};

struct sandbox_spec {
    char id[ID_SIZE]; /* chosen and recorded by the core before create */
    struct sandbox_source source;
    struct sandbox_limits limits;
    uint32_t gpus; /* 0 unless the backend has the capability */
    struct network_policy network;
    const struct sandbox_mount *mounts; /* borrowed; none unless the backend has the capability */
    size_t mount_count;

    /* Labels for tools outside of Sandglass; of a pool member "", "" and 0. The
     * texts are borrowed. */
    const char *session;
    const char *owner;
    uint64_t generation;
};

enum { BACKEND_HANDLE_SIZE = 256, BACKEND_END_DETAIL = 32 };

/* The identity of a sandbox across restarts of the daemon. Only the backend that wrote the handle
 * can read it; it is "" until the sandbox is made. */
struct backend_sandbox {
    char id[ID_SIZE];
    char handle[BACKEND_HANDLE_SIZE];
};

/* A program in a sandbox, by the name that it gives itself. */
struct sandbox_process {
    uint64_t cpu_us;
    uint32_t number; /* unique in its sandbox; 0: none */
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
    BACKEND_UNKNOWN, /* the backend does not know; never taken for dead */
};

struct backend_op;
typedef void backend_done_fn(struct backend_op *op);
typedef void backend_progress_fn(struct backend_op *op, const char *what, uint64_t done_bytes,
                                 uint64_t total_bytes);

struct backend_op {
    backend_done_fn *done;
    /* create: the step under way ("pulling"), about once a second; NULL: no reports. A total of 0
     * is unknown. */
    backend_progress_fn *on_progress;
    struct error err; /* ERR_NONE on success */
    union {
        struct {
            struct backend_sandbox sandbox;
            bool frozen; /* adopt: read back */
            /* create: the limits in force, if the backend knows them; 0 otherwise */
            struct sandbox_limits limits;
            uint32_t gpus;
        } made;
        struct sandbox_usage usage;
        int fd;       /* connect: the receiver owns it */
        char *report; /* the receiver frees it */
        struct {
            char (*ids)[ID_SIZE]; /* list: the receiver frees it */
            size_t count;
        } list;
    } result;
    void *private; /* the backend's own */
};

/* How a sandbox ended. */
struct backend_end {
    bool is_known;                   /* false: the next three are unknown */
    bool oom;                        /* for want of memory */
    int code;                        /* of its first process; -1 when a signal killed it */
    int signal;                      /* 0 unless one killed it */
    char detail[BACKEND_END_DETAIL]; /* why, in a word of the backend's own; or "" */
};

/* Whether others than backend_freeze() have frozen the processes of a sandbox. */
enum backend_motion {
    BACKEND_MOVES,
    BACKEND_FROZEN_BY_OTHERS, /* only they thaw it */
};

struct backend_watch;
typedef void backend_end_fn(struct backend_watch *watch);
typedef void backend_motion_fn(struct backend_watch *watch);

enum backend_watch_state { BACKEND_UNWATCHED, BACKEND_WATCHED, BACKEND_ENDED };

/* Waits for the end of one sandbox; in the memory of the waiting object. Zeroed it is unwatched. */
struct backend_watch {
    enum backend_watch_state state;
    struct backend *backend; /* borrowed */
    backend_end_fn *on_end;
    struct backend_end end;       /* valid in and after on_end */
    backend_motion_fn *on_motion; /* it has changed; NULL: the observer does not want to know */
    enum backend_motion motion;   /* BACKEND_MOVES where the backend does not learn of it */
    void *private;                /* the backend's own */
};

struct backend_capabilities {
    bool freeze;
    bool usage;
    bool limits;
    bool fixed_limits; /* update() cannot change all of them: a sandbox keeps its own */
    bool outlives_daemon;
    bool gpus;
    bool network;             /* keeps a sandbox away from the network of the host */
    bool never_open;          /* gives no sandbox a network: `open` is refused */
    bool disk;                /* limits the size of a sandbox's files */
    bool templates;           /* and mounts: a sandbox has a file system of its own */
    bool mounts;              /* single sandboxes have directories of the host that they name */
    bool environment;         /* the source has its own PATH: the daemon's is not passed on */
    bool serialize_per_owner; /* sandboxes of one owner are made one after the other */
    bool shared;              /* the other nodes of the cluster reach its sandboxes too */
};

typedef void backend_source_fn(void *user, const char *name);

struct backend_ops {
    const char *name;
    struct backend_capabilities capabilities;

    void (*free)(struct backend *backend);
    /* A failure that may pass (err.retryable) is tried again by the core, after
     * destroy(). */
    void (*create)(struct backend *backend, const struct sandbox_spec *spec, struct backend_op *op);

    /* A sandbox recorded by an earlier daemon. ERR_GONE says that the sandbox is dead or that this
     * backend did not write the handle; any other error, that its state is unknown. */
    void (*adopt)(struct backend *backend, const struct backend_sandbox *sandbox,
                  struct backend_op *op);

    /* After create or adopt: calls backend_watch_end() once, from the loop, when the sandbox has
     * ended, also when that was before. Only one watch for each sandbox. A backend whose sandboxes can
     * be frozen by others sets the watch's motion here, and calls backend_watch_move(). */
    void (*watch)(struct backend *backend, const char *id, struct backend_watch *watch);
    void (*unwatch)(struct backend *backend, struct backend_watch *watch);

    /* Whether the sandbox has ended already; its watch is called when the cause is known, a few
     * seconds later at most. Checked before each use. NULL: the backend knows no sooner. */
    bool (*is_ending)(const struct backend *backend, const struct backend_watch *watch);

    /* After create or adopt: a connected SOCK_SEQPACKET socket. The other end speaks
     * the protocol of init: init itself, or a bridge in this daemon to an init elsewhere. ERR_GONE
     * when no init listens. True: answered, which a socket of this host is without waiting; then a
     * sandbox is ready a turn of the loop sooner. */
    bool (*connect)(struct backend *backend, const char *id, struct backend_op *op);

    /* Gives up a connect, report or find_source that was not answered: `done` does not come. NULL where
     * none of them returns false. */
    void (*cancel)(struct backend *backend, struct backend_op *op);

    /* Limits of a pool member become those of the session that claims it. */
    void (*update)(struct backend *backend, const char *id, const struct sandbox_limits *limits,
                   struct backend_op *op);
    void (*freeze)(struct backend *backend, const char *id, bool frozen, struct backend_op *op);
    void (*inspect)(struct backend *backend, const char *id, struct backend_op *op);

    /* Idempotent and resumable: success means that nothing of it is left but files in the trash. */
    void (*destroy)(struct backend *backend, const char *id, struct backend_op *op);

    /* All sandboxes of this instance that exist, recorded or not. */
    void (*list)(struct backend *backend, struct backend_op *op);

    /* Whether sandboxes can be made and removed now: -1 with the reason. NULL: always. */
    int (*check)(struct backend *backend, struct error *err);

    /* The next three for backends whose sources are not the templates of the state directory, which
     * the core knows; all are NULL elsewhere. default_source: the name if a request has none.
     * check_source: -1 with the reason if create() is certain to refuse the source. The third calls
     * `add` for each known name. None of them waits. */
    const char *(*default_source)(const struct backend *backend);
    int (*check_source)(const struct backend *backend, const struct sandbox_source *source,
                        struct error *err);
    void (*list_sources)(const struct backend *backend, backend_source_fn *add, void *user);

    /* Asks a server, such as a registry, whether a source that check_source() accepts exists.
     * op->err is ERR_INVALID with the reason if it does not, and ERR_NONE if it does or the server
     * does not answer within seconds: create() reports the failure then. True: it exists, or there
     * is no server to ask, and `done` does not come. NULL: always true. */
    bool (*find_source)(struct backend *backend, const struct sandbox_source *source,
                        struct backend_op *op);

    /* Whether the sandbox's files on this host still exist; checked before each use. NULL: it has
     * none. */
    bool (*is_whole)(struct backend *backend, const char *id);

    /* The directory for scripts in a sandbox whose init is of the first release, which did not name
     * it: allocated. NULL: /tmp of the sandbox has it. */
    char *(*first_scratch)(const struct backend *backend, const char *id);

    /* The limits that are enforced when a sandbox is created with these; 0 is no limit. NULL: all
     * of them, except for the disk where the backend does not limit it. */
    struct sandbox_limits (*limits_in_force)(const struct backend *backend,
                                             const struct sandbox_limits *limits);

    /* Members of the JSON object of a sandbox that say where it runs, for people and for tools of
     * the host. NULL: nowhere on this host. */
    void (*put_location)(const struct backend_sandbox *sandbox, struct json_writer *json);

    /* A JSON object: the isolation in force for this sandbox (read back, not assumed). ERR_GONE
     * when it has ended. True: answered. */
    bool (*report)(struct backend *backend, const char *id, struct backend_op *op);
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
    const uint8_t
        *node_key; /* borrowed: 32 bytes that all nodes of the cluster have; NULL: alone */
};

/* By a name of names.h. NULL with an error that says why not. */
struct backend *backend_open(const char *name, const struct backend_options *options,
                             struct error *err);
void backend_close(struct backend *backend); /* NULL is fine; sandboxes go on */

/* As the operations above, with the checks and the logging that all share. */
void backend_create(struct backend *backend, const struct sandbox_spec *spec,
                    struct backend_op *op);
void backend_adopt(struct backend *backend, const struct backend_sandbox *sandbox,
                   struct backend_op *op);

/* A watch that is already started, ending or ended is left unchanged. */
void backend_watch_start(struct backend *backend, const char *id, struct backend_watch *watch,
                         backend_end_fn *on_end);
/* Reports the motion of the sandbox from now on, too. */
void backend_watch_motion(struct backend_watch *watch, backend_motion_fn *on_motion);
void backend_watch_stop(struct backend_watch *watch); /* no on_end comes; unwatched is fine */
bool backend_watch_is_ending(const struct backend_watch *watch);

/* For backends, from the loop: others have frozen the sandbox, or thawed it; a motion that it has
 * already is not reported again. */
void backend_watch_move(struct backend_watch *watch, enum backend_motion motion);

/* For backends: the sandbox has ended; or it is gone, and its watch is dropped. */
void backend_watch_end(struct backend_watch *watch, const struct backend_end *end);
void backend_watch_drop(struct backend_watch *watch); /* NULL is fine */

bool backend_connect(struct backend *backend, const char *id, struct backend_op *op);
void backend_cancel(struct backend *backend, struct backend_op *op);
void backend_update(struct backend *backend, const char *id, const struct sandbox_limits *limits,
                    struct backend_op *op);
void backend_freeze(struct backend *backend, const char *id, bool frozen, struct backend_op *op);
void backend_inspect(struct backend *backend, const char *id, struct backend_op *op);
void backend_destroy(struct backend *backend, const char *id, struct backend_op *op);
void backend_list(struct backend *backend, struct backend_op *op);
int backend_check(struct backend *backend, struct error *err);

/* ERR_INVALID "backend_unable" where sandboxes cannot have directories of the host. */
int backend_check_mounts(const struct backend *backend, struct error *err);

/* Of a sandbox for which no source is named; `template_name` is sandbox.template. */
const char *backend_default_source(const struct backend *backend, const char *template_name);

/* Whether its sources are its own, and not templates of the state directory. */
bool backend_has_sources(const struct backend *backend);
int backend_check_source(const struct backend *backend, const struct sandbox_source *source,
                         struct error *err);
void backend_list_sources(const struct backend *backend, backend_source_fn *add, void *user);
bool backend_find_source(struct backend *backend, const struct sandbox_source *source,
                         struct backend_op *op);
bool backend_is_whole(struct backend *backend, const char *id);
char *backend_first_scratch(const struct backend *backend,
                            const char *id); /* NULL: none is known */
struct sandbox_limits backend_limits_in_force(const struct backend *backend,
                                              const struct sandbox_limits *limits);
/* Refuses a limit that was asked for and that would not hold, by its name. 0 is not asked for. */
int backend_check_limits(const struct backend *backend, const struct sandbox_limits *asked,
                         struct error *err);
bool backend_report(struct backend *backend, const char *id, struct backend_op *op);

/* `sandbox` is NULL when there is none. */
void backend_put_location(const struct backend *backend, const struct backend_sandbox *sandbox,
                          struct json_writer *json);
