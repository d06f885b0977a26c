/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/match.h"

#include "base/alloc.h"
#include "base/str.h"

#include <stdint.h>
#include <string.h>

static const char *const way_names[MATCH_WAYS] = {
    [MATCH_EXACT] = NULL,
    [MATCH_LINE_ENDS] = "spaces at the ends of lines",
    [MATCH_LINE_MARGINS] = "spaces at the beginnings and ends of lines",
    [MATCH_TYPOGRAPHY] = "typographic quotes, dashes and spaces",
};

const char *match_way_name(enum match_way way)
{
    return way_names[way];
}

static bool is_blank(uint8_t byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\f' || byte == '\v';
}

/* --- plain text ------------------------------------------------------------------------------ */

static const struct {
    const char *from, *to;
} typography[] = {
    { "\u2018", "'" },  { "\u2019", "'" },   { "\u201a", "'" },  { "\u201b", "'" },
    { "\u2032", "'" },  { "\u201c", "\"" },  { "\u201d", "\"" }, { "\u201e", "\"" },
    { "\u201f", "\"" }, { "\u2033", "\"" },  { "\u2010", "-" },  { "\u2011", "-" },
    { "\u2012", "-" },  { "\u2013", "-" },   { "\u2014", "-" },  { "\u2015", "-" },
    { "\u2212", "-" },  { "\u2026", "..." }, { "\u00a0", " " },  { "\u1680", " " },
    { "\u2000", " " },  { "\u2001", " " },   { "\u2002", " " },  { "\u2003", " " },
    { "\u2004", " " },  { "\u2005", " " },   { "\u2006", " " },  { "\u2007", " " },
    { "\u2008", " " },  { "\u2009", " " },   { "\u200a", " " },  { "\u202f", " " },
    { "\u205f", " " },  { "\u3000", " " },   { "\u200b", "" },   { "\u200c", "" },
    { "\u200d", "" },   { "\u2060", "" },    { "\ufeff", "" },
};

/* A text as it is compared, and for each of its bytes where it comes from. */
struct plain {
    struct buffer text;
    size_t *from, *to; /* owned; bytes [from, to) of the original */
};

static void plain_fini(struct plain *plain)
{
    buffer_fini(&plain->text);
    free(plain->from);
    free(plain->to);
}

static void plain_put(struct plain *plain, const char *bytes, size_t count, size_t from, size_t to)
{
    for (size_t i = 0; i < count; i++) {
        plain->from[plain->text.length] = from;
        plain->to[plain->text.length] = to;
        buffer_append_byte(&plain->text, (uint8_t)bytes[i]);
    }
}

/* One character; how many bytes it had. */
static size_t plain_take(struct plain *plain, const uint8_t *text, size_t at, size_t end,
                         enum match_way way)
{
    if (way == MATCH_TYPOGRAPHY && text[at] >= 0x80) {
        for (size_t i = 0; i < ARRAY_LENGTH(typography); i++) {
            size_t length = strlen(typography[i].from);

            if (length > end - at || memcmp(text + at, typography[i].from, length) != 0)
                continue;
            plain_put(plain, typography[i].to, strlen(typography[i].to), at, at + length);
            return length;
        }
    }
    plain_put(plain, (const char *)text + at, 1, at, at + 1);
    return 1;
}

static void trim_end(struct plain *plain, size_t line_start)
{
    while (plain->text.length > line_start && is_blank(plain->text.data[plain->text.length - 1]))
        plain->text.length--;
}

/* The first blanks of a line go, also those that were something else. */
static bool is_margin(const struct plain *plain, size_t line_start, enum match_way way)
{
    return way >= MATCH_LINE_MARGINS && plain->text.length == line_start + 1 &&
           is_blank(plain->text.data[line_start]);
}

static void plain_init(struct plain *plain, const uint8_t *text, size_t length, enum match_way way)
{
    size_t line_start = 0;

    /* No character becomes longer than it was. */
    *plain = (struct plain){ .text = BUFFER_INIT(length + 16),
                             .from = xcalloc(length + 16, sizeof(size_t)),
                             .to = xcalloc(length + 16, sizeof(size_t)) };
    for (size_t at = 0; at < length;) {
        if (text[at] == '\n') {
            trim_end(plain, line_start);
            plain_put(plain, "\n", 1, at, at + 1);
            line_start = plain->text.length;
            at++;
            continue;
        }
        at += plain_take(plain, text, at, length, way);
        if (is_margin(plain, line_start, way))
            plain->text.length--;
    }
    trim_end(plain, line_start);
}

/* --- finding --------------------------------------------------------------------------------- */

static void add_span(struct matches *matches, size_t start, size_t end)
{
    if (matches->count && start < matches->spans[matches->count - 1].start +
                                      matches->spans[matches->count - 1].length)
        return;
    if ((matches->count & (matches->count - 1)) == 0)
        matches->spans = xrealloc(matches->spans, matches->count ? matches->count * 2 : 1,
                                  sizeof(*matches->spans));
    matches->spans[matches->count++] = (struct match_span){ start, end - start };
}

