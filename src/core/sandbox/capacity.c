/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sandbox/capacity.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/map.h"
#include "base/str.h"
#include "config/config.h"
#include "core/metrics.h"
#include "core/sandbox/pool.h"
#include "core/sandbox/sandbox_private.h"
#include "wire/json.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

enum { LEAVING_TIMEOUT_US = 30 * 1000 * 1000 };

struct capacity_owner {
    char *name; /* owned */
    size_t held;
    size_t leaving; /* of the held ones: being destroyed */
    size_t waiting;
    size_t slots; /* held or waiting: it is known as long as there are any */
};

struct capacity {
    struct core *core; /* borrowed */
    struct map owners; /* struct capacity_owner */
    struct list queue; /* struct capacity_slot, in order of arrival */
    struct list idle;  /* struct capacity_slot, the least recently used first (LRU) */
    size_t held;
    size_t leaving;
    size_t waiting;
};

static const struct grant_rules slot_rules;

struct capacity *capacity_new(struct core *core)
{
    struct capacity *capacity = xnew(struct capacity);

    capacity->core = core;
    grants_set_rules(core->grants, GRANT_SLOTS, &slot_rules);
    list_init(&capacity->queue);
    list_init(&capacity->idle);
    return capacity;
}

void capacity_free(struct capacity *capacity)
{
    struct map_slot *slot;

    if (!capacity)
        return;
    map_for_each (slot, &capacity->owners) {
        struct capacity_owner *owner = slot->value;

        free(owner->name);
        free(owner);
    }
    map_fini(&capacity->owners);
    free(capacity);
}

/* --- counting ------------------------------------------------------------------------------ */

static struct sandbox *sandbox_of_slot(struct capacity_slot *slot)
{
    return container_of(slot, struct sandbox, slot);
}

static struct capacity_owner *owner_ref(struct capacity *capacity, const char *name)
{
    struct capacity_owner *owner;

    if (!name)
        return NULL;
    owner = map_get(&capacity->owners, name);
    if (!owner) {
        owner = xnew(struct capacity_owner);
        owner->name = xstrdup(name);
        map_put(&capacity->owners, owner->name, owner);
    }
    owner->slots++;
    return owner;
}

static void owner_unref(struct capacity *capacity, struct capacity_owner *owner)
{
    if (!owner || --owner->slots > 0)
        return;
    map_remove(&capacity->owners, owner->name);
    free(owner->name);
    free(owner);
}

/* 0 is no cap. */
static bool has_room(const struct capacity *capacity)
{
    int64_t cap = capacity->core->parts.config->capacity.max_sandboxes;

    return cap == 0 || capacity->held < (size_t)cap;
}

/* Slots beyond the cap, for sandboxes that would have to wait or be rejected. */
static bool has_burst(const struct capacity *capacity)
{
    const struct config *config = capacity->core->parts.config;

    return has_room(capacity) ||
           capacity->held < (size_t)(config->capacity.max_sandboxes + config->capacity.burst);
}

static bool is_below_cap(const struct capacity *capacity, const struct capacity_owner *owner)
{
    int64_t cap = capacity->core->parts.config->capacity.max_per_owner;

    return !owner || cap == 0 || owner->held < (size_t)cap;
}

/* Below the cap, with as many on other nodes as they may have. */
static bool is_granted(const struct capacity *capacity, const char *owner)
{
    return capacity->core->parts.config->capacity.max_per_owner == 0 ||
           grant_room(capacity->core->grants, GRANT_SLOTS, owner) > 0;
}

static bool owner_has_room(const struct capacity *capacity, const struct capacity_owner *owner)
{
    return is_below_cap(capacity, owner) && (!owner || is_granted(capacity, owner->name));
}

static void note_use(const struct capacity *capacity, const struct capacity_owner *owner)
{
    if (owner && capacity->core->parts.config->capacity.max_per_owner)
        grant_note_use(capacity->core->grants, GRANT_SLOTS, owner->name);
}

