/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/macros.h"
#include "base/str.h"
#include "config/settings.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { VALUE_MAXIMUM = 64 * 1024 };

struct reader {
    struct config *config; /* borrowed */
    const char *name;      /* borrowed */
    yaml_parser_t parser;
    yaml_event_t event; /* the current one */
    size_t line;        /* of the current one, counted from 1 */
};

static int read_event(struct reader *reader, struct error *err)
{
    yaml_event_delete(&reader->event);
    if (!yaml_parser_parse(&reader->parser, &reader->event)) {
        reader->line = reader->parser.problem_mark.line + 1;
        return error_set(err, ERR_INVALID, "not valid YAML: %s",
                         reader->parser.problem ? reader->parser.problem : "unreadable");
    }
    reader->line = reader->event.start_mark.line + 1;
    if (reader->event.type == YAML_ALIAS_EVENT)
        return error_set(err, ERR_INVALID, "aliases are not supported");
    return 0;
}

static const char *scalar_text(const struct reader *reader)
{
    return (const char *)reader->event.data.scalar.value;
}

static bool scalar_is_null(const struct reader *reader)
{
    const char *text = scalar_text(reader);

    return reader->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!*text || strcmp(text, "~") == 0 || strcasecmp(text, "null") == 0);
}

static int check_scalar(const struct reader *reader, struct error *err)
{
    if (reader->event.type != YAML_SCALAR_EVENT)
        return error_set(err, ERR_INVALID, "must be one value, not a list or a mapping");
    if (strlen(scalar_text(reader)) != reader->event.data.scalar.length)
        return error_set(err, ERR_INVALID, "contains a NUL");
    if (scalar_is_null(reader))
        return error_set(err, ERR_INVALID, "has no value; leave it out to get the default");
    return 0;
}

/* One ${NAME} or ${NAME:-text} at `text`. Returns what follows it, NULL with an error. */
static const char *expand_one(const char *text, struct buffer *out, struct error *err)
{
    const char *end = strchr(text, '}');
    size_t name_length = strcspn(text + 2, ":}");
    scoped(free) char *name = xstrndup(text + 2, name_length);
    const char *rest = text + 2 + name_length;
    const char *value;

    if (!end || !setting_is_variable_name(name, name_length) || (*rest == ':' && rest[1] != '-')) {
        error_set(err, ERR_INVALID, "\"%.40s\" is not ${NAME} or ${NAME:-text}; write $$ for $",
                  text);
        return NULL;
    }
    value = getenv(name);
    if (*rest == '}' && !value) {
        error_set(err, ERR_INVALID,
                  "the variable %.100s is not set; give it a default: ${%.100s:-}", name, name);
        return NULL;
    }
    if (*rest == ':' && (!value || !*value))
        buffer_append(out, rest + 2, (size_t)(end - rest - 2));
    else
        buffer_append_text(out, value);
    return end + 1;
}

/* The text with its variables replaced, allocated; NULL with an error. */
static char *expand(const char *text, struct error *err)
{
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(VALUE_MAXIMUM);

    while (*text) {
        if (text[0] == '$' && text[1] == '{') {
            text = expand_one(text, &out, err);
            if (!text)
                return NULL;
            continue;
        }
        if (text[0] == '$' && text[1] == '$')
            text++;
        buffer_append_byte(&out, (uint8_t)*text++);
    }
    if (out.overflowed) {
        error_set(err, ERR_INVALID, "is longer than %d bytes", VALUE_MAXIMUM);
        return NULL;
    }
    return buffer_steal_text(&out);
}

static char *read_text(const struct reader *reader, struct error *err)
{
    return check_scalar(reader, err) < 0 ? NULL : expand(scalar_text(reader), err);
}

static int read_scalar(struct reader *reader, const struct setting *row, void *base,
                       struct error *err)
{
    scoped(free) char *text = read_text(reader, err);

    return text ? setting_assign(row, base, text, err) : -1;
}

/* Each item as it stands; a single value is split as on the command line. */
static int read_list(struct reader *reader, const struct setting *setting, void *base,
                     struct error *err)
{
    struct config_list *list = setting_field(setting, base);

    if (reader->event.type != YAML_SEQUENCE_START_EVENT)
        return read_scalar(reader, setting, base, err);
    setting_release(setting, base);
    for (;;) {
        scoped(free) char *text = NULL;

        if (read_event(reader, err) < 0)
            return -1;
        if (reader->event.type == YAML_SEQUENCE_END_EVENT)
            return 0;
        text = read_text(reader, err);
        if (!text)
            return -1;
        if (setting_list_append(setting, list, text, err) < 0)
            return -1;
    }
}

