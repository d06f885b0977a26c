#pragma once

/*
 * Rows of texts: aligned columns with a heading on a terminal, and in a pipe the cells as they are,
 * separated by tabs, without a heading, so that scripts can rely on them. Empty cells show as "-".
 */

#include "cli/cli.h"

struct table {
    const char *const *headings; /* borrowed; NULL-terminated, one for each column */
    const char *last_heading;    /* borrowed; of one more column, NULL without it */
    size_t columns;
    char **cells; /* owned, row by row */
    size_t count;
    bool aligned;
};

void table_init(struct table *table, const char *const *headings);
/* One more column behind the others; before the first cell. */
void table_add_column(struct table *table, const char *heading);
void table_fini(struct table *table);

static inline void scoped_table_fini(struct table *table)
{
    table_fini(table);
}

/* The next cell, from left to right; tabs and control characters become spaces. */
void table_add(struct table *table, const char *text);
void table_addf(struct table *table, const char *format, ...) PRINTF_LIKE(2, 3);

/* As text, cut at `width` columns; 0 cuts nothing. */
void table_write(const struct table *table, size_t width, struct buffer *text);
int table_print(struct table *table, struct cli *cli);
