#include "core/secrets.h"

#include "base/alloc.h"
#include "base/mask.h"
#include "core/vault.h"
#include "wire/json.h"

#include <stdlib.h>
#include <string.h>

static json_t *read_object(const char *json)
{
    return json ? json_read(json, strlen(json), NULL) : NULL;
}

static void add_values(struct mask *mask, const char *json)
{
    scoped(json_decref) json_t *object = read_object(json);
    const char *name;
    json_t *value;

    json_object_foreach(object, name, value)
        mask_add(mask, json_string_value(value), json_string_length(value));
}

struct secrets *secrets_new(const char *json)
{
    scoped(json_decref) json_t *object = read_object(json);
    struct secrets *secrets;

    if (json_object_size(object) == 0)
        return NULL;
    secrets = xnew(struct secrets);
    secrets->json = xstrdup(json);
    secrets->mask = mask_new();
    add_values(secrets->mask, json);
    return secrets;
}

void secrets_free(struct secrets *secrets)
{
    if (!secrets)
        return;
    explicit_bzero(secrets->json, strlen(secrets->json));
    free(secrets->json);
    free(secrets->sealed);
    mask_free(secrets->mask);
    free(secrets);
}

void secrets_seal(struct secrets *secrets, struct vault *vault, const char *owner)
{
    free(secrets->sealed);
    secrets->sealed = vault_seal(vault, owner, secrets->json);
}

struct secrets *secrets_unseal(struct vault *vault, const char *owner, const char *sealed,
                               struct error *err)
{
    scoped(free) char *json = NULL;
    struct secrets *secrets;

    if (vault_open(vault, err) < 0)
        return NULL;
    json = vault_unseal(vault, owner, sealed, err);
    if (!json)
        return NULL;
    secrets = secrets_new(json);
    explicit_bzero(json, strlen(json));
    if (!secrets)
        error_set(err, ERR_INTERNAL, "what is sealed in the record is damaged");
    else
        secrets->sealed = xstrdup(sealed);
    return secrets;
}

struct mask *secrets_join(const struct secrets *secrets, const char *more_json)
{
    struct mask *mask;

    if (!secrets && !more_json)
        return NULL;
    mask = mask_new();
    if (secrets)
        add_values(mask, secrets->json);
    add_values(mask, more_json);
    return mask;
}

void secrets_write_names(const char *json, struct json_writer *writer, const char *key)
{
    scoped(json_decref) json_t *object = read_object(json);
    const char *name;
    json_t *value;

    if (json_object_size(object) == 0)
        return;
    json_begin_array(writer, key);
    json_object_foreach(object, name, value) json_put_text(writer, NULL, name);
    json_end_array(writer);
}
