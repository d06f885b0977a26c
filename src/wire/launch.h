/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The messages between the daemon and the launcher: a closed list of fixed-size structs over one
 * SOCK_SEQPACKET socket, descriptors beside them. The launcher is privileged and trusts nothing in
 * them: every field has a checked range, names have an alphabet, and the only paths of the host are
 * those below directories that the operator has named before SEAL.
 *
 * The launcher starts with three descriptors: its socket, the bytes of sandglass-init and the state
 * directory. SETUP, TEMPLATE, MOUNT and ALLOW come first, before the daemon accepts connections; SEAL
 * ends that phase for good.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LAUNCH_VERSION = 1,
    LAUNCH_PROCESSES = 8,
    LAUNCH_COMM_SIZE = 20, /* the kernel's 16, and padding */
    LAUNCH_MAX_FDS = 2,
    LAUNCH_ID_SIZE = 32,
    LAUNCH_NAME_SIZE = 64,
    LAUNCH_STEP_SIZE = 48,
    LAUNCH_LIST_IDS = 64,
    LAUNCH_MAX_TEMPLATES = 64,
    LAUNCH_MAX_MOUNTS = 16,
    LAUNCH_MAX_ALLOWED = 64, /* directories that callers may mount */
    LAUNCH_MAX_BINDS = 8,    /* of them in one sandbox */
    LAUNCH_PATH_SIZE = 256,
    LAUNCH_KEY_SIZE = 32,
    LAUNCH_MAX_FILTER = 4096, /* instructions of the seccomp program, as the kernel has it */
    LAUNCH_IDS_PER_SLOT = 65536,
    /* From one slot to the next. The kernel keeps users in 128 chains, by the lowest bits of their
     * numbers and the seven above: with the same low bits for each sandbox all were in one. */
    LAUNCH_IDS_STEP = LAUNCH_IDS_PER_SLOT + 1,
};

_Static_assert(LAUNCH_IDS_STEP >= LAUNCH_IDS_PER_SLOT, "no two slots have an id in common");

/* Where the launcher finds its descriptors. */
enum { LAUNCH_FD_SOCKET = 3, LAUNCH_FD_INIT = 4, LAUNCH_FD_STATE = 5 };

enum launch_type {
    LAUNCH_SETUP = 1, /* descriptor: the seccomp program */
    LAUNCH_TEMPLATE,  /* descriptor: a directory that the operator named; before SEAL only */
    LAUNCH_MOUNT,     /* descriptor: a file or directory for every sandbox; before SEAL only */
    LAUNCH_ALLOW,     /* a directory that single sandboxes may have; before SEAL only */
    LAUNCH_SEAL,
    LAUNCH_CREATE,       /* the answer carries a pidfd */
    LAUNCH_CREATE_BOUND, /* the same, with directories of the host */
    LAUNCH_ADOPT,        /* the answer carries a pidfd */
    LAUNCH_UPDATE,
    LAUNCH_FREEZE,
    LAUNCH_INSPECT,
    LAUNCH_DESTROY,
    LAUNCH_LIST, /* several answers, the last one with more = 0 */
    LAUNCH_TYPES
};

/* The step of an answer to CREATE_BOUND about a directory of the host; the errno says why. */
#define LAUNCH_BIND_STEP "open a directory of the host"

enum launch_mode { LAUNCH_NATIVE = 1, LAUNCH_DIRECT };
enum launch_network { LAUNCH_NETWORK_NONE, LAUNCH_NETWORK_OPEN, LAUNCH_NETWORKS };

struct launch_header {
    uint32_t length; /* of the whole message: must equal the received length */
    uint16_t type;
    uint16_t version;
    uint64_t tag; /* chosen by the daemon, echoed in the answer */
};

enum launch_setup_flags {
    LAUNCH_SETUP_NATIVE = 1 << 0,        /* prepare the clone namespaces of native sandboxes */
    LAUNCH_SETUP_ALLOW_PRIVATE = 1 << 1, /* network open reaches private addresses */
    LAUNCH_SETUP_ONLY_DESTROY = 1 << 2,  /* for sweep: change nothing but the sandboxes to
                                            destroy */
    LAUNCH_SETUP_RELAY = 1 << 3, /* every init has a relay: wire/relay_frame.h over a stream */
};

