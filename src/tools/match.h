/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Finding a text that a model remembers in a file, and changing the file there. Pure functions.
 *
 * First exactly. A text that is not there may still be meant: then with spaces at the ends of lines
 * ignored, then those at their beginnings too, then with typographic characters (quotes, dashes,
 * spaces) taken for their plain ones. The first of these ways that finds anything counts.
 */

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>

enum match_way { MATCH_EXACT, MATCH_LINE_ENDS, MATCH_LINE_MARGINS, MATCH_TYPOGRAPHY, MATCH_WAYS };

/* The difference that was ignored, such as "spaces at line ends"; NULL for an exact match. */
const char *match_way_name(enum match_way way);

struct match_span {
    size_t start, length; /* in the content */
};

struct matches {
    enum match_way way;
    struct match_span *spans; /* owned; in order, not overlapping */
    size_t count;
};

void matches_find(struct matches *matches, const void *content, size_t length, const char *text);
void matches_fini(struct matches *matches);

/* The number of the first line that is, spaces aside, the first line of the text; 0 without one.
 * For a text that was not found: where it may have been meant. */
size_t match_nearest_line(const void *content, size_t length, const char *text);

enum match_edit { MATCH_REPLACE, MATCH_APPEND_AFTER, MATCH_PREPEND_BEFORE };

/* The content with the first `count` matches edited. A file whose lines end with CR LF gets the new
 * text with such line ends. -1 when it does not fit. */
int matches_apply(const struct matches *matches, size_t count, enum match_edit edit,
                  const void *content, size_t length, const char *text, struct buffer *out);
