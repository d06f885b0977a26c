/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/launcher_setup.h"

#include "backend/launcher_process.h"
#include "config/config.h"
#include "config/mountable.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SETUP_TIMEOUT_MS = 20000 };

int launcher_exchange(int socket, enum launch_type type, void *message, size_t length, int fd,
                      struct launch_reply *out_reply, struct error *err)
{
    struct pollfd watch = { .fd = socket, .events = POLLIN };
    struct launch_header *header = message;
    int pidfd = -1;
    int result;

    *header = (struct launch_header){ .length = (uint32_t)length,
                                      .type = (uint16_t)type,
                                      .version = LAUNCH_VERSION,
                                      .tag = (uint64_t)type };
    if (launcher_process_send(socket, message, length, fd) < 0)
        return error_sys(err, "talk to the launcher");
    do {
        if (poll(&watch, 1, SETUP_TIMEOUT_MS) <= 0)
            return error_set(err, ERR_TIMEOUT, "the launcher does not answer");
        result = launcher_receive(socket, out_reply, &pidfd);
    } while (result == 0 || (result > 0 && !out_reply->header.tag));
    fd_close(pidfd);
    if (result < 0)
        return error_set(err, ERR_BACKEND, "the launcher ended at its start");
    return out_reply->error ? launcher_error(out_reply, "launcher", err) : 0;
}

static int send_template(int socket, const char *path, struct error *err)
{
    struct launch_template message = { .name = LAUNCHER_CONFIGURED_TEMPLATE };
    struct launch_reply reply;
    scoped(fd_close) int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return error_sys(err, "sandbox.template: open %s", path);
    return launcher_exchange(socket, LAUNCH_TEMPLATE, &message, sizeof(message), fd, &reply, err);
}

static int send_mount(int socket, const struct config_mount *mount, struct error *err)
{
    struct launch_mount message = { .read_only = mount->read_only };
    struct launch_reply reply;
    scoped(fd_close) int fd = open(mount->host_path, O_PATH | O_CLOEXEC);

    if (fd < 0)
        return error_sys(err, "sandbox.mounts: open %s", mount->host_path);
    snprintf(message.path, sizeof(message.path), "%s", mount->path);
    if (strlen(mount->path) >= sizeof(message.path) || !launch_path_is_valid(message.path))
        return error_set(err, ERR_INVALID, "sandbox.mounts: \"%s\" is not a valid mount point",
                         mount->path);
    return launcher_exchange(socket, LAUNCH_MOUNT, &message, sizeof(message), fd, &reply, err);
}

/* Sends the path without links, so that the launcher later opens the same directory. */
static int send_allowed(int socket, const char *entry, struct error *err)
{
    struct launch_allow message = { 0 };
    struct launch_reply reply;
    struct config_mountable mountable;
    scoped(free) char *real = NULL;

    if (config_mountable_parse(entry, &mountable, err) < 0)
        return -1;
    real = realpath(mountable.path, NULL);
    if (!real)
        return error_sys(err, "max.mounts: open %s", mountable.path);
    if (strlen(real) >= sizeof(message.path))
        return error_set(err, ERR_INVALID, "max.mounts: the path %s is longer than %zu bytes", real,
                         sizeof(message.path) - 1);
    snprintf(message.path, sizeof(message.path), "%s", real);
    message.read_only = !mountable.writable;
    return launcher_exchange(socket, LAUNCH_ALLOW, &message, sizeof(message), -1, &reply, err);
}

/* The template and mounts that the operator configures; only native sandboxes have them. */
static int send_configured(int socket, const struct config *config, uint32_t features,
                           struct error *err)
{
    if (!config || !(features & LAUNCH_HAS_NATIVE))
        return 0;
    if (*config->sandbox.template_name == '/' &&
        send_template(socket, config->sandbox.template_name, err) < 0)
        return -1;
    for (size_t i = 0; i < config->sandbox.mounts.count; i++) {
        if (send_mount(socket, &config->sandbox.mounts.items[i], err) < 0)
            return -1;
    }
    for (size_t i = 0; config_mountable_entry(config, i); i++) {
        if (send_allowed(socket, config_mountable_entry(config, i), err) < 0)
            return -1;
    }
    return 0;
}

int launcher_set_up(int socket, const struct launcher_options *options,
                    struct launch_host *out_host, struct error *err)
{
    struct launch_setup setup;
    struct launch_seal seal;
    struct launch_reply reply;
    struct launch_host host;
    scoped(fd_close) int filter = -1;

    filter = launcher_process_filter(options->config, err);
    if (filter < 0)
        return -1;
    launcher_process_describe(options, &setup);
    if (launcher_exchange(socket, LAUNCH_SETUP, &setup, sizeof(setup), filter, &reply, err) < 0)
        return -1;
    host = reply.body.host;
    host.missing[sizeof(host.missing) - 1] = '\0';
    if (send_configured(socket, options->config, host.features, err) < 0 ||
        launcher_exchange(socket, LAUNCH_SEAL, &seal, sizeof(seal), -1, &reply, err) < 0)
        return -1;
    *out_host = host;
    return 0;
}
