/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options.h"

#include "base/alloc.h"
#include "base/macros.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

void text_list_add(struct text_list *list, const char *text)
{
    list->items = xrealloc(list->items, list->count + 2, sizeof(*list->items));
    list->items[list->count++] = text;
    list->items[list->count] = NULL;
}

void text_list_fini(struct text_list *list)
{
    free(list->items);
    *list = (struct text_list){ 0 };
}

const char *options_nearest(const char *word, const char *const *words)
{
    unsigned limit = strlen(word) < 4 ? 1 : 2;
    const char *best = NULL;

    for (; *words; words++) {
        unsigned distance = str_distance(word, *words);

        if (distance <= limit) {
            limit = distance ? distance - 1 : 0;
            best = *words;
        }
    }
    return best;
}

/* --- values -------------------------------------------------------------------------------- */

static int value_check_choice(const struct option *option, const char *value, struct error *err)
{
    size_t length = strlen(value);

    for (const char *word = option->choices; *word; word += strspn(word, " ")) {
        size_t word_length = strcspn(word, " ");

        if (word_length == length && memcmp(word, value, length) == 0)
            return 0;
        word += word_length;
    }
    return error_set(err, ERR_INVALID, "--%s must be one of: %s; not \"%s\"", option->name,
                     option->choices, value);
}

static int value_check_number(const struct option *option, const char *value, struct error *err)
{
    char *end;
    double number = strtod(value, &end);

    if (end == value || *end || !(number > 0 && number < 1e15))
        return error_set(err, ERR_INVALID, "--%s needs a number above zero, not \"%s\"",
                         option->name, value);
    return 0;
}

static int value_check(const struct option *option, const char *value, struct error *err)
{
    int64_t ms;
    uint64_t number;

    if (option->choices)
        return value_check_choice(option, value, err);
    switch (option->kind) {
    case OPTION_FLAG:
    case OPTION_TEXT:
    case OPTION_SESSION:
    case OPTION_LIST:
        return 0;
    case OPTION_DURATION:
        if (str_to_duration_ms(value, &ms, err) < 0)
            return error_wrap(err, "--%s", option->name);
        return 0;
    case OPTION_SIZE:
        if (str_to_size(value, &number, err) < 0)
            return error_wrap(err, "--%s", option->name);
        return 0;
    case OPTION_COUNT:
        if (str_to_u64(value, &number) < 0)
            return error_set(err, ERR_INVALID, "--%s needs a whole number, not \"%s\"",
                             option->name, value);
        return 0;
    case OPTION_NUMBER:
        return value_check_number(option, value, err);
    case OPTION_PAIRS:
        if (*value == '=' || !strchr(value, '='))
            return error_set(err, ERR_INVALID, "--%s needs NAME=VALUE, not \"%s\"", option->name,
                             value);
        return 0;
    }
    return 0;
}

static int value_store(const struct option_set *set, const struct option *option, const char *value,
                       void *args, struct error *err)
{
    char *place = (char *)args + set->base + option->offset;

    if (option->kind == OPTION_FLAG) {
        *(bool *)place = true;
        return 0;
    }
    if (value_check(option, value, err) < 0)
        return -1;
    if (option->kind == OPTION_LIST || option->kind == OPTION_PAIRS)
        text_list_add((struct text_list *)place, value);
    else
        *(const char **)place = value;
    return 0;
}

/* --- parsing ------------------------------------------------------------------------------- */

struct parse {
    const struct option_set *sets;
    char *const *argv;
    void *args;
};

static const struct option *option_find(const struct option_set *sets, const char *name,
                                        size_t length, char letter,
                                        const struct option_set **out_set)
{
    for (const struct option_set *set = sets; set->rows; set++)
        for (const struct option *option = set->rows; option->name; option++) {
            bool by_name = name && strlen(option->name) == length &&
                           memcmp(option->name, name, length) == 0;

            if (by_name || (letter && option->letter == letter)) {
                *out_set = set;
                return option;
            }
        }
    return NULL;
}