static void find_exactly(struct matches *matches, const uint8_t *content, size_t length,
                         const char *text, size_t text_length)
{
    const uint8_t *end = content + length;
    const uint8_t *at = content;

    while (at < end && (at = memmem(at, (size_t)(end - at), text, text_length))) {
        add_span(matches, (size_t)(at - content), (size_t)(at - content) + text_length);
        at += text_length;
    }
}

/* The text brings its own margins where it has any: then those of the content go with the match. */
static size_t widen_start(const uint8_t *content, size_t start, const char *text)
{
    size_t at = start;

    if (!is_blank((uint8_t)*text))
        return start;
    while (at > 0 && is_blank(content[at - 1]))
        at--;
    return at == 0 || content[at - 1] == '\n' ? at : start;
}

static size_t widen_end(const uint8_t *content, size_t length, size_t end, const char *text,
                        size_t text_length)
{
    size_t at = end;

    if (!is_blank((uint8_t)text[text_length - 1]))
        return end;
    while (at < length && is_blank(content[at]) && content[at] != '\r')
        at++;
    return at;
}

static void find_plainly(struct matches *matches, const uint8_t *content, size_t length,
                         const char *text, size_t text_length)
{
    struct plain in, wanted;
    const uint8_t *at, *end;

    plain_init(&in, content, length, matches->way);
    plain_init(&wanted, (const uint8_t *)text, text_length, matches->way);
    at = in.text.data;
    end = at + in.text.length;
    while (wanted.text.length && at < end &&
           (at = memmem(at, (size_t)(end - at), wanted.text.data, wanted.text.length))) {
        size_t first = (size_t)(at - in.text.data);
        size_t last = first + wanted.text.length - 1;

        add_span(matches, widen_start(content, in.from[first], text),
                 widen_end(content, length, in.to[last], text, text_length));
        at += wanted.text.length;
    }
    plain_fini(&in);
    plain_fini(&wanted);
}

/* Whether the text has more than spaces and line ends, which would match everywhere. */
static bool has_substance(const char *text)
{
    for (; *text; text++) {
        if (!is_blank((uint8_t)*text) && *text != '\n')
            return true;
    }
    return false;
}

void matches_find(struct matches *matches, const void *content, size_t length, const char *text)
{
    size_t text_length = strlen(text);

    *matches = (struct matches){ .way = MATCH_EXACT };
    if (text_length == 0 || length == 0)
        return;
    find_exactly(matches, content, length, text, text_length);
    while (matches->count == 0 && matches->way + 1 < MATCH_WAYS && has_substance(text)) {
        matches->way++;
        find_plainly(matches, content, length, text, text_length);
    }
}

void matches_fini(struct matches *matches)
{
    free(matches->spans);
    *matches = (struct matches){ 0 };
}

size_t match_nearest_line(const void *content, size_t length, const char *text)
{
    const uint8_t *at = content, *end = at + length;
    size_t first_length;

    text += strspn(text, " \t\r\n");
    first_length = strcspn(text, "\n");
    while (first_length > 0 && is_blank((uint8_t)text[first_length - 1]))
        first_length--;
    for (size_t number = 1; first_length && at < end; number++) {
        const uint8_t *line_end = memchr(at, '\n', (size_t)(end - at));
        size_t left;

        while (at < end && is_blank(*at))
            at++;
        left = (size_t)((line_end ? line_end : end) - at);
        while (left > 0 && is_blank(at[left - 1]))
            left--;
        if (left == first_length && memcmp(at, text, left) == 0)
            return number;
        at = line_end ? line_end + 1 : end;
    }
    return 0;
}

/* --- changing -------------------------------------------------------------------------------- */

static bool has_dos_lines(const uint8_t *content, size_t length)
{
    const uint8_t *line_end = length ? memchr(content, '\n', length) : NULL;

    return line_end && line_end > content && line_end[-1] == '\r';
}

static void put_text(struct buffer *out, const char *text, bool is_dos)
{
    const char *line_end;

    while (is_dos && (line_end = strchr(text, '\n'))) {
        bool has_return = line_end > text && line_end[-1] == '\r';

        buffer_append(out, text, (size_t)(line_end - text));
        buffer_append_text(out, has_return ? "\n" : "\r\n");
        text = line_end + 1;
    }
    buffer_append_text(out, text);
}

int matches_apply(const struct matches *matches, size_t count, enum match_edit edit,
                  const void *content, size_t length, const char *text, struct buffer *out)
{
    const uint8_t *bytes = content;
    bool is_dos = has_dos_lines(content, length);
    size_t at = 0;

    for (size_t i = 0; i < count && i < matches->count; i++) {
        const struct match_span *span = &matches->spans[i];

        buffer_append(out, bytes + at, span->start - at);
        if (edit == MATCH_APPEND_AFTER)
            buffer_append(out, bytes + span->start, span->length);
        put_text(out, text, is_dos);
        if (edit == MATCH_PREPEND_BEFORE)
            buffer_append(out, bytes + span->start, span->length);
        at = span->start + span->length;
    }
    buffer_append(out, bytes + at, length - at);
    return out->overflowed ? -1 : 0;
}
