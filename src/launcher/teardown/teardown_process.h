#pragma once

/*
 * The teardown process: a child of the launcher that lets go of what takes the kernel time to take down. When
 * the last process of a sandbox dies, its mounts go with it, and whoever drops the last reference
 * waits for that: several grace periods, and more the more files there are. The teardown process holds that
 * reference, so that dying takes as long as the processes need and no longer.
 *
 * Cgroups are removed here, too, and network namespaces, in a lull and after all mounts that wait:
 * for each memory cgroup that goes the kernel walks over every file system there is, and taking a
 * network apart takes it longer than killing a sandbox.
 */

#include "launcher/cgroup/cgroup.h"

#include <stdbool.h>
#include <stdint.h>

/* What is to be taken down. */
struct teardown_job {
    int mounts;                         /* or -1 */
    int netns;                          /* or -1 */
    char cgroup_name[CGROUP_NAME_SIZE]; /* of cgroups, which are empty; "" for none */
};

struct teardown_process {
    struct cgroups *cgroups;      /* borrowed */
    void (*on_child)(void *user); /* in the new process: closes what only the launcher may hold */
    void *user;
    int launcher;   /* pid of the launcher, part of the names of cgroups */
    bool is_wanted; /* there are native sandboxes */
    int socket;     /* owned; -1 without one */
    int pid;
    int64_t started_s; /* the last one: one that dies again and again is started once a second */
};

/* The borrowed members are set. */
void teardown_process_start(struct teardown_process *process);

/* Starts another one after a death. */
void teardown_process_turn(struct teardown_process *process);

/* Waits until its queue is empty. */
void teardown_process_stop(struct teardown_process *process);

/* Owns the descriptors of the job from here on. Without the process the work is done here. */
void teardown_process_take(struct teardown_process *process, const struct teardown_job *job);
