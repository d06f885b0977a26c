/* SPDX-License-Identifier: Apache-2.0 */
#include "core/money/flavor.h"

#include "base/str.h"
#include "core/backend_choice.h"
#include "core/ceiling.h"
#include "core/session_view.h"
#include "wire/json.h"

static void name_all(const struct core *core, struct buffer *names)
{
    const struct config_flavors *flavors = &core->parts.config->flavors;

    for (size_t i = 0; i < flavors->count; i++)
        buffer_appendf(names, "%s%s", i ? ", " : "", flavors->items[i].name);
}

int flavor_check(const struct core *core, const struct config_flavor *flavor, struct error *err)
{
    struct error why = { 0 };

    if (!backend_check_wishes(core, &(struct backend_wishes){ .flavor = flavor }, &why)) {
        error_named(err, ERR_INVALID, "flavor_unavailable",
                    "the flavor \"%s\" is not available: %.400s", flavor->name, why.message);
        return error_hint(err, "%s", why.hint);
    }
    if (flavor == core->parts.config->flavors.items)
        return 0; /* the default is not requested: it is cut to the host */
    return ceiling_check(core->ceiling,
                         &(struct ceiling_ask){ CEILING_ASK_INIT, .flavor = flavor,
                                                .limits = flavor_own_limits(flavor) },
                         err);
}

const struct config_flavor *flavor_find(const struct core *core, const char *name,
                                        struct error *err)
{
    const struct config_flavor *flavor = config_flavor_find(core->parts.config, name);
    scoped(buffer_fini) struct buffer names = BUFFER_INIT(200);

    if (flavor)
        return flavor_check(core, flavor, err) < 0 ? NULL : flavor;
    name_all(core, &names);
    error_named(err, ERR_INVALID, "flavor_unknown", "unknown flavor \"%.40s\"", name);
    error_hint(err, "known flavors: %s", buffer_text(&names));
    return NULL;
}

bool flavor_is_free(const struct config_flavor *flavor)
{
    return !flavor->needs_approval && flavor->price_per_hour == 0;
}

static uint64_t first_set(uint64_t given, uint64_t of_flavor, uint64_t of_settings)
{
    return given ? given : of_flavor ? of_flavor : of_settings;
}

struct sandbox_limits flavor_own_limits(const struct config_flavor *flavor)
{
    return (struct sandbox_limits){ .memory_bytes = flavor->memory_bytes,
                                    .disk_bytes = flavor->disk_bytes,
                                    .cpu_millis = flavor->cpu_millis,
                                    .pids = (uint32_t)flavor->pids };
}

struct sandbox_limits flavor_limits(const struct core *core, const char *owner,
                                    const struct config_flavor *flavor,
                                    const struct sandbox_limits *given)
{
    const struct config *config = core->parts.config;
    struct sandbox_limits limits = {
        .memory_bytes =
            first_set(given->memory_bytes, flavor->memory_bytes, config->sandbox.memory_bytes),
        .disk_bytes = first_set(given->disk_bytes, flavor->disk_bytes, config->sandbox.disk_bytes),
        .cpu_millis =
            (uint32_t)first_set(given->cpu_millis, flavor->cpu_millis, config->sandbox.cpu_millis),
        .pids = (uint32_t)first_set(given->pids, (uint64_t)flavor->pids,
                                    (uint64_t)config->sandbox.pids),
    };

    ceiling_cut_limits(core->ceiling, owner, flavor, &limits);
    return limits;
}

uint32_t flavor_gpus(const struct session *session)
{
    const struct config_flavor *flavor =
        config_flavor_find(session_core(session)->parts.config, session_flavor(session));

    return flavor ? (uint32_t)flavor->gpus : 0;
}

static void put_limit(struct json_writer *json, const char *name, uint64_t limit)
{
    if (limit)
        json_put_int(json, name, (int64_t)limit);
    else
        json_put_null(json, name);
}

void limits_write_json(struct json_writer *json, const struct sandbox_limits *in_force)
{
    put_limit(json, "memory_bytes", in_force->memory_bytes);
    if (in_force->cpu_millis)
        json_put_double(json, "cpus", in_force->cpu_millis / 1000.0);
    else
        json_put_null(json, "cpus");
    put_limit(json, "pids", in_force->pids);
    put_limit(json, "disk_bytes", in_force->disk_bytes);
}

static void put_flavor(const struct core *core, const struct config_flavor *flavor,
                       struct json_writer *json)
{
    struct sandbox_limits limits = flavor_limits(core, NULL, flavor, &(struct sandbox_limits){ 0 });
    const struct backend *backend =
        backend_choose(core, &(struct backend_wishes){ .flavor = flavor });
    struct sandbox_limits in_force = backend_limits_in_force(backend, &limits);
    struct error why = { 0 };

    (void)flavor_check(core, flavor, &why);
    json_begin_object(json, NULL);
    json_put_text(json, "name", flavor->name);
    json_put_text(json, "backend", backend->ops->name);
    limits_write_json(json, &in_force);
    json_put_int(json, "gpus", flavor->gpus);
    if (flavor->price_per_hour >= 0)
        json_put_money(json, "price_per_hour", flavor->price_per_hour);
    else
        json_put_null(json, "price_per_hour");
    json_put_bool(json, "needs_approval", flavor->needs_approval || flavor->price_per_hour < 0);
    json_put_bool(json, "default", flavor == core->parts.config->flavors.items);
    json_put_bool(json, "available", why.code == ERR_NONE);
    json_put_text(json, "reason", why.code == ERR_NONE ? NULL : why.message);
    json_end_object(json);
}

void flavors_write_json(const struct core *core, struct json_writer *json, const char *key)
{
    const struct config_flavors *flavors = &core->parts.config->flavors;

    json_begin_array(json, key);
    for (size_t i = 0; i < flavors->count; i++)
        put_flavor(core, &flavors->items[i], json);
    json_end_array(json);
}
