/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The /etc/profile of the host template. Debian's runs `id -u`, and that takes more than half of
 * the start of a login shell; bash has the uid already (EUID).
 */

#include <stddef.h>

/* Writes the text to out with ${EUID:-$(id -u)} in place of $(id -u), which means the same in every
 * shell. Returns the length, 0 where nothing changes or the result does not fit into size bytes. */
size_t profile_rewrite(const char *text, size_t length, char *out, size_t size);

/* Rewrites the file "profile" of a directory. A file that is missing, too long, or does not run `id
 * -u` is left unchanged. */
void skeleton_profile(int etc);
