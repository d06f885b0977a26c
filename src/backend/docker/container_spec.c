/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/docker/docker_private.h"

#include "base/buffer.h"
#include "base/fd.h"
#include "base/macros.h"
#include "base/str.h"
#include "config/config.h"
#include "wire/json.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { BODY_MAXIMUM = 1024 * 1024 };

/* Of ours in a container, beside the programs: init, and where it is reached by a relay that and a pump. */
enum { OWN_PROCESSES = 1, OWN_PROCESSES_OF_RELAY = 3 };

/* Podman gives itself and its containers no more files and processes than this. */
enum { ENGINE_RLIMIT_MAXIMUM = 1024 * 1024 };

/* Root and init need these to install packages and to switch users; none reaches out of the
 * container. */
static const char *const capabilities[] = { "CHOWN",  "DAC_OVERRIDE", "FOWNER",
                                            "FSETID", "KILL",         "NET_BIND_SERVICE",
                                            "SETGID", "SETPCAP",      "SETUID" };

/* --- limits ----------------------------------------------------------------------------------- */

/* gVisor's own threads count: with the limit of the sandbox alone it could not live. */
static uint64_t pids_for_engine(const struct docker_backend *docker, uint32_t pids, bool has_relay)
{
    if (docker->is_gvisor)
        return 8 * (uint64_t)pids + 512;
    return (uint64_t)pids + (has_relay ? OWN_PROCESSES_OF_RELAY : OWN_PROCESSES);
}

static void put_limits(struct json_writer *json, const struct docker_backend *docker,
                       const struct sandbox_limits *limits, bool has_relay)
{
    json_put_int(json, "Memory", (int64_t)limits->memory_bytes);
    json_put_int(json, "MemorySwap", (int64_t)limits->memory_bytes); /* together: no swap */
    json_put_int(json, "CpuPeriod", 100 * 1000);
    json_put_int(json, "CpuQuota", (int64_t)limits->cpu_millis * 100);
    json_put_int(json, "PidsLimit", (int64_t)pids_for_engine(docker, limits->pids, has_relay));
}

char *container_limits_json(const struct docker_backend *docker,
                            const struct sandbox_limits *limits, bool has_relay)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(BODY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    put_limits(&json, docker, limits, has_relay);
    json_end_object(&json);
    return buffer_steal_text(&text);
}

/* Files in memory leave half of it to the programs, as in native sandboxes. Without a memory limit
 * the disk limit applies as it is. */
uint64_t container_disk_bytes(const struct docker_backend *docker,
                              const struct sandbox_limits *limits)
{
    uint64_t half = limits->memory_bytes / 2;

    switch (docker_disk_kind(docker)) {
    case DISK_UNLIMITED:
        break;
    case DISK_IN_STORAGE:
        return limits->disk_bytes;
    case DISK_IN_MEMORY:
        return limits->disk_bytes && half ? MIN(limits->disk_bytes, half)
                                          : MAX(limits->disk_bytes, half);
    }
    return 0;
}

/* --- files ------------------------------------------------------------------------------------ */

static void put_tmpfs(struct json_writer *json, const char *path, uint64_t bytes, const char *mode)
{
    char options[96];

    snprintf(options, sizeof(options), "rw,exec,nosuid,nodev,size=%" PRIu64 ",mode=%s", bytes,
             mode);
    json_put_text(json, path, options);
}

/* The sizes of the others are bounded by the memory of the sandbox as well. */
static void put_memory_files(struct json_writer *json, const struct container_order *order)
{
    uint64_t bytes = container_disk_bytes(order->docker, &order->spec->limits);

    json_begin_object(json, "Tmpfs");
    if (order->way != WAY_DOOR)
        put_tmpfs(json, DOCKER_INSIDE "/run", 64 * 1024, "0755");
    if (order->docker->config->docker.read_only) {
        put_tmpfs(json, DOCKER_WORKSPACE, bytes, "1777");
        put_tmpfs(json, "/tmp", bytes / 2, "1777");
        put_tmpfs(json, "/var/tmp", bytes / 8, "1777");
        put_tmpfs(json, "/run", bytes / 8, "0755");
    }
    json_end_object(json);
}

static void put_storage(struct json_writer *json, const struct container_order *order)
{
    char size[24];

    if (docker_disk_kind(order->docker) != DISK_IN_STORAGE)
        return;
    snprintf(size, sizeof(size), "%" PRIu64, order->spec->limits.disk_bytes);
    json_begin_object(json, "StorageOpt");
    json_put_text(json, "size", size);
    json_end_object(json);
}

