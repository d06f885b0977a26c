/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Usage over time: for each live sandbox of a session a ring of samples, in memory.
 *
 * One timer serves all sandboxes: the one whose sample is due first is next. A few are measured at
 * a time and a few in a turn of the loop, so that thousands of sandboxes hold nothing else up;
 * where the backend is slow the samples are further apart. Measuring is no use of a session. A sandbox
 * that follows another one begins with an empty ring, and so do all after a restart of the daemon.
 */

#include "base/list.h"

#include <stddef.h>
#include <stdint.h>

struct core;
struct sandbox;
struct usage_sampler;

struct usage_sample {
    int64_t wall_us;
    uint64_t cpu_us; /* since the sandbox was made */
    uint64_t memory_bytes;
    uint64_t disk_bytes;
    uint32_t pids;
    uint32_t cpu_permille; /* of one core, since the sample before; 0 for the first one */
};

/* Embedded in struct sandbox; zeroed at first. */
struct usage_history {
    struct list node; /* in the sampler; unlinked while it is measured, or is not any more */
    int64_t due_us;
    struct usage_sample *samples; /* owned */
    uint32_t count, capacity;
    uint32_t oldest; /* its place, once the ring is full */
};

struct usage_sampler *usage_sampler_new(struct core *core);
void usage_sampler_free(struct usage_sampler *sampler); /* NULL is fine; after all sandboxes */

/* It is ready: its first sample is taken soon. Does nothing for one that is known. */
void usage_history_start(struct sandbox *sandbox);
void usage_history_fini(struct usage_history *history);

/* Calls on_sample for each that is newer than `since_wall_us`, the oldest first; how many. */
typedef void usage_sample_fn(void *user, const struct usage_sample *sample);
size_t usage_history_read(const struct sandbox *sandbox, int64_t since_wall_us,
                          usage_sample_fn *on_sample, void *user);
