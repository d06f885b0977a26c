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

#include <stdint.h>

struct launcher;

struct teardown_process {
    int socket; /* owned; -1 without one */
    int pid;
    int64_t started_s; /* the last one: one that dies again and again is started once a second */
};

void teardown_process_start(struct launcher *launcher);

/* Another one in the place of one that has died. */
void teardown_process_turn(struct launcher *launcher);

/* Waits until everything is closed. */
void teardown_process_stop(struct launcher *launcher);

/* Takes over what is to go. Does it here if it has to. */
struct teardown_job {
    int mounts;                         /* or -1 */
    int netns;                          /* or -1 */
    char cgroup_name[CGROUP_NAME_SIZE]; /* cgroups of that name, which are empty; "" for none */
};

void teardown_process_take(struct launcher *launcher, const struct teardown_job *job);
