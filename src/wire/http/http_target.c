/* SPDX-License-Identifier: Apache-2.0 */
/* The request target and the Host header. */

#include "base/str.h"
#include "wire/http/http_parser.h"

#include <string.h>

/* Escapes are two hexadecimal digits, and none of them is a NUL. */
static int escape_check(struct http_parser *parser, const char *escape)
{
    if (!http_char_is(escape[1], HTTP_CHAR_HEX) || !http_char_is(escape[2], HTTP_CHAR_HEX))
        return http_parser_refuse(parser, 400, "a malformed percent escape in the target");
    if (escape[1] == '0' && escape[2] == '0')
        return http_parser_refuse(parser, 400, "a NUL in the target");
    return 0;
}

int http_target_check(struct http_parser *parser, const char *target, size_t length)
{
    if (strcmp(target, "*") == 0 && parser->head.method == HTTP_OPTIONS)
        return 0;
    if (target[0] != '/')
        return http_parser_refuse(parser, 400, "the target is not a path");
    for (size_t i = 0; i < length; i++) {
        if (http_char_is(target[i], HTTP_CHAR_TARGET))
            continue;
        if (target[i] != '%')
            return http_parser_refuse(parser, 400, "a character that the target may not have");
        if (escape_check(parser, target + i) < 0)
            return -1;
    }
    return 0;
}

/* The decoded path goes behind the head; it is never longer than the target. */
int http_target_decode(struct http_parser *parser)
{
    struct http_head *head = &parser->head;
    size_t longest = strlen(parser->arena + parser->target);
    const char *from;
    char *to;
    char bits = 0;
    bool has_control = false;

    http_arena_reserve(parser, longest + 1);
    head->target = parser->arena + parser->target;
    head->path = parser->arena + parser->arena_length;
    from = head->target;
    for (to = head->path; *from && *from != '?'; to++) {
        *to = *from++;
        if (*to == '%') {
            *to = (char)(http_hex_digit(from[0]) << 4 | http_hex_digit(from[1]));
            bits |= *to;
            has_control |= http_char_is(*to, HTTP_CHAR_CONTROL) || *to == '\t';
            from += 2;
        }
    }
    *to = '\0';
    head->query = *from == '?' ? from + 1 : from;
    if (has_control)
        return http_parser_refuse(parser, 400, "a control character in the path");
    if (bits & 0x80 && !str_is_utf8(head->path, (size_t)(to - head->path)))
        return http_parser_refuse(parser, 400, "the path is not UTF-8");
    return 0;
}

/* ":" and a number up to 65535, or nothing. */
static bool port_is_valid(const char *text)
{
    unsigned port = 0;

    if (!*text)
        return true;
    if (*text++ != ':' || !*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        port = port * 10 + (unsigned)(*text - '0');
        if (port > 65535)
            return false;
    }
    return true;
}

static bool host_is_valid(const char *host)
{
    size_t length = 0;

    if (*host == '[') {
        length = 1 + strspn(host + 1, "0123456789abcdefABCDEF:.");
        return length > 2 && host[length] == ']' && port_is_valid(host + length + 1);
    }
    while (http_char_is(host[length], HTTP_CHAR_HOST))
        length++;
    return length > 0 && port_is_valid(host + length);
}

int http_host_check(struct http_parser *parser, const char *host)
{
    if (parser->kind == HTTP_KIND_REQUEST && !host_is_valid(host))
        return http_parser_refuse(parser, 400, "the Host header is malformed");
    return 0;
}
