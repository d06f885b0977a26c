/* SPDX-License-Identifier: Apache-2.0 */
#include "api/pages.h"

#include "base/alloc.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

enum { PAGE_DEFAULT = 1000, PAGE_MAXIMUM = 10000, NAME_SIZE = 512, DIGITS = 15 };

/* A number as text. */
static const char *name_of(const json_t *entry, const char *key, char text[NAME_SIZE])
{
    const json_t *value = json_object_get(entry, key);

    if (json_is_integer(value))
        snprintf(text, NAME_SIZE, "%lld", (long long)json_integer_value(value));
    else
        snprintf(text, NAME_SIZE, "%s", json_is_string(value) ? json_string_value(value) : "");
    return text;
}

/* The place behind the entry that the cursor names; -1 when there is none any more. */
static int find_start(const json_t *list, const char *key, const char *cursor, size_t *out_start,
                      struct error *err)
{
    char name[NAME_SIZE];
    json_t *entry;
    size_t i;

    *out_start = 0;
    if (!cursor)
        return 0;
    json_array_foreach((json_t *)list, i, entry)
    {
        *out_start = i + 1;
        if (str_equal(name_of(entry, key, name), cursor))
            return 0;
    }
    error_named(err, ERR_INVALID, "invalid_parameter",
                "parameter cursor must be the next_cursor of an earlier page");
    return error_hint(err, "an entry that a cursor names may be gone: begin without a cursor");
}

static void cut(json_t *document, const char *field, const char *key, size_t start, uint64_t limit)
{
    json_t *list = json_object_get(document, field);
    size_t count = json_array_size(list);
    size_t end = start + MIN((uint64_t)(count - start), limit);
    json_t *page = json_array();
    char name[NAME_SIZE];

    for (size_t i = start; i < end; i++)
        json_array_append(page, json_array_get(list, i));
    json_object_set_new(document, "next_cursor",
                        end < count ? json_string(name_of(json_array_get(list, end - 1), key, name))
                                    : json_null());
    json_object_set_new(document, field, page);
}

void api_reply_page(struct request *request, struct buffer *json, const char *field,
                    const char *key)
{
    scoped(json_decref) json_t *document = NULL;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    scoped(free) char *page = NULL;
    uint64_t limit = PAGE_DEFAULT;
    struct error err = { 0 };
    size_t start;

    document = json->overflowed ? NULL : json_loadb(buffer_text(json), json->length, 0, NULL);
    if (!document)
        error_set(&err, ERR_INTERNAL, "the list is too large");
    if (!document || request_parameter_limit(request, PAGE_MAXIMUM, &limit, &err) < 0 ||
        find_start(json_object_get(document, field), key, request_parameter(request, "cursor"),
                   &start, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    cut(document, field, key, start, limit);
    page = json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(DIGITS));
    buffer_append_text(&text, page);
    request_reply(request, 200, &text);
}