static void hold(struct capacity *capacity, struct capacity_slot *slot)
{
    slot->state = SLOT_HELD;
    capacity->held++;
    if (slot->owner)
        slot->owner->held++;
    note_use(capacity, slot->owner);
}

static void leave_queue(struct capacity *capacity, struct capacity_slot *slot)
{
    grant_wish_end(&slot->wish);
    list_remove(&slot->node);
    timer_stop(&slot->timeout);
    slot->state = SLOT_NONE;
    capacity->waiting--;
    slot->owner->waiting--;
}

static void drop_owner(struct capacity *capacity, struct capacity_slot *slot)
{
    owner_unref(capacity, steal_ptr(&slot->owner));
}

/* --- nothing is free ----------------------------------------------------------------------- */

/* When the owner's own cap is the narrow one, only one of its own helps. */
static struct sandbox *find_least_recently_used(const struct capacity *capacity,
                                                const struct capacity_owner *only)
{
    struct capacity_slot *slot;

    list_for_each (slot, &capacity->idle, idle) {
        if (!only || slot->owner == only)
            return sandbox_of_slot(slot);
    }
    return NULL;
}

static bool evict_one(struct capacity *capacity, const struct capacity_owner *only)
{
    struct sandbox *victim = find_least_recently_used(capacity, only);

    if (!victim)
        return false;
    log_info("sandbox evicted", kv("sandbox", victim->id), kv("session", victim->order.session_id));
    metrics_add(capacity->core->metrics, METRIC_SANDBOX_EVICTIONS, 0, 1);
    sandbox_emit(victim, "sandbox.evicted", NULL);
    sandbox_destroy(victim, END_EVICTED, NULL);
    return true;
}

/* Whether a slot for this owner is becoming free, perhaps because something had to go. */
static bool make_room(struct capacity *capacity, const struct capacity_owner *owner)
{
    int overflow = capacity->core->parts.config->capacity.overflow;

    if (!owner_has_room(capacity, owner) && overflow == OVERFLOW_EVICT)
        return owner->leaving > owner->waiting || evict_one(capacity, owner);
    if (!owner_has_room(capacity, owner))
        return false;
    if (pool_yield(capacity->core->pool))
        return true;
    if (overflow != OVERFLOW_EVICT)
        return false;
    return capacity->leaving > capacity->waiting || evict_one(capacity, NULL);
}

/* Granted to other nodes, as far as it is known here. */
static int64_t held_elsewhere(const struct capacity *capacity, const struct capacity_owner *owner)
{
    const struct core *core = capacity->core;
    const struct grant_document *document = grant_look(core->grants, GRANT_SLOTS, owner->name);

    return document ? grant_document_others(document, core->parts.node) : 0;
}

static int refuse(struct capacity *capacity, const struct capacity_owner *owner, struct error *err)
{
    const struct config *config = capacity->core->parts.config;
    long long retry_s = (long long)capacity_retry_after_s(capacity);
    char elsewhere[64] = "";

    if (core_is_clustered(capacity->core))
        snprintf(elsewhere, sizeof(elsewhere), " here, and %lld on other nodes,",
                 (long long)held_elsewhere(capacity, owner));
    error_named(err, ERR_LIMIT, "capacity",
                "no sandbox is free: you hold %zu%s of %lld, all owners together hold %zu of %lld",
                owner->held, elsewhere, (long long)config->capacity.max_per_owner, capacity->held,
                (long long)config->capacity.max_sandboxes + config->capacity.burst);
    err->retryable = true;
    return error_hint(err, "end a session, or try again in about %lld s", retry_s);
}

static void on_wait_timeout(struct timer *timer)
{
    struct sandbox *sandbox = container_of(timer, struct sandbox, slot.timeout);
    struct capacity *capacity = sandbox->core->capacity;
    struct error err = { 0 };

    refuse(capacity, sandbox->slot.owner, &err);
    leave_queue(capacity, &sandbox->slot);
    drop_owner(capacity, &sandbox->slot);
    sandbox_on_slot(sandbox, &err);
}

