#pragma once

/*
 * The launcher: the small privileged process that builds and removes walls. Single-threaded, one
 * event loop, no step that waits for a payload. It takes requests from the daemon's socket and ends
 * when that closes; the sandboxes go on.
 */

#include "launcher/ahead/spare.h"
#include "launcher/cgroup/cgroup.h"
#include "launcher/cgroup/memory_watch.h"
#include "launcher/cgroup/oom.h"
#include "launcher/fail.h"
#include "launcher/mark_cache.h"
#include "launcher/network/network.h"
#include "launcher/state.h"
#include "launcher/teardown/teardown_process.h"
#include "launcher/uid_ranges.h"
#include "launcher/walls/disk.h"
#include "launcher/walls/host.h"
#include "launcher/walls/ids.h"

#include <stdbool.h>
#include <stdint.h>

struct destroy;

struct filter_instruction {
    uint16_t code;
    uint8_t if_true, if_false;
    uint32_t value;
};

enum { NAMESPACES = 7 };

struct launcher {
    struct launch_setup setup;
    struct state state;
    struct cgroups cgroups;
    struct uid_ranges uid_ranges;
    struct host host;
    struct spares spares;
    struct teardown_process teardown;
    struct mark_cache mark_cache;
    struct network network;
    struct memory_watch memory_watch;
    struct disks disks;
    struct oom_score oom_score;
    struct filter_instruction filter[LAUNCH_MAX_FILTER];
    uint16_t filter_length; /* 0: no seccomp */
    uint32_t landlock_abi;
    bool dumps_are_piped; /* the host has a program for core dumps: only a limit of 1 keeps them off
                           */
    bool has_groups;      /* supplementary ones, for children to give up */
    uint64_t most_files;  /* hard limits, which nobody can raise */
    uint64_t most_processes;
    uint64_t namespaces[NAMESPACES]; /* inodes of the host's, in the order of sandbox.c */
    bool ready;                      /* SETUP was done */
    bool sealed;                     /* no more templates */
    bool root;                       /* has power over the host's user namespace */
    bool changes_ids;                /* can give direct sandboxes an id; root in a container too */
    enum ids_kind ids;
    int pid; /* the launcher's own, also in the builder */
    int socket;
    int init; /* the bytes of sandglass-init */
    int epoll;
    struct destroy *destroys; /* owned list: those under way */
    unsigned discarded;       /* groups that went, for their names */
    struct destroy *retries;  /* of them, those that are tried again soon */
    int64_t next_deadline_check_ms;
    unsigned deaths; /* that we were told of */
    int sweeper;     /* pid of the process that empties the trash; 0: none */
    bool trash_waits;
};

/* For the daemon's log: what has failed, and is tried again. */
void launcher_tell(struct launcher *launcher, const struct fail *fail);

/* All children that have died, orphans of sandboxes included. */
void launcher_reap(struct launcher *launcher);

/* Each fills the body of the answer, or fails. */
int launcher_setup(struct launcher *launcher, const struct launch_setup *setup, int filter,
                   struct launch_host *out_host, struct fail *fail);
int sandbox_create(struct launcher *launcher, const struct launch_create *create,
                   struct launch_made *out_made, int *out_pidfd, struct fail *fail);
int sandbox_adopt(struct launcher *launcher, const struct launch_adopt *adopt,
                  struct launch_made *out_made, int *out_pidfd, struct fail *fail);
int sandbox_update(struct launcher *launcher, const struct launch_update *update,
                   struct fail *fail);
int sandbox_freeze(struct launcher *launcher, const struct launch_freeze *freeze,
                   struct fail *fail);
int sandbox_inspect(struct launcher *launcher, const struct launch_inspect *inspect,
                    struct launch_usage *out_usage, struct fail *fail);

/* Of a process that we have a descriptor of: as long as it lives, the namespace is its own. `bit`
 * is one of enum launch_namespace. -1 with errno. */
int sandbox_open_namespace(const struct launcher *launcher, pid_t pid, int pidfd, uint32_t bit);

/* Once, at the end of the setup: what the namespaces of sandboxes are compared with. */
void sandbox_note_host(struct launcher *launcher);

/* Sends an answer; `pidfd` is borrowed, -1 for none. */
void launcher_reply(struct launcher *launcher, struct launch_reply *reply, int pidfd);
