/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/docker/docker_private.h"

#include "base/alloc.h"
#include "base/fd.h"
#include "base/macros.h"
#include "base/str.h"
#include "bridge/bridge.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct loop *loop_of(const struct container *container)
{
    return container->docker->base.loop;
}

void container_name(const char *id, char name[CONTAINER_NAME_SIZE])
{
    snprintf(name, CONTAINER_NAME_SIZE, "sandglass-%s", id);
}

struct container *container_find(const struct docker_backend *docker, const char *id)
{
    return map_get(&docker->containers, id);
}

struct container *container_new(struct docker_backend *docker, const char *id)
{
    struct container *container = xnew(struct container);

    assert(!container_find(docker, id));
    snprintf(container->id, sizeof(container->id), "%s", id);
    container->docker = docker;
    timer_init(&container->again, docker->base.loop, container_look_again);
    container_pump_init(&container->pump, docker->base.loop, docker->engine, container->engine_id);
    map_put(&docker->containers, container->id, container);
    return container;
}

void container_free(struct container *container)
{
    if (!container)
        return;
    map_remove(&container->docker->containers, container->id);
    bridge_free(container->bridge);
    pump_fini(&container->pump.base);
    door_free(container->door);
    engine_cancel(&container->look);
    timer_stop(&container->again);
    backend_watch_drop(container->watch);
    loop_undefer(loop_of(container), &container->late);
    process_unwatch(&container->process);
    free(container);
}

void container_write_handle(const struct container *container, struct backend_sandbox *sandbox)
{
    memcpy(sandbox->id, container->id, sizeof(sandbox->id));
    snprintf(sandbox->handle, sizeof(sandbox->handle), "%s,%s,%s,%d", container->engine_id,
             container->bridge ? "relay" : "door", container->started_at, (int)container->pid);
}

bool container_parse_handle(const char *text, struct container_handle *out_handle)
{
    int length = 0;

    *out_handle = (struct container_handle){ 0 };
    return sscanf(text, "%64[0-9a-f],%7[a-z],%39[0-9TZ:.+-],%9d%n", out_handle->engine_id,
                  out_handle->kind, out_handle->started_at, &out_handle->pid, &length) == 4 &&
           !text[length] && out_handle->pid >= 0 &&
           (str_equal(out_handle->kind, "door") || str_equal(out_handle->kind, "relay"));
}

/* --- watches ----------------------------------------------------------------------------------- */

void docker_watch(struct backend *backend, const char *id, struct backend_watch *watch)
{
    struct container *container = container_find(docker_from(backend), id);

    if (!container) {
        backend_watch_drop(watch);
        return;
    }
    assert(!container->watch);
    container->watch = watch;
    watch->private = container;
    watch->motion = container_motion(container);
    if (container->phase == CONTAINER_ENDED)
        container_tell_end(container);
}

void docker_unwatch(struct backend *backend UNUSED, struct backend_watch *watch)
{
    struct container *container = watch->private;

    container->watch = NULL;
}

bool docker_is_ending(const struct backend *backend UNUSED, const struct backend_watch *watch)
{
    return container_is_dead(watch->private);
}

/* --- the way to its init ----------------------------------------------------------------------- */

static void on_other_boot(struct bridge *bridge, const uint8_t boot[RELAY_BOOT_SIZE] UNUSED)
{
    container_suspect(bridge_user(bridge));
}

static int open_bridge(struct container *container, struct error *err)
{
    static const struct bridge_handler handler = { .on_other = on_other_boot };
    struct docker_backend *docker = container->docker;
    struct bridge_options options = {
        .loop = loop_of(container), .name = container->id, .handler = &handler, .user = container
    };

    if (docker_need_secret(docker, err) < 0)
        return -1;
    options.carrier = pump_carrier_new(&container->pump.base);
    relay_key_derive(docker->secret.bytes, container->id, options.key);
    container->bridge = bridge_new(&options);
    explicit_bzero(options.key, sizeof(options.key));
    bridge_set_frozen(container->bridge, container->is_paused);
    return 0;
}

