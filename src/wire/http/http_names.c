/* SPDX-License-Identifier: Apache-2.0 */
/* Tables: character classes, methods, reason phrases. */

#include "base/macros.h"
#include "wire/http/http_parser.h"

#include <string.h>

#define CONTROL HTTP_CHAR_CONTROL
#define TOKEN HTTP_CHAR_TOKEN
#define TARGET HTTP_CHAR_TARGET
#define HOST HTTP_CHAR_HOST
#define HEX HTTP_CHAR_HEX

const uint8_t http_char_class[256] = {
    [0 ... 8] = CONTROL,
    [10 ... 31] = CONTROL,
    [127] = CONTROL,
    ['0' ... '9'] = TOKEN | TARGET | HOST | HEX,
    ['A' ... 'F'] = TOKEN | TARGET | HOST | HEX,
    ['a' ... 'f'] = TOKEN | TARGET | HOST | HEX,
    ['G' ... 'Z'] = TOKEN | TARGET | HOST,
    ['g' ... 'z'] = TOKEN | TARGET | HOST,
    ['-'] = TOKEN | TARGET | HOST,
    ['.'] = TOKEN | TARGET | HOST,
    ['_'] = TOKEN | TARGET | HOST,
    ['~'] = TOKEN | TARGET,
    ['!'] = TOKEN | TARGET,
    ['$'] = TOKEN | TARGET,
    ['&'] = TOKEN | TARGET,
    ['\''] = TOKEN | TARGET,
    ['*'] = TOKEN | TARGET,
    ['+'] = TOKEN | TARGET,
    ['#'] = TOKEN,
    ['%'] = TOKEN,
    ['^'] = TOKEN,
    ['`'] = TOKEN,
    ['|'] = TOKEN,
    ['('] = TARGET,
    [')'] = TARGET,
    [','] = TARGET,
    [';'] = TARGET,
    ['='] = TARGET,
    [':'] = TARGET,
    ['@'] = TARGET,
    ['/'] = TARGET,
    ['?'] = TARGET,
};

int http_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static const char *const method_names[HTTP_METHODS] = {
    [HTTP_GET] = "GET",         [HTTP_HEAD] = "HEAD",   [HTTP_POST] = "POST",
    [HTTP_PUT] = "PUT",         [HTTP_PATCH] = "PATCH", [HTTP_DELETE] = "DELETE",
    [HTTP_OPTIONS] = "OPTIONS",
};

const char *http_method_name(enum http_method method)
{
    return method_names[method];
}

enum http_method http_method_find(const char *name, size_t length)
{
    for (size_t i = 0; i < HTTP_METHODS; i++) {
        if (strlen(method_names[i]) == length && memcmp(method_names[i], name, length) == 0)
            return (enum http_method)i;
    }
    return HTTP_METHODS;
}

static const struct {
    int status;
    const char *text;
} status_texts[] = {
    { 100, "Continue" },
    { 101, "Switching Protocols" },
    { 200, "OK" },
    { 201, "Created" },
    { 202, "Accepted" },
    { 204, "No Content" },
    { 206, "Partial Content" },
    { 301, "Moved Permanently" },
    { 302, "Found" },
    { 303, "See Other" },
    { 304, "Not Modified" },
    { 307, "Temporary Redirect" },
    { 308, "Permanent Redirect" },
    { 400, "Bad Request" },
    { 401, "Unauthorized" },
    { 402, "Payment Required" },
    { 403, "Forbidden" },
    { 404, "Not Found" },
    { 405, "Method Not Allowed" },
    { 406, "Not Acceptable" },
    { 408, "Request Timeout" },
    { 409, "Conflict" },
    { 410, "Gone" },
    { 411, "Length Required" },
    { 412, "Precondition Failed" },
    { 413, "Content Too Large" },
    { 414, "URI Too Long" },
    { 415, "Unsupported Media Type" },
    { 416, "Range Not Satisfiable" },
    { 417, "Expectation Failed" },
    { 421, "Misdirected Request" },
    { 422, "Unprocessable Content" },
    { 423, "Locked" },
    { 426, "Upgrade Required" },
    { 428, "Precondition Required" },
    { 429, "Too Many Requests" },
    { 431, "Request Header Fields Too Large" },
    { 499, "Client Closed Request" },
    { 500, "Internal Server Error" },
    { 501, "Not Implemented" },
    { 502, "Bad Gateway" },
    { 503, "Service Unavailable" },
    { 504, "Gateway Timeout" },
    { 505, "HTTP Version Not Supported" },
    { 507, "Insufficient Storage" },
};

const char *http_status_text(int status)
{
    for (size_t i = 0; i < ARRAY_LENGTH(status_texts); i++) {
        if (status_texts[i].status == status)
            return status_texts[i].text;
    }
    return "Unknown";
}