struct launch_setup {
    struct launch_header header;
    char instance[LAUNCH_NAME_SIZE]; /* [a-z0-9-]: in the marks of our sandboxes */
    char hostname[LAUNCH_NAME_SIZE]; /* of every sandbox */
    uint32_t flags;
    uint32_t daemon_uid; /* may connect to the sockets of the sandboxes */
    uint32_t daemon_gid;
    uint32_t uid_base; /* slot n owns the ids from uid_base + n * LAUNCH_IDS_STEP on */
    uint32_t slots;
    uint32_t direct_uid; /* of direct sandboxes; 0: an id of the slot's range */
    uint32_t direct_gid;
    uint32_t io_operations_per_s; /* of every sandbox and disk, reading and writing; 0: no limit */
    uint64_t io_bytes_per_s;      /* the same */
};

struct launch_template {
    struct launch_header header;
    char name[LAUNCH_NAME_SIZE]; /* [a-z0-9._-], not starting with '.' */
};

struct launch_mount {
    struct launch_header header;
    char path[LAUNCH_PATH_SIZE]; /* where, inside: absolute, no "." or ".." in it */
    uint32_t read_only;
    uint32_t reserved;
};

/* The n-th of these is number n of struct launch_bind. */
struct launch_allow {
    struct launch_header header;
    char path[LAUNCH_PATH_SIZE]; /* of the host: absolute, without links */
    uint32_t read_only;
    uint32_t reserved;
};

struct launch_limits {
    uint64_t memory_bytes;
    uint64_t disk_bytes;
    uint32_t cpu_millis;
    uint32_t pids;
    uint32_t image; /* files go to a disk of the host where that can be; 0: into memory */
    uint32_t reserved;
};

struct launch_create {
    struct launch_header header;
    char id[LAUNCH_ID_SIZE];
    char template_name[LAUNCH_NAME_SIZE]; /* "host", a registered one, or an imported one */
    struct launch_limits limits;
    uint32_t mode;
    uint32_t network;
    uint8_t key[LAUNCH_KEY_SIZE]; /* of its relay, with LAUNCH_SETUP_RELAY; else zeros */
};

/* A directory of the host in one sandbox. */
struct launch_bind {
    char source[LAUNCH_PATH_SIZE]; /* relative to the allowed directory; "": that one itself */
    char path[LAUNCH_PATH_SIZE];   /* where, inside: absolute, no "." or ".." in it */
    uint32_t allowed;              /* number of the allowed directory */
    uint32_t read_only;
};

struct launch_create_bound {
    struct launch_create create; /* has the header of the whole message */
    uint32_t bind_count;
    uint32_t reserved;
    struct launch_bind binds[LAUNCH_MAX_BINDS];
};

struct launch_adopt {
    struct launch_header header;
    char id[LAUNCH_ID_SIZE];
    uint64_t start_time;
    int32_t pid;
    uint32_t reserved;
};

struct launch_update {
    struct launch_header header;
    char id[LAUNCH_ID_SIZE];
    struct launch_limits limits;
};

struct launch_freeze {
    struct launch_header header;
    char id[LAUNCH_ID_SIZE];
    uint32_t frozen;
    uint32_t reserved;
};

struct launch_inspect {
    struct launch_header header;
    char id[LAUNCH_ID_SIZE];
};

struct launch_destroy {
    struct launch_header header;
    char id[LAUNCH_ID_SIZE];
};

struct launch_list {
    struct launch_header header;
};

struct launch_seal {
    struct launch_header header;
};

