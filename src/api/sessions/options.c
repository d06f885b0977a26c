/* SPDX-License-Identifier: Apache-2.0 */
#include "api/sessions/options.h"

#include "api/sessions/sessions.h"
#include "base/str.h"
#include "config/config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LABELS_MAXIMUM = 64 };

static int choose(const char *field, const char *text, const char *const *names, int *out_index,
                  struct error *err)
{
    if (!text)
        return 0;
    for (int i = 0; names[i]; i++) {
        if (str_equal(text, names[i])) {
            *out_index = i;
            return 0;
        }
    }
    return error_named(err, ERR_INVALID, "invalid_field", "%s must be %s or %s, not \"%.32s\"",
                       field, names[0], names[1], text);
}

static const char *const network_names[] = { "none", "open", NULL };
static const char *const timeout_names[] = { "kill", "pause", NULL };

/* A template is a name, a name with a version, or a reference to an image: nothing that leads
 * elsewhere. */
static int check_template(const char *name, struct error *err)
{
    struct image_ref ref;

    if (!name || (path_is_plain_name(name) && *name != '.') ||
        image_ref_parse(&ref, name, NULL) == 0)
        return 0;
    return error_named(err, ERR_INVALID, "invalid_field", "template \"%.64s\" is not a valid name",
                       name);
}

static int check_labels(const json_t *labels, struct error *err)
{
    const char *name;
    json_t *value;

    if (json_object_size(labels) > LABELS_MAXIMUM)
        return error_named(err, ERR_INVALID, "invalid_field", "labels must be at most %d",
                           LABELS_MAXIMUM);
    json_object_foreach((json_t *)labels, name, value)
    {
        if (!*name || strlen(name) > 64 || strpbrk(name, "=\n"))
            return error_named(err, ERR_INVALID, "invalid_field",
                               "labels: \"%.64s\" is not a valid label name", name);
    }
    return 0;
}

static const char *label_of(const struct config *config, const char *name)
{
    for (size_t i = 0; i < config->node.labels.count; i++) {
        if (str_equal(config->node.labels.items[i].name, name))
            return config->node.labels.items[i].value;
    }
    return NULL;
}

/* Which node it is made on was decided before, where there are several: see request_place(). */
static int check_node(const struct request *request, const struct session_options *options,
                      struct error *err)
{
    const struct config *config = request->faces->parts.config;
    const char *name;
    json_t *value;

    if (request->faces->parts.cluster)
        return 0;
    if (options->node && !str_equal(options->node, config->node.id))
        return error_named(err, ERR_NOT_FOUND, "node_not_found",
                           "node \"%.64s\" is not known: this daemon is not part of a cluster",
                           options->node);
    json_object_foreach(options->node_labels, name, value)
    {
        if (!str_equal(label_of(config, name), json_string_value(value)))
            return error_named(err, ERR_UNAVAILABLE, "node_unavailable",
                               "this daemon does not have the label \"%.64s\" with that value",
                               name);
    }
    return 0;
}

void session_options_fini(struct session_options *options)
{
    free(options->mounts_json);
    options->mounts_json = NULL;
}

int session_options_read(const struct request *request, struct session_options *options,
                         struct session_request *wanted, struct error *err)
{
    int network = -1, on_timeout = -1;

    if (check_template(options->template_name, err) < 0 ||
        choose("network", options->network, network_names, &network, err) < 0 ||
        choose("on_timeout", options->on_timeout, timeout_names, &on_timeout, err) < 0 ||
        check_labels(options->labels, err) < 0 || check_node(request, options, err) < 0 ||
        mounts_normalize(options->mounts, &options->mounts_json, err) < 0)
        return -1;
    *wanted = (struct session_request){
        .owner = request->owner,
        .on_behalf_of = request->on_behalf_of,
        .template_name = options->template_name,
        .flavor = options->flavor,
        .backend = options->backend,
        .limits = { .memory_bytes = options->memory_bytes,
                    .disk_bytes = options->disk_bytes,
                    .cpu_millis = (uint32_t)lround(options->cpus * 1000),
                    .pids = (uint32_t)options->pids },
        .network = network,
        .mounts_json = options->mounts_json,
        .timeout_ms = options->lease_ms,
        .idle_timeout_ms = options->idle_timeout_ms,
        .max_lifetime_ms = options->max_lifetime_ms,
        .on_timeout = on_timeout,
        .preload = options->has_preload ? options->preload : -1,
        .auto_restart = options->has_auto_restart ? options->auto_restart : -1,
        .auto_resume = options->has_auto_resume ? options->auto_resume : -1,
        .keep_files = options->has_keep_files ? options->keep_files : -1,
    };
    return request_idempotency_key(request, &wanted->idempotency_key, err);
}

#define OPTION(name) offsetof(struct session_options, name)

static const struct json_field rows[] = { SESSION_OPTION_FIELDS(OPTION) };

const char *session_options_named(const struct request *request)
{
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        const json_t *given = json_object_get(request->body, rows[i].name);

        if (given && !json_is_null(given))
            return rows[i].name;
    }
    return NULL;
}
