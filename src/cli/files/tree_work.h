#pragma once

/* What the child processes of tree.h do. Both tell on stderr what they leave out, and return -1
 * when the rest is not to be trusted either. */

int tree_pack(const char *path, int out);
int tree_unpack(const char *path, int in);
