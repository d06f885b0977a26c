/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a client's own session: the header of a pipe's first request. */

#include "base/alloc.h"
#include "base/str.h"
#include "core/mounts.h"
#include "mcp/private.h"
#include "wire/image_ref.h"
#include "wire/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_MAXIMUM = 256, SECONDS_MAXIMUM = 315360000, ENVIRONMENT_MAXIMUM = 32 << 10 };

/* Members of the same names and ranges as in the body of POST /sessions, old names included. */
struct members {
    const char *key, *template_name, *flavor, *backend, *network;
    json_t *env, *mounts;
    uint64_t memory, disk;
    double cpus;
    int64_t pids, idle_timeout_ms, max_lifetime_ms;
    bool keep_files, has_keep_files;
};

#define MEMBER(name) offsetof(struct members, name)

static const struct json_field fields[] = {
    { "key", JSON_KIND_TEXT, MEMBER(key), .max_length = KEY_MAXIMUM },
    { "template", JSON_KIND_TEXT, MEMBER(template_name), .max_length = IMAGE_REF_TEXT_SIZE - 1 },
    { "flavor", JSON_KIND_TEXT, MEMBER(flavor), .max_length = 128 },
    { "backend", JSON_KIND_TEXT, MEMBER(backend), .max_length = 32 },
    { "network", JSON_KIND_TEXT, MEMBER(network), .max_length = 32 },
    { "env", JSON_KIND_TEXT_MAP, MEMBER(env), .max_length = ENVIRONMENT_MAXIMUM },
    { "mounts", JSON_KIND_LIST, MEMBER(mounts), .items = mounts_fields },
    { "memory_bytes", JSON_KIND_SIZE, MEMBER(memory), .minimum = 4 << 20, .maximum = 1e15 },
    { "memory", JSON_KIND_SIZE, MEMBER(memory), .minimum = 4 << 20, .maximum = 1e15 },
    { "disk_bytes", JSON_KIND_SIZE, MEMBER(disk), .minimum = 1 << 20, .maximum = 1e15 },
    { "disk", JSON_KIND_SIZE, MEMBER(disk), .minimum = 1 << 20, .maximum = 1e15 },
    { "cpus", JSON_KIND_NUMBER, MEMBER(cpus), .minimum = 0.01, .maximum = 1024 },
    { "pids", JSON_KIND_INT, MEMBER(pids), .minimum = 2, .maximum = 4194304 },
    { "idle_timeout_seconds", JSON_KIND_SECONDS, MEMBER(idle_timeout_ms),
      .maximum = SECONDS_MAXIMUM },
    { "idle_timeout", JSON_KIND_SECONDS, MEMBER(idle_timeout_ms), .maximum = SECONDS_MAXIMUM },
    { "max_lifetime_seconds", JSON_KIND_SECONDS, MEMBER(max_lifetime_ms),
      .maximum = SECONDS_MAXIMUM },
    { "max_lifetime", JSON_KIND_SECONDS, MEMBER(max_lifetime_ms), .maximum = SECONDS_MAXIMUM },
    { "keep_files", JSON_KIND_BOOL, MEMBER(keep_files), .present_offset = MEMBER(has_keep_files) },
};

static int refuse(struct error *err, const char *format, const char *value)
{
    char message[128];

    snprintf(message, sizeof(message), format, value);
    return error_named(err, ERR_INVALID, "invalid_field", "%s", message);
}

static int check(const struct members *members, struct error *err)
{
    const char *name = members->template_name;
    struct image_ref ref;
    const char *variable;
    json_t *value;

    if (members->key && !*members->key)
        return refuse(err, "key must not be empty%s", "");
    if (name && (!path_is_plain_name(name) || *name == '.') &&
        image_ref_parse(&ref, name, NULL) < 0)
        return refuse(err, "template \"%.64s\" is not a valid name", name);
    if (members->network && !str_equal(members->network, "none") &&
        !str_equal(members->network, "open"))
        return refuse(err, "network must be none or open, not \"%.32s\"", members->network);
    json_object_foreach(members->env, variable, value)
    {
        if (!*variable || strchr(variable, '='))
            return refuse(err, "env: \"%.64s\" is not a valid variable name", variable);
    }
    return 0;
}

static void fill(struct session_request *request, const struct members *members)
{
    request->key = members->key;
    request->template_name = members->template_name;
    request->flavor = members->flavor;
    request->backend = members->backend;
    request->limits.memory_bytes = members->memory;
    request->limits.disk_bytes = members->disk;
    request->limits.cpu_millis = (uint32_t)lround(members->cpus * 1000);
    request->limits.pids = (uint32_t)members->pids;
    request->idle_timeout_ms = members->idle_timeout_ms;
    request->max_lifetime_ms = members->max_lifetime_ms;
    if (members->network)
        request->network = str_equal(members->network, "open") ? NETWORK_OPEN : NETWORK_NONE;
    if (members->has_keep_files)
        request->keep_files = members->keep_files;
}

struct mcp_wishes *mcp_wishes_read(const char *text, struct error *err)
{
    struct members members = { .idle_timeout_ms = -1, .max_lifetime_ms = -1 };
    struct mcp_wishes *wishes = xnew(struct mcp_wishes);

    wishes->request = SESSION_REQUEST_INIT;
    wishes->document = json_read(text, strlen(text), err);
    if (!wishes->document ||
        json_decode(wishes->document, fields, ARRAY_LENGTH(fields), &members, err) < 0 ||
        check(&members, err) < 0 || mounts_normalize(members.mounts, &wishes->mounts, err) < 0) {
        error_wrap(err, MCP_WISHES);
        mcp_wishes_free(wishes);
        return NULL;
    }
    fill(&wishes->request, &members);
    wishes->request.mounts_json = wishes->mounts;
    if (members.env)
        wishes->request.env_json = wishes->env = json_dumps(members.env, JSON_COMPACT);
    return wishes;
}

void mcp_wishes_free(struct mcp_wishes *wishes)
{
    if (!wishes)
        return;
    json_decref(wishes->document);
    free(wishes->env);
    free(wishes->mounts);
    free(wishes);
}
