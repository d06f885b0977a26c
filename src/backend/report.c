/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/report.h"

#include "backend/report_kernel.h"
#include "base/macros.h"
#include "base/str.h"
#include "config/config.h"
#include "wire/json.h"

#include <string.h>

static const struct {
    const char *name;
    uint32_t bit;
} namespaces[] = {
    { "user", LAUNCH_NS_USER },     { "pid", LAUNCH_NS_PID }, { "mnt", LAUNCH_NS_MNT },
    { "net", LAUNCH_NS_NET },       { "ipc", LAUNCH_NS_IPC }, { "uts", LAUNCH_NS_UTS },
    { "cgroup", LAUNCH_NS_CGROUP },
};

enum { LANDLOCK_SCOPES = 6 };

static struct launched_sandbox *find(struct launched_backend *backend, const char *id,
                                     struct error *err)
{
    struct launched_sandbox *sandbox = map_get(&backend->sandboxes, id);

    if (!sandbox)
        error_set(err, ERR_GONE, "there is no sandbox %s", id);
    return sandbox;
}

/* The /dev/shm that a direct sandbox sees is the host's, and says nothing about its files. */
static void read_view(const struct launched_backend *backend,
                      const struct launched_sandbox *sandbox, struct kernel_view *out_view)
{
    kernel_view_read(sandbox->made.pid, "/sandglass.", out_view);
    if (sandbox->bridge && out_view->pids > 0)
        out_view->pids--; /* the limit has room for a relay, too */
    if (backend->mode == LAUNCH_DIRECT) {
        out_view->disk_bytes = 0;
        out_view->disk_is_image = false;
    }
}

/* --- values of sandbox.require ------------------------------------------------------------- */

static bool has_all_namespaces(const struct launch_made *made)
{
    uint32_t all = 0;

    for (size_t i = 0; i < ARRAY_LENGTH(namespaces); i++)
        all |= namespaces[i].bit;
    return (made->namespaces & all) == all;
}

static bool is_in_force(const char *name, const struct launch_made *made,
                        const struct kernel_view *view)
{
    if (str_equal(name, "seccomp"))
        return view->seccomp == KERNEL_SECCOMP_FILTER;
    if (str_equal(name, "landlock"))
        return made->landlock_abi > 0;
    if (str_equal(name, "landlock_scope"))
        return made->landlock_abi >= LANDLOCK_SCOPES;
    if (str_equal(name, "no_new_privs"))
        return view->no_new_privs;
    if (str_equal(name, "namespaces"))
        return has_all_namespaces(made);
    if (str_equal(name, "uid_range"))
        return view->uid_count >= LAUNCH_IDS_PER_SLOT && made->own_ids;
    if (str_equal(name, "limits"))
        return view->memory_bytes && view->pids && view->cpu_millis;
    if (str_equal(name, "memory"))
        return view->memory_bytes > 0;
    if (str_equal(name, "pids"))
        return view->pids > 0;
    if (str_equal(name, "cpu"))
        return view->cpu_millis > 0;
    if (str_equal(name, "disk"))
        return view->disk_bytes > 0;
    if (str_equal(name, "network"))
        return made->network_holds;
    if (str_equal(name, "io"))
        return view->io_bytes_per_s > 0 || view->io_operations_per_s > 0;
    for (size_t i = 0; i < ARRAY_LENGTH(namespaces); i++) {
        if (str_equal(namespaces[i].name, name))
            return made->namespaces & namespaces[i].bit;
    }
    return false;
}

static bool can_be_in_force(const char *name, enum launch_mode mode, const struct launch_host *host,
                            const struct config *config)
{
    static const struct {
        const char *name;
        uint32_t features;
        bool native;
    } walls[] = {
        { "seccomp", LAUNCH_HAS_SECCOMP, false },
        { "uid_range", LAUNCH_HAS_UID_RANGE, true },
        { "limits", LAUNCH_HAS_MEMORY | LAUNCH_HAS_CPU | LAUNCH_HAS_PIDS, false },
        { "memory", LAUNCH_HAS_MEMORY, false },
        { "cpu", LAUNCH_HAS_CPU, false },
        { "pids", LAUNCH_HAS_PIDS, false },
        { "no_new_privs", 0, false },
        { "io", LAUNCH_HAS_IO, false },
    };

    if (str_equal(name, "landlock") || str_equal(name, "landlock_scope"))
        return host->landlock_abi >= (str_equal(name, "landlock") ? 1 : LANDLOCK_SCOPES);
    if (str_equal(name, "io") && !config->sandbox.io_bytes_per_s &&
        !config->sandbox.io_operations_per_s)
        return false;
    for (size_t i = 0; i < ARRAY_LENGTH(walls); i++) {
        if (str_equal(walls[i].name, name))
            return (mode == LAUNCH_NATIVE || !walls[i].native) &&
                   (host->features & walls[i].features) == walls[i].features;
    }
    return mode == LAUNCH_NATIVE; /* namespaces, disk, network */
}

int report_check_required(const struct config *config, enum launch_mode mode,
                          const struct launch_host *host, struct error *err)
{
    const struct config_list *wanted = &config->sandbox.require;

    for (size_t i = 0; i < wanted->count; i++) {
        if (can_be_in_force(wanted->items[i], mode, host, config))
            continue;
        error_named(
            err, ERR_UNAVAILABLE, "isolation_missing",
            "sandbox.require names \"%s\", which the backend %s cannot provide on this host",
            wanted->items[i], mode == LAUNCH_NATIVE ? "native" : "direct");
        return error_hint(err, "'sandglass doctor' shows what this host supports; remove it from "
                               "sandbox.require only where its absence is acceptable");
    }
    return 0;
}