/* Also a slot that is becoming free may not come: what makes room for it may fail to go. */
static int64_t wait_timeout_us(const struct config *config)
{
    if (config->capacity.overflow == OVERFLOW_WAIT)
        return config->capacity.wait_timeout_ms * 1000;
    return LEAVING_TIMEOUT_US;
}

static void enqueue(struct capacity *capacity, struct capacity_slot *slot)
{
    timer_init(&slot->timeout, capacity->core->loop, on_wait_timeout);
    slot->state = SLOT_WAITING;
    list_append(&capacity->queue, &slot->node);
    capacity->waiting++;
    slot->owner->waiting++;
    timer_arm_in(&slot->timeout, wait_timeout_us(capacity->core->parts.config));
}

/* The slot of the owner that has fewest; of several the one that came first. A slot whose owner has
 * no room does not hold up the others. */
static struct capacity_slot *find_next(const struct capacity *capacity)
{
    struct capacity_slot *slot, *next = NULL;

    list_for_each (slot, &capacity->queue, node) {
        if (owner_has_room(capacity, slot->owner) &&
            (!next || slot->owner->held < next->owner->held))
            next = slot;
    }
    return next;
}

static void serve_queue(struct capacity *capacity)
{
    struct capacity_slot *slot;

    while (has_burst(capacity) && (slot = find_next(capacity))) {
        leave_queue(capacity, slot);
        hold(capacity, slot);
        sandbox_on_slot(sandbox_of_slot(slot), NULL);
    }
}

/* --- slots --------------------------------------------------------------------------------- */

static int reserve_for_pool(struct capacity *capacity, struct capacity_slot *slot,
                            struct error *err)
{
    if (!capacity_has_spare(capacity))
        return error_named(err, ERR_LIMIT, "capacity", "there is no room for the pool");
    hold(capacity, slot);
    return 0;
}

/* The rules of capacity.h, for an owner whose room on this node is known. */
static int reserve(struct capacity *capacity, struct capacity_slot *slot, struct error *err)
{
    if (has_room(capacity) && owner_has_room(capacity, slot->owner)) {
        hold(capacity, slot);
        return 0;
    }
    if (make_room(capacity, slot->owner)) {
        enqueue(capacity, slot);
        return 1;
    }
    if (has_burst(capacity) && owner_has_room(capacity, slot->owner)) {
        hold(capacity, slot);
        return 0;
    }
    if (capacity->core->parts.config->capacity.overflow == OVERFLOW_WAIT) {
        enqueue(capacity, slot);
        return 1;
    }
    refuse(capacity, slot->owner, err);
    drop_owner(capacity, slot);
    return -1;
}

/* Other nodes have answered, or have not: the rules apply to what this node was granted. */
static void on_slot_answered(struct grant_wish *wish)
{
    struct sandbox *sandbox = container_of(wish, struct sandbox, slot.wish);
    struct capacity *capacity = sandbox->core->capacity;
    struct error err = wish->err;
    int result = -1;

    leave_queue(capacity, &sandbox->slot);
    if (err.code == ERR_UNAVAILABLE) {
        drop_owner(capacity, &sandbox->slot);
    } else if (err.code != ERR_NONE &&
               capacity->core->parts.config->capacity.overflow == OVERFLOW_WAIT) {
        refuse(capacity, sandbox->slot.owner, &err);
        drop_owner(capacity, &sandbox->slot);
    } else {
        err = (struct error){ 0 };
        result = reserve(capacity, &sandbox->slot, &err);
    }
    if (result <= 0)
        sandbox_on_slot(sandbox, err.code == ERR_NONE ? NULL : &err);
}

static bool needs_grant(const struct capacity *capacity, const struct capacity_owner *owner)
{
    return is_below_cap(capacity, owner) && !is_granted(capacity, owner->name);
}

