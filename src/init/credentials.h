/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Rights of init itself, of a process, and of a helper that acts for a user. */

#include "init/user.h"

/* At init's start: reduces the bounding set to the capabilities of root's processes and empties the
 * inheritable set. */
void credentials_prepare(void);

/* Makes the OOM killer prefer the caller over init. An init without privilege that is not dumpable
 * cannot do this for its children: then it volunteers itself, and they inherit the value. */
void credentials_volunteer_for_the_oom_killer(void);

/* Empties the bounding set: no program that the caller starts has a capability. */
void credentials_drop_bounding(void);

/* The process becomes the user, for good. 0 or -errno. */
int credentials_become(const struct user *user);

/* The last step before exec: no new privileges, and the system call filter. 0 or -errno. */
int credentials_seal(const struct user *user);

/* Files are accessed with these ids until the next call; for an init that may switch users. 0 or
 * -errno. */
int credentials_reach_files_as(uint32_t uid, uint32_t gid);

/* Files are reached with the user's rights from here on; all other ids of the caller stay, so that
 * the user's own processes cannot signal it. With `by_root` root's rights over files are kept as
 * far as init has them; new files belong to the user all the same. 0 or -errno. */
int credentials_act_for(const struct user *user, bool by_root);

/* init's own, for the report. */
uint64_t credentials_effective(void);
