#pragma once

/* What a native sandbox needs beyond spawn.h: its namespaces, its root, its store. */

#include "launcher/walls/spawn.h"

/* How many files the limits allow for. */
uint64_t native_inodes(const struct launcher *launcher, const struct launch_limits *limits);

int native_start(struct spawn *spawn);
int native_resize_store(const struct launcher *launcher, int store,
                        const struct launch_limits *limits, struct fail *fail);

/* Assembles everything of the root that can be made before there is a process, in a mount namespace
 * that nobody else has; gives it detached, -1 on failure. */
int root_prepare(struct spawn *spawn);

/* Assembles the root in the child's own mount namespace and changes to it. */
int root_build(struct spawn *spawn);

/* Users, host name and resolver in the new root, before it is entered. */
int passwd_write(struct spawn *spawn);

/* A user namespace with the ids of this slot, in which no other can be made. */
int userns_make(struct launcher *launcher, uint32_t slot, struct fail *fail);

/* A network namespace with loopback up and nothing else. */
int netns_make(struct launcher *launcher, struct fail *fail);

enum { NETNS_TRACES = 4 };

/* The files by which a network namespace tells about its past. They take longer to open than to
 * read, and stay open for as long as it may come back. */
struct netns_traces {
    bool is_open;
    int files[NETNS_TRACES]; /* owned; -1 where there is nothing to tell */
};

void netns_traces_init(struct netns_traces *traces);
void netns_traces_close(struct netns_traces *traces);

/* Whether a namespace of a dead sandbox is as when it was made: no socket is in it, and nothing was
 * ever sent. The traces are of this namespace, or not open yet. */
bool netns_is_unused(struct launcher *launcher, int netns, struct netns_traces *traces);
