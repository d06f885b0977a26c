/* SPDX-License-Identifier: Apache-2.0 */
#include "core/secrets.h"

#include "base/alloc.h"
#include "base/mask.h"
#include "core/vault.h"
#include "wire/json.h"

#include <stdlib.h>
#include <string.h>

/* Of the values that are only masked; beyond that the oldest are dropped. */
enum { KNOWN_MAXIMUM = 128 * 1024, KNOWN_COUNT = 256 };

static void wipe(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

static json_t *read_object(const char *json)
{
    return json ? json_read(json, strlen(json), NULL) : NULL;
}

static json_t *read_list(const char *json)
{
    json_t *list = json ? json_loads(json, 0, NULL) : NULL;

    return list ? list : json_array();
}

/* --- values to mask -------------------------------------------------------------------------- */

static void mask_values(struct mask *mask, const char *json)
{
    scoped(json_decref) json_t *object = read_object(json);
    const char *name;
    json_t *value;

    json_object_foreach(object, name, value)
        mask_add(mask, json_string_value(value), json_string_length(value));
}

static void mask_list(struct mask *mask, const char *json)
{
    scoped(json_decref) json_t *list = read_list(json);
    json_t *value;
    size_t i;

    json_array_foreach(list, i, value)
        mask_add(mask, json_string_value(value), json_string_length(value));
}

static bool list_has(const json_t *list, const json_t *wanted)
{
    json_t *value;
    size_t i;

    json_array_foreach(list, i, value)
    {
        if (json_equal(value, wanted))
            return true;
    }
    return false;
}

static char *list_text(json_t *list)
{
    char *text = json_dumps(list, JSON_COMPACT);

    while (text && json_array_size(list) > 0 &&
           (strlen(text) > KNOWN_MAXIMUM || json_array_size(list) > KNOWN_COUNT)) {
        wipe(text);
        json_array_remove(list, 0);
        text = json_dumps(list, JSON_COMPACT);
    }
    return text;
}

/* A reader that still masks with the mask before has a reference to it. */
static void make_mask(struct secrets *secrets)
{
    mask_free(secrets->mask);
    secrets->mask = mask_new();
    mask_values(secrets->mask, secrets->json);
    mask_list(secrets->mask, secrets->known);
}

void secrets_learn(struct secrets *secrets, const char *json)
{
    scoped(json_decref) json_t *object = read_object(json);
    scoped(json_decref) json_t *list = read_list(secrets->known);
    const char *name;
    json_t *value;

    json_object_foreach(object, name, value)
    {
        if (json_string_length(value) >= MASK_SHORTEST && !list_has(list, value))
            json_array_append(list, value);
    }
    wipe(secrets->known);
    secrets->known = list_text(list);
    make_mask(secrets);
}

/* --- life ------------------------------------------------------------------------------------ */

struct secrets *secrets_new(const char *json)
{
    struct secrets *secrets = xnew(struct secrets);

    secrets->json = xstrdup(json ? json : "{}");
    make_mask(secrets);
    return secrets;
}

void secrets_free(struct secrets *secrets)
{
    if (!secrets)
        return;
    wipe(secrets->json);
    wipe(secrets->known);
    free(secrets->sealed);
    mask_free(secrets->mask);
    free(secrets);
}

void secrets_replace(struct secrets *secrets, const char *json)
{
    secrets_learn(secrets, secrets->json);
    wipe(secrets->json);
    secrets->json = xstrdup(json);
    make_mask(secrets);
}

/* --- sealing --------------------------------------------------------------------------------- */

void secrets_seal(struct secrets *secrets, struct vault *vault, const char *owner)
{
    char *text = xasprintf("{\"env\":%s,\"known\":%s}", secrets->json,
                           secrets->known ? secrets->known : "[]");

    free(secrets->sealed);
    secrets->sealed = vault_seal(vault, owner, text);
    wipe(text);
}

static struct secrets *take_document(const json_t *document)
{
    json_t *env = json_object_get(document, "env");
    json_t *known = json_object_get(document, "known");
    char *json = json_is_object(env) ? json_dumps(env, JSON_COMPACT) : NULL;
    struct secrets *secrets = json ? secrets_new(json) : NULL;

    wipe(json);
    if (secrets && json_array_size(known) > 0) {
        secrets->known = json_dumps(known, JSON_COMPACT);
        make_mask(secrets);
    }
    return secrets;
}

struct secrets *secrets_unseal(struct vault *vault, const char *owner, const char *sealed,
                               struct error *err)
{
    scoped(json_decref) json_t *document = NULL;
    struct secrets *secrets;
    char *text;

    if (vault_open(vault, err) < 0)
        return NULL;
    text = vault_unseal(vault, owner, sealed, err);
    if (!text)
        return NULL;
    document = read_object(text);
    wipe(text);
    secrets = take_document(document);
    if (!secrets)
        error_set(err, ERR_INTERNAL, "the sealed fields of the record are damaged");
    else
        secrets->sealed = xstrdup(sealed);
    return secrets;
}

/* --- showing --------------------------------------------------------------------------------- */

struct mask *secrets_join(const struct secrets *secrets, const char *more_json)
{
    struct mask *mask;

    if (!more_json)
        return secrets ? mask_ref(secrets->mask) : NULL;
    mask = mask_new();
    if (secrets) {
        mask_values(mask, secrets->json);
        mask_list(mask, secrets->known);
    }
    mask_values(mask, more_json);
    return mask;
}

void secrets_write_names(const char *json, struct json_writer *writer)
{
    scoped(json_decref) json_t *object = read_object(json);
    const char *name;
    json_t *value;

    json_object_foreach(object, name, value) json_put_text(writer, NULL, name);
}
