#pragma once

/*
 * The root of the host template: everything but /usr, made up by us. Accounts are synthetic; of the
 * host's /etc only what is on a list and readable for everybody is copied.
 */

#include "launcher/fail.h"

#include <sys/types.h>

/* Fills the empty directory; the host's files are under "/". Owners are who we are; the home of the
 * user is given away by the caller. */
int skeleton_fill(int dir, const char *hostname, struct fail *fail);

/* Gives the directories of a root that was made from it to the sandbox: where ids cannot be mapped. */
int skeleton_own(const char *root, uid_t owner);
