/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sandbox/usage_history.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "config/config.h"
#include "core/core.h"
#include "core/sandbox/sandbox_private.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIRST_US = 1000 * 1000, /* from ready to the first sample */
    AT_ONCE = 8,            /* measurements under way */
    PAUSE_US = 2000,        /* between two turns, when more are due */
    RING_FIRST = 16,
};

struct usage_sampler {
    struct core *core;   /* borrowed */
    struct list fresh;   /* wait for their first sample; in the order in which they are due */
    struct list steady;  /* for the next one, likewise */
    struct list pending; /* struct measurement */
    unsigned pending_count;
    struct timer timer;
};

/* The sandbox may be gone when the answer comes: it is looked for by its id. */
struct measurement {
    struct list node;
    struct backend_op op;
    struct usage_sampler *sampler;
    char id[ID_SIZE];
};

static int64_t interval_us(const struct usage_sampler *sampler)
{
    return sampler->core->parts.config->usage.interval_ms * 1000;
}

/* --- the ring -------------------------------------------------------------------------------- */

static const struct usage_sample *newest(const struct usage_history *history)
{
    if (!history->count)
        return NULL;
    return &history->samples[(history->oldest + history->count - 1) % history->capacity];
}

/* Grows until it has room for all that are kept; then the oldest one makes room. */
static struct usage_sample *add_sample(struct usage_history *history, uint32_t kept)
{
    if (history->count == history->capacity && history->capacity < kept) {
        history->capacity = MIN(MAX(2 * history->capacity, (uint32_t)RING_FIRST), kept);
        history->samples = xrealloc(history->samples, history->capacity, sizeof(*history->samples));
    }
    if (history->count < history->capacity)
        return &history->samples[history->count++];
    history->oldest = (history->oldest + 1) % history->capacity;
    return &history->samples[(history->oldest + history->count - 1) % history->capacity];
}

static uint32_t share_of_core(const struct usage_sample *before, const struct usage_sample *now)
{
    int64_t passed_us = before ? now->wall_us - before->wall_us : 0;

    if (passed_us <= 0 || now->cpu_us < before->cpu_us)
        return 0;
    return (uint32_t)MIN((now->cpu_us - before->cpu_us) * 1000 / (uint64_t)passed_us,
                         (uint64_t)UINT32_MAX);
}

static void keep(struct sandbox *sandbox, const struct sandbox_usage *usage)
{
    struct usage_history *history = &sandbox->history;
    struct usage_sample sample = {
        .wall_us = clock_wall_us(loop_clock(sandbox->core->loop)),
        .cpu_us = usage->cpu_us,
        .memory_bytes = usage->memory_bytes,
        .disk_bytes = usage->disk_bytes,
        .pids = usage->pids,
    };

    sample.wall_us -= sample.wall_us % 1000; /* as it is shown: its time asks for what follows it */
    sample.cpu_permille = share_of_core(newest(history), &sample);
    *add_sample(history, (uint32_t)sandbox->core->parts.config->usage.samples) = sample;
}

/* --- one after the other ---------------------------------------------------------------------- */

static void arm(struct usage_sampler *sampler);

static void wait_for_next(struct usage_sampler *sampler, struct sandbox *sandbox)
{
    sandbox->history.due_us = loop_now_us(sampler->core->loop) + interval_us(sampler);
    list_append(&sampler->steady, &sandbox->history.node);
}

static void on_measured(struct backend_op *op)
{
    struct measurement *measurement = container_of(op, struct measurement, op);
    struct usage_sampler *sampler = measurement->sampler;
    struct sandbox *sandbox = map_get(&sampler->core->sandboxes_by_id, measurement->id);

    list_remove(&measurement->node);
    sampler->pending_count--;
    if (sandbox && sandbox_is_up(sandbox)) {
        if (!op->err.code)
            keep(sandbox, &op->result.usage);
        wait_for_next(sampler, sandbox);
    }
    free(measurement);
    arm(sampler);
}

