/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/manual.h"

#include "base/alloc.h"
#include "cli/cli.h"
#include "config/config.h"

#include <stdlib.h>
#include <string.h>

enum { SETTINGS_MAXIMUM = 1 << 20 };

void manual_text(struct buffer *page, const char *text)
{
    if (*text == '.' || *text == '\'')
        buffer_append_text(page, "\\&");
    for (; *text; text++)
        if (*text == '\\' || *text == '-')
            buffer_appendf(page, "\\%c", *text == '-' ? '-' : 'e');
        else
            buffer_append_byte(page, (uint8_t)*text);
    buffer_append_byte(page, '\n');
}

/* --- commands -------------------------------------------------------------------------------- */

static void manual_option(struct buffer *page, const struct option *option)
{
    scoped(buffer_fini) struct buffer name = BUFFER_INIT(256);

    if (option->letter)
        buffer_appendf(&name, "-%c, ", option->letter);
    buffer_appendf(&name, "--%s", option->name);
    if (option->value)
        buffer_appendf(&name, " %s", option->value);
    buffer_append_text(page, ".TP\n.B ");
    manual_text(page, buffer_text(&name));
    manual_text(page, option->help);
}

/* Lines of the help that are indented, such as a list of columns, stay lines of their own. */
static void manual_details(struct buffer *page, const char *details)
{
    scoped(buffer_fini) struct buffer copy = BUFFER_INIT(65536);
    char *rest, *line;

    buffer_append_text(&copy, details);
    rest = (char *)buffer_text(&copy);
    buffer_append_text(page, ".PP\n");
    while ((line = strsep(&rest, "\n")))
        if (*line == ' ')
            buffer_appendf(page, ".br\n%s\n.br\n", line + strspn(line, " "));
        else
            manual_text(page, line);
}

static void manual_examples(struct buffer *page, const char *examples)
{
    buffer_append_text(page, ".PP\nExamples:\n.nf\n.RS\n");
    while (*examples) {
        size_t length = strcspn(examples, "\n");
        scoped(free) char *line = xstrndup(examples, length);

        manual_text(page, line);
        examples += length + 1;
    }
    buffer_append_text(page, ".RE\n.fi\n");
}

static void manual_command(struct buffer *page, const char *parent, const struct command *command)
{
    scoped(buffer_fini) struct buffer line = BUFFER_INIT(4096);

    buffer_appendf(&line, "%s%s%s %s", parent, *parent ? " " : "", command->name, command->usage);
    buffer_append_text(page, ".SS ");
    manual_text(page, buffer_text(&line));
    buffer_appendf(page, "%s.\n", command->summary);
    if (command->details)
        manual_details(page, command->details);
    for (const struct option_set *set = command->sets; set->rows; set++)
        for (const struct option *option = set->rows; option->name; option++)
            if (set->rows != common_options && option->help)
                manual_option(page, option);
    if (command->examples)
        manual_examples(page, command->examples);
}

void manual_commands(struct buffer *page)
{
    for (const struct command *const *top = commands; *top; top++) {
        if ((*top)->run)
            manual_command(page, "", *top);
        for (const struct command *const *sub = (*top)->subcommands; sub && *sub; sub++)
            if (command_find(commands, (*sub)->name) != *sub)
                manual_command(page, (*top)->name, *sub);
    }
}

/* --- settings -------------------------------------------------------------------------------- */

/* config_describe() writes paragraphs: the key, then indented lines, then an empty line. */
void manual_settings(struct buffer *page)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(SETTINGS_MAXIMUM);
    char *rest, *line;

    config_describe(&text);
    rest = (char *)buffer_text(&text);
    while ((line = strsep(&rest, "\n"))) {
        if (*line == ' ') {
            manual_text(page, line + strspn(line, " "));
            buffer_append_text(page, ".br\n");
        } else if (*line) {
            buffer_append_text(page, ".TP\n.B ");
            manual_text(page, line);
        }
    }
}
