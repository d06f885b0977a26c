/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The skeleton of the host template on a disk. It lies in memory where the kernel can map the ids
 * of a tmpfs, from 6.3 on; before that it is a directory of the state directory, whose file system
 * usually can. Sandboxes keep using it when the launcher has gone, so it goes with the last of
 * them.
 */

#include "launcher/context.h"
#include "launcher/fail.h"

#include <stdbool.h>

/* Whether this kernel can do that at all. */
bool skeleton_maps_in_memory(const struct context *context);

/* A mount of a new, empty directory below `state`, the state directory as the host's mount namespace
 * has it. -1 where that file system cannot map ids either. */
int skeleton_make_on_disk(const struct context *context, int state, struct fail *fail);

/* Removes the directories of this state directory unless there are sandboxes. */
void skeletons_sweep(const struct context *context, int state);
