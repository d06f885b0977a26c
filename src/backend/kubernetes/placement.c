/* SPDX-License-Identifier: Apache-2.0 */
/* Where pods run: kubernetes.node_selector and kubernetes.tolerations. */

#include "backend/kubernetes/kubernetes_private.h"

#include "base/alloc.h"
#include "base/macros.h"
#include "base/str.h"
#include "config/config.h"
#include "wire/json.h"

#include <string.h>

enum { NAME_MAXIMUM = 63, PREFIX_MAXIMUM = 253 };

static const char *const effects[] = { "NoSchedule", "PreferNoSchedule", "NoExecute" };

/* --- names of Kubernetes ---------------------------------------------------------------------- */

static bool is_alphanumeric(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* A label's value, or a key without its prefix. */
static bool is_name(const char *text, size_t length)
{
    if (!length || length > NAME_MAXIMUM || !is_alphanumeric(text[0]) ||
        !is_alphanumeric(text[length - 1]))
        return false;
    for (size_t i = 0; i < length; i++)
        if (!is_alphanumeric(text[i]) && !strchr("-_.", text[i]))
            return false;
    return true;
}

static bool is_prefix(const char *text, size_t length)
{
    return length && length <= PREFIX_MAXIMUM &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789.-") >= length;
}

static bool is_key(const char *text, size_t length)
{
    const char *slash = memchr(text, '/', length);
    size_t prefix = slash ? (size_t)(slash - text) : 0;

    if (!slash)
        return is_name(text, length);
    return is_prefix(text, prefix) && is_name(slash + 1, length - prefix - 1);
}

/* --- selectors -------------------------------------------------------------------------------- */

static int check_selector(const char *text, struct error *err)
{
    const char *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : 0;

    if (equals && is_key(text, length) && (!equals[1] || is_name(equals + 1, strlen(equals + 1))))
        return 0;
    error_set(err, ERR_INVALID, "kubernetes.node_selector: \"%.100s\" is not KEY=VALUE", text);
    return error_hint(err, "name labels of nodes, such as kubernetes.io/arch=amd64");
}

static void put_selectors(const struct config_list *list, struct json_writer *json)
{
    if (!list->count)
        return;
    json_begin_object(json, "nodeSelector");
    for (size_t i = 0; i < list->count; i++) {
        const char *equals = strchr(list->items[i], '=');
        scoped(free) char *key = xstrndup(list->items[i], (size_t)(equals - list->items[i]));

        json_put_text(json, key, equals + 1);
    }
    json_end_object(json);
}

/* --- tolerations ------------------------------------------------------------------------------ */

/* KEY[=VALUE][:EFFECT], as 'kubectl taint' writes taints. */
struct toleration {
    char *key;          /* owned */
    char *value;        /* owned; NULL: any */
    const char *effect; /* NULL: all */
};

static void toleration_fini(struct toleration *toleration)
{
    free(toleration->key);
    free(toleration->value);
}

static bool toleration_read(const char *text, struct toleration *out)
{
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : strlen(text);
    const char *equals = memchr(text, '=', length);
    size_t key = equals ? (size_t)(equals - text) : length;

    *out = (struct toleration){ 0 };
    for (size_t i = 0; colon && i < ARRAY_LENGTH(effects); i++)
        if (str_equal(colon + 1, effects[i]))
            out->effect = effects[i];
    if ((colon && !out->effect) || !is_key(text, key) ||
        (equals && length - key > 1 && !is_name(equals + 1, length - key - 1)))
        return false;
    out->key = xstrndup(text, key);
    out->value = equals ? xstrndup(equals + 1, length - key - 1) : NULL;
    return true;
}

static int check_toleration(const char *text, struct error *err)
{
    struct toleration toleration;

    if (toleration_read(text, &toleration)) {
        toleration_fini(&toleration);
        return 0;
    }
    error_set(err, ERR_INVALID, "kubernetes.tolerations: \"%.100s\" is not KEY[=VALUE][:EFFECT]",
              text);
    return error_hint(err, "the effects are NoSchedule, PreferNoSchedule and NoExecute");
}

static void put_toleration(const char *text, struct json_writer *json)
{
    struct toleration toleration;

    if (!toleration_read(text, &toleration))
        return;
    json_begin_object(json, NULL);
    json_put_text(json, "key", toleration.key);
    json_put_text(json, "operator", toleration.value ? "Equal" : "Exists");
    if (toleration.value)
        json_put_text(json, "value", toleration.value);
    if (toleration.effect)
        json_put_text(json, "effect", toleration.effect);
    json_end_object(json);
    toleration_fini(&toleration);
}

/* --- all of it -------------------------------------------------------------------------------- */

void placement_put(const struct config *config, struct json_writer *json)
{
    const struct config_list *tolerations = &config->kubernetes.tolerations;

    put_selectors(&config->kubernetes.node_selector, json);
    if (!tolerations->count)
        return;
    json_begin_array(json, "tolerations");
    for (size_t i = 0; i < tolerations->count; i++)
        put_toleration(tolerations->items[i], json);
    json_end_array(json);
}

static int check_plain(const char *key, const char *text, struct error *err)
{
    if (str_is_empty(text) || is_prefix(text, strlen(text)))
        return 0;
    return error_set(err, ERR_INVALID, "%s: \"%.100s\" is not the name of an object", key, text);
}

int placement_check(const struct config *config, struct error *err)
{
    const struct config_list *selectors = &config->kubernetes.node_selector;
    const struct config_list *tolerations = &config->kubernetes.tolerations;
    const char *gpus = config->kubernetes.gpu_resource;

    for (size_t i = 0; i < selectors->count; i++)
        if (check_selector(selectors->items[i], err) < 0)
            return -1;
    for (size_t i = 0; i < tolerations->count; i++)
        if (check_toleration(tolerations->items[i], err) < 0)
            return -1;
    for (size_t i = 0; i < config->kubernetes.pull_secrets.count; i++)
        if (check_plain("kubernetes.pull_secrets", config->kubernetes.pull_secrets.items[i], err) <
            0)
            return -1;
    if (!is_key(gpus, strlen(gpus)) || !strchr(gpus, '/'))
        return error_set(err, ERR_INVALID, "kubernetes.gpu_resource: \"%.100s\" is not DOMAIN/NAME",
                         gpus);
    if (check_plain("kubernetes.namespace", config->kubernetes.namespace, err) < 0)
        return -1;
    return check_plain("kubernetes.runtime_class", config->kubernetes.runtime_class, err);
}
