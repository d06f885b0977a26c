/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Options of a command, from tables: parsing, help and shell completion all read the same rows.
 *
 * Values go into the command's own argument struct by offset. Durations, sizes and numbers are
 * checked here and kept as the text that was given, which the API takes as it is; NULL is "not
 * given". Texts are borrowed from argv.
 */

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

enum option_kind {
    OPTION_FLAG,     /* bool */
    OPTION_TEXT,     /* const char *, as are those below */
    OPTION_SESSION,  /* any name of a session; its id or key:KEY when the command runs */
    OPTION_DURATION, /* 90s, 30m, 4h or seconds */
    OPTION_SIZE,     /* 512m, 2g or bytes */
    OPTION_COUNT,    /* whole number */
    OPTION_NUMBER,   /* number above zero */
    OPTION_LIST,     /* struct text_list; may be repeated */
    OPTION_PAIRS,    /* struct text_list of K=V; may be repeated */
};

struct option {
    const char *name; /* without dashes; NULL ends a table */
    char letter;      /* 0: no short form */
    enum option_kind kind;
    size_t offset;       /* into the struct of its set */
    const char *value;   /* how help calls the value; NULL for flags */
    const char *choices; /* the only values allowed, separated by spaces; NULL: any */
    const char *help;    /* NULL: another name of an option above, which help does not list */
};

/* Rows that several commands share say where their struct lies in the command's. */
struct option_set {
    const struct option *rows; /* NULL ends the sets of a command */
    size_t base;
    const char *heading; /* of the section in help */
};

struct text_list {
    const char **items; /* owned array of borrowed texts; NULL-terminated, NULL when empty */
    size_t count;
};

void text_list_add(struct text_list *list, const char *text);
void text_list_fini(struct text_list *list);

static inline void scoped_text_list_fini(struct text_list *list)
{
    text_list_fini(list);
}

enum { OPERANDS_MIXED = 1000 };

/*
 * Reads argv, NULL-terminated, into `args` and `operands`. Options may stand between operands until
 * `plain_after` operands were seen: from the next one on everything is taken as it stands, as it is
 * after "--". `operands_before` counts the operands that stand before "--", if there is one.
 */
struct option_result {
    struct text_list operands;
    bool has_separator;
    size_t operands_before;
};

int options_parse(const struct option_set *sets, size_t plain_after, char *const *argv, void *args,
                  struct option_result *out, struct error *err);

/* The words of a command line that give `args` again; the texts are borrowed from `args` and from
 * the rows, or owned by `owned`. Other names of an option are not written. */
void options_write(const struct option_set *set, const void *args, struct text_list *words,
                   struct text_list *owned);

/* Gives back the lists in `args`. */
void options_release(const struct option_set *sets, void *args);

/* The help of all sets, with their headings, in columns. */
void options_describe(const struct option_set *sets, struct buffer *text);

/* The nearest of the words to a misspelt one; NULL when none is near. Words end with NULL. */
const char *options_nearest(const char *word, const char *const *words);
