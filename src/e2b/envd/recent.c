/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/envd/recent.h"

#include "base/alloc.h"
#include "base/list.h"
#include "base/str.h"

#include <stdlib.h>

enum { RECENT_US = 30 * 1000 * 1000, RECENT_ENDED = 128 };

struct recents {
    struct loop *loop;    /* borrowed */
    struct list running;  /* struct recent; also those whose end was not reported yet */
    struct list ended;    /* struct recent, in the order of their ends */
    unsigned ended_count; /* in that list */
};

struct recent {
    struct list node;
    struct recents *recents;     /* borrowed */
    struct execution *execution; /* a reference */
    struct execution_watcher watcher;
    struct timer timer; /* armed when it has ended */
};

struct recents *recents_new(struct loop *loop)
{
    struct recents *recents = xnew(struct recents);

    recents->loop = loop;
    list_init(&recents->running);
    list_init(&recents->ended);
    return recents;
}

static void forget(struct recent *recent)
{
    list_remove(&recent->node);
    timer_stop(&recent->timer);
    execution_unwatch(&recent->watcher);
    execution_unref(recent->execution);
    free(recent);
}

void recents_free(struct recents *recents)
{
    struct recent *recent, *following;

    if (!recents)
        return;
    list_for_each_safe (recent, following, &recents->running, node)
        forget(recent);
    list_for_each_safe (recent, following, &recents->ended, node)
        forget(recent);
    free(recents);
}

static bool has_ended(const struct recent *recent)
{
    return execution_has_ended(recent->execution);
}

static void forget_ended(struct recent *recent)
{
    recent->recents->ended_count--;
    forget(recent);
}

static void on_time(struct timer *timer)
{
    forget_ended(container_of(timer, struct recent, timer));
}

/* Processes that never ran, or ended with their sandbox, are forgotten at once. */
static void on_change(struct execution_watcher *watcher)
{
    struct recent *recent = container_of(watcher, struct recent, watcher);
    struct recents *recents = recent->recents;

    if (!has_ended(recent) || timer_is_armed(&recent->timer))
        return;
    if (execution_facts(recent->execution)->pid == 0 || !execution_session(recent->execution)) {
        forget(recent);
        return;
    }
    list_remove(&recent->node);
    list_append(&recents->ended, &recent->node);
    recents->ended_count++;
    timer_arm_in(&recent->timer, RECENT_US);
    if (recents->ended_count > RECENT_ENDED)
        forget_ended(list_first(&recents->ended, struct recent, node));
}

void recents_add(struct recents *recents, struct execution *execution)
{
    struct recent *recent = xnew(struct recent);

    recent->recents = recents;
    recent->execution = execution;
    execution_ref(execution);
    execution_watch(execution, &recent->watcher, on_change);
    timer_init(&recent->timer, recents->loop, on_time);
    list_append(&recents->running, &recent->node);
}

static struct execution *find_last(const struct list *list, const char *session_id,
                                   bool (*is_meant)(const struct execution *execution,
                                                    const void *context),
                                   const void *context)
{
    struct execution *found = NULL;
    const struct recent *recent;

    list_for_each (recent, list, node)
        if (has_ended(recent) &&
            str_equal(execution_facts(recent->execution)->session_id, session_id) &&
            is_meant(recent->execution, context))
            found = recent->execution;
    return found;
}

struct execution *recents_find(const struct recents *recents, const char *session_id,
                               bool (*is_meant)(const struct execution *execution,
                                                const void *context),
                               const void *context)
{
    struct execution *found = find_last(&recents->running, session_id, is_meant, context);

    return found ? found : find_last(&recents->ended, session_id, is_meant, context);
}
