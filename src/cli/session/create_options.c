/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/session/create_options.h"

#include "backend/names.h"
#include "base/alloc.h"
#include "base/str.h"
#include "cli/session/mount_option.h"
#include "wire/json.h"

#include <stdlib.h>
#include <string.h>

#define PLACE(field) offsetof(struct create_args, field)

const struct option create_options[] = {
    { "key", 0, OPTION_TEXT, PLACE(key), "KEY", NULL,
      "caller's name for the session: the same key gives the same session" },
    { "name", 0, OPTION_TEXT, PLACE(key), "KEY", NULL, NULL },
    { "template", 0, OPTION_TEXT, PLACE(template_name), "NAME", NULL,
      "template of its file system; default: sandbox.template of the daemon" },
    { "image", 0, OPTION_TEXT, PLACE(template_name), "NAME", NULL, NULL },
    { "flavor", 0, OPTION_TEXT, PLACE(flavor), "NAME", NULL,
      "flavor: a kind of sandbox from the settings; default: the first of them" },
    { "backend", 0, OPTION_TEXT, PLACE(backend), "NAME", BACKEND_WORDS,
      "backend of its sandboxes, one of:" BACKEND_TEXT "; default: the daemon's" },
    { "label", 'l', OPTION_PAIRS, PLACE(labels), "K=V", NULL, "add a label; may be repeated" },
    VARIABLE_OPTIONS(PLACE(variables)),
    { "mount", 'v', OPTION_LIST, PLACE(mounts), "DIR[:PATH][:ro]", NULL,
      "show a directory of this machine in its sandboxes, at PATH or at its own path, if "
      "sandbox.max.mounts of the daemon allows it; may be repeated" },
    { "volume", 0, OPTION_LIST, PLACE(mounts), "DIR[:PATH][:ro]", NULL, NULL },
    { "memory", 'm', OPTION_SIZE, PLACE(memory), "SIZE", NULL,
      "memory limit: 512m, 2g; default: sandbox.memory of the daemon" },
    { "cpus", 0, OPTION_NUMBER, PLACE(cpus), "N", NULL,
      "CPU limit in cores: 0.5, 2; default: sandbox.cpus" },
    { "pids", 0, OPTION_COUNT, PLACE(pids), "N", NULL,
      "maximum number of processes; default: sandbox.pids" },
    { "disk", 0, OPTION_SIZE, PLACE(disk), "SIZE", NULL,
      "disk space: 512m, 4g; default: sandbox.disk" },
    { "network", 0, OPTION_TEXT, PLACE(network), "MODE", "none open",
      "network access: none or open; default: sandbox.network" },
    { "idle-timeout", 0, OPTION_DURATION, PLACE(idle_timeout), "T", NULL,
      "end it when it has not been used for this long; 0: never; default: session.idle_timeout" },
    { "max-lifetime", 0, OPTION_DURATION, PLACE(max_lifetime), "T", NULL,
      "end it this long after its creation, even while in use; 0: never; default: "
      "session.max_lifetime" },
    { "on-timeout", 0, OPTION_TEXT, PLACE(on_timeout), "WHAT", "kill pause",
      "action when a clock runs out: kill or pause; default: kill" },
    { "no-preload", 0, OPTION_FLAG, PLACE(no_preload), NULL, NULL,
      "start the sandbox at the first use, not now" },
    { "keep-files", 0, OPTION_FLAG, PLACE(keep_files), NULL, NULL,
      "keep its files when a sandbox ends, for the next one and until retention ends" },
    { "auto-restart", 0, OPTION_TEXT, PLACE(auto_restart), "on|off", "on off",
      "replace a crashed sandbox at the next use; default: sandbox.auto_restart" },
    { 0 },
};

static void put_given(struct json_writer *json, const char *key, const char *value)
{
    if (value)
        json_put_text(json, key, value);
}

/* The text was checked to be a number when it was read. */
static void put_number(struct json_writer *json, const char *key, const char *value)
{
    if (value)
        json_put_double(json, key, strtod(value, NULL));
}

static void put_count(struct json_writer *json, const char *key, const char *value)
{
    uint64_t number;

    if (value && str_to_u64(value, &number) == 0)
        json_put_int(json, key, (int64_t)number);
}

int create_write_body(const struct create_args *args, const char *lease, struct buffer *body,
                      struct error *err)
{
    struct json_writer json = JSON_WRITER(body);

    json_begin_object(&json, NULL);
    put_given(&json, "key", args->key);
    put_given(&json, "template", args->template_name);
    put_given(&json, "flavor", args->flavor);
    put_given(&json, "backend", args->backend);
    if (env_write(&args->labels, &json, "labels", err) < 0 ||
        variables_write(&args->variables, &json, err) < 0 ||
        mount_option_write(&args->mounts, &json, err) < 0)
        return -1;
    put_given(&json, "memory_bytes", args->memory);
    put_number(&json, "cpus", args->cpus);
    put_count(&json, "pids", args->pids);
    put_given(&json, "disk_bytes", args->disk);
    put_given(&json, "network", args->network);
    put_given(&json, "lease_seconds", lease);
    put_given(&json, "idle_timeout_seconds", args->idle_timeout);
    put_given(&json, "max_lifetime_seconds", args->max_lifetime);
    put_given(&json, "on_timeout", args->on_timeout);
    if (args->no_preload)
        json_put_bool(&json, "preload", false);
    if (args->keep_files)
        json_put_bool(&json, "keep_files", true);
    if (args->auto_restart)
        json_put_bool(&json, "auto_restart", strcmp(args->auto_restart, "on") == 0);
    json_end_object(&json);
    return 0;
}
