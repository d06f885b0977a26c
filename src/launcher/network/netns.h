/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Network namespaces of sandboxes: with loopback up and nothing else. The launcher enters them for a
 * moment and comes back to its own.
 */

#include "launcher/fail.h"

#include <stdbool.h>

/* Descriptors to enter a namespace and to return; both borrowed. */
struct netns_home {
    int proc;  /* the host's /proc */
    int netns; /* the launcher's own network namespace */
};

/* A descriptor of a new one, or -1. */
int netns_make(const struct netns_home *home, struct fail *fail);

enum { NETNS_TRACES = 4 };

/* The files by which a network namespace reports its past. They take longer to open than to read, and
 * stay open for as long as the namespace may be used again. */
struct netns_traces {
    bool is_open;
    int files[NETNS_TRACES]; /* owned; -1 where the kernel has no such file */
};

void netns_traces_init(struct netns_traces *traces);
void netns_traces_close(struct netns_traces *traces);

/* Whether the namespace of a dead sandbox is as it was when it was made: it holds no socket, and never
 * sent a packet. The traces are of this namespace, or not open yet. */
bool netns_is_unused(const struct netns_home *home, int netns, struct netns_traces *traces);
