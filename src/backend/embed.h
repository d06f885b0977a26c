/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The programs that this one carries, so that it is a single file to install. */

#include <stddef.h>

extern const unsigned char embedded_init[];
extern const unsigned char embedded_init_end[];
extern const unsigned char embedded_launcher[];
extern const unsigned char embedded_launcher_end[];
