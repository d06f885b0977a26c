/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files of this machine for the program of `run`: --copy. */

#include "cli/cli.h"

/* PATH[:DEST] of each: a directory's contents go to the workspace, or to DEST in it. */
int share_copy(struct cli *cli, const struct text_list *copies, const char *session,
               struct error *err);
