/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sandbox/pool.h"

#include "base/alloc.h"
#include "base/backoff.h"
#include "base/log.h"
#include "base/str.h"
#include "config/config.h"
#include "core/metrics.h"
#include "core/sandbox/demand.h"
#include "core/sandbox/sandbox_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct pool {
    struct core *core;        /* borrowed */
    struct list ready;        /* struct sandbox */
    struct sandbox *creating; /* borrowed; one at a time */
    struct deferred refill;
    struct timer retry;
    struct timer look;       /* at the memory, while there are members */
    struct timer head_start; /* of the session that took a member, for its first program */
    struct timer lull;       /* since a member was taken */
    struct timer rest;       /* since the pool has changed */
    struct demand demand;
    bool (*memory_is_tight)(void);
    unsigned failures; /* in a row */
    bool active;
};

/* --- refilling ----------------------------------------------------------------------------- */

enum {
    LEAST_FREE_PERCENT = 5,
    TIGHT_RETRY_US = 30 * 1000 * 1000,
    LOOK_US = 10 * 1000 * 1000,
    SHRINK_US = 1000 * 1000, /* one by one: each that goes may be enough */
    LOOKED_US = 100 * 1000,
    HEAD_START_US = 3000,
    LULL_US = 20 * 1000,
    REST_US = 100 * 1000,
    NEXT_WARM_US = 20 * 1000,
};

static const struct backoff refill_backoff_us = { .first = 800 * 1000, .most = 30 * 1000 * 1000 };

/* A host that is short of memory needs it for the sandboxes of sessions. */
static bool memory_is_tight(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    unsigned long long total_kb = 0;
    unsigned long long free_kb = 0;
    unsigned long long available_kb = 0;
    bool known;

    if (!file)
        return false;
    known = fscanf(file, "MemTotal: %llu kB MemFree: %llu kB MemAvailable: %llu kB", &total_kb,
                   &free_kb, &available_kb) == 3;
    fclose(file);
    return known && available_kb * 100 < total_kb * LEAST_FREE_PERCENT;
}

/* Asked for each member that is made; an answer holds for a while, because the kernel has to count
 * for it. */
static bool memory_was_tight(void)
{
    static int64_t looked_us;
    static bool was_tight;
    int64_t now_us = clock_now_us(&clock_system);

    if (!looked_us || now_us - looked_us > LOOKED_US) {
        was_tight = memory_is_tight();
        looked_us = now_us;
    }
    return was_tight;
}

static int64_t now_us(const struct pool *pool)
{
    return loop_now_us(pool->core->loop);
}

/* How many it would have now. */
static size_t wanted(const struct pool *pool)
{
    const struct config *config = pool->core->parts.config;
    size_t size = (size_t)config->pool_size;
    size_t peak = MIN(demand_peak(&pool->demand, now_us(pool)), (size_t)config->pool_peak);

    return size ? MAX(size, peak) : 0;
}

/* Making one takes the processor from the session that has just got one: that waits for a lull,
 * unless the pool is half empty and there is no crowd that waits, and for a moment even then. */
static bool may_wait(const struct pool *pool)
{
    size_t ready = pool_ready(pool);

    if (ready && timer_is_armed(&pool->head_start))
        return true;
    return timer_is_armed(&pool->lull) &&
           (ready * 2 >= (size_t)pool->core->parts.config->pool_size ||
            demand_busy_us(&pool->demand, now_us(pool)) > 0);
}

static void refill(struct pool *pool)
{
    struct sandbox_order order;

    if (!pool->active || pool->creating || timer_is_armed(&pool->retry) || may_wait(pool))
        return;
    if (pool_ready(pool) >= wanted(pool))
        return;
    if (!capacity_has_spare(pool->core->capacity))
        return;
    if (pool->memory_is_tight()) {
        timer_arm_in(&pool->retry, TIGHT_RETRY_US);
        return;
    }
    order = sandbox_default_order(pool->core);
    pool->creating = sandbox_start(pool->core, &order);
}

static void on_refill(struct deferred *deferred)
{
    refill(container_of(deferred, struct pool, refill));
}

static void on_retry(struct timer *timer)
{
    refill(container_of(timer, struct pool, retry));
}

static void on_head_start_over(struct timer *timer)
{
    refill(container_of(timer, struct pool, head_start));
}

static void on_lull(struct timer *timer)
{
    refill(container_of(timer, struct pool, lull));
}

