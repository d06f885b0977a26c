/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/json.h"

#include "base/mask.h"

#include <string.h>

static json_t *masked_list(const json_t *list, const struct mask *secrets)
{
    json_t *copy = json_array();
    json_t *item;
    size_t i;

    json_array_foreach(list, i, item) json_array_append_new(copy, json_masked(item, secrets));
    return copy;
}

static json_t *masked_object(const json_t *object, const struct mask *secrets)
{
    json_t *copy = json_object();
    const char *name;
    json_t *item;

    json_object_foreach((json_t *)object, name, item)
    {
        scoped(free) char *known = mask_text(secrets, name);

        json_object_set_new(copy, known, json_masked(item, secrets));
    }
    return copy;
}

json_t *json_masked(const json_t *value, const struct mask *secrets)
{
    if (json_is_string(value)) {
        scoped(free) char *text = mask_text(secrets, json_string_value(value));

        return json_string(text);
    }
    if (json_is_array(value))
        return masked_list(value, secrets);
    return json_is_object(value) ? masked_object(value, secrets) : json_incref((json_t *)value);
}

char *json_masked_text(const char *text, const struct mask *secrets)
{
    scoped(json_decref) json_t *value = json_read(text, strlen(text), NULL);
    scoped(json_decref) json_t *masked = value ? json_masked(value, secrets) : NULL;

    return masked ? json_dumps(masked, JSON_COMPACT) : NULL;
}
