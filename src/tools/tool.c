/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/tool.h"

#include "base/str.h"
#include "tools/work.h"

#include <string.h>

static const struct tool *const table[] = {
    &tool_bash,           &tool_python,         &tool_read,
    &tool_write,          &tool_edit,           &tool_ls,
    &tool_glob,           &tool_grep,           &tool_upload,
    &tool_download,       &tool_sandbox_create, &tool_sandbox_status,
    &tool_execute_python, &tool_manage_session,
};

const struct tool *tool_at(size_t place)
{
    return place < ARRAY_LENGTH(table) ? table[place] : NULL;
}

const struct tool *tool_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LENGTH(table); i++) {
        if (str_equal(table[i]->name, name))
            return table[i];
    }
    return NULL;
}

/* --- as a schema ----------------------------------------------------------------------------- */

static const char *const kind_names[] = {
    [TOOL_TEXT] = "string",
    [TOOL_INTEGER] = "integer",
    [TOOL_BOOLEAN] = "boolean",
};

static void write_argument(const struct tool_argument *argument, struct json_writer *json)
{
    json_begin_object(json, argument->name);
    json_put_text(json, "type", kind_names[argument->kind]);
    json_put_text(json, "description", argument->description);
    if (argument->choices) {
        json_begin_array(json, "enum");
        for (const char *const *choice = argument->choices; *choice; choice++)
            json_put_text(json, NULL, *choice);
        json_end_array(json);
    }
    if (argument->maximum > argument->minimum) {
        json_put_int(json, "minimum", argument->minimum);
        json_put_int(json, "maximum", argument->maximum);
    }
    if (argument->fallback && argument->kind == TOOL_TEXT)
        json_put_text(json, "default", argument->fallback);
    else if (argument->fallback)
        json_put_raw(json, "default", argument->fallback);
    json_end_object(json);
}

static void write_required(const struct tool_argument *argument, struct json_writer *json)
{
    for (; argument->name; argument++) {
        if (argument->required)
            json_put_text(json, NULL, argument->name);
    }
}

static bool has_argument(const struct tool *tool, const char *name)
{
    const struct tool_argument *argument = tool->arguments;

    while (argument->name && strcmp(argument->name, name) != 0)
        argument++;
    return argument->name;
}

void tool_write_schema(const struct tool *tool, const struct tool_argument *more,
                       struct json_writer *json, const char *key)
{
    const struct tool_argument *argument;

    json_begin_object(json, key);
    json_put_text(json, "type", "object");
    json_begin_object(json, "properties");
    for (argument = tool->arguments; argument->name; argument++)
        write_argument(argument, json);
    for (argument = more; argument && argument->name; argument++) {
        if (!has_argument(tool, argument->name))
            write_argument(argument, json);
    }
    json_end_object(json);
    json_begin_array(json, "required");
    write_required(tool->arguments, json);
    json_end_array(json);
    json_put_bool(json, "additionalProperties", false);
    json_end_object(json);
}

void tool_write_json(const struct tool *tool, struct json_writer *json, const char *key)
{
    json_begin_object(json, key);
    json_put_text(json, "name", tool->name);
    json_put_text(json, "title", tool->title);
    json_put_text(json, "description", tool->description);
    json_begin_object(json, "annotations");
    json_put_bool(json, "read_only", tool->is_read_only);
    json_put_bool(json, "destructive", tool->is_destructive);
    json_put_bool(json, "idempotent", tool->is_idempotent);
    json_put_bool(json, "open_world", tool->is_open_world);
    json_end_object(json);
    json_put_bool(json, "needs_session", tool->needs_session);
    tool_write_schema(tool, NULL, json, "input_schema");
    json_end_object(json);
}

/* --- checks ---------------------------------------------------------------------------------- */

static const struct tool_argument *find_argument(const struct tool *tool, const char *name)
{
    const struct tool_argument *argument;

    for (argument = tool->arguments; argument->name; argument++) {
        if (strcmp(argument->name, name) == 0 || str_equal(argument->old_name, name))
            return argument;
    }
    return NULL;
}

/* Under its name, or under its old one; NULL: not given. */
static const json_t *find_value(const struct tool_argument *argument, const json_t *arguments)
{
    const json_t *value = json_object_get(arguments, argument->name);

    if ((!value || json_is_null(value)) && argument->old_name)
        value = json_object_get(arguments, argument->old_name);
    return json_is_null(value) ? NULL : value;
}

