/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/launcher_sweep.h"

#include "backend/launcher_process.h"
#include "backend/launcher_setup.h"
#include "base/scoped.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int set_up(const struct launcher_sweep *sweep, struct error *err)
{
    const struct launcher_options options = { .uid = geteuid(), .gid = getegid() };
    struct launch_reply reply;
    struct launch_setup setup;
    scoped(fd_close) int filter = launcher_process_filter(NULL, err);

    if (filter < 0)
        return -1;
    launcher_process_describe(&options, &setup);
    memcpy(setup.instance, sweep->instance, sizeof(setup.instance));
    /* Ids that /etc/subuid gives to an ordinary user have power over its sandboxes only from inside
     * of the user namespace that native sandboxes are made in. */
    setup.flags = LAUNCH_SETUP_ONLY_DESTROY | (geteuid() ? LAUNCH_SETUP_NATIVE : 0);
    return launcher_exchange(sweep->socket, LAUNCH_SETUP, &setup, sizeof(setup), filter, &reply,
                             err);
}

int launcher_sweep_start(struct launcher_sweep *sweep, const char *state_path, const char *instance,
                         struct error *err)
{
    assert(sweep->socket < 0);
    memset(sweep->instance, 0, sizeof(sweep->instance));
    snprintf(sweep->instance, sizeof(sweep->instance), "%s", instance);
    if (!launch_name_is_valid(sweep->instance))
        return error_set(err, ERR_INVALID, "\"%s\" is not the name of an instance", instance);
    sweep->socket = launcher_process_start(state_path, &sweep->pid, err);
    if (sweep->socket < 0)
        return -1;
    if (set_up(sweep, err) == 0)
        return 0;
    launcher_sweep_stop(sweep);
    return -1;
}

int launcher_sweep_destroy(struct launcher_sweep *sweep, const char *id, struct error *err)
{
    struct launch_destroy message = { 0 };
    struct launch_reply reply;

    assert(sweep->socket >= 0);
    snprintf(message.id, sizeof(message.id), "%s", id);
    return launcher_exchange(sweep->socket, LAUNCH_DESTROY, &message, sizeof(message), -1, &reply,
                             err);
}

void launcher_sweep_stop(struct launcher_sweep *sweep)
{
    if (sweep->socket < 0)
        return;
    fd_close(sweep->socket);
    sweep->socket = -1;
    (void)waitpid(sweep->pid, NULL, 0);
}
