/* SPDX-License-Identifier: Apache-2.0 */
#include "core/ceiling.h"

#include "base/alloc.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct ceiling {
    const struct config *config; /* borrowed */
    struct host_size host;
};

/* --- the host -------------------------------------------------------------------------------- */

/* 0 where it cannot be read. */
static uint64_t read_number(const char *path)
{
    FILE *file = fopen(path, "re");
    unsigned long long value = 0;

    if (!file)
        return 0;
    if (fscanf(file, "%llu", &value) != 1)
        value = 0;
    fclose(file);
    return value;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return !a ? b : !b ? a : MIN(a, b);
}

static struct host_size read_host(const char *state_path)
{
    uint64_t pids = smaller(read_number("/proc/sys/kernel/pid_max"),
                            read_number("/proc/sys/kernel/threads-max"));
    long pages = sysconf(_SC_PHYS_PAGES);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct statvfs disk = { 0 };

    if (!state_path || statvfs(state_path, &disk) < 0)
        disk = (struct statvfs){ 0 };
    return (struct host_size){
        .memory_bytes = pages > 0 ? (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0,
        .disk_bytes = (uint64_t)disk.f_blocks * disk.f_frsize,
        .cpu_millis = cores > 0 ? (uint32_t)cores * 1000 : 0,
        .pids = (uint32_t)MIN(pids, (uint64_t)UINT32_MAX),
    };
}

struct ceiling *ceiling_new(const struct core *core)
{
    struct ceiling *ceiling = xnew(struct ceiling);

    ceiling->config = core->parts.config;
    ceiling->host = read_host(core->parts.state_path);
    return ceiling;
}

void ceiling_free(struct ceiling *ceiling)
{
    free(ceiling);
}

void ceiling_set_host(struct ceiling *ceiling, const struct host_size *host)
{
    ceiling->host = *host;
}

static uint64_t of_host(const struct ceiling *ceiling, enum config_limit limit)
{
    switch (limit) {
    case LIMIT_MEMORY:
        return ceiling->host.memory_bytes;
    case LIMIT_CPUS:
        return ceiling->host.cpu_millis;
    case LIMIT_PIDS:
        return ceiling->host.pids;
    case LIMIT_DISK:
        return ceiling->host.disk_bytes;
    case LIMIT_LIFETIME:
    case LIMIT_TIMEOUT:
    case LIMIT_IDLE_TIMEOUT:
    case LIMITS:
        break;
    }
    return 0;
}

/* --- which limit holds ------------------------------------------------------------------------ */

/* The origin of a limit. */
enum setter { SETTER_NONE, SETTER_HOST, SETTER_SETTINGS, SETTER_FLAVOR, SETTER_OWNER };

struct holding {
    enum setter setter;
    uint64_t value;
};

struct scope {
    const struct ceiling *ceiling;
    const struct config_owner *owner;   /* NULL without a row */
    const struct config_flavor *flavor; /* or NULL */
};

static struct scope scope_of(const struct ceiling *ceiling, const char *owner,
                             const struct config_flavor *flavor)
{
    return (struct scope){ .ceiling = ceiling,
                           .owner = config_owner_find(ceiling->config, owner ? owner : ""),
                           .flavor = flavor };
}

static void narrow(struct holding *holding, enum setter setter, uint64_t value)
{
    if (value && (holding->setter == SETTER_NONE || value < holding->value))
        *holding = (struct holding){ setter, value };
}

static struct holding find_limit(const struct scope *scope, enum config_limit limit)
{
    const struct ceiling *ceiling = scope->ceiling;
    struct holding holding = { 0 };