static int fail_unknown(const struct tool *tool, const char *name, struct error *err)
{
    scoped(buffer_fini) struct buffer names = BUFFER_INIT(sizeof(err->hint));
    const struct tool_argument *argument;

    for (argument = tool->arguments; argument->name; argument++)
        (void)buffer_appendf(&names, "%s%s", names.length ? ", " : "", argument->name);
    error_named(err, ERR_INVALID, "unknown_field", "%s has no argument \"%.60s\"", tool->name,
                name);
    return names.length ? error_hint(err, "it takes %s", buffer_text(&names))
                        : error_hint(err, "it takes none");
}

static int fail_choice(const struct tool_argument *argument, const char *value, struct error *err)
{
    scoped(buffer_fini) struct buffer names = BUFFER_INIT(sizeof(err->hint));

    for (const char *const *choice = argument->choices; *choice; choice++)
        (void)buffer_appendf(&names, "%s%s", names.length ? ", " : "", *choice);
    error_named(err, ERR_INVALID, "invalid_field", "%s cannot be \"%.60s\"", argument->name, value);
    return error_hint(err, "it is one of %s", buffer_text(&names));
}

static int check_text(const struct tool_argument *argument, const json_t *value, struct error *err)
{
    const char *text = json_string_value(value);

    if (argument->max_length && json_string_length(value) > argument->max_length)
        return error_named(err, ERR_TOO_LARGE, "field_too_large", "%s is longer than %zu bytes",
                           argument->name, argument->max_length);
    if (argument->required && !argument->may_be_empty && !*text)
        return error_named(err, ERR_INVALID, "invalid_field", "%s must not be empty",
                           argument->name);
    for (const char *const *choice = argument->choices; choice && *choice; choice++) {
        if (strcmp(*choice, text) == 0)
            return 0;
    }
    return argument->choices ? fail_choice(argument, text, err) : 0;
}

static int check_integer(const struct tool_argument *argument, const json_t *value,
                         struct error *err)
{
    json_int_t number = json_integer_value(value);

    if (argument->maximum <= argument->minimum ||
        (number >= argument->minimum && number <= argument->maximum))
        return 0;
    return error_named(err, ERR_INVALID, "invalid_field", "%s must be between %lld and %lld",
                       argument->name, (long long)argument->minimum, (long long)argument->maximum);
}

static int check_value(const struct tool_argument *argument, const json_t *value, struct error *err)
{
    if (argument->kind == TOOL_TEXT && json_is_string(value))
        return check_text(argument, value, err);
    if (argument->kind == TOOL_INTEGER && json_is_integer(value))
        return check_integer(argument, value, err);
    if (argument->kind == TOOL_BOOLEAN && json_is_boolean(value))
        return 0;
    return error_named(err, ERR_INVALID, "invalid_field", "%s must be %s", argument->name,
                       argument->kind == TOOL_TEXT      ? "a string"
                       : argument->kind == TOOL_INTEGER ? "a whole number"
                                                        : "true or false");
}

int tool_check(const struct tool *tool, const json_t *arguments, struct error *err)
{
    const struct tool_argument *argument;
    const char *name;
    json_t *value;

    if (arguments && !json_is_object(arguments))
        return error_named(err, ERR_INVALID, "invalid_body", "the arguments must be an object");
    json_object_foreach((json_t *)arguments, name, value)
    {
        argument = find_argument(tool, name);
        if (!argument)
            return fail_unknown(tool, name, err);
        if (!json_is_null(value) && check_value(argument, value, err) < 0)
            return -1;
    }
    for (argument = tool->arguments; argument->name; argument++) {
        if (argument->required && !find_value(argument, arguments))
            return error_named(err, ERR_INVALID, "missing_field", "%s is missing", argument->name);
    }
    return 0;
}

/* --- what a call was given ------------------------------------------------------------------- */

static const json_t *given(const struct tool_call *call, const char *name)
{
    return find_value(find_argument(call->tool, name), call->arguments);
}

const char *tool_text(const struct tool_call *call, const char *name)
{
    const json_t *value = given(call, name);

    return value ? json_string_value(value) : find_argument(call->tool, name)->fallback;
}

int64_t tool_integer(const struct tool_call *call, const char *name)
{
    const char *fallback = find_argument(call->tool, name)->fallback;
    const json_t *value = given(call, name);

    if (value)
        return json_integer_value(value);
    return fallback ? strtoll(fallback, NULL, 10) : 0;
}

bool tool_boolean(const struct tool_call *call, const char *name)
{
    const json_t *value = given(call, name);

    return value ? json_is_true(value)
                 : str_equal(find_argument(call->tool, name)->fallback, "true");
}
