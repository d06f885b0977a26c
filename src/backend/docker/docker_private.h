/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Declarations shared by the files of the backends docker and gvisor:
 *
 *   docker.c            opening, the engine's own facts, the table of operations
 *   images.c            images: the default one, known ones, finding and pulling
 *   container.c         a container that is known: where it is, how its init is reached
 *   container_end.c     how it ends, and why
 *   container_motion.c  whether its processes go on, and who has frozen them
 *   container_create.c  the steps from an image to a container with an init in it
 *   container_adopt.c   a container of an earlier daemon
 *   container_spec.c    the JSON that asks the engine for a container
 *   container_state.c   the engine's JSON about a container
 *   container_control.c destroy, list, update, freeze, usage
 *   container_report.c  the walls in force for a container
 *   container_sweep.c   containers of dead daemons, for `sandglass sweep`
 *   late.c              containers that appeared after their create was given up
 *   place.c             on which host a daemon runs, for the labels
 *   container_pump.c    the stream to a relay, through the engine's exec
 *   door.c              the socket that an init on this kernel connects to
 *   init_file.c         init and the profile as files of the state directory, and init as an archive
 */

#include "backend/backend.h"
#include "backend/docker/container_pump.h"
#include "backend/docker/door.h"
#include "backend/docker/engine.h"
#include "backend/docker/place.h"
#include "backend/relay_key.h"
#include "backend/remote/job.h"
#include "base/list.h"
#include "base/map.h"
#include "loop/process.h"

struct bridge;
struct kernel_view;

#define DOCKER_DIRECTORY "docker"
#define DOCKER_PROFILE DOCKER_DIRECTORY "/seccomp.json"
#define DOCKER_INSIDE "/.sandglass"
#define DOCKER_INIT DOCKER_INSIDE "/bin/sandglass-init"
#define DOCKER_DOOR DOCKER_INSIDE "/door"
#define DOCKER_RELAY_SOCKET DOCKER_INSIDE "/run/relay.sock"
#define DOCKER_WORKSPACE "/workspace"

#define RELAY_KEY_VARIABLE "SANDGLASS_KEY"

#define SECCOMP_OPTION "seccomp="

#define LABEL_MARK "sandglass"
#define LABEL_INSTANCE "sandglass.instance"
#define LABEL_SANDBOX "sandglass.sandbox"
#define LABEL_BACKEND "sandglass.backend"
#define LABEL_STATE "sandglass.state"     /* path of the daemon's state directory */
#define LABEL_CLUSTER "sandglass.cluster" /* whose nodes may take it over */
#define LABEL_HOST "sandglass.host"
#define LABEL_BOOT "sandglass.boot"

enum {
    CONTAINER_ID_SIZE = 65,
    CONTAINER_NAME_SIZE = ID_SIZE + 16,
    CONTAINER_TIME_SIZE = 40,
    ENGINE_PATH_SIZE = 512,
    ENGINE_REQUEST_MS = 30 * 1000, /* a lookup, or a small change */
    ENGINE_WORK_MS = 120 * 1000,   /* create, start, remove */
    PULL_STALL_MS = 60 * 1000,
    UNMADE_MAXIMUM = 64,
    /* An engine needs a moment to notice that an init has died: it is asked again so often. */
    ELSEWHERE_LOOKS = 5,
    ELSEWHERE_LOOK_US = 100 * 1000,
};

/* How init gets into a container, and how it is reached. */
enum docker_reach {
    REACH_UNKNOWN, /* by mounts first; the engine says whether it can */
    REACH_MOUNTS,  /* the engine sees our files: init and its door are mounted, and one has begun */
    REACH_ARCHIVE, /* it does not: init is uploaded, and reached through the engine */
};

/* The way of one container. */
enum docker_way {
    WAY_DOOR,     /* init is mounted, and connects to the door */
    WAY_MOUNTED,  /* init is mounted, with a relay */
    WAY_UPLOADED, /* init is uploaded, with a relay */
};

