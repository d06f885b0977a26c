/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/preflight.h"

#include "backend/kubernetes/kube_config.h"
#include "backend/registry.h"
#include "base/alloc.h"
#include "base/scoped.h"
#include "base/str.h"
#include "daemon/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_directory(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static int check_backends(const struct config *config, const struct identity *identity,
                          struct error *err)
{
    const struct backend_settings settings = { .config = config,
                                               .uid = identity->uid,
                                               .gid = identity->gid,
                                               .is_own_user = identity->kind == IDENTITY_SELF };

    for (const struct backend_row *row = backend_rows; row->name; row++)
        if (row->check(&settings, err) < 0)
            return -1;
    return 0;
}

static int check_file(const char *key, const char *path, const struct identity *reader,
                      struct error *err)
{
    if (!*path || place_may_read(path, reader))
        return 0;
    error_sys(err, "%s: read %s", key, path);
    err->code = ERR_INVALID;
    return reader->kind == IDENTITY_NAMED
               ? error_hint(err, "the daemon runs as user %s, which must be able to read the file",
                            reader->name)
               : -1;
}

static int check_engine_files(const struct config *config, const struct identity *identity,
                              struct error *err)
{
    if (!config_uses_engine(config))
        return 0;
    if (check_file("docker.tls.ca", config->docker.tls.ca, identity, err) < 0 ||
        check_file("docker.tls.cert", config->docker.tls.cert, identity, err) < 0)
        return -1;
    return check_file("docker.tls.key", config->docker.tls.key, identity, err);
}

static int check_kubeconfig(const struct config *config, const struct identity *identity,
                            struct error *err)
{
    if (!config_names_backend(config, "kubernetes"))
        return 0;
    return check_file("kubernetes.kubeconfig", kube_config_path(config), identity, err);
}

/* Certificates of listeners are read before power is given up, files of keys again and again. */
static int check_files(const struct config *config, const struct identity *identity,
                       struct error *err)
{
    const struct identity self = { .kind = IDENTITY_SELF, .uid = geteuid(), .gid = getegid() };
    bool has_keys = config->auth.mode == AUTH_MODE_KEYS;
    bool has_jwt = config->auth.mode == AUTH_MODE_JWT;

    if (check_file("tls.certificate", config->tls.certificate, &self, err) < 0 ||
        check_file("tls.key", config->tls.key, &self, err) < 0)
        return -1;
    if (has_keys && access(config->auth.keys_file, F_OK) == 0 &&
        check_file("auth.keys_file", config->auth.keys_file, identity, err) < 0)
        return -1;
    return has_jwt ? check_file("auth.jwt.jwks_file", config->auth.jwt.jwks_file, identity, err)
                   : 0;
}

/* Its directory is the operator's: the daemon makes none there. */
static int check_audit(const struct config *config, const struct identity *identity,
                       struct error *err)
{
    scoped(free) char *directory = NULL;
    const char *slash = strrchr(config->audit.file, '/');

    if (!config->audit.enabled || config_is_default(config, "audit.file") || !slash)
        return 0;
    directory = xstrndup(config->audit.file,
                         slash == config->audit.file ? 1 : (size_t)(slash - config->audit.file));
    if (!is_directory(directory))
        return error_set(err, ERR_INVALID, "audit.file: directory %s does not exist", directory);
    if (access(config->audit.file, F_OK) == 0)
        return 0;
    if (place_check(directory, identity, "keep the audit log", err) == 0)
        return 0;
    error_wrap(err, "audit.file");
    return error_hint(err, "choose a file in a directory of the daemon's user, or create the file "
                           "and chown it to that user");
}

static unsigned first_free_port(void)
{
    scoped(fd_close) int fd =
        open("/proc/sys/net/ipv4/ip_unprivileged_port_start", O_RDONLY | O_CLOEXEC);
    char text[16] = "";

    return fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 ? (unsigned)atoi(text) : 1024;
}

/* The daemon listens when it has given up its power. */
static int check_ports(const struct config *config, const struct identity *identity,
                       struct error *err)
{
    unsigned first = first_free_port();

    for (size_t i = 0; identity->kind != IDENTITY_SELF && i < config->listen.count; i++) {
        const char *colon = strrchr(config->listen.items[i], ':');
        unsigned port = colon ? (unsigned)atoi(colon + 1) : 0;

        if (str_starts_with(config->listen.items[i], "unix:") || !port || port >= first)
            continue;
        error_set(err, ERR_INVALID,
                  "listen: %s: ports below %u need root, and the daemon does not stay root",
                  config->listen.items[i], first);
        return error_hint(err,
                          "choose another port and forward this one to it, or run: sysctl -w "
                          "net.ipv4.ip_unprivileged_port_start=%u",
                          port);
    }
    return 0;
}

/* The launcher and every init have it for their standard descriptors. */
static int check_null_device(struct error *err)
{
    scoped(fd_close) int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (fd >= 0)
        return 0;
    error_sys(err, "open /dev/null");
    return error_hint(err, "make the device: mknod -m 666 /dev/null c 1 3");
}

int preflight_check(const struct config *config, const struct identity *identity, struct error *err)
{
    if (check_null_device(err) < 0 || check_backends(config, identity, err) < 0 ||
        check_audit(config, identity, err) < 0 || check_ports(config, identity, err) < 0 ||
        check_engine_files(config, identity, err) < 0 ||
        check_kubeconfig(config, identity, err) < 0)
        return -1;
    return check_files(config, identity, err);
}

int preflight_check_places(const struct config *config, const struct identity *identity,
                           struct error *err)
{
    if (place_check(config->state_dir, identity, "keep the daemon's state", err) < 0)
        return error_wrap(err, "state_dir");
    for (size_t i = 0; i < config->listen.count; i++) {
        const char *address = config->listen.items[i];

        if (str_starts_with(address, "unix:") &&
            place_check_socket(address + strlen("unix:"), identity, err) < 0)
            return error_wrap(err, "listen on %s", address);
    }
    return 0;
}
