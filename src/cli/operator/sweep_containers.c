/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/docker/container_sweep.h"
#include "base/scoped.h"
#include "base/str.h"
#include "cli/operator/sweep.h"
#include "config/config.h"

#include <limits.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* --- who serves a state directory -------------------------------------------------------------- */

struct view {
    const char *state;
    enum state_condition condition; /* the worst of those that were seen */
};

/* A daemon may see other files than this process does: one with a /tmp of its own, or in a container that
 * has the name of the host. */
static bool look_through(void *user, pid_t pid)
{
    struct view *view = user;
    scoped(fd_close) int lock = -1;
    char path[PATH_MAX + 32];
    int64_t age_s;
    enum state_condition condition;

    if (!process_is_named(pid, "sandglass"))
        return true;
    snprintf(path, sizeof(path), "/proc/%d/root%s", (int)pid, view->state);
    condition = sweep_find_state(path, &lock, &age_s);
    if (condition == STATE_SERVED || condition == STATE_UNKNOWN)
        view->condition = condition;
    return view->condition != STATE_SERVED;
}

static enum state_condition find_state(const char *path, int *out_lock, int64_t *out_age_s)
{
    struct view view = { .state = path, .condition = sweep_find_state(path, out_lock, out_age_s) };

    if (view.condition == STATE_GONE)
        processes_each(look_through, &view);
    return view.condition;
}

/* --- one container ------------------------------------------------------------------------------ */

struct containers {
    struct sweep *sweep;            /* borrowed */
    struct container_sweep *engine; /* borrowed */
};

static bool is_listed(const struct text_list *list, const char *text)
{
    for (size_t i = 0; i < list->count; i++)
        if (str_equal(list->items[i], text))
            return true;
    return false;
}

/* Whether the options name the container's state directory or instance. Without such options every
 * container is wanted. */
static bool is_wanted(const struct sweep *sweep, const struct container_found *found)
{
    if (!sweep->states.count && !sweep->instances.count)
        return true;
    return is_listed(&sweep->states, found->state) || is_listed(&sweep->instances, found->instance);
}

static void sweep_container(void *user, const struct container_found *found)
{
    struct containers *containers = user;
    struct sweep *sweep = containers->sweep;
    struct sweep_item item = { "container", found->sandbox, found->instance, found->state };
    int64_t age_s = (int64_t)time(NULL) - found->made_s;
    scoped(fd_close) int lock = -1;
    struct error err = { 0 };
    enum state_condition condition;

    if (!found->is_of_host || !is_wanted(sweep, found))
        return;
    condition = find_state(found->state, &lock, &age_s);
    if (condition == STATE_SERVED)
        return;
    if (condition == STATE_UNKNOWN)
        sweep_report(sweep, &item, SWEEP_SKIPPED,
                     "its daemon belongs to another user: run sweep as that user or as root");
    else if (sweep_may_remove(sweep, &item, age_s))
        sweep_report_result(
            sweep, &item, container_sweep_remove(containers->engine, found->engine_id, &err), &err);
}

/* --- the engine --------------------------------------------------------------------------------- */

/* The default address is tried where something is there that this user may use. */
static bool has_engine(const struct config *config)
{
    const char *socket = config_engine_socket(config);

    return config_uses_engine(config) || (socket && access(socket, R_OK | W_OK) == 0);
}

/* An engine that the settings name is reported when it is away: something may be left in it. */
static void report_engine(struct sweep *sweep, const struct config *config, const struct error *err)
{
    struct sweep_item item = { "engine", "containers", "", config->docker.host };

    if (config_uses_engine(config))
        sweep_report(sweep, &item, SWEEP_SKIPPED, err->message);
}

void sweep_containers(struct sweep *sweep, const struct config *config)
{
    struct containers containers = { .sweep = sweep };
    scoped(container_sweep_free) struct container_sweep *engine = NULL;
    struct error err = { 0 };

    if (!has_engine(config))
        return;
    containers.engine = engine = container_sweep_new(config, &err);
    if (!engine || container_sweep_list(engine, sweep_container, &containers, &err) < 0)
        report_engine(sweep, config, &err);
}
