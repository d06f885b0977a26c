/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The skeleton as the way into the host's /usr, so that one overlay shows both: its layers are the
 * skeleton and, below it, /usr itself. The skeleton's own /usr has the directories of the host's by
 * name, each with the attribute by which an overlay continues with another directory of the layer
 * below. Entries in the top level of that layer would appear in the root: they are hidden there.
 *
 * Such attributes are for the root of the host alone; without it there are two overlays.
 */

#include <stdbool.h>

/* Both are roots of mounts; the skeleton is filled. False when the host's /usr has something in it
 * that is neither directory nor link, or the skeleton cannot have such attributes; it is as good for
 * two overlays as before. A directory that is made in the host's /usr later is seen in the root of a
 * sandbox, not in /usr. */
bool skeleton_join_usr(int skeleton, int usr);
