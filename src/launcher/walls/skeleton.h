/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The root of the host template: everything but /usr, made up by us. Accounts are synthetic; of the
 * host's /etc only listed files that are world-readable are copied.
 */

#include "launcher/fail.h"

#include <sys/types.h>

/* Fills the empty directory; the host's files are under "/". The caller's user owns all files; the
 * caller gives the home to its user. */
int skeleton_fill(int dir, const char *hostname, struct fail *fail);

/* Gives the directories of a root that was made from it to the sandbox: where ids cannot be mapped. */
int skeleton_own(const char *root, uid_t owner);