/* Features of the host, found by trying. */
enum launch_feature {
    LAUNCH_HAS_ROOT = 1 << 0,
    LAUNCH_HAS_NATIVE = 1 << 1,    /* namespaces can be made */
    LAUNCH_HAS_UID_RANGE = 1 << 2, /* each sandbox has ids of its own */
    LAUNCH_HAS_IDMAP = 1 << 3,     /* files of a template belong to the sandbox's root */
    LAUNCH_HAS_SECCOMP = 1 << 4,
    LAUNCH_HAS_CGROUP_V1 = 1 << 5,
    LAUNCH_HAS_CGROUP_V2 = 1 << 6,
    LAUNCH_HAS_MEMORY = 1 << 7,
    LAUNCH_HAS_CPU = 1 << 8,
    LAUNCH_HAS_PIDS = 1 << 9,
    LAUNCH_HAS_FREEZER = 1 << 10,
    LAUNCH_HAS_NETWORK_OPEN = 1 << 11,
    LAUNCH_HAS_IO = 1 << 12, /* only looked for when there is a limit */
};

/* Namespaces that differ from the launcher's own. */
enum launch_namespace {
    LAUNCH_NS_USER = 1 << 0,
    LAUNCH_NS_PID = 1 << 1,
    LAUNCH_NS_MNT = 1 << 2,
    LAUNCH_NS_NET = 1 << 3,
    LAUNCH_NS_IPC = 1 << 4,
    LAUNCH_NS_UTS = 1 << 5,
    LAUNCH_NS_CGROUP = 1 << 6,
};

struct launch_host {
    uint32_t features;
    uint32_t landlock_abi;          /* 0: none */
    char missing[LAUNCH_STEP_SIZE]; /* the step that makes native impossible here; "" if none */
    int32_t missing_errno;
    uint32_t reserved;
};

struct launch_made {
    uint64_t start_time;
    int32_t pid;
    uint32_t slot;
    uint32_t namespaces;
    uint32_t landlock_abi; /* in force; 0: none */
    uint32_t mode;
    uint32_t network;
    uint32_t own_ids;       /* no other sandbox has the same ids */
    uint32_t network_holds; /* the rules that isolate it were read back */
    uint32_t frozen;        /* ADOPT: read from its cgroup */
    uint32_t reserved;
};

struct launch_process {
    uint64_t cpu_us;
    uint32_t pid; /* of the host; 0: none */
    char name[LAUNCH_COMM_SIZE];
};

struct launch_usage {
    uint64_t cpu_us;
    uint64_t memory_bytes;
    uint64_t memory_peak_bytes;
    uint64_t disk_bytes;
    uint32_t pids;
    uint32_t oom_kills;
    struct launch_process processes[LAUNCH_PROCESSES]; /* the busiest first */
};

struct launch_ids {
    uint32_t count;
    uint32_t more;
    char ids[LAUNCH_LIST_IDS][LAUNCH_ID_SIZE];
};

/* Every answer: error is an errno, and step names the call that failed. The type in the header is
 * that of the request and selects the body. A message with tag 0 answers no request: it is for the
 * log. */
struct launch_reply {
    struct launch_header header;
    int32_t error;
    uint32_t reserved;
    char step[LAUNCH_STEP_SIZE];
    union {
        struct launch_host host;   /* SETUP */
        struct launch_made made;   /* CREATE, CREATE_BOUND, ADOPT */
        struct launch_usage usage; /* INSPECT */
        struct launch_ids list;    /* LIST */
    } body;
};

/* Whether a request is well formed in itself: its length, its version, every field in range, every
 * text terminated and of its alphabet, and exactly the descriptors that belong to it. NULL, or the
 * fault. */
const char *launch_check(const void *message, size_t length, unsigned descriptors);

/* Processes of a sandbox that are not its payload's: init, and its relay if it has one. */
static inline uint32_t launch_own_processes(const struct launch_setup *setup)
{
    return setup->flags & LAUNCH_SETUP_RELAY ? 2 : 1;
}

/* The parts of launch_check() that both ends use. */
bool launch_id_is_valid(const char id[LAUNCH_ID_SIZE]);
bool launch_name_is_valid(const char name[LAUNCH_NAME_SIZE]);
bool launch_path_is_valid(const char path[LAUNCH_PATH_SIZE]);
