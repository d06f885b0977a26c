/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/macros.h"
#include "base/money.h"
#include "base/str.h"
#include "config/settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char separators[] = ", \t\r\n";

void config_list_append(struct config_list *list, const char *text)
{
    list->items = xrealloc(list->items, list->count + 1, sizeof(*list->items));
    list->items[list->count++] = xstrdup(text);
}

void config_list_release(struct config_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct config_list){ 0 };
}

static void map_release(struct config_map *map)
{
    for (size_t i = 0; i < map->count; i++) {
        free(map->items[i].name);
        free(map->items[i].value);
    }
    free(map->items);
    *map = (struct config_map){ 0 };
}

static void items_release(const struct setting_item *item, struct setting_array *array)
{
    for (size_t i = 0; i < array->count; i++)
        for (const struct setting *row = item->rows; row->key; row++)
            setting_release(row, (char *)array->items + i * item->size);
    free(array->items);
    *array = (struct setting_array){ 0 };
}

void setting_release(const struct setting *setting, void *base)
{
    void *field = setting_field(setting, base);

    switch (setting->type) {
    case SETTING_TEXT:
    case SETTING_PATH:
        free(*(char **)field);
        *(char **)field = NULL;
        break;
    case SETTING_LIST:
        config_list_release(field);
        break;
    case SETTING_MAP:
        map_release(field);
        break;
    case SETTING_ITEMS:
        items_release(setting->item, field);
        break;
    case SETTING_BOOL:
    case SETTING_COUNT:
    case SETTING_SECONDS:
    case SETTING_SIZE:
    case SETTING_CPUS:
    case SETTING_MONEY:
    case SETTING_CHOICE:
        break;
    }
}

void setting_item_init(const struct setting *rows, void *base)
{
    for (const struct setting *row = rows; row->key; row++)
        if (setting_assign(row, base, row->fallback, NULL) < 0)
            abort();
}

static int check_range(const struct setting *setting, double value, const char *text,
                       struct error *err)
{
    scoped(buffer_fini) struct buffer range = BUFFER_INIT(256);

    if (setting->max <= setting->min || (value >= setting->min && value <= setting->max) ||
        (setting->zero_is_off && value == 0))
        return 0;
    setting_format_range(setting, &range);
    return error_set(err, ERR_INVALID, "%.40s is out of range: %s", text, buffer_text(&range));
}

static int refuse_choice(const struct setting *setting, const char *text, struct error *err)
{
    scoped(buffer_fini) struct buffer names = BUFFER_INIT(256);

    for (const char *const *choice = setting->choices; *choice; choice++)
        if (**choice)
            buffer_appendf(&names, "%s%s", names.length ? ", " : "", *choice);
    return error_set(err, ERR_INVALID, "\"%.40s\" is not one of %s", text, buffer_text(&names));
}

/* The index, or -1. */
static int choice_find(const struct setting *setting, const char *text, struct error *err)
{
    for (int i = 0; setting->choices[i]; i++)
        if (strcmp(setting->choices[i], text) == 0)
            return i;
    return refuse_choice(setting, text, err);
}

static int assign_text(const struct setting *setting, char **field, const char *text,
                       struct error *err)
{
    if (setting->choices && choice_find(setting, text, err) < 0)
        return -1;
    if (setting->type == SETTING_PATH && *text && *text != '/')
        return error_set(err, ERR_INVALID, "\"%.200s\" is not an absolute path", text);
    free(*field);
    *field = xstrdup(text);
    return 0;
}

static int assign_bool(bool *field, const char *text, struct error *err)
{
    static const char *const names[] = { "false", "true", "no", "yes", "off", "on" };

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        if (strcmp(names[i], text) == 0) {
            *field = i % 2;
            return 0;
        }
    }
    return error_set(err, ERR_INVALID, "\"%.40s\" is not true or false", text);
}

static int assign_count(const struct setting *setting, int64_t *field, const char *text,
                        struct error *err)
{
    uint64_t value;

    if (str_to_u64(text, &value) < 0 || value > INT64_MAX)
        return error_set(err, ERR_INVALID, "\"%.40s\" is not a whole number", text);
    if (check_range(setting, (double)value, text, err) < 0)
        return -1;
    *field = (int64_t)value;
    return 0;
}

static int assign_seconds(const struct setting *setting, int64_t *field, const char *text,
                          struct error *err)
{
    int64_t ms;

    if (str_to_duration_ms(text, &ms, err) < 0 ||
        check_range(setting, (double)ms / 1000, text, err) < 0)
        return -1;
    *field = ms;
    return 0;
}

static int assign_size(const struct setting *setting, uint64_t *field, const char *text,
                       struct error *err)
{
    uint64_t bytes;

    if (str_to_size(text, &bytes, err) < 0 || check_range(setting, (double)bytes, text, err) < 0)
        return -1;
    *field = bytes;
    return 0;
}

static int parse_decimal(const char *text, double *out_value, struct error *err)
{
    size_t length = strspn(text, "0123456789.");
    char *end;

    *out_value = strtod(text, &end);
    if (!length || length > 18 || text[length] || *end || end == text)
        return error_set(err, ERR_INVALID, "\"%.40s\" is not a number", text);
    return 0;
}