/* Whose choice the limits of open files and processes of a container's programs are (setrlimit). */
enum docker_rlimits {
    RLIMITS_ENGINE, /* the engine's; it says whether it may set them */
    RLIMITS_DAEMON, /* it may not: those of this daemon are asked for */
};

/* The engine's description of its host. */
struct docker_facts {
    bool are_known;
    bool limits_memory, limits_cpu, limits_pids;
    bool limits_storage;   /* by its storage driver */
    bool tells_late;       /* events are delayed by a quarter of a second */
    bool hides_oom;        /* does not report OOM kills */
    char architecture[32]; /* as the kernel calls it: "x86_64" */
};

enum { DOCKER_CLUSTER_SIZE = 17 };

struct docker_backend {
    struct backend base;
    struct backend_ops ops;      /* its own, for the capabilities that depend on settings */
    const struct config *config; /* borrowed */
    int state_dir;               /* borrowed */
    const char *state_path;      /* borrowed */
    struct place place;
    bool is_gvisor;
    const char *runtime; /* borrowed; "" is the engine's default */
    char *seccomp;       /* owned: "seccomp=" and the profile, or the path of its file */

    struct engine *engine; /* owned */
    struct engine_events events;
    struct error *trouble; /* owned: why the engine cannot be used now; NULL when it can */
    struct docker_facts facts;
    struct engine_call info;
    enum docker_reach reach;
    enum docker_rlimits rlimits;
    struct map containers; /* by the sandbox's id; owned: struct container */
    struct unmade {        /* the last sandboxes for which no container was asked for */
        char ids[UNMADE_MAXIMUM][ID_SIZE];
        size_t next;
    } unmade;
    struct remote_jobs jobs; /* owned: struct docker_job */
    struct list late;        /* owned: struct late */
    struct images {
        struct engine_events events; /* of images: the list is read again */
        struct engine_call call;
        char **names; /* owned, sorted */
        size_t count;
        bool are_known;
    } images;
    struct engine_call relist;
    struct relay_secret {
        bool is_known;
        uint8_t bytes[RELAY_SECRET_SIZE];
    } secret;
    char cluster
        [DOCKER_CLUSTER_SIZE]; /* the name of the cluster whose nodes use the engine; or "" */
};

struct container_state;
struct docker_backend *docker_from(const struct backend *backend);

/* Reads the secret of the relay keys, on first use. */
int docker_need_secret(struct docker_backend *docker, struct error *err);
int docker_relay_key(struct docker_backend *docker, const char *id,
                     char out_text[2 * RELAY_KEY_SIZE + 1], struct error *err);

/* Whether the container is of this instance, or of the cluster that it is a node of. */
bool docker_may_remove(const struct docker_backend *docker, const struct container_state *state);

/* The filter of containers that this daemon may know: its own, or those of the cluster. Escaped for a
 * query, allocated. */
char *docker_known_filter(const struct docker_backend *docker);

/* The filter of lists: our instance, backend and state directory, as two daemons of one host have the
 * same instance unless it is set; escaped for a query, allocated. */
char *docker_label_filter(const struct docker_backend *docker);

/* --- an operation under way ------------------------------------------------------------------- */

/* The base of the allocation for one backend_op. */
struct docker_job {
    struct remote_job base;
    struct docker_backend *backend; /* borrowed */
    struct engine_call call;
};

/* Allocates `size` bytes that begin with the job. */
void *docker_job_new(size_t size, struct docker_backend *backend, struct backend_op *op,
                     const char *id);
void docker_job_done(struct docker_job *job); /* completes the operation with op->err */

/* Sends a request of the job. The path is formatted. */
void docker_job_ask(struct docker_job *job, enum http_method method, const char *body,
                    int64_t timeout_ms, engine_done_fn *done, const char *format, ...)
    PRINTF_LIKE(6, 7);