static void wait_for_grant(struct capacity *capacity, struct capacity_slot *slot)
{
    const struct config *config = capacity->core->parts.config;
    bool waits = config->capacity.overflow == OVERFLOW_WAIT;

    enqueue(capacity, slot);
    timer_stop(&slot->timeout); /* the wish has one of its own */
    grant_wish_begin(&slot->wish, capacity->core->grants, GRANT_SLOTS, slot->owner->name, 1,
                     waits ? wait_timeout_us(config) : GRANT_PATIENCE_US, on_slot_answered);
}

int capacity_reserve(struct capacity *capacity, struct sandbox *sandbox, const char *owner,
                     struct error *err)
{
    struct capacity_slot *slot = &sandbox->slot;

    assert(slot->state == SLOT_NONE);
    if (!owner)
        return reserve_for_pool(capacity, slot, err);
    slot->owner = owner_ref(capacity, owner);
    if (!needs_grant(capacity, slot->owner))
        return reserve(capacity, slot, err);
    wait_for_grant(capacity, slot);
    return 1;
}

int capacity_ask(struct capacity *capacity, const char *owner, struct grant_wish *wish,
                 grant_wish_fn *answered)
{
    if (is_granted(capacity, owner) || !is_below_cap(capacity, map_get(&capacity->owners, owner)))
        return 0;
    grant_wish_begin(wish, capacity->core->grants, GRANT_SLOTS, owner, 1, GRANT_PATIENCE_US,
                     answered);
    return 1;
}

void capacity_take(struct capacity *capacity, struct sandbox *sandbox, const char *owner)
{
    sandbox->slot.owner = owner_ref(capacity, owner);
    hold(capacity, &sandbox->slot);
}

bool capacity_transfer(struct capacity *capacity, struct sandbox *sandbox, const char *name)
{
    struct capacity_owner *owner = owner_ref(capacity, name);

    assert(sandbox->slot.state == SLOT_HELD && !sandbox->slot.owner);
    if (!owner_has_room(capacity, owner)) {
        owner_unref(capacity, owner);
        return false;
    }
    sandbox->slot.owner = owner;
    owner->held++;
    note_use(capacity, owner);
    return true;
}

void capacity_release(struct capacity *capacity, struct sandbox *sandbox)
{
    struct capacity_slot *slot = &sandbox->slot;

    switch (slot->state) {
    case SLOT_NONE:
        return;
    case SLOT_WAITING:
        leave_queue(capacity, slot);
        drop_owner(capacity, slot);
        return;
    case SLOT_HELD:
        slot->state = SLOT_NONE;
        capacity->held--;
        capacity->leaving -= slot->leaving;
        if (slot->owner) {
            slot->owner->held--;
            slot->owner->leaving -= slot->leaving;
        }
        note_use(capacity, slot->owner);
        drop_owner(capacity, slot);
        serve_queue(capacity);
        return;
    }
}

void capacity_set_leaving(struct capacity *capacity, struct sandbox *sandbox)
{
    struct capacity_slot *slot = &sandbox->slot;

    if (slot->state != SLOT_HELD || slot->leaving)
        return;
    slot->leaving = true;
    capacity->leaving++;
    if (slot->owner)
        slot->owner->leaving++;
}

/* A slot that waits in vain because nothing could be evicted is served when something can be. */
static void evict_for_queue(struct capacity *capacity)
{
    if (capacity->core->parts.config->capacity.overflow == OVERFLOW_EVICT && capacity->waiting &&
        !has_burst(capacity) && capacity->leaving < capacity->waiting)
        evict_one(capacity, NULL);
}

void capacity_set_idle(struct capacity *capacity, struct sandbox *sandbox, bool idle)
{
    if (!idle) {
        list_remove(&sandbox->slot.idle);
        return;
    }
    if (list_is_linked(&sandbox->slot.idle))
        return;
    list_append(&capacity->idle, &sandbox->slot.idle);
    evict_for_queue(capacity);
}

