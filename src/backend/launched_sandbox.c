/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/launched_sandbox.h"

#include "backend/launched.h"
#include "base/alloc.h"
#include "base/scoped.h"
#include "bridge/bridge.h"
#include "bridge/carrier.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static struct loop *loop_of(const struct launched_sandbox *sandbox)
{
    return sandbox->backend->base.loop;
}

struct launched_sandbox *launched_sandbox_new(struct launched_backend *backend, const char *id)
{
    struct launched_sandbox *sandbox = xnew(struct launched_sandbox);

    memcpy(sandbox->id, id, sizeof(sandbox->id));
    sandbox->backend = backend;
    sandbox->pidfd = -1;
    return sandbox;
}

void launched_sandbox_free(struct launched_sandbox *sandbox)
{
    if (!sandbox)
        return;
    bridge_free(sandbox->bridge);
    backend_watch_drop(sandbox->watch);
    loop_undefer(loop_of(sandbox), &sandbox->late);
    process_unwatch(&sandbox->process);
    fd_close(sandbox->pidfd);
    free(sandbox);
}

void launched_sandbox_keep_pidfd(struct launched_sandbox *sandbox, int pidfd)
{
    if (sandbox->pidfd < 0 && sandbox->process.state == PROCESS_UNWATCHED)
        sandbox->pidfd = pidfd;
    else
        fd_close(pidfd);
}

/* --- the end ------------------------------------------------------------------------------- */

static void tell_end(struct launched_sandbox *sandbox)
{
    const struct process_exit *exit = &sandbox->process.exit;
    struct backend_watch *watch = steal_ptr(&sandbox->watch);

    if (watch)
        backend_watch_end(watch, &(struct backend_end){ .is_known = exit->known,
                                                        .code = exit->code,
                                                        .signal = exit->signal });
}

static void on_exit_of_init(struct process *process)
{
    tell_end(container_of(process, struct launched_sandbox, process));
}

static void on_late_watch(struct deferred *deferred)
{
    tell_end(container_of(deferred, struct launched_sandbox, late));
}

void launched_sandbox_watch(struct launched_sandbox *sandbox, struct backend_watch *watch)
{
    if (!sandbox || (sandbox->pidfd < 0 && !process_has_exited(&sandbox->process))) {
        backend_watch_drop(watch);
        return;
    }
    assert(!sandbox->watch);
    sandbox->watch = watch;
    watch->private = sandbox;
    if (process_has_exited(&sandbox->process))
        loop_defer(loop_of(sandbox), &sandbox->late, on_late_watch);
    else
        process_watch(&sandbox->process, loop_of(sandbox), steal_fd(&sandbox->pidfd),
                      on_exit_of_init);
}

void launched_sandbox_unwatch(struct launched_sandbox *sandbox)
{
    sandbox->watch = NULL;
    loop_undefer(loop_of(sandbox), &sandbox->late);
    if (process_is_watched(&sandbox->process))
        sandbox->pidfd = process_release(&sandbox->process);
}

bool launched_sandbox_is_dead(const struct launched_sandbox *sandbox)
{
    struct pollfd unwatched = { .fd = sandbox ? sandbox->pidfd : -1, .events = POLLIN };

    if (!sandbox || process_has_exited(&sandbox->process))
        return true;
    return process_is_watched(&sandbox->process) ? process_is_dead(&sandbox->process)
                                                 : poll(&unwatched, 1, 0) == 1;
}

/* --- the way to its init ------------------------------------------------------------------- */

int launched_sandbox_open_bridge(struct launched_sandbox *sandbox, struct error *err)
{
    struct launched_backend *launched = sandbox->backend;
    static const struct bridge_handler handler = { 0 }; /* a pidfd reports the end */
    struct bridge_options options = { .loop = launched->base.loop,
                                      .name = sandbox->id,
                                      .handler = &handler };
    char path[ID_SIZE + 32];

    if (sandbox->bridge)
        return 0;
    if (launched_need_secret(launched, err) < 0)
        return -1;
    snprintf(path, sizeof(path), "sandboxes/%s/init.sock", sandbox->id);
    options.carrier = carrier_unix_new(launched->base.loop, launched->state_dir, path);
    relay_key_derive(launched->secret, sandbox->id, options.key);
    sandbox->bridge = bridge_new(&options);
    explicit_bzero(options.key, sizeof(options.key));
    bridge_set_frozen(sandbox->bridge, sandbox->made.frozen);
    return 0;
}

/* Init's socket is in the state directory: connecting to it does not wait. */
static int connect_to_init(const struct launched_sandbox *sandbox, struct error *err)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    scoped(fd_close) int fd = -1;

    /* Through the descriptor: the path of the state directory may be longer than an address. */
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/sandboxes/%s/init.sock",
             sandbox->backend->state_dir, sandbox->id);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_sys(err, "create a socket");
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        bool is_closed = errno == ECONNREFUSED; /* init has it open as long as it lives */

        error_sys(err, "connect to sandbox %s", sandbox->id);
        err->code = is_closed ? ERR_GONE : ERR_BACKEND;
        return -1;
    }
    return steal_fd(&fd);
}

int launched_sandbox_connect(const struct launched_sandbox *sandbox, struct error *err)
{
    if (!sandbox->bridge)
        return connect_to_init(sandbox, err);
    if (launched_sandbox_is_dead(sandbox)) /* which its bridge learns later */
        return error_set(err, ERR_GONE, "sandbox %s has ended", sandbox->id);
    return bridge_connect(sandbox->bridge, err);
}