static bool file_names(const struct container *container, const char *file)
{
    scoped(fd_close) int fd = -1;
    char path[64];
    char text[4096];
    size_t length;

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)container->pid, file);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    length = fd_read_at(fd, text, sizeof(text), 0);
    return memmem(text, length, container->id, strlen(container->id)) ||
           memmem(text, length, container->engine_id, strlen(container->engine_id));
}

/* The number of a process says nothing unless it is that of our container: an engine in a virtual
 * machine has numbers of its own. Cgroups have the container's id in their names; where they do not,
 * init has the sandbox's id among its arguments, once the runtime's own program has become init, and
 * the sentry of gVisor the container's. */
static bool is_our_process(const struct container *container)
{
    return file_names(container, "cgroup") || file_names(container, "cmdline");
}

static void watch_process(struct container *container)
{
    int pidfd = container->pid > 0 ? (int)syscall(SYS_pidfd_open, container->pid, 0) : -1;

    if (pidfd < 0 || !is_our_process(container)) {
        fd_close(pidfd);
        container->pid = 0;
        return;
    }
    process_watch(&container->process, loop_of(container), pidfd, container_on_exit);
}

static int open_door(struct container *container, struct error *err)
{
    if (!container->pid) {
        error_named(err, ERR_BACKEND, "engine_elsewhere",
                    "the engine's containers do not run on the kernel of this daemon");
        err->retryable = true;
        return -1;
    }
    if (!container->door)
        container->door =
            door_open(loop_of(container), container->docker->state_dir, container->id, err);
    if (!container->door)
        return -1;
    door_set_pid(container->door, container->pid);
    return 0;
}

int container_begin(struct container *container, const char *handle_kind, struct error *err)
{
    bool has_relay = str_equal(handle_kind, "relay");

    assert(container->phase == CONTAINER_MADE);
    if (container->process.state == PROCESS_UNWATCHED)
        watch_process(container);
    if (has_relay && !container->bridge && open_bridge(container, err) < 0)
        return -1;
    if (!has_relay && open_door(container, err) < 0)
        return -1;
    container->phase = CONTAINER_RUNNING;
    /* An event of its end may have come since the engine has described it. */
    if (!process_is_watched(&container->process))
        container_suspect(container);
    return 0;
}

/* --- connecting --------------------------------------------------------------------------------- */

static void on_arrival(struct door *door, void *user)
{
    struct container *container = user;
    struct backend_op *op = steal_ptr(&container->connecting);

    door_wait(door, NULL, NULL);
    if (!op)
        return; /* it was refused: the sandbox has ended */
    op->result.fd = door_take(door);
    op->done(op);
}

static bool connect_by_door(struct container *container, struct backend_op *op)
{
    op->result.fd = door_take(container->door);
    if (op->result.fd >= 0)
        return true;
    container->connecting = op;
    door_wait(container->door, on_arrival, container);
    return false;
}

bool docker_connect(struct backend *backend, const char *id, struct backend_op *op)
{
    struct container *container = container_find(docker_from(backend), id);

    if (!container || container->phase == CONTAINER_MADE)
        error_set(&op->err, ERR_BACKEND, "sandbox %s is neither made nor adopted", id);
    else if (container_is_dead(container))
        error_set(&op->err, ERR_GONE, "sandbox %s has ended", id);
    else if (container->door)
        return connect_by_door(container, op);
    else
        op->result.fd = bridge_connect(container->bridge, &op->err);
    return true;
}

void docker_cancel(struct backend *backend, struct backend_op *op)
{
    struct map_slot *slot;

    map_for_each (slot, &docker_from(backend)->containers) {
        struct container *container = slot->value;

        if (container->connecting == op) {
            container->connecting = NULL;
            door_wait(container->door, NULL, NULL);
            return;
        }
    }
}
