/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Some lines of a file, with their numbers, from bytes that come in pieces. Long lines are cut, and
 * only whole lines are shown, as many as fit. A pure function.
 */

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lines {
    uint64_t first, limit; /* the first line wanted, from 1, and how many */
    size_t line_limit;     /* characters of a line */
    size_t total_limit;    /* characters of all, with their numbers */

    uint64_t number;    /* of lines that have begun */
    uint64_t shown;     /* of those wanted */
    uint64_t cut;       /* of those shown, lines that were too long */
    bool is_full;       /* `total_limit` kept some of those wanted away */
    struct buffer text; /* the lines that are shown */
    size_t characters;  /* of it */
    struct text_line {  /* private */
        struct buffer bytes;
        uint64_t length; /* with the bytes that did not fit */
        bool is_open;
    } line;
};

void lines_init(struct lines *lines, uint64_t first, uint64_t limit, size_t line_limit,
                size_t total_limit);
void lines_fini(struct lines *lines);

void lines_feed(struct lines *lines, const void *bytes, size_t length);
void lines_end(struct lines *lines); /* the last line needs no line end */

/* Whether what comes can only be counted. */
bool lines_are_done(const struct lines *lines);
