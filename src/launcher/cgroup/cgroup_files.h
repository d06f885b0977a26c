/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The files of cgroups: short texts and numbers, below an open directory. */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A cgroup that every user may read: the daemon, which is another user, reads back the limits in
 * force. An existing one is fine. */
int cgroup_make(int dir, const char *name);

int cgroup_write_text(int dir, const char *name, const char *text);
int cgroup_write_number(int dir, const char *name, uint64_t value);

/* Always terminated; -1 when there is no such file. */
ssize_t cgroup_read_text(int dir, const char *name, char *text, size_t size);
uint64_t cgroup_read_number(int dir, const char *name); /* 0 when there is none */

/* The value of a line "KEY VALUE" in the file. */
uint64_t cgroup_read_keyed(int dir, const char *name, const char *key);
