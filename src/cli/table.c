/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/table.h"

#include "base/alloc.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { COLUMN_GAP = 2, SHORTEST_COLUMN = 8, SHORT_ID = 12 };

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

void table_set_optional(struct table *table, const char *headings)
{
    table->optional = headings;
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

void table_add_id(struct table *table, const char *id)
{
    if (id && table->aligned)
        table_addf(table, "%.*s", SHORT_ID, id);
    else
        table_add(table, id);
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

/* --- fitting --------------------------------------------------------------------------------- */

/* Widths of the columns; 0 is a column that is left out. */
static size_t total_width(const struct table *table, const size_t *widths)
{
    size_t total = 0;

    for (size_t i = 0; i < table->columns; i++)
        if (widths[i])
            total += widths[i] + (total ? COLUMN_GAP : 0);
    return total;
}

static void leave_out(const struct table *table, const char *heading, size_t length, size_t *widths)
{
    for (size_t i = 0; i < table->columns; i++) {
        const char *own = heading_of(table, i);

        if (strlen(own) == length && memcmp(own, heading, length) == 0)
            widths[i] = 0;
    }
}

/* The widest column but the first, which says what a row is about; 0 when none can be shortened. */
static size_t widest_column(const struct table *table, const size_t *widths)
{
    size_t widest = 0;

    for (size_t i = 1; i < table->columns; i++)
        if (widths[i] > SHORTEST_COLUMN && (!widest || widths[i] > widths[widest]))
            widest = i;
    return widest;
}

static void fit_columns(const struct table *table, size_t width, size_t *widths)
{
    const char *word = table->optional ? table->optional : "";
    size_t column;

    while (*word && total_width(table, widths) > width) {
        size_t length = strcspn(word, " ");

        leave_out(table, word, length, widths);
        word += length + strspn(word + length, " ");
    }
    while (total_width(table, widths) > width && (column = widest_column(table, widths)))
        widths[column]--;
}

/* --- writing --------------------------------------------------------------------------------- */

static void print_cell(const char *cell, size_t width, struct buffer *text)
{
    size_t shown = 0;

    if (width_of(cell) <= width) {
        buffer_append_text(text, cell);
        return;
    }
    for (; *cell; cell++) {
        if (((unsigned char)*cell & 0xc0) != 0x80 && ++shown == width)
            break;
        buffer_append_byte(text, (uint8_t)*cell);
    }
    buffer_append_text(text, "…");
}

static void print_aligned(const struct table *table, const char *const *cells, const size_t *widths,
                          struct buffer *text)
{
    size_t gap = 0;

    for (size_t i = 0; i < table->columns; i++) {
        if (!widths[i])
            continue;
        buffer_appendf(text, "%*s", (int)gap, "");
        print_cell(cells[i], widths[i], text);
        gap = COLUMN_GAP + widths[i] - MIN(widths[i], width_of(cells[i]));
    }
    buffer_append_byte(text, '\n');
}

static void print_plain(const struct table *table, const char *const *cells, struct buffer *text)
{
    for (size_t i = 0; i < table->columns; i++)
        buffer_appendf(text, "%s%c", cells[i], i + 1 == table->columns ? '\n' : '\t');
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

static void print_heading(const struct table *table, const size_t *widths, struct buffer *text)
{
    scoped(free) const char **headings = xcalloc(table->columns, sizeof(*headings));

    for (size_t i = 0; i < table->columns; i++)
        headings[i] = heading_of(table, i);
    print_aligned(table, headings, widths, text);
}

void table_write(const struct table *table, size_t width, struct buffer *text)
{
    scoped(free) size_t *widths = xcalloc(table->columns, sizeof(*widths));
    const char *const *cells = (const char *const *)table->cells;
    size_t start = text->length;

    for (size_t i = 0; i < table->columns; i++)
        widths[i] = MAX(column_width(table, i), (size_t)1);
    if (width)
        fit_columns(table, width, widths);
    if (table->aligned)
        print_heading(table, widths, text);
    if (width)
        cut_line(text, start, width);
    for (size_t i = 0; i + table->columns <= table->count; i += table->columns) {
        start = text->length;
        if (table->aligned)
            print_aligned(table, cells + i, widths, text);
        else
            print_plain(table, cells + i, text);
        if (width)
            cut_line(text, start, width);
    }
}

/* 0 when it is not known. */
static size_t screen_width(void)
{
    struct winsize size = { 0 };

    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

int table_print(struct table *table, struct cli *cli)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REPLY_MAXIMUM);

    table_write(table, table->aligned ? screen_width() : 0, &text);
    return cli_print(cli, text.data, text.length);
}
