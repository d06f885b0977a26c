#pragma once

/*
 * The root of the host template: everything but /usr, made up by us. Accounts are synthetic; of the
 * host's /etc only what is on a list and readable for everybody is copied.
 */

#include "launcher/fail.h"

/* Fills the empty directory; the host's files are under "/". */
int skeleton_fill(int dir, const char *hostname, struct fail *fail);
