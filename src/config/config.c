/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

#include "base/alloc.h"
#include "base/fd.h"
#include "base/macros.h"
#include "base/str.h"
#include "config/settings.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MAXIMUM = 1024 * 1024 };

void config_set_origin(struct config *config, const struct setting *setting, const char *origin)
{
    char **slot = &config->origins[setting - settings];

    free(*slot);
    *slot = xstrdup(origin);
}

static void config_init(struct config *config)
{
    *config = (struct config){ .origins = xcalloc(settings_count, sizeof(char *)) };
    setting_item_init(settings, config);
    for (size_t i = 0; i < settings_count; i++)
        config_set_origin(config, &settings[i], CONFIG_ORIGIN_DEFAULT);
}

void config_fini(struct config *config)
{
    for (size_t i = 0; i < settings_count; i++) {
        setting_release(&settings[i], config);
        if (config->origins)
            free(config->origins[i]);
    }
    free(config->origins);
    free(config->path);
    *config = (struct config){ 0 };
}

/* --- defaults that depend on the host ------------------------------------------------------- */

bool config_is_default(const struct config *config, const char *key)
{
    return strcmp(config->origins[setting_find(settings, key) - settings], CONFIG_ORIGIN_DEFAULT) ==
           0;
}

static const char *home_dir(void)
{
    const char *home = getenv("HOME");
    const struct passwd *user;

    if (home && *home == '/')
        return home;
    user = getpwuid(geteuid());
    return user ? user->pw_dir : "/";
}

/* $variable/sandglass, or ~/home_part/sandglass when it is not set. Allocated. */
static char *xdg_path(const char *variable, const char *home_part)
{
    const char *base = getenv(variable);

    if (base && *base == '/')
        return path_join(base, "sandglass");
    return xasprintf("%s/%s/sandglass", home_dir(), home_part);
}

static char *default_state_dir(void)
{
    return geteuid() == 0 ? xstrdup("/var/lib/sandglass")
                          : xdg_path("XDG_STATE_HOME", ".local/state");
}

static char *default_runtime_dir(void)
{
    const char *base = getenv("XDG_RUNTIME_DIR");

    if (geteuid() == 0)
        return xstrdup("/run/sandglass");
    if (base && *base == '/')
        return path_join(base, "sandglass");
    return xasprintf("/tmp/sandglass-%u", (unsigned)geteuid());
}

static char *default_instance(void)
{
    char name[HOST_NAME_MAX + 1] = "";

    if (gethostname(name, sizeof(name) - 1) < 0 || !*name)
        snprintf(name, sizeof(name), "localhost");
    /* Names of cgroups begin with it, and root's daemon may be there already. */
    return geteuid() == 0 ? xstrdup(name) : xasprintf("%.48s-%u", name, (unsigned)geteuid());
}

static void derive_text(const struct config *config, const char *key, char **field,
                        char *(*make)(void))
{
    if (!config_is_default(config, key) && **field)
        return;
    free(*field);
    *field = make();
}

static void derive_listen(struct config *config)
{
    scoped(free) char *socket = NULL;

    if (!config_is_default(config, "listen") && config->listen.count)
        return;
    config_list_release(&config->listen);
    socket = xasprintf("unix:%s/sandglass.sock", config->runtime_dir);
    config_list_append(&config->listen, socket);
}

static void derive_flavors(struct config *config)
{
    const struct setting *setting = setting_find(settings, "flavors");
    struct config_flavor *flavor;

    if (config->flavors.count) {
        /* The first flavor, which sessions get without asking, is free. */
        if (config->flavors.items[0].price_per_hour < 0)
            config->flavors.items[0].price_per_hour = 0;
        return;
    }
    flavor = xnew(struct config_flavor);
    setting_item_init(setting->item->rows, flavor);
    free(flavor->name);
    flavor->name = xstrdup("cpu-basic");
    flavor->price_per_hour = 0;
    config->flavors = (struct config_flavors){ .items = flavor, .count = 1 };
}

