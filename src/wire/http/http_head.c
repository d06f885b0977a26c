/* SPDX-License-Identifier: Apache-2.0 */
/* The head of a message: lines, the table of headers that mean something to the codec, framing. */

#include "base/alloc.h"
#include "base/macros.h"
#include "base/str.h"
#include "wire/http/http_parser.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

enum { ARENA_SMALLEST = 1024, ARENA_KEPT = 16 * 1024, SPANS_SMALLEST = 16 };

typedef int known_header_fn(struct http_parser *parser, const char *value);

struct known_header {
    const char *name;
    size_t length;
    known_header_fn *take; /* NULL when only its number matters */
    bool once;             /* in a request; in a response only if it `frames` */
    bool frames;
};

void http_arena_reserve(struct http_parser *parser, size_t length)
{
    size_t capacity = MAX(parser->arena_capacity, (size_t)ARENA_SMALLEST);

    while (capacity < parser->arena_length + length)
        capacity *= 2;
    if (capacity == parser->arena_capacity)
        return;
    parser->arena = xrealloc(parser->arena, capacity, 1);
    parser->arena_capacity = capacity;
}

/* A connection that once sent a big head does not keep its memory. */
static void arena_trim(struct http_parser *parser)
{
    if (parser->arena_capacity <= ARENA_KEPT)
        return;
    parser->arena = xrealloc(parser->arena, ARENA_KEPT, 1);
    parser->arena_capacity = ARENA_KEPT;
}

void http_head_reset(struct http_parser *parser)
{
    arena_trim(parser);
    parser->state = HTTP_STATE_FIRST_LINE;
    parser->head = (struct http_head){ .headers = parser->head.headers, .content_length = -1 };
    parser->arena_length = 0;
    parser->line_start = 0;
    parser->line_bits = 0;
    parser->known_seen = 0;
    parser->wants_close = false;
    parser->wants_keep_alive = false;
    parser->wants_upgrade = false;
    parser->no_body = false;
}

/* --- lines --------------------------------------------------------------------------------- */

static void arena_append(struct http_parser *parser, const uint8_t *data, size_t length)
{
    http_arena_reserve(parser, length);
    memcpy(parser->arena + parser->arena_length, data, length);
    parser->arena_length += length;
}

static int line_refuse_length(struct http_parser *parser)
{
    if (parser->state == HTTP_STATE_FIRST_LINE)
        return http_parser_refuse(parser, 414, "the request line is too long");
    return http_parser_refuse(parser, 431, "the head of the request is too long");
}

static int line_refuse_byte(struct http_parser *parser, uint8_t byte)
{
    if (byte == '\n')
        return http_parser_refuse(parser, 400, "a line ends in LF without CR");
    return http_parser_refuse(parser, 400, "a control character in the head");
}

/* How many bytes the current line may still take, its CRLF included. */
static size_t line_room(const struct http_parser *parser)
{
    size_t held = parser->arena_length - parser->line_start;
    size_t head = parser->limits.head_bytes - MIN(parser->arena_length, parser->limits.head_bytes);

    if (parser->state == HTTP_STATE_FIRST_LINE)
        return MIN(head, parser->limits.line_bytes + 2 - held);
    return head;
}

static size_t line_scan(struct http_parser *parser, const uint8_t *data, size_t length)
{
    uint8_t bits = parser->line_bits;
    size_t at = 0;

    for (; at < length && !(http_char_class[data[at]] & HTTP_CHAR_CONTROL); at++)
        bits |= data[at];
    parser->line_bits = bits;
    return at;
}

/*
 * Moves bytes into the arena up to the end of the line. 1: the line is complete, a C string at
 * line_start; 0: more is needed; -1: refused. The outcome does not depend on how the input was cut.
 */
static int line_read(struct http_parser *parser, const uint8_t *data, size_t length,
                     size_t *out_used)
{
    size_t room = line_room(parser);
    size_t window = MIN(length, room);
    size_t at = 0;
    bool has_cr = parser->arena_length > parser->line_start &&
                  parser->arena[parser->arena_length - 1] == '\r';

    if (!has_cr) {
        at = line_scan(parser, data, window);
        if (at < window && data[at] != '\r')
            return line_refuse_byte(parser, data[at]);
        at += at < window;
        arena_append(parser, data, at);
    }
    *out_used = at;
    if (at == room)
        return line_refuse_length(parser);
    if (at == length)
        return 0;
    if (data[at] != '\n')
        return http_parser_refuse(parser, 400, "a CR without LF in the head");
    arena_append(parser, data + at, 1);
    *out_used = at + 1;
    parser->arena[parser->arena_length - 2] = '\0';
    return 1;
}