static char *read_variable_value(const struct reader *reader, struct error *err)
{
    const char *text = reader->event.type == YAML_SCALAR_EVENT ? scalar_text(reader) : "";

    if (text[0] == '$' && setting_is_variable_name(text + 1, strlen(text + 1)))
        return setting_variable_value(text, err);
    return read_text(reader, err);
}

static int read_variable(struct reader *reader, struct config_map *map, struct error *err)
{
    scoped(free) char *name = NULL;
    scoped(free) char *value = NULL;

    if (check_scalar(reader, err) < 0)
        return -1;
    name = xstrdup(scalar_text(reader));
    if (read_event(reader, err) < 0)
        return -1;
    value = read_variable_value(reader, err);
    if (!value)
        return error_wrap(err, "%.100s", name);
    return setting_map_put(map, name, value, err);
}

static int read_map(struct reader *reader, const struct setting *setting, struct error *err)
{
    if (reader->event.type != YAML_MAPPING_START_EVENT)
        return error_set(err, ERR_INVALID, "must be a mapping of names to values");
    setting_release(setting, reader->config);
    for (;;) {
        if (read_event(reader, err) < 0)
            return -1;
        if (reader->event.type == YAML_MAPPING_END_EVENT)
            return 0;
        if (read_variable(reader, setting_field(setting, reader->config), err) < 0)
            return -1;
    }
}

static bool rows_have_group(const struct setting *rows, const char *key)
{
    size_t length = strlen(key);

    for (const struct setting *row = rows; row->key; row++)
        if (str_starts_with(row->key, key) && row->key[length] == '.')
            return true;
    return false;
}

struct item {
    const struct setting *rows;
    void *base;
    uint64_t seen; /* a bit for each row */
};

static int read_item_fields(struct reader *reader, struct item *item, const char *prefix,
                            struct error *err);

static int read_item_group(struct reader *reader, struct item *item, const char *key,
                           struct error *err)
{
    if (read_event(reader, err) < 0)
        return -1;
    if (reader->event.type != YAML_MAPPING_START_EVENT)
        return error_set(err, ERR_INVALID, "\"%.100s\" is a group of settings, not a value", key);
    return read_item_fields(reader, item, key, err);
}

static int read_item_value(struct reader *reader, const struct setting *row, void *base,
                           struct error *err)
{
    return row->type == SETTING_LIST ? read_list(reader, row, base, err)
                                     : read_scalar(reader, row, base, err);
}

static int read_item_field(struct reader *reader, struct item *item, const char *prefix,
                           struct error *err)
{
    const struct setting *row;
    scoped(free) char *key = NULL;
    uint64_t bit;

    if (check_scalar(reader, err) < 0)
        return -1;
    key = xasprintf("%s%s%s", prefix, *prefix ? "." : "", scalar_text(reader));
    row = setting_find(item->rows, key);
    if (!row && rows_have_group(item->rows, key))
        return read_item_group(reader, item, key, err);
    if (!row)
        return setting_refuse_key(item->rows, key, err);
    bit = UINT64_C(1) << (row - item->rows);
    if (item->seen & bit)
        return error_set(err, ERR_INVALID, "\"%s\" is set twice", row->key);
    item->seen |= bit;
    if (read_event(reader, err) < 0 || read_item_value(reader, row, item->base, err) < 0)
        return error_wrap(err, "%s", row->key);
    return 0;
}

/* Until the end of the mapping. */
static int read_item_fields(struct reader *reader, struct item *item, const char *prefix,
                            struct error *err)
{
    for (;;) {
        if (read_event(reader, err) < 0)
            return -1;
        if (reader->event.type == YAML_MAPPING_END_EVENT)
            return 0;
        if (read_item_field(reader, item, prefix, err) < 0)
            return -1;
    }
}

static int read_item(struct reader *reader, const struct setting *rows, void *base,
                     struct error *err)
{
    struct item item = { .rows = rows, .base = base };

    if (reader->event.type != YAML_MAPPING_START_EVENT)
        return error_set(err, ERR_INVALID, "each item must be a mapping");
    if (read_item_fields(reader, &item, "", err) < 0)
        return -1;
    for (const struct setting *row = rows; row->key; row++)
        if (row->required && !(item.seen & UINT64_C(1) << (row - rows)))
            return error_set(err, ERR_INVALID, "\"%s\" is missing", row->key);
    return 0;
}

static int read_items(struct reader *reader, const struct setting *setting, struct error *err)
{
    struct setting_array *array = setting_field(setting, reader->config);
    const struct setting_item *item = setting->item;

    if (reader->event.type != YAML_SEQUENCE_START_EVENT)
        return error_set(err, ERR_INVALID, "must be a list of mappings");
    setting_release(setting, reader->config);
    for (;;) {
        void *base;

        if (read_event(reader, err) < 0)
            return -1;
        if (reader->event.type == YAML_SEQUENCE_END_EVENT)
            return 0;
        array->items = xrealloc(array->items, array->count + 1, item->size);
        base = memset((char *)array->items + array->count++ * item->size, 0, item->size);
        setting_item_init(item->rows, base);
        if (read_item(reader, item->rows, base, err) < 0)
            return -1;
    }
}

