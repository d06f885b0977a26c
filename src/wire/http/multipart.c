/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http/multipart.h"

#include "base/macros.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* --- parameters of a header ------------------------------------------------------------------- */

static const char *skip_spaces(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    return at;
}

static int hex_digit(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    digit = (char)tolower((unsigned char)digit);
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* The byte of a percent escape at `at`; -1 when it is none. */
static int escaped(const char *at, const char *end)
{
    int high, low;

    if (end - at < 3 || *at != '%')
        return -1;
    high = hex_digit(at[1]);
    low = hex_digit(at[2]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Escapes that browsers write in a quoted text: quotes and line breaks. */
static bool is_form_escape(int byte)
{
    return byte == '"' || byte == '\r' || byte == '\n';
}

struct value {
    const char *start, *end;
    bool is_quoted;
};

/* Copies a value; -1 when it does not fit or has a NUL. */
static int copy_value(const struct value *value, bool is_extended, char *out, size_t size)
{
    const char *at = value->start;
    size_t length = 0;

    while (at < value->end) {
        int byte = escaped(at, value->end);

        if (byte >= 0 && (is_extended || (value->is_quoted && is_form_escape(byte)))) {
            at += 3;
        } else if (value->is_quoted && *at == '\\' && at + 1 < value->end &&
                   (at[1] == '"' || at[1] == '\\')) {
            byte = (unsigned char)at[1];
            at += 2;
        } else {
            byte = (unsigned char)*at++;
        }
        if (byte == 0 || length + 1 >= size)
            return -1;
        out[length++] = (char)byte;
    }
    out[length] = '\0';
    return 0;
}

/* The value behind '='; where the next parameter begins, NULL when it is malformed. */
static const char *read_value(const char *at, const char *end, struct value *out)
{
    if (at < end && *at == '"') {
        out->is_quoted = true;
        out->start = ++at;
        while (at < end && *at != '"')
            at += *at == '\\' && at + 1 < end ? 2 : 1;
        if (at >= end)
            return NULL;
        out->end = at++;
        return at;
    }
    out->is_quoted = false;
    out->start = at;
    while (at < end && *at != ';' && *at != ' ' && *at != '\t')
        at++;
    out->end = at;
    return at;
}

/* The next "; name=value"; where it ends, NULL at the end or when it is malformed. */
static const char *next_parameter(const char *at, const char *end, const char **out_name,
                                  size_t *out_name_length, struct value *out_value)
{
    at = skip_spaces(at, end);
    if (at == end || *at != ';')
        return NULL;
    at = skip_spaces(at + 1, end);
    *out_name = at;
    while (at < end && *at != '=' && *at != ';')
        at++;
    if (at == end || *at != '=')
        return NULL;
    *out_name_length = (size_t)(at - *out_name);
    return read_value(at + 1, end, out_value);
}

static bool is_name(const char *name, size_t length, const char *wanted)
{
    return length == strlen(wanted) && strncasecmp(name, wanted, length) == 0;
}

int multipart_init(struct multipart *multipart, const char *content_type)
{
    static const char type[] = "multipart/form-data";
    const char *end = content_type ? content_type + strlen(content_type) : NULL;
    const char *at, *name;
    char boundary[MULTIPART_BOUNDARY + 1] = "";
    size_t length;
    struct value value;

    if (!content_type || strncasecmp(content_type, type, sizeof(type) - 1) != 0)
        return -1;
    at = content_type + sizeof(type) - 1;
    while ((at = next_parameter(at, end, &name, &length, &value)))
        if (is_name(name, length, "boundary") &&
            copy_value(&value, false, boundary, sizeof(boundary)) < 0)
            return -1;
    if (!*boundary)
        return -1;
    *multipart = (struct multipart){ .state = MULTIPART_BEFORE };
    multipart->delimiter_length =
        (size_t)snprintf(multipart->delimiter, sizeof(multipart->delimiter), "\r\n--%s", boundary);
    return 0;
}

/* --- the head of a part ----------------------------------------------------------------------- */

/* filename*=UTF-8''x: skips to behind the second quote. */
static bool skip_charset(struct value *value)
{
    const char *quote = memchr(value->start, '\'', (size_t)(value->end - value->start));

    quote = quote ? memchr(quote + 1, '\'', (size_t)(value->end - quote - 1)) : NULL;
    if (!quote)
        return false;
    value->start = quote + 1;
    return true;
}

static int take_disposition(struct multipart *multipart, const char *at, const char *end)
{
    bool has_extended = false;
    const char *name;
    size_t length;
    struct value value;

    while (at < end && *at != ';')
        at++;
    while ((at = next_parameter(at, end, &name, &length, &value))) {
        int result = 0;

        if (is_name(name, length, "name")) {
            result = copy_value(&value, false, multipart->name, sizeof(multipart->name));
        } else if (is_name(name, length, "filename*") && skip_charset(&value)) {
            multipart->has_filename = has_extended = true;
            result = copy_value(&value, true, multipart->filename, sizeof(multipart->filename));
        } else if (is_name(name, length, "filename") && !has_extended) {
            multipart->has_filename = true;
            result = copy_value(&value, false, multipart->filename, sizeof(multipart->filename));
        }
        if (result < 0)
            return -1;
    }
    return 0;
}

static int take_head(struct multipart *multipart, const char *at, const char *end)
{
    static const char disposition[] = "content-disposition:";

    multipart->name[0] = multipart->filename[0] = '\0';
    multipart->has_filename = false;
    while (at < end) {
        const char *line = at;
        const char *stop = memchr(at, '\r', (size_t)(end - at));

        stop = stop ? stop : end;
        at = stop + MIN((size_t)2, (size_t)(end - stop));
        if ((size_t)(stop - line) >= sizeof(disposition) - 1 &&
            strncasecmp(line, disposition, sizeof(disposition) - 1) == 0 &&
            take_disposition(multipart, line + sizeof(disposition) - 1, stop) < 0)
            return -1;
    }
    return 0;
}

/* --- events ----------------------------------------------------------------------------------- */

struct input {
    const char *bytes;
    size_t length;
    size_t used;
};

static enum multipart_event break_off(struct multipart *multipart)
{
    multipart->state = MULTIPART_BROKEN;
    return MULTIPART_BAD;
}

/* How many bytes at the end may be the beginning of a delimiter. */
static size_t unfinished(const struct multipart *multipart, const char *bytes, size_t length)
{
    size_t most = MIN(length, multipart->delimiter_length - 1);

    while (most && memcmp(bytes + length - most, multipart->delimiter, most) != 0)
        most--;
    return most;
}

/* The first delimiter has no line break before it when nothing is before it. */
static enum multipart_event find_first(struct multipart *multipart, struct input *input)
{
    const char *mark = multipart->delimiter + 2;
    size_t length = multipart->delimiter_length - 2;
    const char *found;

    if (input->length >= length && memcmp(input->bytes, mark, length) == 0) {
        input->used = length;
        multipart->state = MULTIPART_BEHIND;
        return MULTIPART_MORE;
    }
    if (input->length < length && memcmp(input->bytes, mark, input->length) == 0)
        return MULTIPART_MORE;
    found = memmem(input->bytes, input->length, multipart->delimiter, multipart->delimiter_length);
    if (!found)
        return input->length > MULTIPART_HEAD ? break_off(multipart) : MULTIPART_MORE;
    input->used = (size_t)(found - input->bytes) + multipart->delimiter_length;
    multipart->state = MULTIPART_BEHIND;
    return MULTIPART_MORE;
}

static enum multipart_event go_behind(struct multipart *multipart, struct input *input)
{
    const char *end = input->bytes + input->length;
    const char *at = skip_spaces(input->bytes, end);

    if (at - input->bytes > 64)
        return break_off(multipart);
    if (end - at < 2)
        return MULTIPART_MORE;
    input->used = (size_t)(at - input->bytes) + 2;
    if (memcmp(at, "--", 2) == 0) {
        multipart->state = MULTIPART_AFTER;
        return MULTIPART_DONE;
    }
    if (memcmp(at, "\r\n", 2) != 0)
        return break_off(multipart);
    multipart->state = MULTIPART_IN_HEAD;
    return MULTIPART_MORE;
}

static enum multipart_event read_head(struct multipart *multipart, struct input *input)
{
    const char *end;

    if (input->length >= 2 && memcmp(input->bytes, "\r\n", 2) == 0) {
        input->used = 2;
        (void)take_head(multipart, input->bytes, input->bytes);
        multipart->state = MULTIPART_IN_DATA;
        return MULTIPART_PART;
    }
    end = memmem(input->bytes, input->length, "\r\n\r\n", 4);
    if (!end)
        return input->length > MULTIPART_HEAD ? break_off(multipart) : MULTIPART_MORE;
    if (end - input->bytes > MULTIPART_HEAD || take_head(multipart, input->bytes, end) < 0)
        return break_off(multipart);
    input->used = (size_t)(end - input->bytes) + 4;
    multipart->state = MULTIPART_IN_DATA;
    return MULTIPART_PART;
}

static enum multipart_event read_data(struct multipart *multipart, struct input *input,
                                      const uint8_t **out_data, size_t *out_length)
{
    const char *found =
        memmem(input->bytes, input->length, multipart->delimiter, multipart->delimiter_length);
    size_t before = found ? (size_t)(found - input->bytes)
                          : input->length - unfinished(multipart, input->bytes, input->length);

    if (found && before == 0) {
        input->used = multipart->delimiter_length;
        multipart->state = MULTIPART_BEHIND;
        return MULTIPART_PART_END;
    }
    input->used = before;
    *out_data = (const uint8_t *)input->bytes;
    *out_length = input->used;
    return input->used ? MULTIPART_DATA : MULTIPART_MORE;
}

enum multipart_event multipart_next(struct multipart *multipart, const void *bytes, size_t length,
                                    size_t *out_used, const uint8_t **out_data, size_t *out_length)
{
    struct input input = { .bytes = bytes, .length = length };
    enum multipart_event event = MULTIPART_MORE;
    enum multipart_state before;

    *out_used = 0;
    do {
        before = multipart->state;
        input.used = 0;
        if (input.length == 0 && before != MULTIPART_BROKEN)
            return MULTIPART_MORE;
        switch (before) {
        case MULTIPART_BEFORE:
            event = find_first(multipart, &input);
            break;
        case MULTIPART_BEHIND:
            event = go_behind(multipart, &input);
            break;
        case MULTIPART_IN_HEAD:
            event = read_head(multipart, &input);
            break;
        case MULTIPART_IN_DATA:
            event = read_data(multipart, &input, out_data, out_length);
            break;
        case MULTIPART_AFTER:
            input.used = input.length;
            break;
        case MULTIPART_BROKEN:
            return MULTIPART_BAD;
        }
        *out_used += input.used;
        input.bytes += input.used;
        input.length -= input.used;
    } while (event == MULTIPART_MORE && multipart->state != before);
    return event;
}