static void derive_node(struct config *config)
{
    if (!config_is_default(config, "node.id") && *config->node.id)
        return;
    free(config->node.id);
    config->node.id = xstrdup(config->instance);
}

static void derive_audit(struct config *config)
{
    if (!config_is_default(config, "audit.file") && *config->audit.file)
        return;
    free(config->audit.file);
    config->audit.file = path_join(config->state_dir, "audit.log");
}

static void config_derive(struct config *config)
{
    derive_text(config, "state_dir", &config->state_dir, default_state_dir);
    derive_text(config, "runtime_dir", &config->runtime_dir, default_runtime_dir);
    derive_text(config, "instance", &config->instance, default_instance);
    derive_node(config);
    derive_listen(config);
    derive_audit(config);
    derive_flavors(config);
    config_derive_docker(config);
}

/* --- sources -------------------------------------------------------------------------------- */

/* The file to read, allocated; NULL when there is none. A file that was named has to exist. */
static char *find_file(const char *path)
{
    static const char system_path[] = "/etc/sandglass/sandglass.yaml";
    scoped(free) char *directory = NULL;
    scoped(free) char *user_path = NULL;

    if (!path)
        path = getenv("SANDGLASS_CONFIG");
    if (!str_is_empty(path))
        return xstrdup(path);
    if (access(system_path, F_OK) == 0)
        return xstrdup(system_path);
    directory = xdg_path("XDG_CONFIG_HOME", ".config");
    user_path = path_join(directory, "sandglass.yaml");
    return access(user_path, F_OK) == 0 ? steal_ptr(&user_path) : NULL;
}

char *config_new_file_path(void)
{
    scoped(free) char *directory = NULL;
    const char *named = getenv("SANDGLASS_CONFIG");

    if (!str_is_empty(named))
        return xstrdup(named);
    directory = geteuid() == 0 ? xstrdup("/etc/sandglass") : xdg_path("XDG_CONFIG_HOME", ".config");
    return path_join(directory, "sandglass.yaml");
}

static int read_file(const char *path, struct buffer *out, struct error *err)
{
    scoped(fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return error_sys(err, "read the configuration %s", path);
    if (fd_read_all(fd, out) == 0)
        return 0;
    if (errno == EFBIG)
        return error_set(err, ERR_INVALID, "the configuration %s is too large", path);
    return error_sys(err, "read the configuration %s", path);
}

static int load_file(struct config *config, struct error *err)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(FILE_MAXIMUM);

    if (!config->path)
        return 0;
    if (read_file(config->path, &text, err) < 0)
        return -1;
    return config_read_yaml(config, buffer_text(&text), text.length, config->path, err);
}

/* session.idle_timeout is SANDGLASS_SESSION_IDLE_TIMEOUT. */
static int load_variable(struct config *config, const struct setting *setting, struct error *err)
{
    scoped(free) char *name = xasprintf("SANDGLASS_%s", setting->key);
    scoped(free) char *origin = NULL;
    const char *value;

    for (char *at = name; *at; at++)
        *at = *at == '.' ? '_' : (char)toupper((unsigned char)*at);
    value = getenv(name);
    if (!value)
        return 0;
    if (setting_assign(setting, config, value, err) < 0)
        return error_wrap(err, "the variable %s", name);
    origin = xasprintf("environment %s", name);
    config_set_origin(config, setting, origin);
    return 0;
}

static int load_environment(struct config *config, struct error *err)
{
    for (const struct setting *setting = settings; setting->key; setting++)
        if (setting->type != SETTING_ITEMS && load_variable(config, setting, err) < 0)
            return -1;
    return 0;
}

int config_load(struct config *config, const char *path, struct error *err)
{
    config_init(config);
    config->path = find_file(path);
    if (load_file(config, err) < 0 || load_environment(config, err) < 0) {
        config_fini(config);
        return -1;
    }
    config_derive(config);
    return 0;
}