const char *capacity_owner_name(const struct capacity_slot *slot)
{
    return slot->owner ? slot->owner->name : NULL;
}

size_t capacity_held(const struct capacity *capacity)
{
    return capacity->held;
}

bool capacity_has_spare(const struct capacity *capacity)
{
    return has_room(capacity) && !capacity->waiting;
}

bool capacity_may_have(const struct capacity *capacity, const char *owner)
{
    return is_below_cap(capacity, map_get(&capacity->owners, owner)) && is_granted(capacity, owner);
}

size_t capacity_waiting(const struct capacity *capacity)
{
    return capacity->waiting;
}

/* --- over all nodes -------------------------------------------------------------------------- */

static struct grant_use use_of_slots(const struct core *core, const char *owner)
{
    const struct capacity_owner *own = map_get(&core->capacity->owners, owner);

    return (struct grant_use){ .used = own ? (int64_t)own->held : 0 };
}

static int64_t cap_of_slots(const struct core *core, const char *owner UNUSED, int64_t set UNUSED)
{
    return core->parts.config->capacity.max_per_owner;
}

static void complete_slots(const struct core *core UNUSED, const char *owner UNUSED,
                           struct grant_document *document UNUSED)
{
}

static void warn_of_slots(struct core *core UNUSED, const char *owner UNUSED, int64_t before UNUSED,
                          const struct grant_document *document UNUSED)
{
}

/* Sessions come in rows; the others may need some too. */
static int64_t slots_ahead(int64_t wanted UNUSED, int64_t free)
{
    return MIN(free / 8, (int64_t)8);
}

static void yield_slot(struct core *core, const char *name)
{
    const struct capacity_owner *owner = map_get(&core->capacity->owners, name);

    if (owner && !owner->leaving && core->parts.config->capacity.overflow == OVERFLOW_EVICT)
        evict_one(core->capacity, owner);
}

static const struct grant_rules slot_rules = {
    .prefix = "slots:",
    .use = use_of_slots,
    .cap = cap_of_slots,
    .complete = complete_slots,
    .warn = warn_of_slots,
    .ahead = slots_ahead,
    .yield = yield_slot,
};

/* --- for people ---------------------------------------------------------------------------- */

int64_t capacity_retry_after_s(struct capacity *capacity)
{
    const struct core *core = capacity->core;
    const struct sandbox *sandbox;
    int64_t soonest_ms = 30 * 1000;

    if (capacity->leaving > 0)
        return 1;
    list_for_each (sandbox, &core->sandboxes, node) {
        const struct session *session = sandbox->order.session;
        int64_t left_ms = session ? core->observer->ends_in_ms(session) : -1;

        if (left_ms >= 0)
            soonest_ms = MIN(soonest_ms, left_ms);
    }
    return MAX((soonest_ms + 999) / 1000, (int64_t)1);
}

void capacity_write_members(struct capacity *capacity, const char *owner, struct json_writer *json)
{
    const struct config *config = capacity->core->parts.config;
    const struct capacity_owner *own = map_get(&capacity->owners, owner ? owner : "");
    static const char *const overflows[] = { "evict", "wait", "reject" };
    const struct capacity_slot *slot;
    size_t evictable = 0;

    list_for_each (slot, &capacity->idle, idle)
        evictable++;
    json_put_int(json, "max_sandboxes", config->capacity.max_sandboxes);
    json_put_int(json, "max_per_owner", config->capacity.max_per_owner);
    json_put_text(json, "overflow", overflows[config->capacity.overflow]);
    json_put_int(json, "burst", config->capacity.burst);
    json_put_int(json, "sandboxes", (int64_t)capacity->held);
    json_put_int(json, "waiting", (int64_t)capacity->waiting);
    json_put_int(json, "idle", (int64_t)evictable);
    json_put_int(json, "pool", (int64_t)pool_ready(capacity->core->pool));
    json_put_int(json, "own", own ? (int64_t)own->held : 0);
}
