/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The parts of a native sandbox beyond spawn.h: its namespaces, its root, its store. */

#include "launcher/walls/spawn.h"

struct disks;

/* How many files the limits allow for. */
uint64_t native_inodes(const struct disks *disks, const struct launch_limits *limits);

int native_start(struct spawn *spawn);
int native_resize_store(const struct disks *disks, int store, const struct launch_limits *limits,
                        struct fail *fail);

/* Assembles everything of the root that can be made before there is a process, in a mount namespace
 * that no other process has; gives it detached, -1 on failure. */
int root_prepare(struct spawn *spawn);

/* Assembles the root in the child's own mount namespace and changes to it. */
int root_build(struct spawn *spawn);

/* Users, host name and resolver in the new root, before it is entered. */
int passwd_write(struct spawn *spawn);
