/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/kubernetes/kube_config.h"
#include "base/alloc.h"
#include "base/landlock.h"
#include "base/macros.h"
#include "base/scoped.h"
#include "base/str.h"
#include "config/redis_url.h"
#include "daemon/confine_parts.h"
#include "net/address.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINKS_MAXIMUM = 40 };

struct rules {
    int set; /* owned */
    uint32_t version;
};

/* Rights of the daemon below its own directories: all but programs and devices. */
static const uint64_t own_rights = ~(uint64_t)(LANDLOCK_EXECUTE | LANDLOCK_DEVICES);
static const uint64_t append_rights = LANDLOCK_READ | LANDLOCK_WRITE_FILE | LANDLOCK_MAKE_FILE |
                                      LANDLOCK_TRUNCATE;
static const uint64_t socket_rights = LANDLOCK_READ_DIR | LANDLOCK_MAKE_SOCKET |
                                      LANDLOCK_REMOVE_FILE;

/* Files that libraries read while the daemon runs: modules, time zones, certificates, names. /proc
 * and /sys show the state of sandboxes. */
static const struct {
    const char *path;
    uint64_t rights;
} system_rules[] = {
    { "/proc", LANDLOCK_READ },
    { "/sys", LANDLOCK_READ },
    { "/usr", LANDLOCK_READ },
    { "/lib", LANDLOCK_READ },
    { "/lib64", LANDLOCK_READ },
    { "/gnu/store", LANDLOCK_READ },
    { "/nix/store", LANDLOCK_READ },
    { "/etc/ca-certificates", LANDLOCK_READ },
    { "/etc/gai.conf", LANDLOCK_READ },
    { "/etc/host.conf", LANDLOCK_READ },
    { "/etc/hosts", LANDLOCK_READ },
    { "/etc/ld.so.cache", LANDLOCK_READ },
    { "/etc/localtime", LANDLOCK_READ },
    { "/etc/nsswitch.conf", LANDLOCK_READ },
    { "/etc/passwd", LANDLOCK_READ },
    { "/etc/pki", LANDLOCK_READ },
    { "/etc/protocols", LANDLOCK_READ },
    { "/etc/resolv.conf", LANDLOCK_READ },
    { "/etc/services", LANDLOCK_READ },
    { "/etc/ssl/certs", LANDLOCK_READ },
    { "/etc/ssl/openssl.cnf", LANDLOCK_READ },
    { "/run/systemd/resolve", LANDLOCK_READ },
    { "/dev/null", LANDLOCK_READ_FILE | LANDLOCK_WRITE_FILE },
    { "/dev/random", LANDLOCK_READ_FILE },
    { "/dev/urandom", LANDLOCK_READ_FILE },
};

/* A path that this user cannot open needs no rule. */
static int allow(const struct rules *rules, const char *path, uint64_t rights)
{
    scoped(fd_close) int fd = open(path, O_PATH | O_CLOEXEC);
    struct landlock_path rule = { .rights = rights & landlock_file_rights(rules->version),
                                  .parent = fd };
    struct stat status;

    if (fd < 0)
        return errno == ENOENT || errno == EACCES || errno == ENOTDIR ? 0 : -1;
    if (fstat(fd, &status) == 0 && !S_ISDIR(status.st_mode))
        rule.rights &= LANDLOCK_FILE_ONLY;
    return landlock_add_path(rules->set, &rule);
}

/* The directory of an absolute path, or the nearest one above it that exists. */
static int allow_parent(const struct rules *rules, const char *path, uint64_t rights)
{
    scoped(free) char *parent = xstrdup(path);
    char *slash;

    do {
        slash = strrchr(parent, '/');
        if (!slash || slash == parent)
            return allow(rules, "/", rights);
        *slash = '\0';
    } while (access(parent, F_OK) < 0 && errno == ENOENT);
    return allow(rules, parent, rights);
}

/* A file that is replaced while the daemon runs: a rule for the file would hold for the old one
 * alone, so it is for the directory that it is in, or will be, and for the one that a link leads
 * to. */
static int allow_file(const struct rules *rules, const char *path, uint64_t rights)
{
    scoped(free) char *real = NULL;

    if (!*path)
        return 0;
    real = realpath(path, NULL);
    if (allow_parent(rules, path, rights) < 0)
        return -1;
    return real ? allow_parent(rules, real, rights) : 0;
}

