/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Usage of the sandbox as seen from inside: the files of its own cgroup, which runtimes mount at
 * /sys/fs/cgroup, and the processes of its /proc. Without a visible cgroup the processes are summed
 * up.
 */

#include "wire/relay_frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void relay_usage_read(struct relay_usage *out_usage);

/* --- pure, for the tests -------------------------------------------------------------------- */

/* The number behind a word at the start of a line; 0 when there is none. An empty word: at the start of
 * the text. */
uint64_t usage_find_number(const char *text, size_t length, const char *word);

struct usage_stat {
    struct relay_process process; /* without its number */
    uint64_t memory_bytes;        /* that is resident */
};

/* The content of /proc/PID/stat, whose name may hold anything. */
bool usage_parse_stat(const char *text, size_t length, struct usage_stat *out_stat);

/* Keeps the busiest processes in order. */
void usage_insert(struct relay_usage *usage, const struct relay_process *process);