/* --- containers that came too late ------------------------------------------------------------- */

/* An engine goes on with a create whose client has left, for as long as it takes: the container
 * appears after the sandbox was destroyed, or after the daemon that asked for it was killed. Removes
 * the one with these labels if it was never started, is ours and is of no sandbox that is known, when
 * no job of its sandbox is under way any more. */
void late_consider(struct docker_backend *docker, const char *engine_id, const json_t *labels);
bool late_is_removing(const struct docker_backend *docker, const char *id); /* the sandbox's */
void late_fini(struct docker_backend *docker);                              /* after the jobs */

/* --- images --------------------------------------------------------------------------------- */

const char *images_default(const struct docker_backend *docker);

/* "" and "host" are the default. NULL with an error when there is no default or the name is no
 * reference. */
const char *images_resolve(const struct docker_backend *docker, const char *name,
                           struct error *err);
int images_check(const struct docker_backend *docker, const char *name, struct error *err);

/* As the operation find_source: the engine is asked, and through it the registry. */
bool images_find(struct docker_backend *docker, const char *name, struct backend_op *op);

/* Init is ours and starts in every image: without this check one for another processor would be noticed
 * only when none of its programs can be run. The document is the engine's description of it. */
int images_check_processor(const struct docker_backend *docker, const char *image,
                           const json_t *document, struct error *err);
void images_list(const struct docker_backend *docker, backend_source_fn *add, void *user);
void images_watch(struct docker_backend *docker); /* from now on the list is current */
void images_refresh(struct docker_backend *docker);
void images_fini(struct docker_backend *docker);

/* The error for a missing image; names the existing ones. */
void images_refuse(const struct docker_backend *docker, const char *name, const char *why,
                   struct error *err);

/* --- a container ------------------------------------------------------------------------------ */

/* | state              | leads to                                             |
 * | CONTAINER_MADE     | CONTAINER_RUNNING, gone                              |
 * | CONTAINER_RUNNING  | CONTAINER_SUSPECT                                    |
 * | CONTAINER_SUSPECT  | CONTAINER_RUNNING, CONTAINER_DEAD, CONTAINER_ENDED   |
 * | CONTAINER_DEAD     | CONTAINER_ENDED                                      |
 * | CONTAINER_ENDED    | gone                                                 | */
enum container_phase {
    CONTAINER_MADE,    /* by the engine, not started or not yet looked at */
    CONTAINER_RUNNING, /* as far as is known; it may be paused */
    CONTAINER_SUSPECT, /* a sign of its end has come: the engine is asked */
    CONTAINER_DEAD,    /* the engine says so, and its cause is waited for */
    CONTAINER_ENDED,
};

/* The act that ended the container or is about to. A more specific act replaces the one before. */
enum container_cause {
    CAUSE_NONE,
    CAUSE_ALONE,   /* its process has ended while the engine was away: the engine reports no act */
    CAUSE_KILLED,  /* a deadly signal was sent through the engine */
    CAUSE_STOPPED, /* the engine has stopped it: for good, to start it again, or to stop itself */
};

/* State of the request to start the container. */
enum container_start {
    START_UNASKED,
    START_ANSWERED,
    START_LOST, /* the engine has left before it answered: it may have forgotten the start */
};

/* Whether its processes go on.
 *
 * | state                    | leads to                                |
 * | MOTION_RUNS              | MOTION_CHANGING, MOTION_FROZEN_BY_OTHERS |
 * | MOTION_CHANGING          | MOTION_RUNS, MOTION_FROZEN              |
 * | MOTION_FROZEN            | MOTION_CHANGING                         |
 * | MOTION_FROZEN_BY_OTHERS  | MOTION_RUNS, MOTION_CHANGING            | */