/* A Python costs more than a whole sandbox: members that are taken faster than that have none.
 * The oldest, which goes first, has its Python first; what is kept for a crowd beyond the size of
 * the pool has none. */
static void on_rest(struct timer *timer)
{
    struct pool *pool = container_of(timer, struct pool, rest);
    int64_t left = pool->core->parts.config->pool_size;
    struct sandbox *member;

    list_for_each (member, &pool->ready, pool_node) {
        if (left-- == 0)
            return;
        (void)sandbox_read_report(member, NULL, NULL);
        if (!member->python_zygote) {
            pool->core->programs->prepare_python(member);
            if (member->python_zygote)
                timer_arm_in(&pool->rest, NEXT_WARM_US);
            return;
        }
    }
}

/* The youngest: the others may have a Python. */
static bool shed_surplus(struct pool *pool)
{
    if (pool_ready(pool) <= wanted(pool))
        return false;
    sandbox_destroy(list_last(&pool->ready, struct sandbox, pool_node), END_EVICTED, NULL);
    return true;
}

static void on_look(struct timer *timer)
{
    struct pool *pool = container_of(timer, struct pool, look);
    bool shrinks = pool->memory_is_tight();

    if (shrinks && pool_yield(pool)) {
        metrics_add(pool->core->metrics, METRIC_POOL_SHRUNK, 0, 1);
        log_info("memory is short: removing a sandbox from the pool", kv("left", pool_ready(pool)));
    } else if (!shrinks) {
        shrinks = shed_surplus(pool);
    }
    if (!list_is_empty(&pool->ready))
        timer_arm_in(&pool->look, shrinks ? SHRINK_US : LOOK_US);
}

void pool_kick(struct pool *pool)
{
    loop_defer(pool->core->loop, &pool->refill, on_refill);
}

struct pool *pool_new(struct core *core)
{
    struct pool *pool = xnew(struct pool);

    pool->core = core;
    list_init(&pool->ready);
    timer_init(&pool->retry, core->loop, on_retry);
    timer_init(&pool->look, core->loop, on_look);
    timer_init(&pool->head_start, core->loop, on_head_start_over);
    timer_init(&pool->lull, core->loop, on_lull);
    timer_init(&pool->rest, core->loop, on_rest);
    demand_init(&pool->demand, (unsigned)MAX(sysconf(_SC_NPROCESSORS_ONLN), 1L));
    pool->memory_is_tight = memory_was_tight;
    return pool;
}

void pool_free(struct pool *pool)
{
    if (!pool)
        return;
    timer_stop(&pool->retry);
    timer_stop(&pool->look);
    timer_stop(&pool->head_start);
    timer_stop(&pool->lull);
    timer_stop(&pool->rest);
    loop_undefer(pool->core->loop, &pool->refill);
    free(pool);
}

void pool_start(struct pool *pool)
{
    pool->active = true;
    pool_kick(pool);
}

void pool_stop(struct pool *pool)
{
    pool->active = false;
    timer_stop(&pool->retry);
    timer_stop(&pool->look);
    timer_stop(&pool->head_start);
    timer_stop(&pool->lull);
    timer_stop(&pool->rest);
    while (pool_yield(pool))
        ;
}

/* --- members ------------------------------------------------------------------------------- */

/* Members have the default disk. A disk in memory is resized; an image keeps its size, and a larger
 * disk may need one. */
static bool has_disk_for(const struct config *config, const struct sandbox_order *order)
{
    uint64_t wanted = order->limits.disk_bytes;

    switch ((enum config_disk)config->sandbox.disk_kind) {
    case CONFIG_DISK_AUTO:
        return wanted <= config->sandbox.disk_bytes;
    case CONFIG_DISK_IMAGE:
        return wanted == config->sandbox.disk_bytes;
    case CONFIG_DISK_MEMORY:
        break;
    }
    return true;
}

/* Whether the members can get the limits of the order: a backend with fixed limits cannot change
 * those that they were made with. */
static bool has_limits_for(const struct pool *pool, const struct sandbox_order *order)
{
    const struct sandbox_limits made = sandbox_default_order(pool->core).limits;
    const struct sandbox_limits *wanted = &order->limits;

    return !order->backend->ops->capabilities.fixed_limits ||
           (made.memory_bytes == wanted->memory_bytes && made.cpu_millis == wanted->cpu_millis &&
            made.pids == wanted->pids && made.disk_bytes == wanted->disk_bytes);
}

