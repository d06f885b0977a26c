/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The teardown process: a child of the launcher that drops the last references to mounts and
 * namespaces, whose removal takes the kernel a long time. The mounts of a sandbox die with its last
 * process, and the holder of the last reference waits for several RCU grace periods, and longer for
 * many files. The teardown process holds that reference, so that a destroy waits only for the
 * processes.
 *
 * Cgroups are removed here, too, and network namespaces, in a lull and after all mounts that wait:
 * for each removed memory cgroup the kernel walks over every file system, and removing a network
 * namespace takes it longer than killing a sandbox.
 */

#include "launcher/cgroup/cgroup.h"

#include <stdbool.h>
#include <stdint.h>

/* The resources to remove. */
struct teardown_job {
    int mounts;                         /* or -1 */
    int netns;                          /* or -1 */
    char cgroup_name[CGROUP_NAME_SIZE]; /* of cgroups, which are empty; "" for none */
};

struct teardown_process {
    struct cgroups *cgroups;      /* borrowed */
    void (*on_child)(void *user); /* in the new process: closes descriptors of the launcher alone */
    void *user;
    int launcher;   /* pid of the launcher, part of the names of cgroups */
    bool is_wanted; /* there are native sandboxes */
    int socket;     /* owned; -1 without one */
    int pid;
    int64_t started_s; /* the last start: a process that dies repeatedly is started once a second */
};

/* The borrowed members are set. */
void teardown_process_start(struct teardown_process *process);

/* Starts another one after a death. */
void teardown_process_turn(struct teardown_process *process);

/* Ends the process after its queue is empty. */
void teardown_process_stop(struct teardown_process *process);

/* Owns the descriptors of the job from here on. Without the process the work is done here. */
void teardown_process_take(struct teardown_process *process, const struct teardown_job *job);
