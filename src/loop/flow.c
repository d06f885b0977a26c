/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/flow.h"

#include "base/alloc.h"
#include "base/map.h"

#include <assert.h>
#include <stdlib.h>

#define NEVER UINT64_MAX /* no turn of the loop */

/* The rest of the budget of one turn. Sources that find bytes and sources that waited have one
 * each, so that neither starves the other. */
struct share {
    uint64_t turn; /* of the loop */
    uint64_t left;
    int64_t begun_us;
};

struct flows {
    struct loop *loop; /* borrowed */
    struct map by_name;
    struct list waiting; /* flows with sources that wait, the next one first */
    struct timer work;
    struct share fresh;          /* for sources that find bytes */
    struct share waited;         /* for sources that waited */
    struct flow_source *serving; /* borrowed; NULL outside of on_work() */
};

struct flow {
    struct flows *flows; /* borrowed */
    char *name;          /* owned */
    unsigned members;
    struct list sources; /* that wait, the next one first */
    struct list node;    /* flows->waiting */
    uint64_t turn;       /* that `left` belongs to */
    uint64_t left;
};

static void on_work(struct timer *timer);

struct flows *flows_new(struct loop *loop)
{
    struct flows *flows = xnew(struct flows);

    flows->loop = loop;
    flows->fresh.turn = flows->waited.turn = NEVER;
    list_init(&flows->waiting);
    timer_init(&flows->work, loop, on_work);
    return flows;
}

void flows_free(struct flows *flows)
{
    if (!flows)
        return;
    assert(flows->by_name.count == 0);
    timer_stop(&flows->work);
    map_fini(&flows->by_name);
    free(flows);
}

static struct flow *flow_new(struct flows *flows, const char *name)
{
    struct flow *flow = xnew(struct flow);

    flow->flows = flows;
    flow->turn = NEVER;
    flow->name = xstrdup(name);
    list_init(&flow->sources);
    map_put(&flows->by_name, flow->name, flow);
    return flow;
}

void flow_join(struct flow_source *source, struct flows *flows, const char *name,
               flow_serve_fn *on_served)
{
    assert(!source->flow);
    *source = (struct flow_source){ .on_served = on_served };
    if (!flows)
        return;
    source->flow = map_get(&flows->by_name, name);
    if (!source->flow)
        source->flow = flow_new(flows, name);
    source->flow->members++;
}

void flow_stop_waiting(struct flow_source *source)
{
    list_remove(&source->node);
    if (source->flow && list_is_empty(&source->flow->sources))
        list_remove(&source->flow->node);
}

void flow_leave(struct flow_source *source)
{
    struct flow *flow = source->flow;

    if (!flow)
        return;
    flow_stop_waiting(source);
    if (flow->flows->serving == source)
        flow->flows->serving = NULL;
    source->flow = NULL;
    if (--flow->members)
        return;
    map_remove(&flow->flows->by_name, flow->name);
    free(flow->name);
    free(flow);
}

static void wait_in_line(struct flow_source *source)
{
    struct flow *flow = source->flow;

    if (list_is_linked(&source->node))
        return;
    list_append(&flow->sources, &source->node);
    if (!list_is_linked(&flow->node))
        list_append(&flow->flows->waiting, &flow->node);
    if (!timer_is_armed(&flow->flows->work))
        timer_arm_in(&flow->flows->work, FLOWS_PAUSE_US);
}

/* --- shares ---------------------------------------------------------------------------------- */

static uint64_t share_left(const struct flows *flows, struct share *share)
{
    uint64_t turn = loop_turns(flows->loop);

    if (share->turn != turn)
        *share = (struct share){ .turn = turn,
                                 .left = FLOWS_BYTES,
                                 .begun_us = loop_now_us(flows->loop) };
    else if (loop_now_us(flows->loop) - share->begun_us >= FLOWS_US)
        share->left = 0;
    return share->left;
}

static uint64_t flow_left(struct flow *flow)
{
    uint64_t turn = loop_turns(flow->flows->loop);

    if (flow->turn != turn) {
        flow->turn = turn;
        flow->left = FLOW_BYTES;
    }
    return flow->left;
}

uint64_t flow_ask(struct flow_source *source)
{
    struct flow *flow = source->flow;
    uint64_t left = 0;

    if (!flow)
        return UINT64_MAX;
    if (flow->flows->serving == source)
        return flow_left(flow);
    if (list_is_empty(&flow->sources))
        left = MIN(share_left(flow->flows, &flow->flows->fresh), flow_left(flow));
    if (!left)
        wait_in_line(source);
    return left;
}

bool flow_took(struct flow_source *source, uint64_t bytes, bool has_more)
{
    struct flow *flow = source->flow;
    struct share *share;

    if (!flow)
        return false;
    share = flow->flows->serving == source ? &flow->flows->waited : &flow->flows->fresh;
    share->left -= MIN(share->left, bytes);
    flow->left -= MIN(flow->left, bytes);
    if (!has_more || list_is_empty(&flow->flows->waiting))
        return false;
    wait_in_line(source);
    return true;
}

bool flow_wait(struct flow_source *source)
{
    if (source->flow)
        wait_in_line(source);
    return source->flow != NULL;
}

/* --- serving waiting sources --------------------------------------------------------------- */

static void serve_first(struct flows *flows, struct flow *flow)
{
    struct flow_source *source = list_first(&flow->sources, struct flow_source, node);

    list_remove(&source->node);
    list_remove(&flow->node);
    if (!list_is_empty(&flow->sources))
        list_append(&flows->waiting, &flow->node);
    flows->serving = source;
    source->served = loop_turns(flows->loop);
    source->on_served(source); /* flow and source may be gone when it returns */
    flows->serving = NULL;
}

/* The next flow to serve; NULL when the turn is over: the flow has no share left, or its next
 * source was served in this turn. */
static struct flow *next_flow(const struct flows *flows)
{
    struct flow *flow = list_first(&flows->waiting, struct flow, node);
    const struct flow_source *source = flow ? list_first(&flow->sources, struct flow_source, node)
                                            : NULL;

    if (!source || source->served == loop_turns(flows->loop))
        return NULL;
    return flow_left(flow) ? flow : NULL;
}

/* Serves at least one source. Each flow gets its share once in a turn. */
static void on_work(struct timer *timer)
{
    struct flows *flows = container_of(timer, struct flows, work);
    struct flow *flow;

    (void)share_left(flows, &flows->waited);
    while ((flow = next_flow(flows))) {
        serve_first(flows, flow);
        if (!share_left(flows, &flows->waited))
            break;
    }
    if (!list_is_empty(&flows->waiting))
        timer_arm_in(&flows->work, FLOWS_PAUSE_US);
}