static bool fits(const struct pool *pool, const struct sandbox_order *order)
{
    const struct config *config = pool->core->parts.config;
    struct backend *backend = sandbox_default_backend(pool->core);
    struct sandbox_source source = { SOURCE_TEMPLATE, backend_default_source(
                                                          backend, config->sandbox.template_name) };
    struct network_policy network = { .mode = (enum network_mode)config->sandbox.network };

    return sandbox_source_equals(&order->source, &source) && order->backend == backend &&
           network_policy_equals(&order->network, &network) && !order->gpus &&
           !order->mounts_json && has_disk_for(config, order) && has_limits_for(pool, order);
}

/* The first that lives: death may be known to the kernel, and not yet to us. */
static struct sandbox *first_alive(struct pool *pool)
{
    struct sandbox *member;

    while ((member = list_first(&pool->ready, struct sandbox, pool_node)) &&
           sandbox_notice_death(member))
        sandbox_destroy(member, END_CRASHED, "in the pool");
    return member;
}

/* Each request delays refilling and the other work that no session waits for. */
static void note_demand(struct pool *pool)
{
    int64_t busy_us;

    demand_note(&pool->demand, now_us(pool));
    busy_us = demand_busy_us(&pool->demand, now_us(pool));
    timer_arm_in(&pool->head_start, HEAD_START_US);
    timer_arm_in(&pool->lull, MAX((int64_t)LULL_US, busy_us));
    timer_arm_in(&pool->rest, MAX((int64_t)REST_US, busy_us));
}

struct sandbox *pool_take(struct pool *pool, const struct sandbox_order *order)
{
    struct sandbox *member = NULL;

    if (!pool->core->parts.config->pool_size || !fits(pool, order))
        return NULL;
    /* Owners without room for another sandbox are not counted as demand. */
    if (capacity_may_have(pool->core->capacity, order->owner)) {
        note_demand(pool);
        pool_kick(pool);
        member = first_alive(pool);
    }
    if (!member || !capacity_transfer(pool->core->capacity, member, order->owner)) {
        metrics_add(pool->core->metrics, METRIC_POOL_MISSES, 0, 1);
        return NULL;
    }
    list_remove(&member->pool_node);
    metrics_add(pool->core->metrics, METRIC_POOL_HITS, 0, 1);
    return member;
}

bool pool_yield(struct pool *pool)
{
    struct sandbox *member = list_first(&pool->ready, struct sandbox, pool_node);

    if (!member)
        member = pool->creating;
    if (!member)
        return false;
    sandbox_destroy(member, END_EVICTED, NULL);
    return true;
}

void pool_judge_memory(struct pool *pool, bool (*is_tight)(void))
{
    pool->memory_is_tight = is_tight;
}

size_t pool_ready(const struct pool *pool)
{
    struct sandbox *member;
    size_t count = 0;

    list_for_each (member, &pool->ready, pool_node)
        count++;
    return count;
}

void pool_on_ready(struct pool *pool, struct sandbox *sandbox)
{
    pool->creating = NULL;
    pool->failures = 0;
    list_append(&pool->ready, &sandbox->pool_node);
    /* Now, when no session waits: to read it from the kernel takes longer than to hand it over. */
    if (!timer_is_armed(&pool->lull))
        (void)sandbox_read_report(sandbox, NULL, NULL);
    timer_arm_in(&pool->rest, timer_is_armed(&pool->lull) ? REST_US : NEXT_WARM_US);
    if (!timer_is_armed(&pool->look))
        timer_arm_in(&pool->look, LOOK_US);
    pool_kick(pool);
}

/* Without room there is nothing to try again: the next slot that is released asks for a refill. */
void pool_on_failed(struct pool *pool, struct sandbox *sandbox, const struct error *err)
{
    if (pool->creating == sandbox)
        pool->creating = NULL;
    if (err->code == ERR_LIMIT)
        return;
    metrics_add(pool->core->metrics, METRIC_SANDBOX_CREATE_FAILURES, 0, 1);
    log_warn("pool could not be refilled; trying again", kv("error", err->message));
    pool->failures++;
    timer_arm_in(&pool->retry, backoff_delay(&refill_backoff_us, pool->failures));
}

void pool_on_leaving(struct pool *pool, struct sandbox *sandbox)
{
    if (pool->creating == sandbox)
        pool->creating = NULL;
    list_remove(&sandbox->pool_node);
}