/* Options of other container tools, and what to use here. */
static const struct {
    const char *name;
    char letter;
    const char *advice;
} foreign_options[] = {
    { "publish", 'p',
      "'sandglass port SESSION [LOCAL:]REMOTE' reaches a port inside while the session lives; "
      "keep the session with --keep or -d" },
    { "publish-all", 'P', "'sandglass port SESSION' lists the ports that programs listen on" },
    { "volume", 'v', "'sandglass cp' copies files in and out" },
    { "privileged", 0, "a sandbox gets no privileges of the host" },
    { "cap-add", 0, "a sandbox gets no capabilities of the host" },
    { "net", 0, "use --network none or --network open" },
    { "gpus", 0, "'sandglass flavors' lists the sandboxes with GPUs; use --flavor" },
    { "restart", 0, "use --auto-restart on" },
    { "entrypoint", 0, "give the program and its arguments after --" },
    { "env-file", 0, "use --env K=V, or --secret-file K=PATH for a secret" },
    { "runtime", 0, "use --backend" },
    { "pids-limit", 0, "use --pids" },
    { "hostname", 0, "the name of a sandbox's host cannot be chosen" },
};

static const char *foreign_advice(const char *name, char letter)
{
    for (size_t i = 0; i < ARRAY_LENGTH(foreign_options); i++)
        if ((name && str_equal(foreign_options[i].name, name)) ||
            (letter && foreign_options[i].letter == letter))
            return foreign_options[i].advice;
    return NULL;
}

static int unknown_letter(char letter, struct error *err)
{
    const char *advice = foreign_advice(NULL, letter);

    if (advice)
        return error_set(err, ERR_INVALID, "unknown option -%c: %s", letter, advice);
    return error_set(err, ERR_INVALID, "unknown option -%c", letter);
}

static int unknown_option(const struct parse *parse, const char *name, size_t length,
                          struct error *err)
{
    scoped(free) char *word = xstrndup(name, length);
    scoped(text_list_fini) struct text_list names = { 0 };
    const char *advice = foreign_advice(word, 0);
    const char *nearest;

    if (advice)
        return error_set(err, ERR_INVALID, "unknown option --%s: %s", word, advice);
    for (const struct option_set *set = parse->sets; set->rows; set++)
        for (const struct option *option = set->rows; option->name; option++)
            if (option->help)
                text_list_add(&names, option->name);
    nearest = names.count ? options_nearest(word, names.items) : NULL;
    if (nearest)
        return error_set(err, ERR_INVALID, "unknown option --%s; did you mean --%s?", word,
                         nearest);
    return error_set(err, ERR_INVALID, "unknown option --%s", word);
}

/* --name, --name VALUE, --name=VALUE */
static int parse_long(struct parse *parse, const char *text, struct error *err)
{
    size_t length = strcspn(text, "=");
    const char *value = text[length] ? text + length + 1 : NULL;
    const struct option_set *set;
    const struct option *option = option_find(parse->sets, text, length, 0, &set);

    if (!option)
        return unknown_option(parse, text, length, err);
    if (option->kind == OPTION_FLAG && value)
        return error_set(err, ERR_INVALID, "--%s takes no value", option->name);
    if (option->kind != OPTION_FLAG && !value) {
        value = *parse->argv;
        if (!value)
            return error_set(err, ERR_INVALID, "--%s needs a value: %s", option->name,
                             option->value);
        parse->argv++;
    }
    return value_store(set, option, value, parse->args, err);
}

/* -i, -it, -w DIR, -wDIR */
static int parse_short(struct parse *parse, const char *text, struct error *err)
{
    for (; *text; text++) {
        const struct option_set *set;
        const struct option *option = option_find(parse->sets, NULL, 0, *text, &set);
        const char *value = NULL;

        if (!option)
            return unknown_letter(*text, err);
        if (option->kind == OPTION_FLAG) {
            (void)value_store(set, option, NULL, parse->args, NULL);
            continue;
        }
        value = text[1] ? text + 1 : *parse->argv;
        if (!value)
            return error_set(err, ERR_INVALID, "-%c needs a value: %s", *text, option->value);
        if (!text[1])
            parse->argv++;
        return value_store(set, option, value, parse->args, err);
    }
    return 0;
}

