#include "cli/table.h"

#include "base/alloc.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void table_init(struct table *table, const char *const *headings)
{
    *table = (struct table){ .headings = headings, .aligned = isatty(STDOUT_FILENO) };
    while (headings[table->columns])
        table->columns++;
}

void table_add_column(struct table *table, const char *heading)
{
    table->last_heading = heading;
    table->columns++;
}

static const char *heading_of(const struct table *table, size_t column)
{
    return table->last_heading && column == table->columns - 1 ? table->last_heading
                                                               : table->headings[column];
}

void table_fini(struct table *table)
{
    for (size_t i = 0; i < table->count; i++)
        free(table->cells[i]);
    free(table->cells);
    *table = (struct table){ 0 };
}

void table_add(struct table *table, const char *text)
{
    char *cell = xstrdup(text && *text ? text : "-");

    for (char *c = cell; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = ' ';
    table->cells = xrealloc(table->cells, table->count + 1, sizeof(*table->cells));
    table->cells[table->count++] = cell;
}

void table_addf(struct table *table, const char *format, ...)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(65536);
    va_list args;

    va_start(args, format);
    buffer_vappendf(&text, format, args);
    va_end(args);
    table_add(table, buffer_text(&text));
}

/* Characters, not bytes: continuation bytes of UTF-8 take no column. */
static size_t width_of(const char *text)
{
    size_t width = 0;

    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static size_t column_width(const struct table *table, size_t column)
{
    size_t width = width_of(heading_of(table, column));

    for (size_t i = column; i < table->count; i += table->columns)
        width = MAX(width, width_of(table->cells[i]));
    return width;
}

static void print_row(const struct table *table, const char *const *cells, const size_t *widths,
                      struct buffer *text)
{
    for (size_t i = 0; i < table->columns; i++) {
        bool last = i + 1 == table->columns;

        buffer_append_text(text, cells[i]);
        if (last)
            buffer_append_byte(text, '\n');
        else if (!table->aligned)
            buffer_append_byte(text, '\t');
        else
            buffer_appendf(text, "%*s", (int)(widths[i] + 2 - width_of(cells[i])), "");
    }
}

/* The line that begins at `start` and has its end already is cut behind so many characters. */
static void cut_line(struct buffer *text, size_t start, size_t width)
{
    size_t shown = 0;

    for (size_t at = start; at + 1 < text->length; at++) {
        if ((text->data[at] & 0xc0) != 0x80 && shown++ == width) {
            text->length = at;
            buffer_append_byte(text, '\n');
            return;
        }
    }
}

void table_write(const struct table *table, size_t width, struct buffer *text)
{
    scoped(free) size_t *widths = xcalloc(table->columns, sizeof(*widths));
    const char *const *cells = (const char *const *)table->cells;
    size_t start = text->length;

    for (size_t i = 0; i < table->columns; i++)
        widths[i] = column_width(table, i);
    if (table->aligned)
        print_row(table, table->headings, widths, text);
    if (width)
        cut_line(text, start, width);
    for (size_t i = 0; i + table->columns <= table->count; i += table->columns) {
        start = text->length;
        print_row(table, cells + i, widths, text);
        if (width)
            cut_line(text, start, width);
    }
}

int table_print(struct table *table, struct cli *cli)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REPLY_MAXIMUM);

    table_write(table, 0, &text);
    return cli_print(cli, text.data, text.length);
}