enum container_motion {
    MOTION_RUNS,
    MOTION_CHANGING, /* backend_freeze() is under way */
    MOTION_FROZEN,   /* by backend_freeze() */
    MOTION_FROZEN_BY_OTHERS,
};

struct container {
    char id[ID_SIZE];              /* of the sandbox */
    struct docker_backend *docker; /* borrowed */
    enum container_phase phase;
    enum container_start start;
    char engine_id[CONTAINER_ID_SIZE];
    char started_at[CONTAINER_TIME_SIZE]; /* as the engine writes it: another one is another run */
    struct sandbox_limits limits;         /* as requested; zero after adoption */

    pid_t pid;              /* of its first process on this host; 0: elsewhere, or not known */
    struct process process; /* watches it; unwatched without a pidfd */
    bool is_paused;         /* as the engine has said last */
    enum container_motion motion;
    unsigned oom_events; /* reported by the engine */
    enum container_cause cause;
    int64_t caused_us; /* when the cause, or else the end, was reported; 0: neither was */
    struct engine_call look;
    struct timer again; /* the engine did not answer, or not all: it is asked again */
    unsigned looks;     /* without an answer, in a row */
    struct backend_end end;
    struct backend_watch *watch; /* borrowed; NULL: no observer */
    struct deferred late;        /* reports the end to a watch that was added later */

    struct door *door;     /* owned; of an init on this kernel */
    struct bridge *bridge; /* owned; of an init elsewhere */
    struct container_pump pump;
    struct backend_op *connecting; /* borrowed: waits for the door */
};

struct container *container_new(struct docker_backend *docker, const char *id);
void container_free(struct container *container); /* NULL is fine */
struct container *container_find(const struct docker_backend *docker, const char *id);
void container_name(const char *id, char name[CONTAINER_NAME_SIZE]);

/* The engine reports that the container runs: watches its process, and opens the way to its init.
 * -1 leaves it unchanged; the error is "engine_elsewhere" when a door was requested and the process
 * is not on this kernel: it has just died, or the engine is on another host. */
int container_begin(struct container *container, const char *handle_kind, struct error *err);

/* Asks the engine for the container's state, unless it is CONTAINER_MADE or CONTAINER_ENDED. */
void container_look(struct container *container);

/* The engine reports whether the container is paused: by others, unless the daemon has frozen
 * it. */
void container_note_paused(struct container *container, bool is_paused);
enum backend_motion container_motion(const struct container *container);

/* Around a change of ours. */
void container_begin_change(struct container *container, bool freezes);
void container_end_change(struct container *container, bool is_paused);

/* There is a sign that the container has ended: asks the engine. */
void container_suspect(struct container *container);
void container_on_event(struct docker_backend *docker, const json_t *event);
void container_on_engine_left(struct docker_backend *docker); /* the stream of events has ended */
void container_on_exit(struct process *process);              /* of its first process */
void container_look_again(struct timer *timer);
bool container_is_dead(const struct container *container);
void container_tell_end(struct container *container); /* to its watch, from the loop */

/* Answers a connect that waits for the door of a sandbox that has ended. NULL is fine. */
void container_refuse_connect(const char *id, struct backend_op *op);

/* The handle: "ENGINE_ID,KIND,STARTED_AT,PID", with KIND "door" or "relay". The pid is for people and
 * tools of the host, 0 when it is none of this host. */
void container_write_handle(const struct container *container, struct backend_sandbox *sandbox);

struct container_handle {
    char engine_id[CONTAINER_ID_SIZE];
    char kind[8];
    char started_at[CONTAINER_TIME_SIZE];
    int pid;
};

/* False for a text that container_write_handle() does not write. */
bool container_parse_handle(const char *text, struct container_handle *out_handle);

/* --- the engine's JSON --------------------------------------------------------------------- */