int config_load_text(struct config *config, const char *text, size_t length, const char *name,
                     struct error *err)
{
    config_init(config);
    if (config_read_yaml(config, text, length, name, err) < 0) {
        config_fini(config);
        return -1;
    }
    config_derive(config);
    return 0;
}

int config_set(struct config *config, const char *key, const char *value, const char *origin,
               struct error *err)
{
    const struct setting *setting = setting_find(settings, key);

    if (!setting)
        return setting_refuse_key(settings, key, err);
    if (setting_assign(setting, config, value, err) < 0)
        return error_wrap(err, "%s", key);
    config_set_origin(config, setting, origin);
    config_derive(config);
    return 0;
}

int config_set_list(struct config *config, const char *key, const char *const *items,
                    const char *origin, struct error *err)
{
    const struct setting *setting = setting_find(settings, key);

    assert(setting && setting->type == SETTING_LIST);
    setting_release(setting, config);
    for (; *items; items++)
        if (setting_list_append(setting, setting_field(setting, config), *items, err) < 0)
            return error_wrap(err, "%s", key);
    config_set_origin(config, setting, origin);
    config_derive(config);
    return 0;
}

const struct config_flavor *config_flavor_find(const struct config *config, const char *name)
{
    if (!*name)
        return &config->flavors.items[0];
    for (size_t i = 0; i < config->flavors.count; i++)
        if (strcmp(config->flavors.items[i].name, name) == 0)
            return &config->flavors.items[i];
    return NULL;
}

const struct config_template *config_template_find(const struct config *config, const char *name)
{
    for (size_t i = 0; i < config->templates.count; i++)
        if (str_equal(config->templates.items[i].name, name))
            return &config->templates.items[i];
    return NULL;
}

bool config_offers_backend(const struct config *config, const char *name)
{
    if (str_equal(config->sandbox.backend, name))
        return true;
    for (size_t i = 0; i < config->sandbox.backends.count; i++)
        if (str_equal(config->sandbox.backends.items[i], name))
            return true;
    return false;
}

bool config_names_backend(const struct config *config, const char *name)
{
    if (config_offers_backend(config, name))
        return true;
    for (size_t i = 0; i < config->templates.count; i++)
        if (str_equal(config->templates.items[i].backend, name))
            return true;
    for (size_t i = 0; i < config->flavors.count; i++)
        if (str_equal(config->flavors.items[i].backend, name))
            return true;
    return false;
}

/* "svc" is for svc and svc/ann, "ci-*" for all that begin with "ci-". */
static bool owner_fits(const char *name, const char *owner)
{
    size_t length = strlen(name);

    if (length && name[length - 1] == '*')
        return strncmp(name, owner, length - 1) == 0;
    return strncmp(name, owner, length) == 0 && (!owner[length] || owner[length] == '/');
}

const struct config_owner *config_owner_find(const struct config *config, const char *owner)
{
    const struct config_owner *found = NULL;

    for (size_t i = 0; i < config->owners.count; i++) {
        const struct config_owner *row = &config->owners.items[i];

        if (owner_fits(row->name, owner) && (!found || strlen(row->name) > strlen(found->name)))
            found = row;
    }
    return found;
}

uint64_t config_ceiling_get(const struct config_ceiling *ceiling, enum config_limit limit)
{
    switch (limit) {
    case LIMIT_MEMORY:
        return ceiling->memory_bytes;
    case LIMIT_CPUS:
        return ceiling->cpu_millis;
    case LIMIT_PIDS:
        return (uint64_t)ceiling->pids;
    case LIMIT_DISK:
        return ceiling->disk_bytes;
    case LIMIT_LIFETIME:
        return (uint64_t)ceiling->lifetime_ms;
    case LIMIT_TIMEOUT:
        return (uint64_t)ceiling->timeout_ms;
    case LIMIT_IDLE_TIMEOUT:
        return (uint64_t)ceiling->idle_timeout_ms;
    case LIMITS:
        break;
    }
    return 0;
}
