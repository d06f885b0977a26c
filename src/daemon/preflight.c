#include "daemon/preflight.h"

#include "base/alloc.h"
#include "base/scoped.h"
#include "base/str.h"
#include "daemon/place.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_directory(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static int check_template(const struct config *config, struct error *err)
{
    const char *name = config->sandbox.template_name;
    scoped(free) char *templates = path_join(config->state_dir, "templates");
    scoped(free) char *imported = path_join(templates, name);

    if (str_equal(name, "host") || is_directory(*name == '/' ? name : imported))
        return 0;
    error_named(err, ERR_INVALID, "template_unknown", "sandbox.template: unknown template \"%s\"",
                name);
    return error_hint(
        err, *name == '/'
                 ? "give an existing directory, or \"host\""
                 : "'sandglass template ls' lists the imported templates; \"host\" always exists");
}

/* Where a path inside sandboxes is on the host: its directory, and the path below that. */
static char *find_inside(const struct config *config, const char *path, const char **out_below)
{
    const char *name = config->sandbox.template_name;

    for (size_t i = 0; i < config->sandbox.mounts.count; i++) {
        const struct config_mount *mount = &config->sandbox.mounts.items[i];
        size_t length = strlen(mount->path);

        if (strncmp(path, mount->path, length) == 0 && path[length] == '/') {
            *out_below = path + length;
            return xstrdup(mount->host_path);
        }
    }
    *out_below = path;
    if (str_equal(name, "host"))
        return xstrdup("/");
    return *name == '/' ? xstrdup(name) : xasprintf("%s/templates/%s", config->state_dir, name);
}

/* Links lead where they lead in a sandbox. */
static int open_inside(const char *root, const char *path)
{
    const struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT };
    scoped(fd_close) int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);

    return dir < 0 ? -1 : (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
}

/* Of the host, native sandboxes have /usr, and direct ones may execute a little more. */
static bool is_shown(const struct config *config, const char *root, int file)
{
    bool direct = str_equal(config->sandbox.backend, "direct");
    char link[40], target[4096] = "";

    if (!str_equal(root, "/"))
        return true;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
    if (readlink(link, target, sizeof(target) - 1) <= 0)
        return false;
    return str_starts_with(target, "/usr/") ||
           (direct && (str_starts_with(target, "/opt/") || str_starts_with(target, "/nix/store/") ||
                       str_starts_with(target, "/bin/")));
}

static int check_python(const struct config *config, struct error *err)
{
    const char *path = config->python.path;
    const char *below = NULL;
    scoped(free) char *root = *path ? find_inside(config, path, &below) : NULL;
    scoped(fd_close) int file = -1;
    struct stat status;

    if (!*path)
        return 0;
    file = open_inside(root, below);
    if (file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
        status.st_mode & S_IXOTH && is_shown(config, root, file))
        return 0;
    error_named(err, ERR_INVALID, "interpreter_missing",
                "python.path: sandboxes of the template \"%s\" have no program %s",
                config->sandbox.template_name, path);
    return error_hint(err, "give a program that every user may execute inside, or leave it out");
}

static int check_direct_ids(const struct config *config, const struct identity *identity,
                            struct error *err)
{
    const struct {
        const char *key;
        uint64_t id, own;
    } ids[] = {
        { "sandbox.direct.uid", (uint64_t)config->sandbox.direct_uid, identity->uid },
        { "sandbox.direct.gid", (uint64_t)config->sandbox.direct_gid, identity->gid },
    };

    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        if (config_is_default(config, ids[i].key) ||
            (ids[i].id != 0 && (identity->kind == IDENTITY_SELF || ids[i].id != ids[i].own)))
            continue;
        error_named(err, ERR_INVALID, "id_not_safe", "%s: programs must not run as %s", ids[i].key,
                    ids[i].id ? "the daemon's own user" : "root");
        return error_hint(err, "leave it out: each sandbox then has its own id");
    }
    return 0;
}

/* A direct sandbox has the files of the host: it cannot be given others. */
static int check_direct(const struct config *config, const struct identity *identity,
                        struct error *err)
{
    if (!str_equal(config->sandbox.template_name, "host"))
        return error_set(err, ERR_INVALID,
                         "sandbox.template: the backend direct uses the files of the host and does "
                         "not support templates; use \"host\", or the backend native");
    if (config->sandbox.mounts.count)
        return error_set(err, ERR_INVALID,
                         "sandbox.mounts: the backend direct does not support mounts; remove them, "
                         "or use the backend native");
    return check_direct_ids(config, identity, err);
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

/* Certificates are read before power is given up, files of keys again and again. */
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

int preflight_check(const struct config *config, const struct identity *identity, struct error *err)
{
    bool direct = str_equal(config->sandbox.backend, "direct");

    if (check_template(config, err) < 0 || (direct && check_direct(config, identity, err) < 0))
        return -1;
    if (config->sandbox.allow_direct_fallback && check_direct_ids(config, identity, err) < 0)
        return -1;
    if (check_python(config, err) < 0 || check_audit(config, identity, err) < 0 ||
        check_ports(config, identity, err) < 0)
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