static void put_mount(struct json_writer *json, const char *source, const char *target,
                      bool read_only)
{
    json_begin_object(json, NULL);
    json_put_text(json, "Type", "bind");
    json_put_text(json, "Source", source);
    json_put_text(json, "Target", target);
    json_put_bool(json, "ReadOnly", read_only);
    json_end_object(json);
}

static void put_mounts(struct json_writer *json, const struct container_order *order)
{
    const struct docker_backend *docker = order->docker;
    const struct config_mounts *mounts = &docker->config->sandbox.mounts;
    char source[4096];

    json_begin_array(json, "Mounts");
    if (order->way != WAY_UPLOADED) {
        snprintf(source, sizeof(source), "%s/" DOCKER_DIRECTORY "/bin", docker->state_path);
        put_mount(json, source, DOCKER_INSIDE "/bin", true);
    }
    if (order->way == WAY_DOOR) {
        snprintf(source, sizeof(source), "%s/" DOCKER_DIRECTORY "/doors/%s", docker->state_path,
                 order->spec->id);
        put_mount(json, source, DOCKER_DOOR, true);
    }
    for (size_t i = 0; i < mounts->count; i++)
        put_mount(json, mounts->items[i].host_path, mounts->items[i].path,
                  mounts->items[i].read_only);
    json_end_array(json);
}

/* --- the process ------------------------------------------------------------------------------ */

static void put_argument(struct json_writer *json, const char *option, const char *value)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);

    buffer_appendf(&text, "%s%s", option, value);
    json_put_text(json, NULL, buffer_text(&text));
}

/* The image's own directory cannot be written to where the image is read-only, and a tmpfs above it would
 * hide the files that the image has there. */
static const char *workspace_of(const struct container_order *order)
{
    const char *workdir = order->facts->workdir;

    if (order->docker->config->docker.read_only || str_is_empty(workdir) || str_equal(workdir, "/"))
        return DOCKER_WORKSPACE;
    return workdir;
}

static void put_command(struct json_writer *json, const struct container_order *order)
{
    char door[ID_SIZE + 64];

    json_begin_array(json, "Entrypoint");
    json_put_text(json, NULL, DOCKER_INIT);
    json_end_array(json);
    json_begin_array(json, "Cmd");
    snprintf(door, sizeof(door), DOCKER_DOOR "/%s.sock", order->spec->id);
    put_argument(json, order->way == WAY_DOOR ? "--dial=" : "--relay=",
                 order->way == WAY_DOOR ? door : DOCKER_RELAY_SOCKET);
    if (order->way != WAY_DOOR)
        json_put_text(json, NULL, "--attached");
    if (!str_is_empty(order->facts->user))
        put_argument(json, "--user=", order->facts->user);
    put_argument(json, "--workspace=", workspace_of(order));
    if (order->docker->config->docker.read_only)
        put_argument(json, "--home=", DOCKER_WORKSPACE);
    json_put_text(json, NULL, "--environment");
    json_end_array(json);
}

/* The first connection to a relay goes through the container's input and output. The engine closes
 * the input when the daemon has disconnected: init's pump reads end of file. */
static void put_input(struct json_writer *json, const struct container_order *order)
{
    bool is_attached = order->way != WAY_DOOR;

    json_put_bool(json, "OpenStdin", is_attached);
    json_put_bool(json, "StdinOnce", is_attached);
}

/* A check of the image's would run its programs beside those of the sandbox. */
static void put_no_healthcheck(struct json_writer *json)
{
    json_begin_object(json, "Healthcheck");
    json_begin_array(json, "Test");
    json_put_text(json, NULL, "NONE");
    json_end_array(json);
    json_end_object(json);
}

static void put_key(struct json_writer *json, const char *key)
{
    json_begin_array(json, "Env");
    if (key)
        put_argument(json, RELAY_KEY_VARIABLE "=", key);
    json_end_array(json);
}

/* --- walls ------------------------------------------------------------------------------------ */

static void put_texts(struct json_writer *json, const char *key, const char *const *texts,
                      size_t count)
{
    json_begin_array(json, key);
    for (size_t i = 0; i < count; i++)
        json_put_text(json, NULL, texts[i]);
    json_end_array(json);
}

static void put_security(struct json_writer *json, const struct docker_backend *docker)
{
    static const char *const all[] = { "ALL" };
    const char *options[] = { "no-new-privileges:true", docker->seccomp };

    put_texts(json, "CapDrop", all, 1);
    put_texts(json, "CapAdd", capabilities, ARRAY_LENGTH(capabilities));
    put_texts(json, "SecurityOpt", options, docker->seccomp ? 2 : 1);
}

