/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/launch.h"

#include <string.h>

enum {
    ID_LENGTH = 30, /* "sbx_" and 26 characters */
    MAX_CPU_MILLIS = 4096 * 1000,
    MAX_PIDS = 4 * 1024 * 1024,
    MAX_SLOTS = 0x7fff,
};

static const uint64_t max_bytes = (uint64_t)1 << 50;
static const uint64_t min_memory_bytes = 4 * 1024 * 1024;
static const uint64_t min_disk_bytes = 1024 * 1024;

bool launch_id_is_valid(const char id[LAUNCH_ID_SIZE])
{
    static const char alphabet[] = "0123456789abcdefghjkmnpqrstvwxyz";

    if (!memchr(id, '\0', LAUNCH_ID_SIZE) || strlen(id) != ID_LENGTH)
        return false;
    return memcmp(id, "sbx_", 4) == 0 && strspn(id + 4, alphabet) == ID_LENGTH - 4;
}

bool launch_name_is_valid(const char name[LAUNCH_NAME_SIZE])
{
    static const char alphabet[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    if (!memchr(name, '\0', LAUNCH_NAME_SIZE) || !*name || *name == '.' || *name == '-')
        return false;
    return name[strspn(name, alphabet)] == '\0';
}

static const char *check_limits(const struct launch_limits *limits)
{
    if (limits->memory_bytes < min_memory_bytes || limits->memory_bytes > max_bytes)
        return "memory limit";
    if (limits->disk_bytes < min_disk_bytes || limits->disk_bytes > max_bytes)
        return "disk limit";
    if (limits->cpu_millis < 10 || limits->cpu_millis > MAX_CPU_MILLIS)
        return "cpu limit";
    if (limits->pids < 1 || limits->pids > MAX_PIDS)
        return "pids limit";
    return limits->image > 1 || limits->reserved ? "flags" : NULL;
}

static const char *check_setup(const void *message)
{
    const struct launch_setup *setup = message;
    uint64_t end = setup->uid_base + (uint64_t)setup->slots * LAUNCH_IDS_STEP;

    if (!launch_name_is_valid(setup->instance) || !launch_name_is_valid(setup->hostname))
        return "name";
    if (setup->flags & ~(uint32_t)(LAUNCH_SETUP_NATIVE | LAUNCH_SETUP_ALLOW_PRIVATE |
                                   LAUNCH_SETUP_ONLY_DESTROY | LAUNCH_SETUP_RELAY))
        return "flags";
    if (setup->uid_base < LAUNCH_IDS_PER_SLOT || !setup->slots || setup->slots > MAX_SLOTS ||
        end > INT32_MAX)
        return "uid range";
    return setup->io_bytes_per_s > max_bytes ? "io limit" : NULL;
}

static const char *check_template(const void *message)
{
    const struct launch_template *template = message;

    return launch_name_is_valid(template->name) ? NULL : "template name";
}

bool launch_path_is_valid(const char path[LAUNCH_PATH_SIZE])
{
    const char *at = path;

    if (!memchr(path, '\0', LAUNCH_PATH_SIZE) || *path != '/' || !path[1])
        return false;
    while (*at == '/') {
        size_t length = strcspn(++at, "/");

        if (length == 0 || (length == 1 && at[0] == '.') ||
            (length == 2 && at[0] == '.' && at[1] == '.'))
            return false;
        at += length;
    }
    return true;
}

static const char *check_mount(const void *message)
{
    const struct launch_mount *mount = message;

    if (!launch_path_is_valid(mount->path))
        return "path";
    return mount->read_only <= 1 && !mount->reserved ? NULL : "flags";
}

static const char *check_allow(const void *message)
{
    const struct launch_allow *allow = message;

    if (!launch_path_is_valid(allow->path) && memcmp(allow->path, "/", sizeof("/")) != 0)
        return "path";
    return allow->read_only <= 1 && !allow->reserved ? NULL : "flags";
}

static const char *check_create(const void *message)
{
    const struct launch_create *create = message;

    if (!launch_id_is_valid(create->id))
        return "id";
    if (!launch_name_is_valid(create->template_name))
        return "template name";
    if (create->mode != LAUNCH_NATIVE && create->mode != LAUNCH_DIRECT)
        return "mode";
    if (create->network >= LAUNCH_NETWORKS)
        return "network";
    return check_limits(&create->limits);
}

/* Where a source leads to is the kernel's to judge: see host_open_bind(). */
static const char *check_bind(const struct launch_bind *bind)
{
    if (!memchr(bind->source, '\0', LAUNCH_PATH_SIZE) || *bind->source == '/')
        return "source";
    if (!launch_path_is_valid(bind->path))
        return "path";
    if (bind->allowed >= LAUNCH_MAX_ALLOWED)
        return "allowed directory";
    return bind->read_only <= 1 ? NULL : "flags";
}

static const char *check_create_bound(const void *message)
{
    const struct launch_create_bound *bound = message;
    const char *wrong = check_create(&bound->create);

    if (!wrong && bound->create.mode != LAUNCH_NATIVE)
        return "mode";
    if (!wrong && (bound->bind_count > LAUNCH_MAX_BINDS || bound->reserved))
        return "bind count";
    for (uint32_t i = 0; !wrong && i < bound->bind_count; i++)
        wrong = check_bind(&bound->binds[i]);
    return wrong;
}

static const char *check_adopt(const void *message)
{
    const struct launch_adopt *adopt = message;

    if (!launch_id_is_valid(adopt->id))
        return "id";
    return adopt->pid > 1 && !adopt->reserved ? NULL : "pid";
}

static const char *check_update(const void *message)
{
    const struct launch_update *update = message;

    return launch_id_is_valid(update->id) ? check_limits(&update->limits) : "id";
}

static const char *check_freeze(const void *message)
{
    const struct launch_freeze *freeze = message;

    if (!launch_id_is_valid(freeze->id))
        return "id";
    return freeze->frozen <= 1 && !freeze->reserved ? NULL : "frozen";
}

static const char *check_inspect(const void *message)
{
    return launch_id_is_valid(((const struct launch_inspect *)message)->id) ? NULL : "id";
}

static const char *check_destroy(const void *message)
{
    return launch_id_is_valid(((const struct launch_destroy *)message)->id) ? NULL : "id";
}

static const char *check_nothing(const void *message)
{
    (void)message;
    return NULL;
}

static const struct {
    size_t length;
    unsigned descriptors;
    const char *(*check)(const void *message);
} requests[LAUNCH_TYPES] = {
    [LAUNCH_SETUP] = { sizeof(struct launch_setup), 1, check_setup },
    [LAUNCH_TEMPLATE] = { sizeof(struct launch_template), 1, check_template },
    [LAUNCH_MOUNT] = { sizeof(struct launch_mount), 1, check_mount },
    [LAUNCH_ALLOW] = { sizeof(struct launch_allow), 0, check_allow },
    [LAUNCH_SEAL] = { sizeof(struct launch_seal), 0, check_nothing },
    [LAUNCH_CREATE] = { sizeof(struct launch_create), 0, check_create },
    [LAUNCH_CREATE_BOUND] = { sizeof(struct launch_create_bound), 0, check_create_bound },
    [LAUNCH_ADOPT] = { sizeof(struct launch_adopt), 0, check_adopt },
    [LAUNCH_UPDATE] = { sizeof(struct launch_update), 0, check_update },
    [LAUNCH_FREEZE] = { sizeof(struct launch_freeze), 0, check_freeze },
    [LAUNCH_INSPECT] = { sizeof(struct launch_inspect), 0, check_inspect },
    [LAUNCH_DESTROY] = { sizeof(struct launch_destroy), 0, check_destroy },
    [LAUNCH_LIST] = { sizeof(struct launch_list), 0, check_nothing },
};

const char *launch_check(const void *message, size_t length, unsigned descriptors)
{
    const struct launch_header *header = message;

    if (length < sizeof(*header) || header->length != length)
        return "length";
    if (header->version != LAUNCH_VERSION)
        return "version";
    if (header->type < LAUNCH_SETUP || header->type >= LAUNCH_TYPES)
        return "type";
    if (length != requests[header->type].length)
        return "length";
    if (descriptors != requests[header->type].descriptors)
        return "descriptors";
    return requests[header->type].check(message);
}
