/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/redact.h"

#include "base/macros.h"
#include "base/mask.h"
#include "wire/json.h"

#include <stdlib.h>
#include <string.h>

enum {
    BODY_MAXIMUM = 16 * 1024,
    WRITTEN_MAXIMUM = 256 * 1024, /* a body with more text is not even written to be measured */
};

static const char *const secret_words[] = { "token", "secret", "passw", "credential",
                                            "authorization" };
static const char *const environments[] = { "env", "envs", "environment" };
static const char *const code_fields[] = { "argv", "code",     "command", "content",  "edits",
                                           "new",  "new_text", "old",     "old_text", "stdin" };

static bool is_one_of(const char *name, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(words[i], name) == 0)
            return true;
    return false;
}

static bool is_secret(const char *name, bool is_variable)
{
    for (size_t i = 0; i < ARRAY_LENGTH(secret_words); i++)
        if (strcasestr(name, secret_words[i]))
            return true;
    return strcasestr(name, is_variable ? "key" : "api_key") != NULL;
}

static json_t *redacted_variables(const json_t *variables, bool all)
{
    json_t *copy = json_object();
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)variables, name, value) json_object_set_new(
        copy, name, all || is_secret(name, true) ? json_string(MASK_TEXT) : json_incref(value));
    return copy;
}

static json_t *redacted(const char *name, json_t *value, bool with_code)
{
    bool is_secrets = strcmp(name, "secrets") == 0;
    bool is_environment = is_one_of(name, environments, ARRAY_LENGTH(environments));

    if ((is_environment || is_secrets) && json_is_object(value))
        return redacted_variables(value, is_secrets);
    if (is_secret(name, false))
        return json_string(MASK_TEXT);
    if (!with_code && is_one_of(name, code_fields, ARRAY_LENGTH(code_fields)))
        return json_string("[left out]");
    return json_incref(value);
}

static size_t text_length(const json_t *value)
{
    size_t length = json_string_length(value);
    const char *name;
    json_t *member;
    size_t i;

    json_object_foreach((json_t *)value, name, member) length += text_length(member);
    json_array_foreach(value, i, member) length += text_length(member);
    return length;
}

void redact_body(const json_t *body, const struct mask *secrets, bool with_code, struct buffer *out)
{
    scoped(json_decref) json_t *copy = json_object();
    scoped(json_decref) json_t *shown = NULL;
    scoped(free) char *text = NULL;
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)body, name, value)
        json_object_set_new(copy, name, redacted(name, value, with_code));
    if (text_length(copy) > WRITTEN_MAXIMUM) {
        buffer_appendf(out, "{\"bytes\":%zu}", text_length(copy));
        return;
    }
    shown = mask_is_empty(secrets) ? json_incref(copy) : json_masked(copy, secrets);
    text = json_dumps(shown, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (text && strlen(text) <= BODY_MAXIMUM)
        buffer_append_text(out, text);
    else
        buffer_appendf(out, "{\"bytes\":%zu}", text ? strlen(text) : 0);
}