static bool is_same(const char *path, const char *other)
{
    struct stat a;
    struct stat b;

    return stat(path, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* Not what holds far more than files of ours. */
static bool is_too_much(const char *directory)
{
    const char *home = getenv("HOME");

    return is_same(directory, "/") || (home && is_same(directory, home));
}

/* The directory that a file is in may be replaced too, so the directory above becomes readable with
 * all that it has. This is only for directories that root alone can change and all users can list,
 * such as /etc: not for private ones, and not for those of a user. */
static int allow_above(const struct rules *rules, const char *path)
{
    scoped(free) char *above = xstrdup(path);
    struct stat status;

    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(above, '/');

        if (!slash || slash == above)
            return 0;
        *slash = '\0';
    }
    if (is_too_much(above) || stat(above, &status) < 0 || status.st_uid != 0 ||
        (status.st_mode & 0022) || !(status.st_mode & 0004))
        return 0;
    return allow(rules, above, LANDLOCK_READ);
}

/* Where the first link on the way leads: the path with that link resolved; NULL when there is none.
 * The length of the directory that it is in is told. */
static char *follow_link(const char *path, size_t *out_directory)
{
    size_t start = 0;

    while (path[start]) {
        size_t end = start + 1 + strcspn(path + start + 1, "/");
        scoped(free) char *prefix = xstrndup(path, end);
        char target[PATH_MAX];
        ssize_t length = readlink(prefix, target, sizeof(target) - 1);

        if (length > 0) {
            target[length] = '\0';
            *out_directory = start;
            return target[0] == '/' ? xasprintf("%s%s", target, path + end)
                                    : xasprintf("%.*s/%s%s", (int)start, path, target, path + end);
        }
        start = end;
    }
    return NULL;
}

/* A file that is replaced by turning a link to it, or to a directory above it: the new target is
 * looked for where the link is and where it leads to now. */
static int allow_links(const struct rules *rules, const char *path)
{
    scoped(free) char *at = xstrdup(path);

    for (int i = 0; i < LINKS_MAXIMUM; i++) {
        size_t length = 0;
        scoped(free) char *next = follow_link(at, &length);

        if (!next)
            return 0;
        at[length] = '\0';
        if (length > 0 && !is_too_much(at) && allow(rules, at, LANDLOCK_READ) < 0)
            return -1;
        free(at);
        at = next;
        next = NULL;
        if (allow_above(rules, at) < 0)
            return -1;
    }
    return 0;
}

/* A file that the daemon reads again and that others may replace, also with its directory. */
static int allow_replaced(const struct rules *rules, const char *path)
{
    if (allow_file(rules, path, LANDLOCK_READ) < 0)
        return -1;
    return *path && (allow_above(rules, path) < 0 || allow_links(rules, path) < 0) ? -1 : 0;
}

static int allow_system(const struct rules *rules)
{
    for (size_t i = 0; i < ARRAY_LENGTH(system_rules); i++)
        if (allow(rules, system_rules[i].path, system_rules[i].rights) < 0)
            return -1;
    return 0;
}

static bool uses_sentinels(const struct config *config)
{
    return config->store.kind == STORE_KIND_REDIS &&
           str_starts_with(config->store.redis.url, "redis+sentinel://");
}

/* Keys of an issuer are fetched from a place that its answers may move; sentinels name any port as
 * that of the master; and other nodes have the addresses that they report. */
static bool connects_anywhere(const struct config *config)
{
    return *config->auth.jwt.jwks_url || uses_sentinels(config) || config_is_clustered(config);
}

/* Keys of an issuer are fetched for as long as the daemon runs: names are looked up in files that
 * others replace, and certificates are where OpenSSL is told to find them. */
static int allow_issuer(const struct rules *rules)
{
    const char *authority = getenv("SSL_CERT_FILE");
    const char *authorities = getenv("SSL_CERT_DIR");

    if (allow(rules, "/etc", LANDLOCK_READ) < 0 ||
        (authority && allow_file(rules, authority, LANDLOCK_READ) < 0))
        return -1;
    return authorities ? allow(rules, authorities, LANDLOCK_READ) : 0;
}

/* The engine's unix socket needs no rule. Certificates are read for each connection, and so are the
 * files that names are looked up in. */
static int allow_engine(const struct rules *rules, const struct config *config)
{
    struct landlock_port rule = { .rights = LANDLOCK_CONNECT };
    const char *colon = strrchr(config->docker.host, ':');

    if (!config_uses_engine(config) || config_engine_socket(config))
        return 0;
    if (allow_replaced(rules, config->docker.tls.ca) < 0 ||
        allow_replaced(rules, config->docker.tls.cert) < 0 ||
        allow_replaced(rules, config->docker.tls.key) < 0 ||
        allow(rules, "/etc", LANDLOCK_READ) < 0)
        return -1;
    if (rules->version < 4 || connects_anywhere(config) || !colon)
        return 0;
    rule.port = (uint64_t)atoi(colon + 1);
    return landlock_add_port(rules->set, &rule);
}

/* The token is read again when it is rotated. The backend reads the kubeconfig and its files when
 * it is opened, which is after this, and refuses a kubeconfig that it cannot read. */
static int allow_cluster(const struct rules *rules, const struct config *config)
{
    scoped(kube_config_fini) struct kube_config kube = { 0 };
    struct landlock_port rule = { .rights = LANDLOCK_CONNECT };
    struct error ignored = { 0 };

    if (!config_names_backend(config, "kubernetes"))
        return 0;
    if (allow_replaced(rules, kube_config_path(config)) < 0)
        return -1;
    if (kube_config_load(&kube, config, &ignored) < 0)
        return 0;
    if (allow_replaced(rules, kube.ca.path ? kube.ca.path : "") < 0 ||
        allow_replaced(rules, kube.certificate.path ? kube.certificate.path : "") < 0 ||
        allow_replaced(rules, kube.key.path ? kube.key.path : "") < 0 ||
        allow_replaced(rules, kube.token_path ? kube.token_path : "") < 0 ||
        allow(rules, "/etc", LANDLOCK_READ) < 0)
        return -1;
    if (rules->version < 4 || connects_anywhere(config))
        return 0;
    rule.port = kube_config_port(&kube);
    if (landlock_add_port(rules->set, &rule) < 0)
        return -1;
    if (config->kubernetes.transport != KUBERNETES_ADDRESS)
        return 0;
    rule.port = (uint64_t)config->kubernetes.port;
    return landlock_add_port(rules->set, &rule);
}

/* The server's unix socket needs no rule. */
static int allow_redis(const struct rules *rules, const struct config *config)
{
    scoped(redis_url_fini) struct redis_url url = { 0 };
    struct landlock_port rule = { .rights = LANDLOCK_CONNECT };

    if (config->store.kind != STORE_KIND_REDIS ||
        redis_url_parse(&url, config->store.redis.url, NULL) < 0 || url.scheme == REDIS_UNIX)
        return 0;
    if (allow_replaced(rules, config->store.redis.ca) < 0 ||
        allow(rules, "/etc", LANDLOCK_READ) < 0 ||
        (url.scheme == REDIS_TLS && allow_issuer(rules) < 0))
        return -1;
    if (rules->version < 4 || connects_anywhere(config))
        return 0;
    rule.port = (uint64_t)atoi(strrchr(url.hosts[0], ':') + 1);
    return landlock_add_port(rules->set, &rule);
}

static int allow_own(const struct rules *rules, const struct config *config)
{
    if (allow(rules, config->state_dir, own_rights) < 0 ||
        allow_replaced(rules, config->node.ca) < 0 ||
        allow_replaced(rules, config->tls.certificate) < 0 ||
        allow_replaced(rules, config->tls.key) < 0)
        return -1;
    if (config->auth.mode == AUTH_MODE_KEYS && allow_replaced(rules, config->auth.keys_file) < 0)
        return -1;
    if (config->auth.mode == AUTH_MODE_JWT && allow_replaced(rules, config->auth.jwt.jwks_file) < 0)
        return -1;
    return config->audit.enabled ? allow_file(rules, config->audit.file, append_rights) : 0;
}

static unsigned port_of(const struct address *address)
{
    const struct sockaddr *any = (const struct sockaddr *)&address->storage;

    return ntohs(any->sa_family == AF_INET6
                     ? ((const struct sockaddr_in6 *)&address->storage)->sin6_port
                     : ((const struct sockaddr_in *)&address->storage)->sin_port);
}

/* An address that cannot be read is refused when it is bound. */
static int allow_listener(const struct rules *rules, const char *text)
{
    struct landlock_port rule = { .rights = LANDLOCK_BIND };
    struct address address;
    struct error err;

    if (str_starts_with(text, "unix:"))
        return allow_parent(rules, text + strlen("unix:"), socket_rights);
    if (rules->version < 4 || address_parse(&address, text, &err) < 0)
        return 0;
    rule.port = port_of(&address);
    return landlock_add_port(rules->set, &rule);
}

static int allow_all(const struct rules *rules, const struct config *config)
{
    if (allow_system(rules) < 0 || allow_own(rules, config) < 0 ||
        allow_engine(rules, config) < 0 || allow_cluster(rules, config) < 0 ||
        allow_redis(rules, config) < 0 || (connects_anywhere(config) && allow_issuer(rules) < 0))
        return -1;
    for (size_t i = 0; i < config->listen.count; i++)
        if (allow_listener(rules, config->listen.items[i]) < 0)
            return -1;
    return config->dashboard.enabled ? allow_listener(rules, "127.0.0.1:0") : 0;
}

int confine_files(const struct config *config)
{
    int version = landlock_version();
    scoped(fd_close) int set = -1;

    if (version <= 0)
        return -1;
    set = landlock_create(
        (uint32_t)version,
        (struct landlock_ruleset){ .files = ~(uint64_t)0,
                                   .ports = LANDLOCK_BIND |
                                            (connects_anywhere(config) ? 0 : LANDLOCK_CONNECT),
                                   .scopes = LANDLOCK_ABSTRACT_SOCKETS | LANDLOCK_SIGNALS });
    if (set < 0 ||
        allow_all(&(struct rules){ .set = set, .version = (uint32_t)version }, config) < 0 ||
        landlock_restrict(set) < 0)
        return -1;
    return version;
}
