#pragma once

/* Rights: what init keeps for itself, what a process gets, and how a helper acts for a user. */

#include "init/user.h"

/* At init's start: what root among the processes may have at most, and nothing to inherit. */
void credentials_prepare(void);

/* The caller is what the out-of-memory killer should take, not init. An init without privilege
 * cannot do this for others once it is not dumpable: then it volunteers itself, and they inherit
 * that. */
void credentials_volunteer_for_the_oom_killer(void);

/* Nothing that the caller starts will have a capability. */
void credentials_drop_bounding(void);

/* The process becomes the user, for good. 0 or -errno. */
int credentials_become(const struct user *user);

/* The last step before exec: no new privileges, and the system call filter. 0 or -errno. */
int credentials_seal(const struct user *user);

/* Files are reached with these ids until it is called again; for an init that may switch users. 0 or
 * -errno. */
int credentials_reach_files_as(uint32_t uid, uint32_t gid);

/* Files are reached with the user's rights from here on; all other ids of the caller stay, so that
 * the user's own processes cannot signal it. 0 or -errno. */
int credentials_act_for(const struct user *user);

/* init's own, for the report. */
uint64_t credentials_effective(void);
