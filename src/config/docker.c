/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/macros.h"
#include "base/scoped.h"
#include "base/str.h"
#include "config/settings.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

#define ORIGIN "environment "
#define UNIX_PREFIX "unix://"
#define TCP_PREFIX "tcp://"

/* The files of DOCKER_CERT_PATH have fixed names. */
static const struct {
    const char *key;
    const char *file;
} tls_files[] = {
    { "docker.tls.ca", "ca.pem" },
    { "docker.tls.cert", "cert.pem" },
    { "docker.tls.key", "key.pem" },
};

static const char *path_of(const struct config *config, const char *key)
{
    return *(char **)setting_field(setting_find(settings, key), (void *)config);
}

static bool host_is_unix(const struct config *config)
{
    return str_starts_with(config->docker.host, UNIX_PREFIX);
}

bool config_uses_engine(const struct config *config)
{
    return config_names_backend(config, "docker") || config_names_backend(config, "gvisor");
}

const char *config_engine_socket(const struct config *config)
{
    return host_is_unix(config) ? config->docker.host + strlen(UNIX_PREFIX) : NULL;
}

/* --- defaults from the environment --------------------------------------------------------- */

/* By the file, the command line or a variable of ours. */
static bool is_set(const struct config *config, const char *key)
{
    const char *origin = config->origins[setting_find(settings, key) - settings];

    return !config_is_default(config, key) && !str_starts_with(origin, ORIGIN "DOCKER_");
}

/* Settings are derived again after each change, so a value that no longer holds goes back. */
static void derive(struct config *config, const char *key, const char *variable, const char *value)
{
    const struct setting *setting = setting_find(settings, key);
    scoped(free) char *origin = xasprintf(ORIGIN "%s", variable);
    struct error err = { 0 };

    if (is_set(config, key))
        return;
    if (!value || setting_assign(setting, config, value, &err) < 0) {
        (void)setting_assign(setting, config, setting->fallback, &err);
        value = NULL;
    }
    config_set_origin(config, setting, value ? origin : CONFIG_ORIGIN_DEFAULT);
}

static const char *variable_of(bool is_wanted, const char *name)
{
    const char *value = is_wanted ? getenv(name) : NULL;

    return str_is_empty(value) ? NULL : value;
}

/* The three files belong together: one that is set stands for all of them. */
static bool has_tls(const struct config *config)
{
    for (size_t i = 0; i < ARRAY_LENGTH(tls_files); i++)
        if (is_set(config, tls_files[i].key))
            return true;
    return false;
}

/* Other clients verify the engine only with DOCKER_TLS_VERIFY; ours always does, so that the
 * directory alone is enough. */
void config_derive_docker(struct config *config)
{
    bool is_wanted = config_uses_engine(config);
    const char *directory;

    derive(config, "docker.host", "DOCKER_HOST", variable_of(is_wanted, "DOCKER_HOST"));
    directory =
        variable_of(is_wanted && !host_is_unix(config) && !has_tls(config), "DOCKER_CERT_PATH");
    for (size_t i = 0; i < ARRAY_LENGTH(tls_files); i++) {
        scoped(free) char *path = directory ? path_join(directory, tls_files[i].file) : NULL;

        derive(config, tls_files[i].key, "DOCKER_CERT_PATH", path);
    }
}

/* --- checks -------------------------------------------------------------------------------- */

