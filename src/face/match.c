/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/str.h"
#include "face/request.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* --- the target ------------------------------------------------------------------------------ */

static int hex_value(char digit)
{
    return isdigit((unsigned char)digit) ? digit - '0' : tolower((unsigned char)digit) - 'a' + 10;
}

/* The codec has checked the escapes and that the result is UTF-8 without NUL. */
void request_unescape(const char *text, size_t length, char *decoded)
{
    const char *first = memchr(text, '%', length);
    size_t plain = first ? (size_t)(first - text) : length;
    size_t at = plain;

    memcpy(decoded, text, plain);
    for (size_t i = plain; i < length; i++) {
        if (text[i] == '%' && i + 2 < length && isxdigit((unsigned char)text[i + 1]) &&
            isxdigit((unsigned char)text[i + 2])) {
            decoded[at++] = (char)(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2]));
            i += 2;
        } else {
            decoded[at++] = text[i];
        }
    }
    decoded[at] = '\0';
}

static int parse_path(struct request *request, const char *target)
{
    size_t length = strcspn(target, "?#");
    size_t at = 1;

    request->path = xmalloc(length + 1);
    while (at <= length) {
        size_t end = at + strcspn(target + at, "/?#");

        if (request->segment_count == REQUEST_SEGMENTS)
            return -1;
        request_unescape(target + at, end - at, request->path + at);
        request->segments[request->segment_count++] = request->path + at;
        at = end + 1;
    }
    return 0;
}

/* Names of files need not be text. */
static bool may_be_any_bytes(const char *parameter)
{
    return str_equal(parameter, "path") || str_equal(parameter, "pattern");
}

static int parse_query(struct request *request, const char *query, struct error *err)
{
    scoped(buffer_fini) struct buffer name = BUFFER_INIT(64);
    scoped(buffer_fini) struct buffer value = BUFFER_INIT(8192);
    int result;

    while ((result = http_query_next(&query, &name, &value)) > 0) {
        size_t at = request->parameter_count;

        if (at == REQUEST_PARAMETERS)
            return error_named(err, ERR_INVALID, "invalid_query", "the query is too long");
        if (memchr(name.data, 0, name.length) || memchr(value.data, 0, value.length))
            return error_named(err, ERR_INVALID, "invalid_query", "the query contains a NUL");
        if (!may_be_any_bytes(buffer_text(&name)) &&
            !str_is_utf8((const char *)value.data, value.length))
            return error_named(err, ERR_INVALID, "invalid_query",
                               "parameter \"%.60s\" is not UTF-8", buffer_text(&name));
        request->parameters[at].name = xstrdup(buffer_text(&name));
        request->parameters[at].value = xstrdup(buffer_text(&value));
        request->parameter_count++;
    }
    if (result < 0)
        return error_named(err, ERR_INVALID, "invalid_query", "the query is malformed");
    return 0;
}

int request_parse_target(struct request *request, const char *target, const char *query,
                         struct error *err)
{
    if (parse_path(request, target) < 0)
        return error_named(err, ERR_NOT_FOUND, "route_not_found", "unknown route");
    return parse_query(request, query, err);
}

/* --- matching -------------------------------------------------------------------------------- */

/* The length of the next segment of a pattern, and where the one after it begins. */
static size_t pattern_segment(const char **pattern, const char **out_start)
{
    size_t length;

    *out_start = *pattern + 1;
    length = strcspn(*out_start, "/");
    *pattern = *out_start + length;
    return length;
}

static bool path_matches(const char *pattern, const struct request *request)
{
    const char *start;

    for (size_t i = 0; i < request->segment_count; i++) {
        const char *segment = request->segments[i];
        size_t length;

        if (*pattern != '/')
            return false;
        length = pattern_segment(&pattern, &start);
        if (*start == '{' ? !*segment
                          : strlen(segment) != length || memcmp(segment, start, length) != 0)
            return false;
    }
    return *pattern == '\0';
}

/* --- proxy routes ---------------------------------------------------------------------------- */

static size_t count_segments(const char *pattern)
{
    size_t count = 0;

    for (; *pattern; pattern++)
        count += *pattern == '/';
    return count;
}

/* The first `count` segments of a target that goes on behind them. */
static bool parse_start(struct request *request, const char *target, size_t count)
{
    size_t length = strcspn(target, "?#");
    size_t at = 1;

    assert(count <= REQUEST_SEGMENTS);
    request->segment_count = 0;
    free(request->path);
    request->path = xmalloc(length + 1);
    while (request->segment_count < count) {
        size_t end = at + strcspn(target + at, "/?#");

        if (target[end] != '/')
            return false;
        request_unescape(target + at, end - at, request->path + at);
        request->segments[request->segment_count++] = request->path + at;
        at = end + 1;
    }
    request->rest = target + at - 1;
    return true;
}

static bool start_matches(const char *pattern, const struct request *request)
{
    scoped(free) char *start = xstrndup(pattern, (size_t)(strrchr(pattern, '/') - pattern));

    return path_matches(start, request);
}

bool request_match_proxy(struct request *request, const char *target)
{
    for (const struct route *const *table = request->face->tables; *table; table++) {
        for (const struct route *route = *table; route->path; route++) {
            if (!route->is_proxy ||
                !parse_start(request, target, count_segments(route->path) - 1) ||
                !start_matches(route->path, request))
                continue;
            request->route = route;
            return true;
        }
    }
    request->rest = NULL;
    return false;
}

/* --- all routes ------------------------------------------------------------------------------ */

static void note_method(struct buffer *allow, enum http_method method)
{
    buffer_appendf(allow, "%s%s", allow->length ? ", " : "", http_method_name(method));
    if (method == HTTP_GET)
        buffer_append_text(allow, ", HEAD");
}

enum route_match request_match_route(struct request *request, enum http_method method,
                                     struct buffer *allow)
{
    enum http_method wanted = method == HTTP_HEAD ? HTTP_GET : method;

    for (const struct route *const *table = request->face->tables; *table; table++) {
        for (const struct route *route = *table; route->path; route++) {
            if (route->is_proxy || !path_matches(route->path, request))
                continue;
            if (route->method == wanted) {
                request->route = route;
                request->is_head = method == HTTP_HEAD;
                return ROUTE_MATCH;
            }
            note_method(allow, route->method);
        }
    }
    return allow->length ? ROUTE_NO_METHOD : ROUTE_NO_PATH;
}

const char *request_path(const struct request *request, const char *name)
{
    const char *pattern = request->route->path;
    const char *start;

    for (size_t i = 0; i < request->segment_count; i++) {
        size_t length = pattern_segment(&pattern, &start);

        if (*start == '{' && strlen(name) == length - 2 && memcmp(start + 1, name, length - 2) == 0)
            return request->segments[i];
    }
    return NULL;
}