struct container_state {
    char engine_id[CONTAINER_ID_SIZE];
    char started_at[CONTAINER_TIME_SIZE];
    bool is_running; /* or paused */
    bool is_paused;
    bool is_settling; /* its process has ended, and the engine may still restart or remove it */
    bool is_removing; /* the engine removes it by force, and has killed its process for that */
    bool was_started;
    bool is_oom;
    int exit_code;
    pid_t pid;
    const char *instance, *cluster, *sandbox,
        *backend; /* labels; borrowed from the document, or "" */
};

/* False for a document that is no description of a container. */
bool container_state_read(const json_t *document, struct container_state *out_state);
struct backend_end container_state_end(const struct container_state *state, bool was_killed);
const char *json_text_at(const json_t *object, const char *key); /* "" without one */
uint64_t json_count_at(const json_t *object, const char *key); /* 0 without one, or out of range */

/* --- the operations ----------------------------------------------------------------------------- */

/* Of a create that ended before the engine was asked for a container: there is nothing to destroy, for
 * which an engine that is away would be waited for. */
void unmade_note(struct unmade *unmade, const char *id);
void unmade_forget(struct unmade *unmade, const char *id);
void docker_create(struct backend *backend, const struct sandbox_spec *spec, struct backend_op *op);
void docker_adopt(struct backend *backend, const struct backend_sandbox *sandbox,
                  struct backend_op *op);
void docker_watch(struct backend *backend, const char *id, struct backend_watch *watch);
void docker_unwatch(struct backend *backend, struct backend_watch *watch);
bool docker_is_ending(const struct backend *backend, const struct backend_watch *watch);
bool docker_connect(struct backend *backend, const char *id, struct backend_op *op);
void docker_cancel(struct backend *backend, struct backend_op *op);
void docker_update(struct backend *backend, const char *id, const struct sandbox_limits *limits,
                   struct backend_op *op);
void docker_freeze(struct backend *backend, const char *id, bool frozen, struct backend_op *op);
void docker_inspect(struct backend *backend, const char *id, struct backend_op *op);
void docker_destroy(struct backend *backend, const char *id, struct backend_op *op);
void docker_list(struct backend *backend, struct backend_op *op);
bool docker_report(struct backend *backend, const char *id, struct backend_op *op);

/* --- the request for a container ----------------------------------------------------------- */

/* The engine's description of an image. */
struct image_facts {
    const char *user, *workdir; /* borrowed from the document */
};

struct container_order {
    const struct docker_backend *docker;
    const struct sandbox_spec *spec;
    const char *image;
    const struct image_facts *facts;
    enum docker_way way;
    enum docker_rlimits rlimits;
    const char *key; /* of the relay, as text; NULL with a door */
};

/* The body of the request, allocated. */
char *container_spec_json(const struct container_order *order);
char *container_limits_json(const struct docker_backend *docker,
                            const struct sandbox_limits *limits, bool has_relay);

/* How the size of a sandbox's files is limited. */
enum docker_disk { DISK_UNLIMITED, DISK_IN_MEMORY, DISK_IN_STORAGE };

enum docker_disk docker_disk_kind(const struct docker_backend *docker);

/* The size of the files that a sandbox with these limits may have; 0: no limit. */
uint64_t container_disk_bytes(const struct docker_backend *docker,
                              const struct sandbox_limits *limits);

/* -1 when something that sandbox.require names is not in force for the container, of which the engine
 * has given this description. */
int container_require(const struct container *container, const json_t *document, struct error *err);

/* Refuses walls of sandbox.require that no container has. */
int container_check_required(const struct config *config, const char *backend, struct error *err);

/* --- init as a file --------------------------------------------------------------------------- */

/* Makes sure that the file for mounts is there, and is of this release. */
int init_file_make(int state_dir, struct error *err);

/* The profile of system calls as a file, for engines that do not take it in a request. */
int profile_file_make(int state_dir, const char *profile, struct error *err);

/* A tar archive with init at DOCKER_INIT; allocated. */
void *init_file_archive(size_t *out_length);
