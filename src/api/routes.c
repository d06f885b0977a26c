#include "api/request.h"
#include "base/alloc.h"
#include "base/str.h"

#include <ctype.h>
#include <string.h>

static const struct api_route *const tables[] = {
    api_session_routes,  api_control_routes, api_execution_routes, api_input_routes,
    api_output_routes,   api_execute_routes, api_file_routes,      api_search_routes,
    api_edit_routes,     api_archive_routes, api_watch_routes,     api_event_routes,
    api_scope_routes,    api_system_routes,  api_context_routes,   api_wait_routes,
    api_tool_routes,     api_storage_routes, api_teardown_routes,  api_history_routes,
    api_approval_routes, api_budget_routes,  api_mcp_routes,       api_kept_routes,
};

enum { TABLE_ROWS = 256 }; /* more than any table has */

bool api_next_route(size_t *position, const struct api_route **out_route)
{
    size_t table = *position / TABLE_ROWS;
    size_t row = *position % TABLE_ROWS;

    for (; table < ARRAY_LENGTH(tables); table++, row = 0) {
        if (!tables[table][row].path)
            continue;
        *out_route = &tables[table][row];
        *position = table * TABLE_ROWS + row + 1;
        return true;
    }
    return false;
}

/* --- the target ------------------------------------------------------------------------------ */

static int hex_value(char digit)
{
    return isdigit((unsigned char)digit) ? digit - '0' : tolower((unsigned char)digit) - 'a' + 10;
}

/* The codec has checked the escapes and that the result is UTF-8 without NUL. */
void api_unescape(const char *text, size_t length, char *decoded)
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

static int parse_path(struct api_request *request, const char *target)
{
    size_t length = strcspn(target, "?#");
    size_t at = 1;

    request->path = xmalloc(length + 1);
    while (at <= length) {
        size_t end = at + strcspn(target + at, "/?#");

        if (request->segment_count == API_SEGMENTS)
            return -1;
        api_unescape(target + at, end - at, request->path + at);
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

static int parse_query(struct api_request *request, const char *query, struct error *err)
{
    scoped(buffer_fini) struct buffer name = BUFFER_INIT(64);
    scoped(buffer_fini) struct buffer value = BUFFER_INIT(8192);
    int result;

    while ((result = http_query_next(&query, &name, &value)) > 0) {
        size_t at = request->parameter_count;

        if (at == API_PARAMETERS)
            return error_named(err, ERR_INVALID, "invalid_query", "the query is too long");
        if (memchr(name.data, 0, name.length) || memchr(value.data, 0, value.length))
            return error_named(err, ERR_INVALID, "invalid_query", "the query has a NUL in it");
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

int api_parse_target(struct api_request *request, const char *target, const char *query,
                     struct error *err)
{
    if (parse_path(request, target) < 0)
        return error_named(err, ERR_NOT_FOUND, "route_not_found", "there is no such route");
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

static bool path_matches(const char *pattern, const struct api_request *request)
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

static void note_method(struct buffer *allow, enum http_method method)
{
    buffer_appendf(allow, "%s%s", allow->length ? ", " : "", http_method_name(method));
    if (method == HTTP_GET)
        buffer_append_text(allow, ", HEAD");
}

enum api_match api_match_route(struct api_request *request, enum http_method method,
                               struct buffer *allow)
{
    enum http_method wanted = method == HTTP_HEAD ? HTTP_GET : method;
    const struct api_route *route;
    size_t position = 0;

    while (api_next_route(&position, &route)) {
        if (!path_matches(route->path, request))
            continue;
        if (route->method == wanted) {
            request->route = route;
            request->is_head = method == HTTP_HEAD;
            return API_MATCH;
        }
        note_method(allow, route->method);
    }
    return allow->length ? API_NO_METHOD : API_NO_PATH;
}

const char *api_path(const struct api_request *request, const char *name)
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
