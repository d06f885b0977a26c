/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The work of the child processes of tree.h. Both report entries that they leave out on stderr, and
 * return -1 when the other entries cannot be trusted either. */

int tree_pack(const char *path, int out);
int tree_unpack(const char *path, int in);