/* --- the first line ------------------------------------------------------------------------ */

/* "HTTP/1.1" and nothing else before `end`. */
static int version_read(struct http_parser *parser, const char *text, size_t length)
{
    if (length != 8 || memcmp(text, "HTTP/", 5) != 0 || text[6] != '.' || text[5] < '0' ||
        text[5] > '9' || text[7] < '0' || text[7] > '9')
        return http_parser_refuse(parser, 400, "the HTTP version is malformed");
    if (text[5] != '1' || text[7] > '1')
        return http_parser_refuse(parser, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    parser->head.minor_version = (unsigned)(text[7] - '0');
    return 0;
}

static int request_line(struct http_parser *parser, char *line, size_t length)
{
    size_t method = 0;
    char *target;
    char *space;

    while (http_char_is(line[method], HTTP_CHAR_TOKEN))
        method++;
    if (!method || line[method] != ' ')
        return http_parser_refuse(parser, 400, "the method is malformed");
    target = line + method + 1;
    space = strchr(target, ' ');
    if (!space || space == target)
        return http_parser_refuse(parser, 400, "the request line is malformed");
    if (version_read(parser, space + 1, length - (size_t)(space + 1 - line)) < 0)
        return -1;
    parser->head.method = http_method_find(line, method);
    if (parser->head.method == HTTP_METHODS)
        return http_parser_refuse(parser, 501, "the method is not supported");
    *space = '\0';
    parser->target = (size_t)(target - parser->arena);
    return http_target_check(parser, target, (size_t)(space - target));
}

static int status_line(struct http_parser *parser, const char *line, size_t length)
{
    int status = 0;

    if (length < 12 || line[8] != ' ' || (length > 12 && line[12] != ' '))
        return http_parser_refuse(parser, 400, "the status line is malformed");
    if (version_read(parser, line, 8) < 0)
        return -1;
    for (size_t i = 9; i < 12; i++) {
        if (line[i] < '0' || line[i] > '9')
            return http_parser_refuse(parser, 400, "the status line is malformed");
        status = status * 10 + (line[i] - '0');
    }
    if (status < 100)
        return http_parser_refuse(parser, 400, "the status is out of range");
    parser->head.status = status;
    return 0;
}

/* --- headers ------------------------------------------------------------------------------- */

static int take_content_length(struct http_parser *parser, const char *value)
{
    uint64_t length;

    if (str_to_u64(value, &length) < 0 || length > INT64_MAX || strlen(value) > 19)
        return http_parser_refuse(parser, 400, "Content-Length is not a number");
    parser->head.content_length = (int64_t)length;
    return 0;
}

static int take_transfer_encoding(struct http_parser *parser, const char *value)
{
    if (strcmp(value, "chunked") != 0)
        return http_parser_refuse(parser, 400, "the only transfer coding is chunked");
    parser->head.chunked = true;
    return 0;
}

static bool option_is(const char *option, size_t length, const char *name)
{
    return strlen(name) == length && strncasecmp(option, name, length) == 0;
}

static int take_connection(struct http_parser *parser, const char *value)
{
    while (*value) {
        size_t length = strcspn(value, ", \t");

        parser->wants_close |= option_is(value, length, "close");
        parser->wants_keep_alive |= option_is(value, length, "keep-alive");
        parser->wants_upgrade |= option_is(value, length, "upgrade");
        value += length;
        value += strspn(value, ", \t");
    }
    return 0;
}

static int take_expect(struct http_parser *parser, const char *value)
{
    if (parser->kind == HTTP_KIND_RESPONSE)
        return 0;
    if (strcasecmp(value, "100-continue") != 0)
        return http_parser_refuse(parser, 417, "the only expectation is 100-continue");
    parser->head.expect_continue = true;
    return 0;
}

static int take_upgrade(struct http_parser *parser, const char *value)
{
    parser->head.upgrade = *value != '\0';
    return 0;
}

#define NAME(text) text, sizeof(text) - 1

/* The first three are asked for by their row. */
enum { KNOWN_HOST, KNOWN_CONTENT_LENGTH, KNOWN_TRANSFER_ENCODING };

static const struct known_header known_headers[] = {
    [KNOWN_HOST] = { NAME("host"), http_host_check, true, false },
    [KNOWN_CONTENT_LENGTH] = { NAME("content-length"), take_content_length, true, true },
    [KNOWN_TRANSFER_ENCODING] = { NAME("transfer-encoding"), take_transfer_encoding, true, true },
    { NAME("connection"), take_connection, false, false },
    { NAME("expect"), take_expect, true, false },
    { NAME("upgrade"), take_upgrade, true, false },
    { NAME("authorization"), NULL, true, false },
    { NAME("content-type"), NULL, true, false },
    { NAME("x-sandglass-on-behalf-of"), NULL, true, false },
    { NAME("x-api-key"), NULL, true, false },
    { NAME("idempotency-key"), NULL, true, false },
    { NAME("origin"), NULL, true, false },
    { NAME("range"), NULL, true, false },
    { NAME("last-event-id"), NULL, true, false },
};

static bool parser_saw(const struct http_parser *parser, size_t row)
{
    return parser->known_seen >> row & 1;
}

static int header_take(struct http_parser *parser, const char *name, size_t length,
                       const char *value)
{
    for (size_t row = 0; row < ARRAY_LENGTH(known_headers); row++) {
        const struct known_header *known = &known_headers[row];

        if (known->length != length || memcmp(known->name, name, length) != 0)
            continue;
        if (parser_saw(parser, row) &&
            (parser->kind == HTTP_KIND_REQUEST ? known->once : known->frames))
            return http_parser_refuse(parser, 400, "a header that may come once is repeated");
        parser->known_seen |= 1U << row;
        return known->take ? known->take(parser, value) : 0;
    }
    return 0;
}

/* Refuses X_API_Key and the like, which programs behind gateways read as X-API-Key. */
static int header_check_underscores(struct http_parser *parser, const char *name, size_t length)
{
    for (size_t row = 0; row < ARRAY_LENGTH(known_headers); row++) {
        const struct known_header *known = &known_headers[row];
        size_t same = 0;

        if (known->length != length)
            continue;
        while (same < length &&
               (name[same] == known->name[same] || (name[same] == '_' && known->name[same] == '-')))
            same++;
        if (same == length)
            return http_parser_refuse(parser, 400, "a header name is written with underscores");
    }
    return 0;
}

static void span_append(struct http_parser *parser, const char *name, const char *value)
{
    struct http_head *head = &parser->head;

    if (head->header_count == parser->span_capacity) {
        parser->span_capacity = MAX(parser->span_capacity * 2, (size_t)SPANS_SMALLEST);
        parser->spans = xrealloc(parser->spans, parser->span_capacity, sizeof(parser->spans[0]));
        head->headers = xrealloc(head->headers, parser->span_capacity, sizeof(head->headers[0]));
    }
    parser->spans[head->header_count++] = (struct http_span){
        (uint32_t)(name - parser->arena),
        (uint32_t)(value - parser->arena),
    };
}

/* Lower-cases the name in place; its length, or 0 with the error set. */
static size_t header_name(struct http_parser *parser, char *line, bool *out_underscore)
{
    size_t length = 0;

    for (; http_char_is(line[length], HTTP_CHAR_TOKEN); length++) {
        if (line[length] >= 'A' && line[length] <= 'Z')
            line[length] |= 0x20;
        *out_underscore |= line[length] == '_';
    }
    if (line[length] == ':' && length)
        return length;
    if (length == 0 && (line[0] == ' ' || line[0] == '\t'))
        http_parser_refuse(parser, 400, "a folded header line");
    else if (line[length] == ' ' || line[length] == '\t')
        http_parser_refuse(parser, 400, "a space in or behind a header name");
    else
        http_parser_refuse(parser, 400, "a header name is malformed");
    return 0;
}

static int header_line(struct http_parser *parser, char *line, size_t length)
{
    bool underscore = false;
    size_t name = header_name(parser, line, &underscore);
    char *value = line + name + 1;
    char *end = line + length;

    if (!name)
        return -1;
    if (parser->head.header_count == parser->limits.header_count)
        return http_parser_refuse(parser, 431, "too many headers");
    line[name] = '\0';
    while (*value == ' ' || *value == '\t')
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *end = '\0';
    if (parser->line_bits & 0x80 && !str_is_utf8(value, (size_t)(end - value)))
        return http_parser_refuse(parser, 400, "a header value is not UTF-8");
    span_append(parser, line, value);
    if (underscore && parser->kind == HTTP_KIND_REQUEST &&
        header_check_underscores(parser, line, name) < 0)
        return -1;
    return header_take(parser, line, name, value);
}

/* --- the end of the head ------------------------------------------------------------------- */

static int framing_check(struct http_parser *parser)
{
    const struct http_head *head = &parser->head;

    if (head->chunked && head->minor_version == 0)
        return http_parser_refuse(parser, 400, "Transfer-Encoding in HTTP/1.0");
    if (head->chunked && parser_saw(parser, KNOWN_CONTENT_LENGTH))
        return http_parser_refuse(parser, 400, "both Content-Length and Transfer-Encoding");
    if (parser->kind == HTTP_KIND_REQUEST && head->minor_version == 1 &&
        !parser_saw(parser, KNOWN_HOST))
        return http_parser_refuse(parser, 400, "the Host header is missing");
    if (head->content_length > 0 && (uint64_t)head->content_length > parser->limits.body_bytes &&
        !parser->no_body)
        return http_parser_refuse(parser, 413, "the body is too large");
    return 0;
}

static bool response_has_body(const struct http_parser *parser)
{
    int status = parser->head.status;

    return !parser->no_body && status >= 200 && status != 204 && status != 304;
}

static void framing_set(struct http_parser *parser)
{
    struct http_head *head = &parser->head;
    bool open_ended = false;

    if (parser->kind == HTTP_KIND_REQUEST) {
        head->has_body = head->chunked || head->content_length > 0;
    } else if (response_has_body(parser)) {
        open_ended = !head->chunked && head->content_length < 0;
        head->has_body = head->chunked || head->content_length != 0;
    }
    head->keep_alive = head->minor_version ? !parser->wants_close
                                           : parser->wants_keep_alive && !parser->wants_close;
    head->keep_alive &= !open_ended;
    head->upgrade &= parser->wants_upgrade && head->minor_version == 1;
    head->expect_continue &= head->has_body && head->minor_version == 1;
    parser->left = head->has_body && head->content_length > 0 ? (uint64_t)head->content_length : 0;
    parser->body_bytes = 0;
    parser->digits = 0;
    parser->trailer_bytes = 0;
    parser->trailer_count = 0;
    if (!head->has_body)
        parser->state = HTTP_STATE_DONE;
    else if (head->chunked)
        parser->state = HTTP_STATE_CHUNK_SIZE;
    else
        parser->state = open_ended ? HTTP_STATE_BODY_TO_EOF : HTTP_STATE_BODY_LENGTH;
}

static int head_finish(struct http_parser *parser)
{
    struct http_head *head = &parser->head;

    if (framing_check(parser) < 0)
        return -1;
    if (parser->kind == HTTP_KIND_REQUEST && http_target_decode(parser) < 0)
        return -1;
    for (size_t i = 0; i < head->header_count; i++)
        head->headers[i] = (struct http_header){
            parser->arena + parser->spans[i].name,
            parser->arena + parser->spans[i].value,
        };
    framing_set(parser);
    return 0;
}

/* 1: the head is complete; 0: go on; -1: refused. */
static int head_line(struct http_parser *parser)
{
    char *line = parser->arena + parser->line_start;
    size_t length = parser->arena_length - parser->line_start - 2;

    if (parser->state == HTTP_STATE_FIRST_LINE) {
        parser->state = HTTP_STATE_HEADERS;
        return parser->kind == HTTP_KIND_REQUEST ? request_line(parser, line, length)
                                                 : status_line(parser, line, length);
    }
    if (length == 0)
        return head_finish(parser) < 0 ? -1 : 1;
    return header_line(parser, line, length);
}

enum http_event http_head_feed(struct http_parser *parser, const uint8_t *data, size_t length,
                               size_t *out_used)
{
    *out_used = 0;
    while (*out_used < length) {
        size_t used = 0;
        int result = line_read(parser, data + *out_used, length - *out_used, &used);

        *out_used += used;
        if (result == 0)
            break;
        if (result > 0)
            result = head_line(parser);
        if (result < 0)
            return HTTP_BAD;
        if (result > 0)
            return HTTP_HEAD_DONE;
        parser->line_start = parser->arena_length;
        parser->line_bits = 0;
    }
    return HTTP_NEED_MORE;
}

const char *http_head_header(const struct http_head *head, const char *name)
{
    for (size_t i = 0; i < head->header_count; i++) {
        if (strcmp(head->headers[i].name, name) == 0)
            return head->headers[i].value;
    }
    return NULL;
}
