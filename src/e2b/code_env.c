/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/str.h"
#include "e2b/code.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* A JSON object of texts is a literal of Python and of JavaScript. */
static const char python_set[] =
    "__import__('builtins').__dict__.__setitem__('__sandglass_env__', "
    "{k: __import__('os').environ.get(k) for k in %s}) or __import__('os').environ.update(%s)";
static const char python_restore[] =
    "[__import__('os').environ.pop(k, None) if v is None else "
    "__import__('os').environ.__setitem__(k, v) for k, v in "
    "__import__('builtins').__dict__.pop('__sandglass_env__', {}).items()] and None";
static const char javascript_set[] =
    "globalThis.__sandglass_env = Object.fromEntries(Object.keys(%s).map((k) => "
    "[k, process.env[k]])); Object.assign(process.env, %s); undefined";
static const char javascript_restore[] =
    "for (const [k, v] of Object.entries(globalThis.__sandglass_env || {})) { if (v === undefined) "
    "delete process.env[k]; else process.env[k] = v; } delete globalThis.__sandglass_env; "
    "undefined";

static bool is_shell_name(const char *name)
{
    if (!*name || isdigit((unsigned char)*name))
        return false;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && *name != '_')
            return false;
    return true;
}

static void append_quoted(struct buffer *text, const char *value)
{
    buffer_append_byte(text, '\'');
    for (; *value; value++) {
        if (*value == '\'')
            buffer_append_text(text, "'\\''");
        else
            buffer_append_byte(text, (uint8_t)*value);
    }
    buffer_append_byte(text, '\'');
}

static int shell_code(const json_t *variables, char **out_set, char **out_restore,
                      struct error *err)
{
    scoped(buffer_fini) struct buffer set = BUFFER_INIT(E2B_ENV_MAXIMUM * 8);
    scoped(buffer_fini) struct buffer restore = BUFFER_INIT(E2B_ENV_MAXIMUM * 8);
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)variables, name, value)
    {
        if (!is_shell_name(name))
            return error_named(err, ERR_INVALID, "invalid_field",
                               "env_vars: \"%.64s\" cannot be a variable of bash", name);
        buffer_appendf(&set,
                       "__sandglass_had_%s=${%s+x} __sandglass_old_%s=${%s-}; export %s=", name,
                       name, name, name, name);
        append_quoted(&set, json_string_value(value));
        buffer_append_text(&set, "\n");
        buffer_appendf(&restore,
                       "if [ -n \"$__sandglass_had_%s\" ]; then export %s=\"$__sandglass_old_%s\"; "
                       "else unset %s; fi; unset __sandglass_had_%s __sandglass_old_%s\n",
                       name, name, name, name, name, name);
    }
    if (set.overflowed || restore.overflowed)
        return error_named(err, ERR_TOO_LARGE, "env_too_large", "env_vars is too large");
    *out_set = buffer_steal_text(&set);
    *out_restore = buffer_steal_text(&restore);
    return 0;
}

static char *fill(const char *pattern, const char *object)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(SIZE_MAX / 2);
    const char *place;

    while ((place = strstr(pattern, "%s"))) {
        buffer_append(&text, pattern, (size_t)(place - pattern));
        buffer_append_text(&text, object);
        pattern = place + 2;
    }
    buffer_append_text(&text, pattern);
    return buffer_steal_text(&text);
}

int e2b_env_code(const char *language, const json_t *variables, char **out_set, char **out_restore,
                 struct error *err)
{
    bool is_python = str_equal(language, "python");
    scoped(free) char *object = json_dumps(variables, JSON_COMPACT);

    if (str_equal(language, "bash"))
        return shell_code(variables, out_set, out_restore, err);
    if (!object || strlen(object) > E2B_ENV_MAXIMUM)
        return error_named(err, ERR_TOO_LARGE, "env_too_large", "env_vars is larger than %d bytes",
                           E2B_ENV_MAXIMUM);
    *out_set = fill(is_python ? python_set : javascript_set, object);
    *out_restore = xstrdup(is_python ? python_restore : javascript_restore);
    return 0;
}