    if (scope->owner)
        narrow(&holding, SETTER_OWNER, config_ceiling_get(&scope->owner->max, limit));
    if (scope->flavor)
        narrow(&holding, SETTER_FLAVOR, config_ceiling_get(&scope->flavor->max, limit));
    if (holding.setter == SETTER_NONE)
        narrow(&holding, SETTER_SETTINGS, config_ceiling_get(&ceiling->config->sandbox.max, limit));
    narrow(&holding, SETTER_HOST, of_host(ceiling, limit));
    return holding;
}

/* The value is an enum config_max_network: the narrower is the smaller. */
static struct holding find_network(const struct scope *scope)
{
    struct holding holding = { 0 };

    if (scope->owner)
        narrow(&holding, SETTER_OWNER, (uint64_t)scope->owner->max.network);
    if (scope->flavor)
        narrow(&holding, SETTER_FLAVOR, (uint64_t)scope->flavor->max.network);
    if (holding.setter == SETTER_NONE)
        narrow(&holding, SETTER_SETTINGS, (uint64_t)scope->ceiling->config->sandbox.max.network);
    return holding;
}

/* --- what is said ----------------------------------------------------------------------------- */

enum { NAME_SIZE = 128 };

/* The fields of a request, in the order of enum config_limit. */
static const char *const fields[LIMITS] = {
    [LIMIT_MEMORY] = "memory",
    [LIMIT_CPUS] = "cpus",
    [LIMIT_PIDS] = "pids",
    [LIMIT_DISK] = "disk",
    [LIMIT_LIFETIME] = "max_lifetime",
    [LIMIT_TIMEOUT] = "timeout",
    [LIMIT_IDLE_TIMEOUT] = "idle_timeout",
};

static const char *setting_name(enum config_limit limit)
{
    return limit == LIMIT_LIFETIME ? "lifetime" : fields[limit];
}

static void format_amount(enum config_limit limit, uint64_t amount, char text[STR_UNIT_SIZE])
{
    switch (limit) {
    case LIMIT_MEMORY:
    case LIMIT_DISK:
        str_format_size(amount, text);
        break;
    case LIMIT_CPUS:
        snprintf(text, STR_UNIT_SIZE, "%g", (double)amount / 1000);
        break;
    case LIMIT_PIDS:
    case LIMITS:
        snprintf(text, STR_UNIT_SIZE, "%llu", (unsigned long long)amount);
        break;
    case LIMIT_LIFETIME:
    case LIMIT_TIMEOUT:
    case LIMIT_IDLE_TIMEOUT:
        if (amount == UINT64_MAX)
            snprintf(text, STR_UNIT_SIZE, "0 (no end)");
        else
            str_format_duration((int64_t)amount, text);
        break;
    }
}

static void name_setter(const struct scope *scope, enum setter setter, const char *limit,
                        char name[NAME_SIZE])
{
    switch (setter) {
    case SETTER_OWNER:
        snprintf(name, NAME_SIZE, "max.%s of the owner \"%.60s\" in the settings", limit,
                 scope->owner->name);
        break;
    case SETTER_FLAVOR:
        snprintf(name, NAME_SIZE, "max.%s of the flavor \"%.60s\" in the settings", limit,
                 scope->flavor->name);
        break;
    case SETTER_SETTINGS:
        snprintf(name, NAME_SIZE, "sandbox.max.%s", limit);
        break;
    case SETTER_HOST:
    case SETTER_NONE:
        snprintf(name, NAME_SIZE, "the %s of this host", limit);
        break;
    }
}

static int refuse(const struct scope *scope, enum setter setter, const char *field,
                  const char *limit, const char *asked, const char *most, struct error *err)
{
    char name[NAME_SIZE];

    name_setter(scope, setter, limit, name);
    error_named(err, setter == SETTER_HOST ? ERR_INVALID : ERR_FORBIDDEN, "over_limit",
                "%s %s is above the limit of %s (%s)", field, asked, most, name);
    if (setter == SETTER_HOST)
        return error_hint(err, "ask for at most %s", most);
    return error_hint(err, "ask for at most %s, or have the operator raise %s", most, name);
}

static int check_one(const struct scope *scope, enum config_limit limit, uint64_t asked,
                     struct error *err)
{
    struct holding holding = find_limit(scope, limit);
    char is[STR_UNIT_SIZE];
    char most[STR_UNIT_SIZE];