static int read_value(struct reader *reader, const struct setting *setting, struct error *err)
{
    if (setting->type == SETTING_LIST)
        return read_list(reader, setting, reader->config, err);
    if (setting->type == SETTING_MAP)
        return read_map(reader, setting, err);
    if (setting->type == SETTING_ITEMS)
        return read_items(reader, setting, err);
    return read_scalar(reader, setting, reader->config, err);
}

static int read_setting(struct reader *reader, const struct setting *setting, struct error *err)
{
    scoped(free) char *origin = xasprintf("%s:%zu", reader->name, reader->line);
    const char *earlier = reader->config->origins[setting - settings];

    if (strcmp(earlier, CONFIG_ORIGIN_DEFAULT) != 0)
        return error_set(err, ERR_INVALID, "\"%s\" is already set at %s", setting->key, earlier);
    if (read_event(reader, err) < 0 || read_value(reader, setting, err) < 0)
        return error_wrap(err, "%s", setting->key);
    config_set_origin(reader->config, setting, origin);
    return 0;
}

static int read_mapping(struct reader *reader, const char *prefix, struct error *err);

/* Settings of a group that has nothing in it are all left alone. */
static int read_group(struct reader *reader, const char *key, struct error *err)
{
    if (read_event(reader, err) < 0)
        return -1;
    if (reader->event.type == YAML_MAPPING_START_EVENT)
        return read_mapping(reader, key, err);
    if (reader->event.type == YAML_SCALAR_EVENT && scalar_is_null(reader))
        return 0;
    return error_set(err, ERR_INVALID, "\"%.100s\" is a group of settings, not a value", key);
}

static int read_entry(struct reader *reader, const char *prefix, struct config_list *keys,
                      struct error *err)
{
    const struct setting *setting;
    scoped(free) char *key = NULL;

    if (check_scalar(reader, err) < 0)
        return error_wrap(err, "a key");
    key = xasprintf("%s%s%s", prefix, *prefix ? "." : "", scalar_text(reader));
    for (size_t i = 0; i < keys->count; i++)
        if (strcmp(keys->items[i], key) == 0)
            return error_set(err, ERR_INVALID, "duplicate key \"%.100s\"", key);
    config_list_append(keys, key);
    setting = setting_find(settings, key);
    if (setting)
        return read_setting(reader, setting, err);
    if (rows_have_group(settings, key))
        return read_group(reader, key, err);
    return setting_refuse_key(settings, key, err);
}

static int read_mapping(struct reader *reader, const char *prefix, struct error *err)
{
    scoped(config_list_release) struct config_list keys = { 0 };

    for (;;) {
        if (read_event(reader, err) < 0)
            return -1;
        if (reader->event.type == YAML_MAPPING_END_EVENT)
            return 0;
        if (read_entry(reader, prefix, &keys, err) < 0)
            return -1;
    }
}

static int read_root(struct reader *reader, struct error *err)
{
    if (reader->event.type == YAML_MAPPING_START_EVENT)
        return read_mapping(reader, "", err);
    if (reader->event.type == YAML_SCALAR_EVENT && scalar_is_null(reader))
        return 0;
    return error_set(err, ERR_INVALID, "the file must be a mapping of settings");
}

static int read_events(struct reader *reader, unsigned count, struct error *err)
{
    while (count--)
        if (read_event(reader, err) < 0)
            return -1;
    return 0;
}

/* Stream start, at most one document, stream end. */
static int read_stream(struct reader *reader, struct error *err)
{
    if (read_events(reader, 2, err) < 0)
        return -1;
    if (reader->event.type == YAML_STREAM_END_EVENT)
        return 0;
    if (read_event(reader, err) < 0 || read_root(reader, err) < 0 ||
        read_events(reader, 2, err) < 0)
        return -1;
    if (reader->event.type != YAML_STREAM_END_EVENT)
        return error_set(err, ERR_INVALID, "the file has more than one document");
    return 0;
}

int config_read_yaml(struct config *config, const char *text, size_t length, const char *name,
                     struct error *err)
{
    struct reader reader = { .config = config, .name = name };
    int result;

    if (!yaml_parser_initialize(&reader.parser))
        out_of_memory();
    yaml_parser_set_encoding(&reader.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, length);
    result = read_stream(&reader, err);
    yaml_event_delete(&reader.event);
    yaml_parser_delete(&reader.parser);
    return result < 0 ? error_wrap(err, "%s:%zu", name, reader.line) : 0;
}