static void take_rest(struct parse *parse, struct text_list *operands)
{
    for (; *parse->argv; parse->argv++)
        text_list_add(operands, *parse->argv);
}

int options_parse(const struct option_set *sets, size_t plain_after, char *const *argv, void *args,
                  struct option_result *out, struct error *err)
{
    struct parse parse = { .sets = sets, .argv = argv, .args = args };
    struct text_list *operands = &out->operands;

    while (*parse.argv) {
        const char *text = *parse.argv;

        if (strcmp(text, "--") == 0) {
            parse.argv++;
            out->has_separator = true;
            out->operands_before = operands->count;
            take_rest(&parse, operands);
            return 0;
        }
        if (text[0] != '-' || !text[1]) {
            if (operands->count >= plain_after) {
                take_rest(&parse, operands);
                return 0;
            }
            text_list_add(operands, text);
            parse.argv++;
            continue;
        }
        parse.argv++;
        if ((text[1] == '-' ? parse_long(&parse, text + 2, err)
                            : parse_short(&parse, text + 1, err)) < 0)
            return -1;
    }
    return 0;
}

static void write_option(const struct option *option, const void *place, struct text_list *words,
                         struct text_list *owned)
{
    char *name = xasprintf("--%s", option->name);
    bool is_list = option->kind == OPTION_LIST || option->kind == OPTION_PAIRS;
    const struct text_list *list = is_list ? place : NULL;
    const char *value = is_list || option->kind == OPTION_FLAG ? NULL : *(const char *const *)place;

    text_list_add(owned, name);
    if (option->kind == OPTION_FLAG && *(const bool *)place)
        text_list_add(words, name);
    for (size_t i = 0; list && i < list->count; i++) {
        text_list_add(words, name);
        text_list_add(words, list->items[i]);
    }
    if (value) {
        text_list_add(words, name);
        text_list_add(words, value);
    }
}

void options_write(const struct option_set *set, const void *args, struct text_list *words,
                   struct text_list *owned)
{
    for (const struct option *option = set->rows; option->name; option++)
        if (option->help)
            write_option(option, (const char *)args + set->base + option->offset, words, owned);
}

void options_release(const struct option_set *sets, void *args)
{
    for (const struct option_set *set = sets; set->rows; set++)
        for (const struct option *option = set->rows; option->name; option++)
            if (option->kind == OPTION_LIST || option->kind == OPTION_PAIRS)
                text_list_fini((struct text_list *)((char *)args + set->base + option->offset));
}

/* --- help ---------------------------------------------------------------------------------- */

enum { HELP_COLUMN = 30, HELP_WIDTH = 78 };

/* Words of `text` from the help column on, in lines of HELP_WIDTH. */
static void describe_text(const char *text, struct buffer *out)
{
    size_t column = HELP_COLUMN;

    while (*text) {
        size_t length = strcspn(text, " ");

        if (column > HELP_COLUMN && column + 1 + length > HELP_WIDTH) {
            buffer_appendf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        } else if (column > HELP_COLUMN) {
            buffer_append_byte(out, ' ');
            column++;
        }
        buffer_append(out, text, length);
        column += length;
        text += length + strspn(text + length, " ");
    }
    buffer_append_byte(out, '\n');
}

static void describe_option(const struct option *option, struct buffer *out)
{
    size_t start = out->length;
    size_t width;

    if (option->letter)
        buffer_appendf(out, "  -%c, --%s", option->letter, option->name);
    else
        buffer_appendf(out, "      --%s", option->name);
    if (option->kind != OPTION_FLAG)
        buffer_appendf(out, " %s", option->value);
    width = out->length - start;
    if (width + 2 > HELP_COLUMN)
        buffer_appendf(out, "\n%*s", HELP_COLUMN, "");
    else
        buffer_appendf(out, "%*s", (int)(HELP_COLUMN - width), "");
    describe_text(option->help, out);
}

void options_describe(const struct option_set *sets, struct buffer *text)
{
    for (const struct option_set *set = sets; set->rows; set++) {
        buffer_appendf(text, "\n%s:\n", set->heading);
        for (const struct option *option = set->rows; option->name; option++)
            if (option->help)
                describe_option(option, text);
    }
}
