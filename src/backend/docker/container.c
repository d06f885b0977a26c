#include "backend/docker/docker_private.h"

#include "base/alloc.h"
#include "base/backoff.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/str.h"
#include "bridge/bridge.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* An engine that does not answer while a container has died is waited for, to learn the cause; one
 * that has left, too, not so long. */
enum {
    KILL_US = 300 * 1000,
    LOOKS_FOR_CAUSE = 6,
    LOOKS_FOR_LATE_CAUSE = 3,
    LOOKS_AT_NOBODY = 1,
    LOOK_MS = 5000
};

static const struct backoff look_backoff_us = { .first = 100 * 1000, .most = 5 * 1000 * 1000 };

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

static void on_again(struct timer *timer);

struct container *container_new(struct docker_backend *docker, const char *id)
{
    struct container *container = xnew(struct container);

    assert(!container_find(docker, id));
    snprintf(container->id, sizeof(container->id), "%s", id);
    container->docker = docker;
    timer_init(&container->again, docker->base.loop, on_again);
    pump_init(&container->pump, docker->base.loop, docker->engine, container->engine_id);
    map_put(&docker->containers, container->id, container);
    return container;
}

void container_free(struct container *container)
{
    if (!container)
        return;
    map_remove(&container->docker->containers, container->id);
    bridge_free(container->bridge);
    pump_fini(&container->pump);
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

/* --- its end ---------------------------------------------------------------------------------- */

static void tell_end(struct container *container)
{
    struct backend_watch *watch = steal_ptr(&container->watch);

    if (watch)
        backend_watch_end(watch, &container->end);
}

/* Nothing arrives at the door of a dead init. */
void container_refuse_connect(const char *id, struct backend_op *op)
{
    if (!op)
        return;
    error_set(&op->err, ERR_GONE, "sandbox %s has ended", id);
    op->done(op);
}

static void on_late(struct deferred *deferred)
{
    struct container *container = container_of(deferred, struct container, late);

    tell_end(container);
    container_refuse_connect(container->id, steal_ptr(&container->connecting));
}

/* From the loop, never inside of a call of the core. */
static void end(struct container *container, const struct backend_end *how)
{
    container->phase = CONTAINER_ENDED;
    container->end = *how;
    timer_stop(&container->again);
    loop_defer(loop_of(container), &container->late, on_late);
}

static void end_as(struct container *container, const char *detail)
{
    const struct process_exit *exit = &container->process.exit;
    bool is_known = process_has_exited(&container->process) && exit->known;
    struct backend_end how = { .is_known = is_known, .code = exit->code, .signal = exit->signal };

    snprintf(how.detail, sizeof(how.detail), "%s", detail);
    end(container, &how);
}

bool container_is_dead(const struct container *container)
{
    if (container->phase >= CONTAINER_KILLED || process_has_exited(&container->process))
        return true;
    return process_is_watched(&container->process) && process_is_dead(&container->process);
}

/* The engine does not answer: that says nothing about the container. Where the kernel says that its
 * process is dead, only the cause is not known. */
static void look_failed(struct container *container, const struct error *err)
{
    bool has_left = err->sys_errno == ECONNREFUSED || err->sys_errno == ENOENT;

    container->looks++;
    if (container_is_dead(container) &&
        container->looks > (has_left ? LOOKS_AT_NOBODY : LOOKS_FOR_CAUSE))
        end_as(container, "engine stopped");
    else
        timer_arm_in(&container->again, backoff_delay(&look_backoff_us, container->looks));
}

/* An engine needs a moment to notice what the kernel has told us. */
static void look_found_running(struct container *container, const struct container_state *state)
{
    container->is_paused = state->is_paused;
    if (container_is_dead(container)) {
        look_failed(container, &(struct error){ 0 });
        return;
    }
    container->phase = CONTAINER_RUNNING;
    container->looks = 0;
}

/* An engine removes no container whose process lives: it is another engine that answers. */
static bool lives_on(const struct container *container)
{
    return process_is_watched(&container->process) && !process_is_dead(&container->process);
}

/* Podman's containers stop before they are removed or started again, and who has killed one is told
 * later than its end. */
static bool is_cause_open(const struct container *container, const struct container_state *state,
                          const struct backend_end *how)
{
    bool is_unexplained = how->signal == SIGKILL && !how->oom && !*how->detail;

    return container->looks < LOOKS_FOR_LATE_CAUSE &&
           (state->is_settling || (is_unexplained && container->docker->facts.tells_late));
}

/* An engine that is stopped, and one that starts a container again, kills it first. What it says a
 * moment later tells these from a kill by somebody else. */
static bool is_told_too_early(struct container *container)
{
    if (!container->was_killed || container->phase != CONTAINER_SUSPECT)
        return false;
    container->phase = CONTAINER_KILLED;
    timer_arm_in(&container->again, KILL_US);
    return true;
}

static void end_as_told(struct container *container, const struct container_state *state)
{
    struct backend_end how = container_state_end(state, container->was_killed);

    if (is_told_too_early(container))
        return;

    how.oom = how.oom || (container->oom_events && how.signal == SIGKILL && !container->was_killed);
    if (is_cause_open(container, state, &how)) {
        timer_arm_in(&container->again, backoff_delay(&look_backoff_us, ++container->looks));
        return;
    }
    if (how.signal == SIGKILL && !how.oom && !*how.detail && container->docker->facts.hides_oom)
        snprintf(how.detail, sizeof(how.detail), "signal 9 (perhaps memory)");
    end(container, &how);
}

static void on_look(struct engine_call *call)
{
    struct container *container = container_of(call, struct container, look);
    struct container_state state;

    if (call->err.code == ERR_NOT_FOUND && !lives_on(container)) {
        end_as(container, "removed");
    } else if (call->err.code != ERR_NONE || !container_state_read(call->body, &state)) {
        look_failed(container, &call->err);
    } else if (state.was_started && !str_equal(state.started_at, container->started_at)) {
        end_as(container, "restarted");
    } else if (state.is_running) {
        look_found_running(container, &state);
    } else if (state.is_removing) {
        end_as(container, "removed");
    } else {
        end_as_told(container, &state);
    }
}

static void look(struct container *container)
{
    char path[ENGINE_PATH_SIZE];

    snprintf(path, sizeof(path), "/containers/%s/json", container->engine_id);
    engine_request(container->docker->engine, &container->look, HTTP_GET, path, NULL, NULL, 0,
                   LOOK_MS, on_look);
}

static void on_again(struct timer *timer)
{
    look(container_of(timer, struct container, again));
}

void container_suspect(struct container *container)
{
    if (container->phase != CONTAINER_RUNNING)
        return;
    container->phase = CONTAINER_SUSPECT;
    container->looks = 0;
    look(container);
}

static void on_exit_of_init(struct process *process)
{
    struct container *container = container_of(process, struct container, process);

    if (container->bridge)
        bridge_set_frozen(container->bridge, true); /* nothing is there to connect to */
    container_suspect(container);
}

/* --- events of the engine --------------------------------------------------------------------- */

static void set_paused(struct container *container, bool is_paused)
{
    container->is_paused = is_paused;
    if (container->bridge)
        bridge_set_frozen(container->bridge, is_paused);
}

/* Podman does not name the signal, and tells of it when it has been sent: one that was deadly has had its
 * effect. */
static bool was_deadly(const struct container *container, const char *signal)
{
    static const char *const numbers[] = { "2", "3", "9", "15" };

    for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++)
        if (str_equal(signal, numbers[i]))
            return true;
    return str_is_empty(signal) && container_is_dead(container);
}

