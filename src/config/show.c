/* SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "base/money.h"
#include "base/str.h"
#include "config/redis_url.h"
#include "config/settings.h"

#include <stdlib.h>
#include <string.h>

struct unit {
    const char *suffix;
    uint64_t factor;
};

/* From the largest to the smallest; the first that divides the number is written. */
static const struct unit duration_units[] = {
    { "d", 86400000 }, { "h", 3600000 }, { "m", 60000 }, { "s", 1000 }, { "ms", 1 },
};

static const struct unit size_units[] = {
    { "t", UINT64_C(1) << 40 }, { "g", 1 << 30 }, { "m", 1 << 20 }, { "k", 1 << 10 }, { "", 1 },
};

static void append_units(struct buffer *out, uint64_t value, const struct unit *unit)
{
    if (value == 0) {
        buffer_append_text(out, "0");
        return;
    }
    while (value % unit->factor)
        unit++;
    buffer_appendf(out, "%llu%s", (unsigned long long)(value / unit->factor), unit->suffix);
}

/* A day is written as 24h, as people do. */
static void append_duration(struct buffer *out, uint64_t ms)
{
    append_units(out, ms, ms > 2 * duration_units[0].factor ? duration_units : duration_units + 1);
}

/* A character of two or three bytes. YAML takes some of them for line breaks or refuses them, so
 * none is written as it is. */
static void append_escaped(struct buffer *out, const unsigned char *at, size_t length)
{
    unsigned code = length == 2 ? (at[0] & 0x1fU) << 6 | (at[1] & 0x3fU)
                                : (at[0] & 0x0fU) << 12 | (at[1] & 0x3fU) << 6 | (at[2] & 0x3fU);

    buffer_appendf(out, "\\u%04x", code);
}

static void append_ascii(struct buffer *out, unsigned char byte, bool json)
{
    if (byte == '"' || byte == '\\')
        buffer_appendf(out, "\\%c", byte);
    else if (byte < 0x20 || byte == 0x7f)
        buffer_appendf(out, "\\u%04x", byte);
    else if (byte == '$' && !json)
        buffer_append_text(out, "$$");
    else
        buffer_append_byte(out, byte);
}

/* JSON text, which is also a double-quoted scalar of YAML. Bytes that are not UTF-8 become "?". */
static void append_quoted(struct buffer *out, const char *text, bool json)
{
    const unsigned char *at = (const unsigned char *)text;
    const unsigned char *end = at + strlen(text);

    buffer_append_byte(out, '"');
    while (at < end) {
        size_t length = str_utf8_sequence(at, (size_t)(end - at));

        if (length == 1)
            append_ascii(out, *at, json);
        else if (length == 4)
            buffer_append(out, at, length);
        else if (length)
            append_escaped(out, at, length);
        else
            buffer_append_byte(out, '?');
        at += MAX(length, (size_t)1);
    }
    buffer_append_byte(out, '"');
}

static void append_text(struct buffer *out, const char *text, bool json)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/_";

    if (!json && *text && !text[strspn(text, plain)] && strcasecmp(text, "null") != 0)
        buffer_append_text(out, text);
    else
        append_quoted(out, text, json);
}

static void append_list(struct buffer *out, const struct config_list *list, bool json)
{
    buffer_append_byte(out, '[');
    for (size_t i = 0; i < list->count; i++) {
        buffer_append_text(out, i ? ", " : "");
        append_quoted(out, list->items[i], json);
    }
    buffer_append_byte(out, ']');
}

static void append_map(struct buffer *out, const struct config_map *map, bool json)
{
    buffer_append_byte(out, '{');
    for (size_t i = 0; i < map->count; i++) {
        buffer_append_text(out, i ? ", " : "");
        append_text(out, map->items[i].name, json);
        buffer_append_text(out, ": \"***\"");
    }
    buffer_append_byte(out, '}');
}

static void append_items(struct buffer *out, const struct setting_item *item,
                         const struct setting_array *array, bool json)
{
    buffer_append_byte(out, '[');
    for (size_t i = 0; i < array->count; i++) {
        buffer_append_text(out, i ? ", {" : "{");
        for (const struct setting *row = item->rows; row->key; row++) {
            buffer_append_text(out, row == item->rows ? "" : ", ");
            append_text(out, row->key, json);
            buffer_append_text(out, ": ");
            setting_format(row, (const char *)array->items + i * item->size, out, json);
        }
        buffer_append_byte(out, '}');
    }
    buffer_append_byte(out, ']');
}

static void append_seconds(struct buffer *out, int64_t ms, bool json)
{
    if (json)
        buffer_appendf(out, "%.15g", (double)ms / 1000);
    else
        append_duration(out, (uint64_t)ms);
}

static void append_size(struct buffer *out, uint64_t bytes, bool json)
{
    if (json)
        buffer_appendf(out, "%llu", (unsigned long long)bytes);
    else
        append_units(out, bytes, size_units);
}

