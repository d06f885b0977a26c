/* SPDX-License-Identifier: Apache-2.0 */
#include "core/run/environment.h"

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/macros.h"
#include "base/str.h"
#include "config/config.h"
#include "core/core.h"
#include "core/run/execution.h"
#include "core/run/no_network.h"
#include "core/secrets.h"
#include "wire/json.h"
#include "wire/protocol.h"

#include <stdlib.h>
#include <string.h>

/* Takes over the text. */
static void push(struct environment *environment, char *text)
{
    environment->items =
        xrealloc(environment->items, environment->count + 2, sizeof(*environment->items));
    environment->items[environment->count++] = text;
    environment->items[environment->count] = NULL;
}

void environment_fini(struct environment *environment)
{
    for (size_t i = 0; i < environment->count; i++)
        free(environment->items[i]);
    free(environment->items);
    *environment = (struct environment){ 0 };
}

void environment_set(struct environment *environment, const char *name, const char *value)
{
    size_t length = strlen(name);
    char *text = xasprintf("%s=%s", name, value);

    for (size_t i = 0; i < environment->count; i++) {
        if (strncmp(environment->items[i], name, length) == 0 &&
            environment->items[i][length] == '=') {
            free(environment->items[i]);
            environment->items[i] = text;
            return;
        }
    }
    push(environment, text);
}

bool environment_has(const struct environment *environment, const char *name)
{
    size_t length = strlen(name);

    for (size_t i = 0; i < environment->count; i++) {
        if (strncmp(environment->items[i], name, length) == 0 &&
            environment->items[i][length] == '=')
            return true;
    }
    return false;
}

int environment_add_json(struct environment *environment, const char *field, const char *json,
                         struct error *err)
{
    scoped(json_decref) json_t *object = NULL;
    const char *name;
    json_t *value;

    if (!json)
        return 0;
    object = json_read(json, strlen(json), err);
    if (!object)
        return error_wrap(err, "%s", field);
    if (json_object_size(object) > PROTOCOL_MAX_STRINGS) /* each is compared with all before */
        return error_named(err, ERR_TOO_LARGE, "env_too_large", "%s has more than %d variables",
                           field, PROTOCOL_MAX_STRINGS);
    json_object_foreach(object, name, value)
    {
        if (!*name || strchr(name, '='))
            return error_named(err, ERR_INVALID, "invalid_env",
                               "%s: \"%.64s\" is not a valid variable name", field, name);
        if (!json_is_string(value))
            return error_named(err, ERR_INVALID, "invalid_env", "%s.%.64s must be a string", field,
                               name);
        environment_set(environment, name, json_string_value(value));
    }
    return 0;
}

/* Variables that every program gets unless the settings, the session or the request say otherwise.
 * Python writes into a pipe at once, so that readers see its output while it runs. pip installs into
 * the file system of the sandbox, which no package manager of a host has to protect. */
static const struct {
    const char *name, *value;
    bool needs_own_files; /* only where the sandbox has a file system of its own */
} defaults[] = {
    { "PYTHONUNBUFFERED", "1", false },
    { "PIP_BREAK_SYSTEM_PACKAGES", "1", true },
    { "PIP_ROOT_USER_ACTION", "ignore", true },
    { "PIP_DISABLE_PIP_VERSION_CHECK", "1", true },
};

static void add_defaults(struct environment *environment, bool has_own_files)
{
    for (size_t i = 0; i < ARRAY_LENGTH(defaults); i++)
        if (has_own_files || !defaults[i].needs_own_files)
            environment_set(environment, defaults[i].name, defaults[i].value);
}

/* A variable that names files of this host says nothing about those of an image. */
static bool names_files(const char *name)
{
    static const char *const names[] = { "PATH", "SSL_CERT_FILE", "SSL_CERT_DIR" };

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        if (str_equal(name, names[i]))
            return true;
    return false;
}

/* The locale that differs from C in its characters alone. */
static bool is_plain_locale(const char *name, const char *value)
{
    return str_equal(name, "LANG") && (str_equal(value, "C.UTF-8") || str_equal(value, "C.utf8"));
}

static void pass_on(struct environment *environment, const struct config *config,
                    bool has_other_files)
{
    for (size_t i = 0; i < config->sandbox.env_pass.count; i++) {
        const char *name = config->sandbox.env_pass.items[i];
        const char *value = getenv(name);

        if (value && !(has_other_files && names_files(name)) && !is_plain_locale(name, value))
            environment_set(environment, name, value);
    }
}

void environment_add_locale(struct environment *environment, const struct config *config)
{
    const struct config_list *names = &config->sandbox.env_pass;

    if (environment_has(environment, "LANG") || environment_has(environment, "LC_ALL") ||
        environment_has(environment, "LC_CTYPE"))
        return;
    for (size_t i = 0; i < names->count; i++) {
        const char *value = getenv(names->items[i]);

        if (value && is_plain_locale(names->items[i], value))
            environment_set(environment, "LC_CTYPE", value);
    }
}

void environment_add_common(struct environment *environment, const struct config *config,
                            const struct backend *backend)
{
    const struct backend_capabilities *capabilities = &backend->ops->capabilities;
    const char *path = getenv("PATH");

    add_defaults(environment, capabilities->templates);
    if (path && !capabilities->templates)
        environment_set(environment, "PATH", path); /* its programs are those of this host */
    pass_on(environment, config, capabilities->environment);
    for (size_t i = 0; i < config->sandbox.env_set.count; i++)
        environment_set(environment, config->sandbox.env_set.items[i].name,
                        config->sandbox.env_set.items[i].value);
}

int environment_add_request(struct environment *environment,
                            const struct execution_request *request, struct error *err)
{
    if (environment_add_json(environment, "env", request->env_json, err) < 0 ||
        environment_add_json(environment, "secrets", request->secrets_json, err) < 0)
        return -1;
    return 0;
}

int environment_make(struct environment *environment, const struct session *session,
                     const struct execution_request *request, const char *execution_id,
                     struct error *err)
{
    if (session_has_lost_secrets(session)) {
        error_named(err, ERR_CONFLICT, "secrets_lost",
                    "the secrets of session %s are lost: the key of the daemon has changed",
                    session_id(session));
        return error_hint(err, "give the secrets again with PATCH, or open a new session");
    }
    environment_add_common(environment, session_core(session)->parts.config,
                           session_backend(session));
    if (no_network_applies(session) && !environment_has(environment, "PIP_RETRIES"))
        environment_set(environment, "PIP_RETRIES",
                        "1"); /* with none pip does not say why it fails */
    if (environment_add_json(environment, "env", session_env_json(session), err) < 0 ||
        (session_secrets(session) &&
         environment_add_json(environment, "secrets", session_secrets(session)->json, err) < 0) ||
        environment_add_request(environment, request, err) < 0)
        return -1;
    environment_add_locale(environment, session_core(session)->parts.config);
    if (request->terminal && !environment_has(environment, "TERM"))
        environment_set(environment, "TERM", "xterm-256color");
    environment_set(environment, "SANDGLASS_SESSION_ID", session_id(session));
    environment_set(environment, "SANDGLASS_EXECUTION_ID", execution_id);
    return 0;
}
