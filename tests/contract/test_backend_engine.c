/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract over the backends docker and gvisor with an engine that the test plays: "docker",
 * "podman" (docker over an engine with the words of Podman) or "gvisor".
 */

#include "backend_contract.h"

#include "base/str.h"
#include "harness/docker_world.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { BLIND_US = 300 * 1000 };

static const char *variant;
static struct docker_world world;
static struct timer sight;

static struct backend *open_world(struct loop **out_loop)
{
    docker_world_init(&world, str_equal(variant, "gvisor") ? "gvisor" : "docker", "");
    fake_engine_habits(world.engine)->is_podman = str_equal(variant, "podman");
    docker_world_open(&world);
    *out_loop = world.loop;
    return world.backend;
}

static struct backend *restart_world(void)
{
    docker_world_restart(&world);
    return world.backend;
}

/* Its container was started again since. */
static void make_stale(struct backend_sandbox *sandbox)
{
    char *year = strstr(sandbox->handle, "2026-");

    assert_non_null(year);
    year[3] = '5';
}

static void kill_init(const struct backend_sandbox *sandbox)
{
    (void)kill(docker_world_container(&world, sandbox->id)->pid, SIGKILL);
}

static void shut_down(const struct backend_sandbox *sandbox)
{
    (void)kill(docker_world_container(&world, sandbox->id)->pid, SIGTERM);
}

static void exhaust(const struct backend_sandbox *sandbox)
{
    fake_container_exhaust(docker_world_container(&world, sandbox->id));
}

static void on_sight(struct timer *timer)
{
    (void)timer;
    fake_engine_return(world.engine);
}

static void make_blind(void)
{
    fake_engine_leave(world.engine);
    timer_init(&sight, world.loop, on_sight);
    timer_arm_in(&sight, BLIND_US);
}

static void close_world(void)
{
    size_t left = fake_engine_containers(world.engine);

    docker_world_close(&world);
    assert_int_equal(left, 0);
}

int main(int argc, char **argv)
{
    char title[64];

    if (argc < 2)
        return 2;
    variant = argv[1];
    snprintf(title, sizeof(title), "backend/engine_%s", variant);
    return backend_contract_run(&(struct backend_contract){
        .name = title,
        .open = open_world,
        .restart = restart_world,
        .make_stale = make_stale,
        .kill = kill_init,
        .shut_down = shut_down,
        /* Podman tells nothing of it: its cgroup does, which a fake engine has not. */
        .exhaust = str_equal(variant, "podman") ? NULL : exhaust,
        .make_blind = make_blind,
        .close = close_world });
}