    if (holding.setter == SETTER_NONE || asked <= holding.value)
        return 0;
    format_amount(limit, asked, is);
    format_amount(limit, holding.value, most);
    return refuse(scope, holding.setter, fields[limit], setting_name(limit), is, most, err);
}

/* No end is longer than any. */
static int check_ms(const struct scope *scope, enum config_limit limit, int64_t asked_ms,
                    struct error *err)
{
    if (asked_ms < 0)
        return 0;
    return check_one(scope, limit, asked_ms ? (uint64_t)asked_ms : UINT64_MAX, err);
}

static int check_network(const struct scope *scope, int asked, struct error *err)
{
    struct holding holding = find_network(scope);

    if (asked != NETWORK_OPEN || holding.value != MAX_NETWORK_NONE)
        return 0;
    return refuse(scope, holding.setter, "network", "network", "open", "none", err);
}

int ceiling_check(const struct ceiling *ceiling, const struct ceiling_ask *ask, struct error *err)
{
    struct scope scope = scope_of(ceiling, ask->owner, ask->flavor);
    const struct sandbox_limits *limits = &ask->limits;

    if (check_one(&scope, LIMIT_MEMORY, limits->memory_bytes, err) < 0 ||
        check_one(&scope, LIMIT_CPUS, limits->cpu_millis, err) < 0 ||
        check_one(&scope, LIMIT_PIDS, limits->pids, err) < 0 ||
        check_one(&scope, LIMIT_DISK, limits->disk_bytes, err) < 0 ||
        check_ms(&scope, LIMIT_LIFETIME, ask->max_lifetime_ms, err) < 0 ||
        check_ms(&scope, LIMIT_TIMEOUT, ask->timeout_ms, err) < 0 ||
        check_ms(&scope, LIMIT_IDLE_TIMEOUT, ask->idle_timeout_ms, err) < 0)
        return -1;
    return check_network(&scope, ask->network, err);
}

/* --- defaults, cut to the ceiling ------------------------------------------------------------- */

static uint64_t cut(const struct scope *scope, enum config_limit limit, uint64_t value)
{
    struct holding holding = find_limit(scope, limit);

    return holding.setter == SETTER_NONE ? value : MIN(value, holding.value);
}

void ceiling_cut_limits(const struct ceiling *ceiling, const char *owner,
                        const struct config_flavor *flavor, struct sandbox_limits *limits)
{
    struct scope scope = scope_of(ceiling, owner, flavor);

    limits->memory_bytes = cut(&scope, LIMIT_MEMORY, limits->memory_bytes);
    limits->disk_bytes = cut(&scope, LIMIT_DISK, limits->disk_bytes);
    limits->cpu_millis = (uint32_t)cut(&scope, LIMIT_CPUS, limits->cpu_millis);
    limits->pids = (uint32_t)cut(&scope, LIMIT_PIDS, limits->pids);
}

int64_t ceiling_cut_ms(const struct ceiling *ceiling, const char *owner,
                       const struct config_flavor *flavor, enum config_limit limit, int64_t ms)
{
    struct scope scope = scope_of(ceiling, owner, flavor);
    uint64_t left = cut(&scope, limit, ms ? (uint64_t)ms : UINT64_MAX);

    return left == UINT64_MAX ? 0 : (int64_t)left;
}

struct network_policy ceiling_cut_network(const struct ceiling *ceiling, const char *owner,
                                          const struct config_flavor *flavor,
                                          struct network_policy policy)
{
    struct scope scope = scope_of(ceiling, owner, flavor);

    if (find_network(&scope).value == MAX_NETWORK_NONE)
        policy.mode = NETWORK_NONE;
    return policy;
}
