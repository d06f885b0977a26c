/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the processes of a container go on, and who has frozen them. */

#include "backend/docker/docker_private.h"

#include "bridge/bridge.h"

enum backend_motion container_motion(const struct container *container)
{
    return container->motion == MOTION_FROZEN_BY_OTHERS ? BACKEND_FROZEN_BY_OTHERS : BACKEND_MOVES;
}

static void set_motion(struct container *container, enum container_motion motion)
{
    container->motion = motion;
    if (container->watch)
        backend_watch_move(container->watch, container_motion(container));
}

static void set_paused(struct container *container, bool is_paused)
{
    container->is_paused = is_paused;
    if (container->bridge)
        bridge_set_frozen(container->bridge, is_paused); /* no heartbeat meets a frozen relay */
}

void container_begin_change(struct container *container, bool freezes)
{
    container->motion = MOTION_CHANGING;
    if (freezes && container->bridge)
        bridge_set_frozen(container->bridge, true);
}

void container_end_change(struct container *container, bool is_paused)
{
    set_paused(container, is_paused);
    set_motion(container, is_paused ? MOTION_FROZEN : MOTION_RUNS);
}

/* A container that the daemon froze and others thawed stays MOTION_FROZEN until the daemon thaws
 * it. */
void container_note_paused(struct container *container, bool is_paused)
{
    switch (container->motion) {
    case MOTION_CHANGING:
        return; /* its end says more */
    case MOTION_RUNS:
    case MOTION_FROZEN_BY_OTHERS:
        set_paused(container, is_paused);
        set_motion(container, is_paused ? MOTION_FROZEN_BY_OTHERS : MOTION_RUNS);
        break;
    case MOTION_FROZEN:
        set_paused(container, is_paused);
        break;
    }
}
