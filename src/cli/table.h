/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Rows of texts: aligned columns with a heading on a terminal, and in a pipe the cells as they are,
 * separated by tabs, without a heading, so that scripts can rely on them. Empty cells show as "-".
 * A terminal that is too narrow never wraps a row: columns are left out, then cells are shortened.
 */

#include "cli/cli.h"

struct table {
    const char *const *headings; /* borrowed; NULL-terminated, one for each column */
    const char *last_heading;    /* borrowed; of one more column, NULL without it */
    const char *optional; /* borrowed; headings that a narrow terminal leaves out, in order */
    size_t columns;
    char **cells; /* owned, row by row */
    size_t count;
    bool aligned;
};

void table_init(struct table *table, const char *const *headings);
/* One more column behind the others; before the first cell. */
void table_add_column(struct table *table, const char *heading);
/* Headings, separated by spaces: the first of them is left out first. */
void table_set_optional(struct table *table, const char *headings);
void table_fini(struct table *table);

static inline void scoped_table_fini(struct table *table)
{
    table_fini(table);
}

/* The next cell, from left to right; tabs and control characters become spaces. */
void table_add(struct table *table, const char *text);
void table_addf(struct table *table, const char *format, ...) PRINTF_LIKE(2, 3);

/* An id: its first 12 characters on a terminal, which commands accept, and all of it in a pipe. */
void table_add_id(struct table *table, const char *id);

/* As text, in `width` columns; 0: as wide as it is. */
void table_write(const struct table *table, size_t width, struct buffer *text);
int table_print(struct table *table, struct cli *cli);