static void measure(struct usage_sampler *sampler, struct sandbox *sandbox)
{
    struct measurement *measurement = xnew(struct measurement);

    measurement->op.done = on_measured;
    measurement->sampler = sampler;
    memcpy(measurement->id, sandbox->id, sizeof(measurement->id));
    list_append(&sampler->pending, &measurement->node);
    sampler->pending_count++;
    backend_inspect(sandbox->order.backend, measurement->id, &measurement->op);
}

/* The history that is due first; NULL when there is none. */
static struct usage_history *first(const struct usage_sampler *sampler)
{
    struct usage_history *fresh = list_first(&sampler->fresh, struct usage_history, node);
    struct usage_history *steady = list_first(&sampler->steady, struct usage_history, node);

    if (!fresh || !steady)
        return fresh ? fresh : steady;
    return fresh->due_us < steady->due_us ? fresh : steady;
}

static void on_timer(struct timer *timer)
{
    struct usage_sampler *sampler = container_of(timer, struct usage_sampler, timer);
    int64_t now_us = loop_now_us(timer->loop);
    struct usage_history *history = first(sampler);

    for (unsigned i = 0; i < AT_ONCE && sampler->pending_count < AT_ONCE && history &&
                         history->due_us <= now_us && !sampler->core->stopping;
         i++) {
        struct sandbox *sandbox = container_of(history, struct sandbox, history);

        list_remove(&history->node);
        if (sandbox_is_up(sandbox))
            measure(sampler, sandbox);
        history = first(sampler);
    }
    arm(sampler);
}

/* With as many under way as may be, the next answer arms it. */
static void arm(struct usage_sampler *sampler)
{
    const struct usage_history *history = first(sampler);
    int64_t soon_us = loop_now_us(sampler->core->loop) + PAUSE_US;

    if (history && sampler->pending_count < AT_ONCE && !sampler->core->stopping)
        timer_arm_at(&sampler->timer, MAX(history->due_us, soon_us));
    else
        timer_stop(&sampler->timer);
}

/* --- for others ------------------------------------------------------------------------------ */

struct usage_sampler *usage_sampler_new(struct core *core)
{
    struct usage_sampler *sampler = xnew(struct usage_sampler);

    sampler->core = core;
    list_init(&sampler->fresh);
    list_init(&sampler->steady);
    list_init(&sampler->pending);
    timer_init(&sampler->timer, core->loop, on_timer);
    return sampler;
}

void usage_sampler_free(struct usage_sampler *sampler)
{
    struct measurement *measurement;

    if (!sampler)
        return;
    timer_stop(&sampler->timer);
    while ((measurement = list_first(&sampler->pending, struct measurement, node))) {
        list_remove(&measurement->node);
        free(measurement);
    }
    free(sampler);
}

void usage_history_start(struct sandbox *sandbox)
{
    struct usage_sampler *sampler = sandbox->core->sampler;
    struct usage_history *history = &sandbox->history;

    if (!interval_us(sampler) || history->due_us || !sandbox->order.session ||
        !sandbox->order.backend->ops->capabilities.usage)
        return;
    history->due_us = loop_now_us(sandbox->core->loop) + FIRST_US;
    list_append(&sampler->fresh, &history->node);
    arm(sampler);
}

void usage_history_fini(struct usage_history *history)
{
    list_remove(&history->node);
    free(history->samples);
}

size_t usage_history_read(const struct sandbox *sandbox, int64_t since_wall_us,
                          usage_sample_fn *on_sample, void *user)
{
    const struct usage_history *history = &sandbox->history;
    size_t given = 0;

    for (uint32_t i = 0; i < history->count; i++) {
        const struct usage_sample *sample =
            &history->samples[(history->oldest + i) % history->capacity];

        if (sample->wall_us <= since_wall_us)
            continue;
        on_sample(user, sample);
        given++;
    }
    return given;
}
