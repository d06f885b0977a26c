/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sandbox/builds.h"

#include "base/alloc.h"
#include "base/map.h"
#include "core/core.h"

#include <assert.h>
#include <stdlib.h>

enum { PATIENCE_US = 1000 * 1000 };

/* An owner with builds that wait, or the pool. */
struct builder {
    struct list node; /* in the order of their turns */
    char *name;       /* owned */
    struct list waiting;
};

struct builds {
    struct core *core;   /* borrowed */
    struct map builders; /* struct builder */
    struct list order;   /* the same */
    size_t held;
};

/* No owner's name begins with it. */
static const char pool_name[] = "\npool";

struct builds *builds_new(struct core *core)
{
    struct builds *builds = xnew(struct builds);

    builds->core = core;
    list_init(&builds->order);
    return builds;
}

static void builder_free(struct builds *builds, struct builder *builder)
{
    list_remove(&builder->node);
    map_remove(&builds->builders, builder->name);
    free(builder->name);
    free(builder);
}

void builds_free(struct builds *builds)
{
    struct builder *builder;

    if (!builds)
        return;
    while ((builder = list_first(&builds->order, struct builder, node)))
        builder_free(builds, builder);
    map_fini(&builds->builders);
    free(builds);
}

static struct builder *find_builder(struct builds *builds, const char *name)
{
    struct builder *builder = map_get(&builds->builders, name);

    if (builder)
        return builder;
    builder = xnew(struct builder);
    builder->name = xstrdup(name);
    list_init(&builder->waiting);
    list_append(&builds->order, &builder->node);
    map_put(&builds->builders, builder->name, builder);
    return builder;
}

static void on_patience_over(struct timer *timer)
{
    struct build_turn *turn = container_of(timer, struct build_turn, patience);

    builds_pass(turn->builds, turn);
}

static void hold(struct builds *builds, struct build_turn *turn)
{
    turn->state = BUILD_HELD;
    builds->held++;
    timer_init(&turn->patience, builds->core->loop, on_patience_over);
    timer_arm_in(&turn->patience, PATIENCE_US);
}

static void stop_waiting(struct builds *builds, struct build_turn *turn)
{
    struct builder *builder = steal_ptr(&turn->builder);

    turn->state = BUILD_NONE;
    list_remove(&turn->node);
    if (list_is_empty(&builder->waiting))
        builder_free(builds, builder);
}

/* Its owner comes last again. */
static struct build_turn *take_next(struct builds *builds)
{
    struct builder *builder = list_first(&builds->order, struct builder, node);
    struct build_turn *turn;

    if (!builder)
        return NULL;
    turn = list_first(&builder->waiting, struct build_turn, node);
    list_remove(&builder->node);
    list_append(&builds->order, &builder->node);
    stop_waiting(builds, turn);
    return turn;
}

static void serve(struct builds *builds)
{
    struct build_turn *turn;

    while (builds->held < BUILDS_AT_ONCE && (turn = take_next(builds))) {
        hold(builds, turn);
        turn->on_turn(turn);
    }
}

bool builds_take(struct builds *builds, struct build_turn *turn, const char *owner,
                 build_turn_fn *on_turn)
{
    assert(turn->state == BUILD_NONE);
    turn->builds = builds;
    turn->on_turn = on_turn;
    if (builds->held < BUILDS_AT_ONCE) {
        hold(builds, turn);
        return true;
    }
    turn->state = BUILD_WAITING;
    turn->builder = find_builder(builds, owner ? owner : pool_name);
    list_append(&turn->builder->waiting, &turn->node);
    return false;
}

void builds_pass(struct builds *builds, struct build_turn *turn)
{
    if (turn->state == BUILD_WAITING)
        stop_waiting(builds, turn);
    if (turn->state != BUILD_HELD)
        return;
    turn->state = BUILD_NONE;
    timer_stop(&turn->patience);
    builds->held--;
    serve(builds);
}