static int check_unix(const char *path, struct error *err)
{
    if (*path != '/')
        return error_set(err, ERR_INVALID, "docker.host: the socket \"%s\" is not an absolute path",
                         path);
    if (strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return error_set(err, ERR_INVALID, "docker.host: the path of the socket %s is too long",
                         path);
    return 0;
}

static int check_tcp(const struct config *config, const char *address, struct error *err)
{
    const char *colon = strrchr(address, ':');
    uint64_t port;

    if (!colon || colon == address || strpbrk(address, "/@ ") || str_to_u64(colon + 1, &port) < 0 ||
        port == 0 || port > 65535) {
        error_set(err, ERR_INVALID, "docker.host: \"%s\" is not HOST:PORT", address);
        return error_hint(err, "engines listen on port 2376 with TLS: " TCP_PREFIX "HOST:2376");
    }
    if (!*config->docker.tls.ca && !host_is_loopback(address, (size_t)(colon - address))) {
        error_set(err, ERR_INVALID,
                  "docker.host: %s is another machine, but docker.tls.ca is not set: anyone on the "
                  "network between could take over the engine",
                  address);
        return error_hint(err, "set docker.tls.ca, docker.tls.cert and docker.tls.key, or "
                               "DOCKER_CERT_PATH");
    }
    return 0;
}

static int check_host(const struct config *config, struct error *err)
{
    const char *host = config->docker.host;

    if (host_is_unix(config))
        return check_unix(host + strlen(UNIX_PREFIX), err);
    if (str_starts_with(host, TCP_PREFIX))
        return check_tcp(config, host + strlen(TCP_PREFIX), err);
    error_set(err, ERR_INVALID,
              "docker.host: \"%s\" is neither " UNIX_PREFIX "PATH nor " TCP_PREFIX "HOST:PORT",
              host);
    if (str_starts_with(host, "ssh://"))
        return error_hint(err, "forward the engine's socket with ssh -L "
                               "/path/docker.sock:/var/run/docker.sock HOST, and name that path");
    return error_hint(err, "for an engine on this host: docker.host: " UNIX_PREFIX
                           "/var/run/docker.sock");
}

static int check_file(const struct config *config, const char *key, struct error *err)
{
    const char *path = path_of(config, key);
    struct stat info;

    if (!*path || stat(path, &info) == 0 || (errno != ENOENT && errno != ENOTDIR))
        return 0; /* the user who checks the settings need not be able to read the file */
    error_set(err, ERR_INVALID, "%s: %s does not exist", key, path);
    return error_hint(err, "create it, or remove the setting or DOCKER_CERT_PATH");
}

static int check_tls(const struct config *config, struct error *err)
{
    for (size_t i = 0; i < ARRAY_LENGTH(tls_files); i++) {
        const char *key = tls_files[i].key;

        if (*path_of(config, key) && host_is_unix(config)) {
            error_set(err, ERR_INVALID, "%s is set, but docker.host is a unix socket", key);
            return error_hint(err, "set docker.host to " TCP_PREFIX "HOST:PORT, or remove %s", key);
        }
        if (check_file(config, key, err) < 0)
            return -1;
    }
    if (!*config->docker.tls.cert != !*config->docker.tls.key)
        return error_set(err, ERR_INVALID,
                         "docker.tls.cert and docker.tls.key must be set "
                         "together");
    if (*config->docker.tls.cert && !*config->docker.tls.ca) {
        error_set(err, ERR_INVALID, "docker.tls.cert needs docker.tls.ca");
        return error_hint(err, "without it the daemon could not tell the engine from an impostor");
    }
    return 0;
}

/* Names of networks and runtimes begin with a letter or a digit and go on with a few signs more. */
static bool is_name(const char *text, const char *signs)
{
    if (!isalnum((unsigned char)*text) || strlen(text) > 255)
        return false;
    for (; *text; text++)
        if (!isalnum((unsigned char)*text) && !strchr(signs, *text))
            return false;
    return true;
}

static int check_network(const char *network, struct error *err)
{
    if (str_equal(network, "host") || str_starts_with(network, "container:")) {
        error_set(err, ERR_INVALID,
                  "docker.network: \"%s\" would give sandboxes the network of others", network);
        return error_hint(err, "use none, bridge, or a network made with docker network create");
    }
    if (!is_name(network, "_.-")) {
        error_set(err, ERR_INVALID, "docker.network: \"%s\" is not the name of a network", network);
        return error_hint(err, "use none, bridge, or a name that docker network ls shows");
    }
    return 0;
}

static int check_runtime(const char *runtime, struct error *err)
{
    if (!*runtime || is_name(runtime, "_.-"))
        return 0;
    error_set(err, ERR_INVALID, "docker.runtime: \"%s\" is not the name of a runtime", runtime);
    return error_hint(err, "use one of those that docker info shows, or leave it out");
}

int config_check_docker(const struct config *config, struct error *err)
{
    if (check_host(config, err) < 0 || check_tls(config, err) < 0 ||
        check_network(config->docker.network, err) < 0)
        return -1;
    return check_runtime(config->docker.runtime, err);
}
