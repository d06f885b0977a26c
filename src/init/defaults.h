/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Defaults of a program or a file operation: user, initial directory, and variables of the
 * environment. In a container they come from the image, by --user, --workspace, --home and
 * --environment.
 */

#include "init/user.h"

enum { DEFAULTS_MAX_BYTES = 32 * 1024 }; /* of the variables, with their NULs */

/* At init's start: makes the workspace and the home of its arguments if they are missing, and
 * ignores one that cannot be made. With --environment it uses the variables of init's own
 * environment, without copying them. -1 when they exceed DEFAULTS_MAX_BYTES. */
int defaults_prepare(char **environment);

/* The user that a request names, or the default one. Name, home and shell of another user are
 * looked up only if they are wanted or needed. 0, or an errno: EINVAL when there is no such
 * user. */
int defaults_find_user(const char *text, bool wants_details, struct user *out_user);

/* Where this user's programs begin: the workspace, or the user's home. Not in a direct sandbox. */
const char *defaults_directory(const struct user *user);

/* Makes the initial directory again if a program has removed it. With init's own rights. */
void defaults_restore_directory(const struct user *user);

/* Enters it, with the user's rights, or else the user's home, or else the root. In a direct sandbox
 * everything has begun in the right one. 0 or -errno. */
long defaults_enter_directory(const struct user *user);

/* Variables that a program gets unless its request has them. Ends with NULL. */
const char *const *defaults_environment(void);

/* --- pure, for defaults_prepare and the tests ------------------------------------------------- */

/* Moves the variables that count to the front of the list, in their order, and ends it there. -1 when
 * they are too many or too long. SANDGLASS_* are init's, and engines set HOME and the like for the
 * user that init runs as. */
int defaults_select_variables(char **environment);