static void append_money(struct buffer *out, int64_t amount, bool json)
{
    char text[MONEY_TEXT_SIZE];

    if (amount >= 0)
        buffer_append_text(out, money_text(amount, text));
    else
        buffer_append_text(out, json ? "null" : "unknown");
}

static void append_shown(const struct setting *setting, const char *text, struct buffer *out,
                         bool json)
{
    scoped(free) char *shown = setting->has_password ? redis_url_shown(text) : NULL;

    append_text(out, shown ? shown : text, json);
}

void setting_format(const struct setting *setting, const void *base, struct buffer *out, bool json)
{
    const void *field = (const char *)base + setting->offset;

    switch (setting->type) {
    case SETTING_TEXT:
    case SETTING_PATH:
        append_shown(setting, *(char *const *)field, out, json);
        break;
    case SETTING_BOOL:
        buffer_append_text(out, *(const bool *)field ? "true" : "false");
        break;
    case SETTING_COUNT:
        buffer_appendf(out, "%lld", (long long)*(const int64_t *)field);
        break;
    case SETTING_SECONDS:
        append_seconds(out, *(const int64_t *)field, json);
        break;
    case SETTING_SIZE:
        append_size(out, *(const uint64_t *)field, json);
        break;
    case SETTING_CPUS:
        buffer_appendf(out, "%.15g", *(const uint32_t *)field / 1000.0);
        break;
    case SETTING_MONEY:
        append_money(out, *(const int64_t *)field, json);
        break;
    case SETTING_CHOICE:
        append_text(out, setting->choices[*(const int *)field], json);
        break;
    case SETTING_LIST:
        append_list(out, field, json);
        break;
    case SETTING_MAP:
        append_map(out, field, json);
        break;
    case SETTING_ITEMS:
        append_items(out, setting->item, field, json);
        break;
    }
}

static void append_bound(const struct setting *setting, struct buffer *out, double bound)
{
    if (setting->type == SETTING_SECONDS)
        append_duration(out, (uint64_t)(bound * 1000));
    else if (setting->type == SETTING_SIZE)
        append_units(out, (uint64_t)bound, size_units);
    else
        buffer_appendf(out, "%.15g", bound);
}

void setting_format_range(const struct setting *setting, struct buffer *out)
{
    append_bound(setting, out, setting->min);
    buffer_append_text(out, " to ");
    append_bound(setting, out, setting->max);
    if (setting->zero_is_off)
        buffer_append_text(out, ", or 0 for none");
}

static void show_yaml(const struct config *config, size_t row, struct buffer *out)
{
    size_t start = out->length;

    buffer_appendf(out, "%s: ", settings[row].key);
    setting_format(&settings[row], config, out, false);
    if (out->length - start < 40)
        buffer_appendf(out, "%*s", (int)(40 - (out->length - start)), "");
    buffer_appendf(out, "  # %s\n", config->origins[row]);
}

static void show_json(const struct config *config, size_t row, struct buffer *out)
{
    buffer_append_text(out, row ? ",\n" : "{\n");
    append_quoted(out, settings[row].key, true);
    buffer_append_text(out, ": {\"value\": ");
    setting_format(&settings[row], config, out, true);
    buffer_append_text(out, ", \"origin\": ");
    append_quoted(out, config->origins[row], true);
    buffer_append_text(out, row + 1 == settings_count ? "}\n}\n" : "}");
}

void config_show(const struct config *config, struct buffer *out, bool json)
{
    for (size_t row = 0; row < settings_count; row++) {
        if (json)
            show_json(config, row, out);
        else
            show_yaml(config, row, out);
    }
}

static void describe_type(const struct setting *setting, struct buffer *out)
{
    static const char *const names[] = {
        [SETTING_TEXT] = "text",
        [SETTING_PATH] = "path",
        [SETTING_BOOL] = "true or false",
        [SETTING_COUNT] = "number",
        [SETTING_SECONDS] = "duration",
        [SETTING_SIZE] = "size",
        [SETTING_CPUS] = "number",
        [SETTING_MONEY] = "number",
        [SETTING_CHOICE] = "one of",
        [SETTING_LIST] = "list",
        [SETTING_MAP] = "map",
        [SETTING_ITEMS] = "list of mappings",
    };

    if (!setting->choices) {
        buffer_append_text(out, names[setting->type]);
        return;
    }
    if (setting->type == SETTING_LIST)
        buffer_append_text(out, "list of ");
    for (const char *const *choice = setting->choices, *separator = ""; *choice; choice++) {
        if (!**choice)
            continue;
        buffer_appendf(out, "%s%s", separator, *choice);
        separator = " | ";
    }
}

void config_describe(struct buffer *out)
{
    for (const struct setting *setting = settings; setting->key; setting++) {
        const char *fallback = setting->shown_default ? setting->shown_default : setting->fallback;

        buffer_appendf(out, "%s\n    ", setting->key);
        describe_type(setting, out);
        if (setting->max > setting->min) {
            buffer_append_text(out, ", ");
            setting_format_range(setting, out);
        }
        buffer_appendf(out, "; default %s\n    %s\n\n", *fallback ? fallback : "none",
                       setting->help);
    }
}
