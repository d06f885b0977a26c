/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The two halves of confine.h. Each is 0, or -1 with errno when the kernel does not have it. */

#include "config/config.h"

/* The filter: what system calls are left. */
int confine_calls(void);
int confine_calls_probe(void);

/* Numbers of calls that were refused arrive here, each an int; -1 while there is no filter. */
int confine_calls_pipe(void);

/* Landlock: what files and ports are left. The version that is in force. */
int confine_files(const struct config *config);