static void put_ulimit(struct json_writer *json, const char *name, int64_t value)
{
    json_begin_object(json, NULL);
    json_put_text(json, "Name", name);
    json_put_int(json, "Soft", value);
    json_put_int(json, "Hard", value);
    json_end_object(json);
}

/* The kernel's pid_max; UINT64_MAX when it cannot be read. */
static uint64_t highest_pid(void)
{
    scoped(fd_close) int fd = open("/proc/sys/kernel/pid_max", O_RDONLY | O_CLOEXEC);
    char text[24] = "";
    uint64_t pids;

    if (fd >= 0)
        (void)fd_read_at(fd, text, sizeof(text) - 1, 0);
    pids = strtoull(text, NULL, 10);
    return pids ? pids : UINT64_MAX;
}

/* The daemon's own hard limit stands for that of the engine beside it: Podman's service lowers its
 * limits to the two maxima when it starts. */
static void put_hard_limit(struct json_writer *json, const char *name, int resource,
                           uint64_t maximum)
{
    struct rlimit limit;
    uint64_t value = MIN(maximum, (uint64_t)ENGINE_RLIMIT_MAXIMUM);

    if (getrlimit(resource, &limit) == 0 && limit.rlim_max != RLIM_INFINITY)
        value = MIN(value, (uint64_t)limit.rlim_max);
    put_ulimit(json, name, (int64_t)value);
}

/* A core limit of 1 byte keeps dumps off, whether the host writes or pipes them. */
static void put_ulimits(struct json_writer *json, enum docker_rlimits rlimits)
{
    json_begin_array(json, "Ulimits");
    put_ulimit(json, "core", 1);
    if (rlimits == RLIMITS_DAEMON) {
        put_hard_limit(json, "nofile", RLIMIT_NOFILE, UINT64_MAX);
        put_hard_limit(json, "nproc", RLIMIT_NPROC, highest_pid());
    }
    json_end_array(json);
}

static void put_host_config(struct json_writer *json, const struct container_order *order)
{
    const struct docker_backend *docker = order->docker;
    bool is_open = order->spec->network.mode == NETWORK_OPEN;

    json_begin_object(json, "HostConfig");
    put_limits(json, docker, &order->spec->limits, order->way != WAY_DOOR);
    put_security(json, docker);
    put_ulimits(json, order->rlimits);
    json_put_text(json, "NetworkMode", is_open ? docker->config->docker.network : "none");
    json_put_bool(json, "ReadonlyRootfs", docker->config->docker.read_only);
    json_put_bool(json, "Init", false); /* an engine that adds its own would be the first process */
    put_memory_files(json, order);
    put_storage(json, order);
    put_mounts(json, order);
    if (*docker->runtime)
        json_put_text(json, "Runtime", docker->runtime);
    json_begin_object(json, "LogConfig");
    json_put_text(json, "Type", "none");
    json_end_object(json);
    json_begin_object(json, "RestartPolicy");
    json_put_text(json, "Name", "no");
    json_end_object(json);
    json_end_object(json);
}

static void put_labels(struct json_writer *json, const struct container_order *order)
{
    const struct sandbox_spec *spec = order->spec;
    char generation[24];

    snprintf(generation, sizeof(generation), "%" PRIu64, spec->generation);
    json_begin_object(json, "Labels");
    json_put_text(json, LABEL_MARK, "1");
    json_put_text(json, LABEL_INSTANCE, order->docker->config->instance);
    if (*order->docker->cluster)
        json_put_text(json, LABEL_CLUSTER, order->docker->cluster);
    json_put_text(json, LABEL_SANDBOX, spec->id);
    json_put_text(json, LABEL_BACKEND, order->docker->base.ops->name);
    json_put_text(json, LABEL_STATE, order->docker->state_path);
    json_put_text(json, LABEL_HOST, order->docker->place.host);
    json_put_text(json, LABEL_BOOT, order->docker->place.boot);
    if (!str_is_empty(spec->session)) {
        json_put_text(json, "sandglass.session", spec->session);
        json_put_text(json, "sandglass.owner", spec->owner ? spec->owner : "");
        json_put_text(json, "sandglass.generation", generation);
    }
    json_end_object(json);
}

char *container_spec_json(const struct container_order *order)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(BODY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_text(&json, "Image", order->image);
    json_put_text(&json, "Hostname", "sandbox");
    json_put_text(&json, "User", "0");
    json_put_text(&json, "WorkingDir", "/");
    json_put_text(&json, "StopSignal", "SIGKILL");
    put_command(&json, order);
    put_input(&json, order);
    put_no_healthcheck(&json);
    put_key(&json, order->key);
    put_labels(&json, order);
    put_host_config(&json, order);
    json_end_object(&json);
    return text.overflowed ? NULL : buffer_steal_text(&text);
}
