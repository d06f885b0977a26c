/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/macros.h"
#include "base/str.h"
#include "config/mountable.h"
#include "config/redis_url.h"
#include "config/settings.h"

#include <arpa/inet.h>
#include <regex.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

bool host_is_loopback(const char *host, size_t length)
{
    char text[INET6_ADDRSTRLEN] = "";
    struct in_addr address;

    if (length == 0 || length >= sizeof(text))
        return false;
    memcpy(text, host, length);
    return strcmp(text, "localhost") == 0 || strcmp(text, "[::1]") == 0 ||
           (inet_pton(AF_INET, text, &address) == 1 && ntohl(address.s_addr) >> 24 == 127);
}

static int check_unix(const char *path, struct error *err)
{
    if (*path != '/')
        return error_set(err, ERR_INVALID, "listen: the socket \"%s\" is not an absolute path",
                         path);
    if (strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return error_set(err, ERR_INVALID, "listen: the path of the socket %s is too long", path);
    return 0;
}

static int check_tcp(const struct config *config, const char *address, struct error *err)
{
    const char *colon = strrchr(address, ':');
    uint64_t port;

    if (!colon || colon == address || str_to_u64(colon + 1, &port) < 0 || port > 65535)
        return error_set(err, ERR_INVALID, "listen: \"%s\" is neither unix:PATH nor HOST:PORT",
                         address);
    if (config->auth.mode == AUTH_MODE_NONE &&
        !host_is_loopback(address, (size_t)(colon - address))) {
        error_set(err, ERR_INVALID,
                  "listen: %s is reachable from other hosts, but auth.mode is none: any client "
                  "could run programs",
                  address);
        return error_hint(err, "set auth.mode to keys or jwt, or listen on 127.0.0.1");
    }
    return 0;
}

static int check_listen(const struct config *config, struct error *err)
{
    for (size_t i = 0; i < config->listen.count; i++) {
        const char *address = config->listen.items[i];
        int result = str_starts_with(address, "unix:") ? check_unix(address + 5, err)
                                                       : check_tcp(config, address, err);

        if (result < 0)
            return -1;
    }
    return 0;
}

/* Keys that come over a network in the clear can be replaced on the way. */
static bool url_is_trustworthy(const char *url)
{
    const char *host = url + strlen("http://");

    if (str_starts_with(url, "https://"))
        return true;
    return str_starts_with(url, "http://") && host_is_loopback(host, strcspn(host, ":/"));
}

static int check_auth(const struct config *config, struct error *err)
{
    bool has_file = *config->auth.jwt.jwks_file;
    bool has_url = *config->auth.jwt.jwks_url;

    if (config->auth.mode == AUTH_MODE_KEYS && !*config->auth.keys_file)
        return error_set(err, ERR_INVALID, "auth.mode keys needs auth.keys_file");
    if (config->auth.mode != AUTH_MODE_JWT)
        return 0;
    if (has_file == has_url)
        return error_set(
            err, ERR_INVALID,
            "auth.mode jwt needs exactly one of auth.jwt.jwks_file and auth.jwt.jwks_url");
    if (has_url && !url_is_trustworthy(config->auth.jwt.jwks_url))
        return error_set(
            err, ERR_INVALID,
            "auth.jwt.jwks_url must begin with https://, or with http:// and a loopback address");
    if (!*config->auth.jwt.issuer || !*config->auth.jwt.audience) {
        error_set(err, ERR_INVALID, "auth.mode jwt needs auth.jwt.issuer and auth.jwt.audience");
        return error_hint(err,
                          "without them the daemon would accept tokens issued for another service");
    }
    return 0;
}

static int check_tls(const struct config *config, struct error *err)
{
    if (!*config->tls.certificate != !*config->tls.key)
        return error_set(err, ERR_INVALID, "tls.certificate and tls.key must be set together");
    return 0;
}

static int check_dashboard(const struct config *config, struct error *err)
{
    const char *url = config->dashboard.url;
    const char *host = str_starts_with(url, "https://")  ? url + strlen("https://")
                       : str_starts_with(url, "http://") ? url + strlen("http://")
                                                         : NULL;

    if (!*url)
        return 0;
    for (const char *at = url; *at; at++)
        if (*at <= ' ' || strchr("\"\\?#;,@", *at) || (unsigned char)*at >= 127)
            host = NULL;
    if (host && *host && *host != '/' && *host != ':')
        return 0;
    error_set(err, ERR_INVALID, "dashboard.url: \"%.100s\" is not the URL of a page", url);
    return error_hint(err, "write it as https://HOST[:PORT]/[PATH/], without query and fragment");
}

static bool redis_sync_is_known(const char *text)
{
    uint64_t count;

    if (!str_starts_with(text, "replicas:"))
        return str_equal(text, "none") || str_equal(text, "aof");
    return str_to_u64(text + strlen("replicas:"), &count) == 0 && count > 0 && count < 100;
}

static int check_store(const struct config *config, struct error *err)
{
    scoped(redis_url_fini) struct redis_url url = { 0 };

    if (config->store.kind != STORE_KIND_REDIS)
        return 0;
    if (!*config->store.redis.url) {
        error_set(err, ERR_INVALID, "store.redis.url is needed when store.kind is redis");
        return error_hint(err, "set it to redis://host:6379/0, or set store.kind to sqlite");
    }
    if (redis_url_parse(&url, config->store.redis.url, err) < 0) {
        error_wrap(err, "store.redis.url");
        return error_hint(err,
                          "write redis://[:password@]host:port/db, rediss://…, unix:///path?db=N "
                          "or redis+sentinel://host:port,host:port/master/db");
    }
    if (*config->store.redis.ca && url.scheme != REDIS_TLS)
        return error_set(err, ERR_INVALID,
                         "store.redis.ca is for TLS: store.redis.url has to begin with rediss://");
    if (!redis_sync_is_known(config->store.redis.sync)) {
        error_set(err, ERR_INVALID, "store.redis.sync: \"%.40s\" is not known",
                  config->store.redis.sync);
        return error_hint(err, "write none, replicas:N (such as replicas:1) or aof");
    }
    if (!*config->store.redis.prefix)
        return error_set(err, ERR_INVALID, "store.redis.prefix must not be empty");
    return 0;
}

static bool is_node_address(const char *address)
{
    const char *host = strstr(address, "://");

    return (str_starts_with(address, "http://") || str_starts_with(address, "https://")) &&
           host[3] && host[3] != ':' && strrchr(host + 3, ':') && !strchr(host + 3, '/');
}

static int check_node(const struct config *config, struct error *err)
{
    if (!path_is_plain_name(config->node.id) || strlen(config->node.id) > 64)
        return error_set(err, ERR_INVALID, "node.id: \"%.100s\" is not a plain name",
                         config->node.id);
    if (!*config->node.address)
        return 0;
    if (!is_node_address(config->node.address)) {
        error_set(err, ERR_INVALID, "node.address: \"%.100s\" is not the address of a node",
                  config->node.address);
        return error_hint(err, "write http://HOST:PORT or https://HOST:PORT");
    }
    if (config->store.kind != STORE_KIND_REDIS) {
        error_set(err, ERR_INVALID, "node.address is for nodes that share a Redis server");
        return error_hint(err, "set store.kind to redis, or leave node.address out");
    }
    if (!*config->node.secret_file) {
        error_set(err, ERR_INVALID, "node.secret_file is needed with node.address");
        return error_hint(err, "write 32 random bytes or more into a file, the same on all nodes: "
                               "openssl rand -hex 32");
    }
    return 0;
}

bool config_is_clustered(const struct config *config)
{
    return config->store.kind == STORE_KIND_REDIS && *config->node.address;
}

/* A slash at the end is fine: settings have had one. */
static bool is_mount_point(const char *path)
{
    size_t length = strlen(path);
    scoped(free) char *bare = xstrndup(path, length - (length > 1 && path[length - 1] == '/'));

    return path_is_clean(bare) && bare[1];
}

static int check_mount(const struct config_mounts *mounts, size_t index, struct error *err)
{
    const struct config_mount *mount = &mounts->items[index];
    struct stat info;

    if (!is_mount_point(mount->path))
        return error_set(err, ERR_INVALID, "sandbox.mounts: \"%s\" is not a valid mount point",
                         mount->path);
    for (size_t i = 0; i < index; i++)
        if (strcmp(mounts->items[i].path, mount->path) == 0)
            return error_set(err, ERR_INVALID, "sandbox.mounts: duplicate mount point %s",
                             mount->path);
    if (!*mount->host_path || stat(mount->host_path, &info) < 0) {
        error_set(err, ERR_INVALID, "sandbox.mounts: \"%s\" does not exist on the host",
                  mount->host_path);
        return error_hint(err, "create it, or remove the mount at %s", mount->path);
    }
    return 0;
}

static int check_sandbox(const struct config *config, struct error *err)
{
    for (size_t i = 0; i < config->sandbox.env_pass.count; i++) {
        const char *name = config->sandbox.env_pass.items[i];

        if (!setting_is_variable_name(name, strlen(name)))
            return error_set(err, ERR_INVALID,
                             "sandbox.env.pass: \"%s\" is not a valid variable name", name);
    }
    for (size_t i = 0; i < config->sandbox.mounts.count; i++)
        if (check_mount(&config->sandbox.mounts, i, err) < 0)
            return -1;
    return config_mountable_check(config, err);
}

/* A flavor must fit under the operator's own ceiling. */
static int check_flavor_ceiling(const struct config *config, const struct config_flavor *flavor,
                                struct error *err)
{
    const struct {
        const char *name;
        enum config_limit limit;
        uint64_t value;
    } amounts[] = {
        { "memory", LIMIT_MEMORY, flavor->memory_bytes },
        { "cpus", LIMIT_CPUS, flavor->cpu_millis },
        { "pids", LIMIT_PIDS, (uint64_t)flavor->pids },
        { "disk", LIMIT_DISK, flavor->disk_bytes },
    };

    for (size_t i = 0; i < ARRAY_LENGTH(amounts); i++) {
        uint64_t own = config_ceiling_get(&flavor->max, amounts[i].limit);
        uint64_t most = own ? own : config_ceiling_get(&config->sandbox.max, amounts[i].limit);

        if (!most || amounts[i].value <= most)
            continue;
        error_set(err, ERR_INVALID, "flavors: %s of \"%s\" is above %s.%s", amounts[i].name,
                  flavor->name, own ? "its max" : "sandbox.max", amounts[i].name);
        return error_hint(err, "give the flavor its own max.%s, or lower its %s", amounts[i].name,
                          amounts[i].name);
    }
    return 0;
}

static int check_owners(const struct config *config, struct error *err)
{
    for (size_t i = 0; i < config->owners.count; i++) {
        const char *name = config->owners.items[i].name;

        for (size_t j = 0; j < i; j++)
            if (strcmp(config->owners.items[j].name, name) == 0)
                return error_set(err, ERR_INVALID, "owners: duplicate name \"%s\"", name);
    }
    return 0;
}

static int check_flavors(const struct config *config, struct error *err)
{
    for (size_t i = 0; i < config->flavors.count; i++) {
        const struct config_flavor *flavor = &config->flavors.items[i];

        if (!*flavor->name)
            return error_set(err, ERR_INVALID, "flavors: a flavor without a name");
        if (config_flavor_find(config, flavor->name) != flavor)
            return error_set(err, ERR_INVALID, "flavors: duplicate name \"%s\"", flavor->name);
        if (check_flavor_ceiling(config, flavor, err) < 0)
            return -1;
    }
    if (config->flavors.items[0].needs_approval || config->flavors.items[0].price_per_hour > 0) {
        error_set(err, ERR_INVALID, "flavors: the first flavor, \"%s\", must be free",
                  config->flavors.items[0].name);
        return error_hint(
            err, "the first flavor is the default of every session: list a free one before it");
    }
    return 0;
}

static int check_budget(const struct config *config, struct error *err)
{
    if (config->budget.session_cap < 0 || config->budget.owner_cap < 0 ||
        config->budget.first_warning < 0)
        return error_set(err, ERR_INVALID, "budget: amounts must be plain numbers, in USD");
    return 0;
}

static int check_rules(const struct config *config, struct error *err)
{
    for (size_t i = 0; i < config->rules.count; i++) {
        const struct config_rule *rule = &config->rules.items[i];
        regex_t pattern;
        char why[128];
        int result = regcomp(&pattern, rule->pattern, REG_EXTENDED | REG_NOSUB | REG_NEWLINE);

        if (result) {
            regerror(result, &pattern, why, sizeof(why));
            return error_set(err, ERR_INVALID, "exec.rules: invalid pattern of \"%s\": %s",
                             rule->name, why);
        }
        regfree(&pattern);
    }
    return 0;
}

int config_check(const struct config *config, struct error *err)
{
    if (!path_is_plain_name(config->instance) || strlen(config->instance) > 64)
        return error_set(err, ERR_INVALID, "instance: \"%.100s\" is not a plain name",
                         config->instance);
    if (config->http.line_bytes > config->http.head_bytes)
        return error_set(err, ERR_INVALID, "http.line_limit must not exceed http.head_limit");
    if (config->exec.output_capture_bytes > config->exec.output_spool_bytes)
        return error_set(err, ERR_INVALID, "exec.output_capture must not exceed exec.output_spool");
    if (check_listen(config, err) < 0 || check_auth(config, err) < 0 ||
        check_tls(config, err) < 0 || check_dashboard(config, err) < 0 ||
        check_store(config, err) < 0 || check_node(config, err) < 0 ||
        check_sandbox(config, err) < 0 || check_flavors(config, err) < 0 ||
        check_owners(config, err) < 0 || check_budget(config, err) < 0 ||
        check_rules(config, err) < 0 || config_check_docker(config, err) < 0)
        return -1;
    return 0;
}
