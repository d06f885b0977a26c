/* SPDX-License-Identifier: Apache-2.0 */
/* The container engine of the backends docker and gvisor. */

#include "base/str.h"
#include "cli/operator/doctor.h"
#include "cli/operator/engine_look.h"
#include "config/config.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct engine_doctor {
    const struct config *config; /* borrowed */
    struct engine_look look;
    bool is_enabled;
    enum finding_status failure; /* what is wrong when an enabled backend does not work */
};

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "?";
}

static bool is_podman(const struct engine_look *look)
{
    const json_t *component;
    size_t i;

    json_array_foreach(json_object_get(look->version, "Components"), i, component)
    {
        if (strstr(text_of(component, "Name"), "Podman"))
            return true;
    }
    return false;
}

static bool has_security_option(const struct engine_look *look, const char *option)
{
    const json_t *item;
    size_t i;

    json_array_foreach(json_object_get(look->info, "SecurityOptions"), i, item)
    {
        const char *text = json_string_value(item);

        /* "name=rootless", "name=seccomp,profile=default" */
        if (text && str_starts_with(text, "name=") && str_starts_with(text + 5, option) &&
            strchr(",", text[5 + strlen(option)]))
            return true;
    }
    return false;
}

/* "overlay2 on extfs"; where a disk limit is possible depends on both. */
static void describe_storage(const struct engine_look *look, char *out, size_t size)
{
    const json_t *pair;
    size_t i;

    snprintf(out, size, "%s", text_of(look->info, "Driver"));
    json_array_foreach(json_object_get(look->info, "DriverStatus"), i, pair)
    {
        const char *name = json_string_value(json_array_get(pair, 0));
        const char *value = json_string_value(json_array_get(pair, 1));

        if (value && str_equal(name, "Backing Filesystem"))
            snprintf(out, size, "%s on %s", text_of(look->info, "Driver"), value);
    }
}

static void check_engine(const struct engine_doctor *engine, struct finding *finding)
{
    const struct engine_look *look = &engine->look;
    const char *note = engine->is_enabled ? "" : "; docker and gvisor are not enabled";
    char storage[64];

    if (look->err.code != ERR_NONE) {
        finding_set(finding, engine->is_enabled ? engine->failure : FINDING_OK, look->err.hint,
                    "%s%s", look->err.message, note);
        return;
    }
    describe_storage(look, storage, sizeof(storage));
    finding_set(finding, FINDING_OK, NULL, "%s %s at %s: API %s, storage %s, cgroup v%s%s",
                is_podman(look) ? "Podman" : "Docker", text_of(look->version, "Version"),
                engine->config->docker.host, look->api, storage,
                text_of(look->info, "CgroupVersion"), note);
}

static void check_access(const struct engine_doctor *engine, struct finding *finding)
{
    bool is_remapped = has_security_option(&engine->look, "userns");

    if (has_security_option(&engine->look, "rootless"))
        finding_set(finding, FINDING_OK, NULL,
                    "the engine is rootless: access to it is no more than the power of its user");
    else
        finding_set(finding, FINDING_WARN,
                    "prefer a rootless engine: dockerd-rootless-setuptool.sh install as its user, "
                    "then set docker.host to unix:///run/user/UID/docker.sock",
                    "access to the engine is root's power on its machine, and the daemon has it%s",
                    is_remapped ? "; root of a container is another user (userns-remap)" : "");
}

static void check_restart(const struct engine_doctor *engine, struct finding *finding)
{
    bool survive = is_podman(&engine->look) ||
                   json_is_true(json_object_get(engine->look.info, "LiveRestoreEnabled"));

    if (survive)
        finding_set(finding, FINDING_OK, NULL, "sandboxes survive a restart of the engine");
    else
        finding_set(finding, FINDING_WARN,
                    "set \"live-restore\": true in the engine's /etc/docker/daemon.json, and "
                    "reload the engine",
                    "a restart of the engine ends its sandboxes");
}

/* Podman ignores the runtime of a request, and uses that of its service. */
static void check_runtime(const struct engine_doctor *engine, const char *runtime,
                          struct finding *finding)
{
    const json_t *runtimes = json_object_get(engine->look.info, "Runtimes");

    if (is_podman(&engine->look))
        finding_set(finding, FINDING_WARN,
                    "start the service with --runtime, or use Docker for this backend",
                    "Podman ignores which runtime is asked for: %s", runtime);
    else if (json_object_get(runtimes, runtime))
        finding_set(finding, FINDING_OK, NULL, "the engine has the runtime %s", runtime);
    else
        finding_set(finding, engine->failure,
                    str_equal(runtime, "runsc")
                        ? "install runsc (https://gvisor.dev/docs/user_guide/install/), run "
                          "'runsc install' and restart the engine"
                        : "add it to \"runtimes\" of the engine's /etc/docker/daemon.json, or "
                          "correct docker.runtime",
                    "the engine has no runtime %s", runtime);
}

static void check_runtimes(const struct engine_doctor *engine, doctor_report_fn *report, void *user)
{
    const char *runtime = engine->config->docker.runtime;
    struct finding finding = { 0 };

    if (config_names_backend(engine->config, "gvisor"))
        check_runtime(engine, *runtime ? runtime : "runsc", &finding);
    else if (*runtime)
        check_runtime(engine, runtime, &finding);
    else
        return;
    report(user, "engine runtime", &finding);
}

static bool is_default(const struct config *config)
{
    return str_equal(config->sandbox.backend, "docker") ||
           str_equal(config->sandbox.backend, "gvisor");
}

void doctor_check_engine(const struct doctor *doctor, doctor_report_fn *report, void *user)
{
    static const struct {
        const char *name;
        void (*run)(const struct engine_doctor *engine, struct finding *finding);
    } checks[] = { { "engine access", check_access }, { "engine restart", check_restart } };
    struct engine_doctor engine = { .config = doctor->config };
    struct finding finding = { 0 };
    const char *path;

    if (!doctor->config)
        return;
    path = config_engine_socket(doctor->config);
    engine.is_enabled = config_uses_engine(doctor->config);
    engine.failure = is_default(doctor->config) ? FINDING_FAIL : FINDING_WARN;
    if (!engine.is_enabled && (!path || access(path, F_OK) < 0))
        return;
    engine_look_run(&engine.look, doctor->config);
    check_engine(&engine, &finding);
    report(user, "engine", &finding);
    if (engine.is_enabled && engine.look.err.code == ERR_NONE) {
        for (size_t i = 0; i < ARRAY_LENGTH(checks); i++) {
            checks[i].run(&engine, &finding);
            report(user, checks[i].name, &finding);
        }
        check_runtimes(&engine, report, user);
    }
    engine_look_fini(&engine.look);
}

bool doctor_engine_has(const struct doctor *doctor, const char *backend)
{
    const char *runtime = doctor->config->docker.runtime;
    struct engine_look look = { 0 };
    bool has;

    if (!str_equal(backend, "docker") && !str_equal(backend, "gvisor"))
        return false;
    engine_look_run(&look, doctor->config);
    has = look.err.code == ERR_NONE;
    if (has && str_equal(backend, "gvisor"))
        has = !is_podman(&look) &&
              json_object_get(json_object_get(look.info, "Runtimes"), *runtime ? runtime : "runsc");
    engine_look_fini(&look);
    return has;
}