static int assign_cpus(const struct setting *setting, uint32_t *field, const char *text,
                       struct error *err)
{
    double cpus;

    if (parse_decimal(text, &cpus, err) < 0 || check_range(setting, cpus, text, err) < 0)
        return -1;
    *field = (uint32_t)lround(cpus * 1000);
    return 0;
}

static int assign_money(const struct setting *setting, int64_t *field, const char *text,
                        struct error *err)
{
    double amount = -1;

    if (strcmp(text, "unknown") != 0 &&
        (parse_decimal(text, &amount, err) < 0 || check_range(setting, amount, text, err) < 0))
        return -1;
    *field = amount < 0 ? -1 : money_from_usd(amount);
    return 0;
}

static int assign_choice(const struct setting *setting, int *field, const char *text,
                         struct error *err)
{
    int index = choice_find(setting, text, err);

    if (index < 0)
        return -1;
    *field = index;
    return 0;
}

int setting_list_append(const struct setting *setting, struct config_list *list, const char *text,
                        struct error *err)
{
    if (setting->choices && choice_find(setting, text, err) < 0)
        return -1;
    config_list_append(list, text);
    return 0;
}

static int assign_list(const struct setting *setting, struct config_list *field, const char *text,
                       struct error *err)
{
    scoped(free) char *copy = xstrdup(text);
    char *rest = NULL;

    config_list_release(field);
    for (char *word = strtok_r(copy, separators, &rest); word;
         word = strtok_r(NULL, separators, &rest)) {
        if (setting_list_append(setting, field, word, err) < 0)
            return -1;
    }
    return 0;
}

bool setting_is_variable_name(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        bool letter = (text[i] >= 'a' && text[i] <= 'z') || (text[i] >= 'A' && text[i] <= 'Z') ||
                      text[i] == '_';

        if (!letter && !(i > 0 && text[i] >= '0' && text[i] <= '9'))
            return false;
    }
    return length > 0;
}

char *setting_variable_value(const char *text, struct error *err)
{
    const char *value;

    if (text[0] != '$')
        return xstrdup(text);
    if (text[1] == '$')
        return xstrdup(text + 1);
    if (!setting_is_variable_name(text + 1, strlen(text + 1)))
        return xstrdup(text);
    value = getenv(text + 1);
    if (!value) {
        error_set(err, ERR_INVALID, "%.100s is not set in the environment", text);
        return NULL;
    }
    return xstrdup(value);
}

int setting_map_put(struct config_map *map, const char *name, const char *value, struct error *err)
{
    if (!setting_is_variable_name(name, strlen(name)))
        return error_set(err, ERR_INVALID, "\"%.40s\" is not a valid variable name", name);
    for (size_t i = 0; i < map->count; i++)
        if (strcmp(map->items[i].name, name) == 0)
            return error_set(err, ERR_INVALID, "\"%.40s\" is set twice", name);
    map->items = xrealloc(map->items, map->count + 1, sizeof(*map->items));
    map->items[map->count++] =
        (struct config_variable){ .name = xstrdup(name), .value = xstrdup(value) };
    return 0;
}

static int parse_variable(struct config_map *map, char *word, struct error *err)
{
    scoped(free) char *value = NULL;
    char *equals = strchr(word, '=');

    if (!equals)
        return error_set(err, ERR_INVALID, "\"%.40s\" is not NAME=VALUE", word);
    *equals = '\0';
    value = setting_variable_value(equals + 1, err);
    return value ? setting_map_put(map, word, value, err) : -1;
}

static int assign_map(struct config_map *field, const char *text, struct error *err)
{
    scoped(free) char *copy = xstrdup(text);
    struct config_map map = { 0 };
    char *rest = NULL;

    for (char *word = strtok_r(copy, separators, &rest); word;
         word = strtok_r(NULL, separators, &rest)) {
        if (parse_variable(&map, word, err) < 0) {
            map_release(&map);
            return -1;
        }
    }
    map_release(field);
    *field = map;
    return 0;
}

static int assign_items(const struct setting *setting, struct setting_array *field,
                        const char *text, struct error *err)
{
    if (*text)
        return error_set(err, ERR_INVALID, "is a list of mappings and can only be set in a file");
    items_release(setting->item, field);
    return 0;
}

int setting_assign(const struct setting *setting, void *base, const char *text, struct error *err)
{
    void *field = setting_field(setting, base);

    switch (setting->type) {
    case SETTING_TEXT:
    case SETTING_PATH:
        return assign_text(setting, field, text, err);
    case SETTING_BOOL:
        return assign_bool(field, text, err);
    case SETTING_COUNT:
        return assign_count(setting, field, text, err);
    case SETTING_SECONDS:
        return assign_seconds(setting, field, text, err);
    case SETTING_SIZE:
        return assign_size(setting, field, text, err);
    case SETTING_CPUS:
        return assign_cpus(setting, field, text, err);
    case SETTING_MONEY:
        return assign_money(setting, field, text, err);
    case SETTING_CHOICE:
        return assign_choice(setting, field, text, err);
    case SETTING_LIST:
        return assign_list(setting, field, text, err);
    case SETTING_MAP:
        return assign_map(field, text, err);
    case SETTING_ITEMS:
        return assign_items(setting, field, text, err);
    }
    return -1;
}