void container_on_event(struct docker_backend *docker, const json_t *event)
{
    const json_t *actor = json_object_get(event, "Actor");
    const json_t *attributes = json_object_get(actor, "Attributes");
    struct container *container = container_find(docker, json_text_at(attributes, LABEL_SANDBOX));
    const char *action = json_text_at(event, "Action");

    if (!container && str_equal(action, "create"))
        late_consider(docker, json_text_at(actor, "ID"), attributes);
    if (!container || !str_equal(json_text_at(actor, "ID"), container->engine_id))
        return;
    if (str_equal(action, "oom"))
        container->oom_events++;
    else if (str_equal(action, "kill"))
        container->was_killed = was_deadly(container, json_text_at(attributes, "signal"));
    else if (str_equal(action, "pause") || str_equal(action, "unpause"))
        set_paused(container, str_equal(action, "pause"));
    else if (str_equal(action, "die") || str_equal(action, "destroy") ||
             str_equal(action, "remove") || str_equal(action, "restart"))
        container_suspect(container);
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
    if (container->phase == CONTAINER_ENDED)
        loop_defer(backend->loop, &container->late, on_late);
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
    options.carrier = pump_carrier_new(&container->pump);
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
    process_watch(&container->process, loop_of(container), pidfd, on_exit_of_init);
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