int report_require(struct launched_backend *backend, const char *id, struct error *err)
{
    const struct config_list *wanted = backend->config ? &backend->config->sandbox.require : NULL;
    struct launched_sandbox *sandbox;
    struct kernel_view view;

    if (!wanted || wanted->count == 0)
        return 0;
    sandbox = find(backend, id, err);
    if (!sandbox)
        return -1;
    read_view(backend, sandbox, &view);
    for (size_t i = 0; i < wanted->count; i++) {
        if (is_in_force(wanted->items[i], &sandbox->made, &view))
            continue;
        error_named(err, ERR_BACKEND, "isolation_missing",
                    "sandbox.require names \"%s\", which is not in force on this host",
                    wanted->items[i]);
        err->retryable = false;
        return error_hint(err, "'sandglass doctor' shows what this host supports");
    }
    return 0;
}

/* --- the report ---------------------------------------------------------------------------- */

static void put_hex(struct json_writer *writer, const char *key, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%016llx", (unsigned long long)value);
    json_put_text(writer, key, text);
}

static void put_limits(struct json_writer *writer, const struct kernel_view *view)
{
    json_begin_object(writer, "limits");
    json_put_text(writer, "cgroup",
                  view->cgroup_version == 2   ? "v2"
                  : view->cgroup_version == 1 ? "v1"
                                              : "none");
    json_put_int(writer, "memory_bytes", (int64_t)view->memory_bytes);
    json_put_int(writer, "cpu_millis", view->cpu_millis);
    json_put_int(writer, "pids", view->pids);
    json_put_int(writer, "disk_bytes", (int64_t)view->disk_bytes);
    json_put_text(writer, "disk_kind",
                  view->disk_is_image ? "image"
                  : view->disk_bytes  ? "tmpfs"
                                      : "none");
    json_put_int(writer, "io_bytes_per_second", (int64_t)view->io_bytes_per_s);
    json_put_int(writer, "io_operations_per_second", (int64_t)view->io_operations_per_s);
    json_put_bool(writer, "freezer", view->freezer);
    json_end_object(writer);
}

static bool wants_io_limits(const struct config *config)
{
    return config && (config->sandbox.io_bytes_per_s || config->sandbox.io_operations_per_s);
}

static void put_boundary(struct json_writer *writer, const struct launched_backend *backend,
                         const struct launch_made *made)
{
    char text[400];

    if (backend->mode == LAUNCH_NATIVE) {
        json_put_text(writer, "boundary", "sandbox");
        return;
    }
    snprintf(text, sizeof(text),
             "none: the surrounding host, pod or virtual machine is the boundary; %s%s",
             made->landlock_abi
                 ? "files are confined by Landlock, the network and other processes are not"
                 : "files, the network and other processes are not confined",
             made->own_ids ? ""
                           : "; other processes share its user id: this daemon and its sandboxes "
                             "refuse its connections, other services of that user do not");
    json_put_text(writer, "boundary", text);
}

static void put_missing(struct json_writer *writer, const struct launched_backend *backend,
                        const struct launch_made *made, const struct kernel_view *view)
{
    static const char *const layers[] = { "namespaces", "uid_range",      "seccomp", "no_new_privs",
                                          "landlock",   "landlock_scope", "memory",  "cpu",
                                          "pids",       "disk",           "network" };

    json_begin_array(writer, "missing");
    for (size_t i = 0; i < ARRAY_LENGTH(layers); i++) {
        if (!is_in_force(layers[i], made, view))
            json_put_text(writer, NULL, layers[i]);
    }
    if (wants_io_limits(backend->config) && !is_in_force("io", made, view))
        json_put_text(writer, NULL, "io");
    json_end_array(writer);
    put_boundary(writer, backend, made);
}

int report_write(struct launched_backend *backend, const char *id, struct buffer *json,
                 struct error *err)
{
    struct launched_sandbox *sandbox = find(backend, id, err);
    struct json_writer writer = JSON_WRITER(json);
    struct kernel_view view;

    if (!sandbox)
        return -1;
    read_view(backend, sandbox, &view);
    json_begin_object(&writer, NULL);
    json_put_text(&writer, "backend", backend->base.ops->name);
    json_begin_array(&writer, "namespaces");
    for (size_t i = 0; i < ARRAY_LENGTH(namespaces); i++) {
        if (sandbox->made.namespaces & namespaces[i].bit)
            json_put_text(&writer, NULL, namespaces[i].name);
    }
    json_end_array(&writer);
    json_put_text(&writer, "seccomp", view.seccomp == KERNEL_SECCOMP_FILTER ? "filter" : "none");
    json_put_bool(&writer, "no_new_privs", view.no_new_privs);
    json_put_int(&writer, "landlock_abi", sandbox->made.landlock_abi);
    json_begin_object(&writer, "capabilities");
    put_hex(&writer, "init_effective", view.capabilities);
    put_hex(&writer, "bounding", view.bounding);
    json_end_object(&writer);
    json_begin_object(&writer, "uids");
    json_put_int(&writer, "first", view.uid_first);
    json_put_int(&writer, "count", view.uid_count);
    json_end_object(&writer);
    put_limits(&writer, &view);
    json_put_text(&writer, "network",
                  backend->mode == LAUNCH_DIRECT                 ? "host"
                  : sandbox->made.network == LAUNCH_NETWORK_OPEN ? "open"
                                                                 : "none");
    put_missing(&writer, backend, &sandbox->made, &view);
    json_end_object(&writer);
    return json->overflowed ? error_set(err, ERR_INTERNAL, "the report is too long") : 0;
}
