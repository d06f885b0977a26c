/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of requests and responses, most of them hostile. Each row is read whole, byte by byte and
 * cut in two at every place, and has to end the same way.
 */

#include "wire/http/http.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct row {
    const char *what;
    const char *bytes;
    size_t length;
    int status;       /* 0: accepted */
    const char *body; /* of accepted rows: all bodies, one after the other */
    unsigned messages;
};

#define REFUSED(code, title, text)                   \
    {                                                \
        title, text, sizeof(text) - 1, code, NULL, 0 \
    }
#define ACCEPTED(title, text, content, number)            \
    {                                                     \
        title, text, sizeof(text) - 1, 0, content, number \
    }
#define H "Host: a\r\n"
#define GET_WITH(headers) "GET / HTTP/1.1\r\n" H headers "\r\n"
#define POST_CHUNKED(body) "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n" body
#define TARGET(target) "GET " target " HTTP/1.1\r\n" H "\r\n"
#define WITH_HOST(host) "GET / HTTP/1.1\r\nHost:" host "\r\n\r\n"

static const struct row requests[] = {
    ACCEPTED("a plain request", TARGET("/"), "", 1),
    ACCEPTED("every method",
             "HEAD / HTTP/1.1\r\n" H "\r\nPUT / HTTP/1.1\r\n" H "\r\nPATCH / HTTP/1.1\r\n" H
             "\r\nDELETE / HTTP/1.1\r\n" H "\r\nOPTIONS / HTTP/1.1\r\n" H "\r\n",
             "", 5),
    ACCEPTED("a body by length", "POST / HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello", "hello",
             1),
    ACCEPTED("a body by chunks", POST_CHUNKED("3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"),
             "abc0123456789", 1),
    ACCEPTED("chunk sizes with leading zeros", POST_CHUNKED("0003\r\nabc\r\n000\r\n\r\n"), "abc",
             1),
    ACCEPTED("trailers, which are dropped", POST_CHUNKED("1\r\na\r\n0\r\nX-Sum: 1\r\nB:\r\n\r\n"),
             "a", 1),
    ACCEPTED("pipelined requests",
             "POST / HTTP/1.1\r\n" H "Content-Length: 2\r\n\r\nab" TARGET("/x"), "ab", 2),
    ACCEPTED("no length means no body", "POST / HTTP/1.1\r\n" H "\r\n" TARGET("/"), "", 2),
    ACCEPTED("length zero", "POST / HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\n" TARGET("/"), "", 2),
    ACCEPTED("a body on GET", "GET / HTTP/1.1\r\n" H "Content-Length: 1\r\n\r\nx" TARGET("/"), "x",
             2),
    ACCEPTED("HTTP/1.0 without Host", "GET / HTTP/1.0\r\n\r\n", "", 1),
    ACCEPTED("OPTIONS *", "OPTIONS * HTTP/1.1\r\n" H "\r\n", "", 1),
    ACCEPTED("spaces around a value", GET_WITH("A: \t b \t\r\n"), "", 1),
    ACCEPTED("no space before a value", GET_WITH("A:b\r\n"), "", 1),
    ACCEPTED("an empty value", GET_WITH("A:\r\n"), "", 1),
    ACCEPTED("a UTF-8 value", GET_WITH("A: \xc3\xa9\r\n"), "", 1),
    ACCEPTED("a tab inside a value", GET_WITH("A: b\tc\r\n"), "", 1),
    ACCEPTED("every character of a name", GET_WITH("!#$%&'*+-.^_`|~09azAZ: b\r\n"), "", 1),
    ACCEPTED("several Accept headers", GET_WITH("Accept: a\r\nAccept: b\r\n"), "", 1),
    ACCEPTED("a host with a port", WITH_HOST(" a.b-c_d:65535"), "", 1),
    ACCEPTED("an IPv6 host", WITH_HOST(" [::1]:7420"), "", 1),
    ACCEPTED("every character of a target", TARGET("/a-._~!$&'()*+,;=:@/%41?b/?c=%ff"), "", 1),

    REFUSED(400, "an empty line first", "\r\n" TARGET("/")),
    REFUSED(400, "LF first", "\n" TARGET("/")),
    REFUSED(400, "a space first", " GET / HTTP/1.1\r\n" H "\r\n"),
    REFUSED(400, "HTTP/0.9", "GET /\r\n\r\n"),
    REFUSED(400, "HTTP/0.9 with a space", "GET / \r\n\r\n"),
    REFUSED(400, "two spaces after the method", "GET  / HTTP/1.1\r\n" H "\r\n"),
    REFUSED(400, "two spaces before the version", "GET /  HTTP/1.1\r\n" H "\r\n"),
    REFUSED(400, "a space after the version", "GET / HTTP/1.1 \r\n" H "\r\n"),
    REFUSED(400, "a space in the target", "GET /a b HTTP/1.1\r\n" H "\r\n"),
    REFUSED(400, "a tab instead of a space", "GET\t/ HTTP/1.1\r\n" H "\r\n"),
    REFUSED(400, "a tab before the version", "GET /\tHTTP/1.1\r\n" H "\r\n"),
    REFUSED(400, "a vertical tab", "GET\v/ HTTP/1.1\r\n" H "\r\n"),
    REFUSED(400, "bare LF after the request line", "GET / HTTP/1.1\n" H "\r\n"),
    REFUSED(400, "bare LF after a header", "GET / HTTP/1.1\r\nHost: a\n\r\n"),
    REFUSED(400, "bare LF as the end", "GET / HTTP/1.1\r\n" H "\n"),
    REFUSED(400, "bare LF everywhere", "GET / HTTP/1.1\nHost: a\n\n"),
    REFUSED(400, "bare CR after the request line", "GET / HTTP/1.1\rHost: a\r\n\r\n"),
    REFUSED(400, "bare CR in a value", GET_WITH("A: b\rc\r\n")),
    REFUSED(400, "two CR before LF", GET_WITH("A: b\r\r\n")),
    REFUSED(400, "a CR alone as the end",
            "GET / HTTP/1.1\r\n" H "\r"
            "x"),
    REFUSED(400, "no method", "/ HTTP/1.1\r\n" H "\r\n"),
    REFUSED(400, "a method that is no token", "G(T / HTTP/1.1\r\n" H "\r\n"),
    REFUSED(400, "a NUL in the method", "G\0T / HTTP/1.1\r\n" H "\r\n"),
    REFUSED(501, "an unknown method", "BREW / HTTP/1.1\r\n" H "\r\n"),
    REFUSED(501, "a method in lower case", "get / HTTP/1.1\r\n" H "\r\n"),
    REFUSED(501, "a method with more behind it", "GETX / HTTP/1.1\r\n" H "\r\n"),
    REFUSED(501, "TRACE", "TRACE / HTTP/1.1\r\n" H "\r\n"),
    REFUSED(501, "CONNECT", "CONNECT a:1 HTTP/1.1\r\n" H "\r\n"),
    REFUSED(505, "the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    REFUSED(505, "HTTP/2.0", "GET / HTTP/2.0\r\n" H "\r\n"),
    REFUSED(505, "HTTP/1.2", "GET / HTTP/1.2\r\n" H "\r\n"),
    REFUSED(505, "HTTP/0.9 by name", "GET / HTTP/0.9\r\n" H "\r\n"),
    REFUSED(400, "a version in lower case", "GET / http/1.1\r\n" H "\r\n"),
    REFUSED(400, "a version with many digits", "GET / HTTP/1.10\r\n" H "\r\n"),
    REFUSED(400, "a version with a leading zero", "GET / HTTP/01.1\r\n" H "\r\n"),
    REFUSED(400, "a version with a comma", "GET / HTTP/1,1\r\n" H "\r\n"),
    REFUSED(400, "a version without a number", "GET / HTTP/\r\n" H "\r\n"),
    REFUSED(400, "another protocol", "GET / ICY/1.1\r\n" H "\r\n"),
    REFUSED(400, "a TLS hello", "\x16\x03\x01\x02\x00\x01\x00\x01"),

    REFUSED(400, "the absolute form", TARGET("http://a/")),
    REFUSED(400, "the authority form", TARGET("a:80")),
    REFUSED(400, "an asterisk for GET", TARGET("*")),
    REFUSED(400, "a relative target", TARGET("a/b")),
    REFUSED(400, "a query alone", TARGET("?a")),
    REFUSED(400, "a fragment", TARGET("/a#b")),
    REFUSED(400, "non-ASCII in the target", TARGET("/\xc3\xa9")),
    REFUSED(400, "a control character in the target", TARGET("/\x01")),
    REFUSED(400, "DEL in the target", TARGET("/\x7f")),
    REFUSED(400, "a NUL in the target", TARGET("/\0")),
    REFUSED(400, "a backslash in the target", TARGET("/..\\a")),
    REFUSED(400, "a quote in the target", TARGET("/\"")),
    REFUSED(400, "angle brackets in the target", TARGET("/<a>")),
    REFUSED(400, "an escape without digits", TARGET("/%")),
    REFUSED(400, "an escape with one digit", TARGET("/%4")),
    REFUSED(400, "an escape with a bad digit", TARGET("/%4g")),
    REFUSED(400, "an escape in the style of IIS", TARGET("/%u0041")),
    REFUSED(400, "an escaped NUL", TARGET("/%00")),
    REFUSED(400, "an escaped NUL in the query", TARGET("/?a=%00")),
    REFUSED(400, "a bad escape in the query", TARGET("/?a=%zz")),
    REFUSED(400, "a path that is not UTF-8", TARGET("/%ff")),
    REFUSED(400, "an overlong slash", TARGET("/%c0%af")),
    REFUSED(400, "an escaped line break in the path", TARGET("/a%0d%0ab")),
    REFUSED(400, "an escaped tab in the path", TARGET("/%09")),
    REFUSED(400, "half a surrogate", TARGET("/%ed%a0%80")),

    REFUSED(400, "no Host", "GET / HTTP/1.1\r\n\r\n"),
    REFUSED(400, "two Hosts", GET_WITH("Host: b\r\n")),
    REFUSED(400, "the same Host twice", GET_WITH("host: a\r\n")),
    REFUSED(400, "an empty Host", WITH_HOST("")),
    REFUSED(400, "a Host with a space", WITH_HOST(" a b")),
    REFUSED(400, "a Host with a slash", WITH_HOST(" a/b")),
    REFUSED(400, "a Host with a user", WITH_HOST(" u@a")),
    REFUSED(400, "a list of Hosts", WITH_HOST(" a,b")),
    REFUSED(400, "a Host with a bad port", WITH_HOST(" a:b")),
    REFUSED(400, "a Host with a port too large", WITH_HOST(" a:65536")),
    REFUSED(400, "a Host with a port longer than a number", WITH_HOST(" a:4294967376")),
    REFUSED(400, "a Host with an empty port", WITH_HOST(" a:")),
    REFUSED(400, "a Host with two ports", WITH_HOST(" a:1:2")),
    REFUSED(400, "a port alone as Host", WITH_HOST(" :80")),
    REFUSED(400, "an open bracket in Host", WITH_HOST(" [::1")),
    REFUSED(400, "empty brackets in Host", WITH_HOST(" []")),
    REFUSED(400, "text behind the brackets of Host", WITH_HOST(" [::1]a")),
    REFUSED(400, "a zone in Host", WITH_HOST(" [fe80::1%25eth0]")),
    REFUSED(400, "non-ASCII in Host", WITH_HOST(" \xc3\xa9")),
    REFUSED(400, "an escape in Host", WITH_HOST(" a%2eb")),

    REFUSED(400, "a folded header", GET_WITH("A: b\r\n c\r\n")),
    REFUSED(400, "a header folded by a tab", GET_WITH("A: b\r\n\tc\r\n")),
    REFUSED(400, "a folded first header", "GET / HTTP/1.1\r\n " H "\r\n"),
    REFUSED(400, "a space before the colon", GET_WITH("A : b\r\n")),
    REFUSED(400, "a tab before the colon", GET_WITH("A\t: b\r\n")),
    REFUSED(400, "a space inside a name", GET_WITH("A b: c\r\n")),
    REFUSED(400, "a header without a colon", GET_WITH("A\r\n")),
    REFUSED(400, "an empty name", GET_WITH(": b\r\n")),
    REFUSED(400, "a name with parentheses", GET_WITH("A(b): c\r\n")),
    REFUSED(400, "a name with a quote", GET_WITH("\"A\": c\r\n")),
    REFUSED(400, "a name with non-ASCII", GET_WITH("\xc3\xa9: c\r\n")),
    REFUSED(400, "a name with a NUL", GET_WITH("A\0b: c\r\n")),
    REFUSED(400, "a name with DEL", GET_WITH("A\x7f: c\r\n")),
    REFUSED(400, "a NUL in a value", GET_WITH("A: b\0c\r\n")),
    REFUSED(400, "a control character in a value", GET_WITH("A: b\x01\r\n")),
    REFUSED(400, "an escape character in a value", GET_WITH("A: \x1b[0m\r\n")),
    REFUSED(400, "a vertical tab in a value", GET_WITH("A: b\vc\r\n")),
    REFUSED(400, "a form feed in a value", GET_WITH("A: b\fc\r\n")),
    REFUSED(400, "DEL in a value", GET_WITH("A: b\x7f\r\n")),
    REFUSED(400, "a value that is not UTF-8", GET_WITH("A: \xff\r\n")),
    REFUSED(400, "two Authorizations", GET_WITH("Authorization: a\r\nauthorization: b\r\n")),
    REFUSED(400, "two owners",
            GET_WITH("X-Sandglass-On-Behalf-Of: a\r\nx-sandglass-on-behalf-of: b\r\n")),
    REFUSED(400, "an owner with underscores", GET_WITH("X_Sandglass_On_Behalf_Of: a\r\n")),
    REFUSED(400, "two keys", GET_WITH("X-API-Key: a\r\nX-Api-Key: b\r\n")),
    REFUSED(400, "two content types", GET_WITH("Content-Type: a\r\nContent-Type: b\r\n")),
    REFUSED(400, "two idempotency keys", GET_WITH("Idempotency-Key: a\r\nIdempotency-Key: a\r\n")),
    REFUSED(400, "two origins", GET_WITH("Origin: a\r\nOrigin: b\r\n")),

    REFUSED(400, "length and chunks",
            GET_WITH("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n")),
    REFUSED(400, "chunks and length",
            GET_WITH("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n")),
    REFUSED(400, "two lengths", GET_WITH("Content-Length: 3\r\nContent-Length: 4\r\n")),
    REFUSED(400, "the same length twice", GET_WITH("Content-Length: 3\r\nContent-Length: 3\r\n")),
    REFUSED(400, "a list of lengths", GET_WITH("Content-Length: 3, 3\r\n")),
    REFUSED(400, "a length with plus", GET_WITH("Content-Length: +3\r\n")),
    REFUSED(400, "a negative length", GET_WITH("Content-Length: -1\r\n")),
    REFUSED(400, "a length in hexadecimal", GET_WITH("Content-Length: 0x3\r\n")),
    REFUSED(400, "a length with a space", GET_WITH("Content-Length: 3 3\r\n")),
    REFUSED(400, "a length with a fraction", GET_WITH("Content-Length: 3.0\r\n")),
    REFUSED(400, "a length with an exponent", GET_WITH("Content-Length: 1e3\r\n")),
    REFUSED(400, "an empty length", GET_WITH("Content-Length:\r\n")),
    REFUSED(400, "a length past 63 bits", GET_WITH("Content-Length: 9223372036854775808\r\n")),
    REFUSED(400, "a length past 64 bits", GET_WITH("Content-Length: 18446744073709551621\r\n")),
    REFUSED(400, "a length of many zeros", GET_WITH("Content-Length: 00000000000000000003\r\n")),
    REFUSED(400, "a length in other digits", GET_WITH("Content-Length: \xd9\xa3\r\n")),
    REFUSED(400, "a length with underscores", GET_WITH("Content_Length: 3\r\n")),
    REFUSED(400, "an unknown coding", GET_WITH("Transfer-Encoding: gzip\r\n")),
    REFUSED(400, "identity", GET_WITH("Transfer-Encoding: identity\r\n")),
    REFUSED(400, "gzip then chunked", GET_WITH("Transfer-Encoding: gzip, chunked\r\n")),
    REFUSED(400, "chunked twice in a list", GET_WITH("Transfer-Encoding: chunked, chunked\r\n")),
    REFUSED(400, "chunked twice",
            GET_WITH("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n")),
    REFUSED(400, "chunked then identity",
            GET_WITH("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n")),
    REFUSED(400, "chunked in capitals", GET_WITH("Transfer-Encoding: CHUNKED\r\n")),
    REFUSED(400, "chunked in quotes", GET_WITH("Transfer-Encoding: \"chunked\"\r\n")),
    REFUSED(400, "chunked with a parameter", GET_WITH("Transfer-Encoding: chunked;q=1\r\n")),
    REFUSED(400, "xchunked", GET_WITH("Transfer-Encoding: xchunked\r\n")),
    REFUSED(400, "an empty coding", GET_WITH("Transfer-Encoding:\r\n")),
    REFUSED(400, "a coding behind a vertical tab", GET_WITH("Transfer-Encoding:\vchunked\r\n")),
    REFUSED(400, "a coding with a space before the colon",
            GET_WITH("Transfer-Encoding : chunked\r\n")),
    REFUSED(400, "a coding with an underscore", GET_WITH("Transfer_Encoding: chunked\r\n")),
    REFUSED(400, "chunked in HTTP/1.0",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    REFUSED(417, "an unknown expectation", GET_WITH("Expect: 200-ok\r\n")),

    REFUSED(400, "an empty chunk size", POST_CHUNKED("\r\n")),
    REFUSED(400, "a chunk size with plus", POST_CHUNKED("+3\r\nabc\r\n0\r\n\r\n")),
    REFUSED(400, "a negative chunk size", POST_CHUNKED("-1\r\n")),
    REFUSED(400, "a chunk size with 0x", POST_CHUNKED("0x3\r\nabc\r\n0\r\n\r\n")),
    REFUSED(400, "a chunk size behind a space", POST_CHUNKED(" 3\r\nabc\r\n0\r\n\r\n")),
    REFUSED(400, "a chunk size before a space", POST_CHUNKED("3 \r\nabc\r\n0\r\n\r\n")),
    REFUSED(400, "a chunk size with an underscore", POST_CHUNKED("1_0\r\n")),
    REFUSED(400, "a chunk extension", POST_CHUNKED("3;a=b\r\nabc\r\n0\r\n\r\n")),
    REFUSED(400, "LF in a chunk extension", POST_CHUNKED("3;a\nabc\r\n0\r\n\r\n")),
    REFUSED(400, "a chunk size that ends in LF", POST_CHUNKED("3\nabc\r\n0\r\n\r\n")),
    REFUSED(400, "a chunk size that ends in CR", POST_CHUNKED("3\rabc\r\n0\r\n\r\n")),
    REFUSED(400, "a chunk size past 64 bits",
            POST_CHUNKED("10000000000000003\r\nabc\r\n0\r\n\r\n")),
    REFUSED(400, "a chunk size past 63 bits", POST_CHUNKED("8000000000000000\r\n")),
    REFUSED(400, "a chunk size of many zeros", POST_CHUNKED("00000000000000003\r\nabc\r\n")),
    REFUSED(400, "a chunk longer than it says", POST_CHUNKED("3\r\nabcd\r\n0\r\n\r\n")),
    REFUSED(400, "a chunk that ends in LF", POST_CHUNKED("3\r\nabc\n0\r\n\r\n")),
    REFUSED(400, "a chunk that ends in CR", POST_CHUNKED("3\r\nabc\r0\r\n\r\n")),
    REFUSED(400, "a chunk without an end", POST_CHUNKED("3\r\nabc0\r\n\r\n")),
    REFUSED(400, "a last chunk that ends in LF", POST_CHUNKED("0\n\r\n")),
    REFUSED(400, "a body that ends in LF", POST_CHUNKED("0\r\n\n")),
    REFUSED(400, "a trailer that ends in LF", POST_CHUNKED("0\r\nA: b\n\r\n")),
    REFUSED(400, "a folded trailer", POST_CHUNKED("0\r\nA: b\r\n c\r\n\r\n")),
    REFUSED(400, "a trailer with a space before the colon", POST_CHUNKED("0\r\nA : b\r\n\r\n")),
    REFUSED(400, "a trailer without a name", POST_CHUNKED("0\r\n: b\r\n\r\n")),
    REFUSED(400, "a trailer without a colon", POST_CHUNKED("0\r\nA\r\n\r\n")),
    REFUSED(400, "a trailer that is a length", POST_CHUNKED("0\r\nContent-Length: 5\r\n\r\n")),
    REFUSED(400, "a trailer that is a coding",
            POST_CHUNKED("0\r\nA: b\r\ntransfer-encoding: chunked\r\n\r\n")),
    REFUSED(400, "a trailer that is a host", POST_CHUNKED("0\r\nHOST: x\r\n\r\n")),
    REFUSED(400, "a trailer with a NUL", POST_CHUNKED("0\r\nA: \0\r\n\r\n")),
    REFUSED(400, "a second request that is bad", TARGET("/") "GET / HTTP/1.1\n\n"),
};

static const struct row responses[] = {
    ACCEPTED("a plain response", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", 1),
    ACCEPTED("no reason phrase", "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", "", 1),
    ACCEPTED("no space for a reason", "HTTP/1.1 204\r\n\r\n", "", 1),
    ACCEPTED("304 has no body", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", "", 1),
    ACCEPTED("an interim response first",
             "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", "a", 2),
    ACCEPTED("chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
             "a", 1),
    ACCEPTED("a body to the end", "HTTP/1.1 200 OK\r\n\r\nall of this", "all of this", 1),
    ACCEPTED("two cookies",
             "HTTP/1.1 200 OK\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 0\r\n\r\n", "",
             1),
    REFUSED(400, "a bad status", "HTTP/1.1 2x0 OK\r\n\r\n"),
    REFUSED(400, "a status with four digits", "HTTP/1.1 2000 OK\r\n\r\n"),
    REFUSED(400, "a status below 100", "HTTP/1.1 099 OK\r\n\r\n"),
    REFUSED(400, "no status", "HTTP/1.1\r\n\r\n"),
    REFUSED(505, "a response of HTTP/2", "HTTP/2.0 200 OK\r\n\r\n"),
    REFUSED(400, "two lengths in a response",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n"),
    REFUSED(400, "length and chunks in a response",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
    REFUSED(400, "LF in a response", "HTTP/1.1 200 OK\n\n"),
};

/* --- reading a row ------------------------------------------------------------------------- */

struct outcome {
    int status;
    bool half_read;
    unsigned messages;
    struct buffer body;
    struct buffer heads;
};

static void outcome_fini(struct outcome *outcome)
{
    buffer_fini(&outcome->body);
    buffer_fini(&outcome->heads);
}

static void outcome_add_head(struct outcome *outcome, const struct http_head *head)
{
    buffer_appendf(&outcome->heads, "%d %d %s %s %d%d%d%d%d %lld\n", head->method, head->status,
                   head->path ? head->path : "", head->query ? head->query : "", head->has_body,
                   head->chunked, head->keep_alive, head->expect_continue, head->upgrade,
                   (long long)head->content_length);
    for (size_t i = 0; i < head->header_count; i++)
        buffer_appendf(&outcome->heads, "%s=%s\n", head->headers[i].name, head->headers[i].value);
}

/* Each piece is in memory of its own, so that a sanitizer sees a read past its end. */
static bool feed_piece(struct http_parser *parser, const char *bytes, size_t length,
                       struct outcome *outcome)
{
    scoped(free) char *copy = malloc(length + !length);
    size_t at = 0;

    memcpy(copy, bytes, length);
    for (;;) {
        const uint8_t *body = NULL;
        size_t body_length = 0;
        size_t used = 0;
        enum http_event event =
            http_parser_feed(parser, copy + at, length - at, &used, &body, &body_length);

        at += used;
        assert_true(at <= length);
        switch (event) {
        case HTTP_NEED_MORE:
            assert_int_equal(at, length);
            return true;
        case HTTP_HEAD_DONE:
            outcome_add_head(outcome, http_parser_head(parser));
            break;
        case HTTP_BODY:
            buffer_append(&outcome->body, body, body_length);
            break;
        case HTTP_DONE:
            outcome->messages++;
            http_parser_next(parser);
            break;
        case HTTP_BAD:
            outcome->status = http_parser_status(parser);
            assert_non_null(http_parser_reason(parser));
            return false;
        }
    }
}

static struct outcome read_row(enum http_kind kind, const struct http_limits *limits,
                               const char *bytes, size_t length, size_t cut, size_t step)
{
    scoped(http_parser_free) struct http_parser *parser = http_parser_new(kind, limits);
    struct outcome outcome = { .body = BUFFER_INIT(1 << 20), .heads = BUFFER_INIT(1 << 20) };
    bool going = feed_piece(parser, bytes, cut, &outcome);

    for (size_t at = cut; going && at < length; at += MIN(step, length - at))
        going = feed_piece(parser, bytes + at, MIN(step, length - at), &outcome);
    if (going) {
        enum http_event event = http_parser_eof(parser);

        outcome.messages += event == HTTP_DONE;
        outcome.half_read = event == HTTP_BAD;
    }
    return outcome;
}

static void assert_same_outcome(const char *what, const struct outcome *a, const struct outcome *b)
{
    bool same = a->status == b->status && a->half_read == b->half_read &&
                a->messages == b->messages && a->body.length == b->body.length &&
                a->heads.length == b->heads.length &&
                (!a->body.length || memcmp(a->body.data, b->body.data, a->body.length) == 0) &&
                (!a->heads.length || memcmp(a->heads.data, b->heads.data, a->heads.length) == 0);

    if (!same)
        fail_msg("%s: the outcome depends on how the input is cut", what);
}

static void check_row(enum http_kind kind, const struct row *row)
{
    struct outcome whole = read_row(kind, NULL, row->bytes, row->length, 0, row->length);
    struct outcome bytewise = read_row(kind, NULL, row->bytes, row->length, 0, 1);

    if (whole.status != row->status)
        fail_msg("%s: status %d, expected %d", row->what, whole.status, row->status);
    if (row->status == 0) {
        assert_false(whole.half_read);
        assert_int_equal(whole.messages, row->messages);
        assert_string_equal(buffer_text(&whole.body), row->body);
    }
    assert_same_outcome(row->what, &whole, &bytewise);
    for (size_t cut = 1; cut < row->length; cut++) {
        struct outcome halves = read_row(kind, NULL, row->bytes, row->length, cut, row->length);

        assert_same_outcome(row->what, &whole, &halves);
        outcome_fini(&halves);
    }
    outcome_fini(&whole);
    outcome_fini(&bytewise);
}

static void every_request_of_the_table_ends_as_it_should(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_LENGTH(requests); i++)
        check_row(HTTP_KIND_REQUEST, &requests[i]);
}

static void every_response_of_the_table_ends_as_it_should(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_LENGTH(responses); i++)
        check_row(HTTP_KIND_RESPONSE, &responses[i]);
}

/* Every proper prefix of a good message is unfinished, never accepted and never refused early. */
static void a_message_cut_off_at_any_place_is_half_read(void **state UNUSED)
{
    static const char text[] = "POST /a?b HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n"
                               "3\r\nabc\r\n0\r\nT: u\r\n\r\n";

    for (size_t length = 1; length < sizeof(text) - 1; length++) {
        struct outcome outcome = read_row(HTTP_KIND_REQUEST, NULL, text, length, 0, length);

        assert_true(outcome.half_read);
        assert_int_equal(outcome.status, 0);
        assert_int_equal(outcome.messages, 0);
        outcome_fini(&outcome);
    }
}

/* --- limits -------------------------------------------------------------------------------- */

static int status_with(const struct http_limits *limits, const char *text)
{
    size_t length = strlen(text);
    struct outcome whole = read_row(HTTP_KIND_REQUEST, limits, text, length, 0, length);

    for (size_t step = 1; step < 20; step++) {
        struct outcome pieces = read_row(HTTP_KIND_REQUEST, limits, text, length, 0, step);

        assert_same_outcome("limits", &whole, &pieces);
        outcome_fini(&pieces);
    }
    outcome_fini(&whole);
    return whole.status;
}

static void a_request_line_up_to_the_limit_is_taken_and_a_longer_one_is_414(void **state UNUSED)
{
    struct http_limits limits = http_default_limits;

    limits.line_bytes = strlen("GET /abc HTTP/1.1");
    assert_int_equal(status_with(&limits, "GET /abc HTTP/1.1\r\n" H "\r\n"), 0);
    assert_int_equal(status_with(&limits, "GET /abcd HTTP/1.1\r\n" H "\r\n"), 414);
    assert_int_equal(status_with(&limits, "GET /abcdefghijklmnopqrstuvwxyz"), 414);
    assert_int_equal(status_with(&limits, "GET /abcd HTTP/1.1x\n\n"), 414);
}

static void a_head_up_to_the_limit_is_taken_and_a_longer_one_is_431(void **state UNUSED)
{
    struct http_limits limits = http_default_limits;

    limits.head_bytes = strlen("GET / HTTP/1.1\r\n" H "A: b\r\n\r\n");
    assert_int_equal(status_with(&limits, "GET / HTTP/1.1\r\n" H "A: b\r\n\r\n"), 0);
    assert_int_equal(status_with(&limits, "GET / HTTP/1.1\r\n" H "A: bc\r\n\r\n"), 431);
    assert_int_equal(status_with(&limits, "GET / HTTP/1.1\r\n" H "A: bccccccccccccccccccccc"), 431);
}

static void one_header_more_than_allowed_is_431(void **state UNUSED)
{
    struct http_limits limits = http_default_limits;

    limits.header_count = 2;
    assert_int_equal(status_with(&limits, "GET / HTTP/1.1\r\n" H "A: b\r\n\r\n"), 0);
    assert_int_equal(status_with(&limits, "GET / HTTP/1.1\r\n" H "A: b\r\nC: d\r\n\r\n"), 431);
    assert_int_equal(status_with(&limits, POST_CHUNKED("0\r\nA: b\r\nC: d\r\nE: f\r\n\r\n")), 431);
}

static void a_body_over_the_limit_is_413(void **state UNUSED)
{
    struct http_limits limits = http_default_limits;

    limits.body_bytes = 4;
    assert_int_equal(status_with(&limits, GET_WITH("Content-Length: 4\r\n") "abcd"), 0);
    assert_int_equal(status_with(&limits, GET_WITH("Content-Length: 5\r\n")), 413);
    assert_int_equal(status_with(&limits, POST_CHUNKED("2\r\nab\r\n2\r\nab\r\n0\r\n\r\n")), 0);
    assert_int_equal(status_with(&limits, POST_CHUNKED("2\r\nab\r\n3\r\n")), 413);
    assert_int_equal(status_with(&limits, POST_CHUNKED("7fffffffffffffff\r\n")), 413);
}

static void trailers_without_an_end_are_431(void **state UNUSED)
{
    struct http_limits limits = http_default_limits;

    limits.line_bytes = 32;
    assert_int_equal(
        status_with(&limits, POST_CHUNKED("0\r\nAaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")), 431);
}

static void sizes_of_chunks_never_add_up_past_the_limit_by_overflow(void **state UNUSED)
{
    assert_int_equal(status_with(NULL, POST_CHUNKED("1\r\na\r\n7fffffffffffffff\r\n")), 0);
}

/* --- what the head says -------------------------------------------------------------------- */

static struct http_parser *parse_head(enum http_kind kind, const char *text)
{
    struct http_parser *parser = http_parser_new(kind, NULL);
    const uint8_t *body = NULL;
    size_t body_length = 0;
    size_t used;

    assert_int_equal(http_parser_feed(parser, text, strlen(text), &used, &body, &body_length),
                     HTTP_HEAD_DONE);
    return parser;
}

static void the_path_is_decoded_once_and_the_query_is_left_raw(void **state UNUSED)
{
    scoped(http_parser_free) struct http_parser *parser =
        parse_head(HTTP_KIND_REQUEST, TARGET("/a%2fb/%2541%C3%A9?c=%41&d"));
    const struct http_head *head = http_parser_head(parser);

    assert_string_equal(head->path, "/a/b/%41\xc3\xa9");
    assert_string_equal(head->query, "c=%41&d");
    assert_string_equal(head->target, "/a%2fb/%2541%C3%A9?c=%41&d");
    assert_int_equal(head->method, HTTP_GET);
}

static void names_are_lower_case_and_values_are_trimmed(void **state UNUSED)
{
    scoped(http_parser_free) struct http_parser *parser =
        parse_head(HTTP_KIND_REQUEST, GET_WITH("X-Thing: \t One  Two \t\r\nx-empty:  \r\n"));
    const struct http_head *head = http_parser_head(parser);

    assert_string_equal(http_head_header(head, "x-thing"), "One  Two");
    assert_string_equal(http_head_header(head, "x-empty"), "");
    assert_string_equal(http_head_header(head, "host"), "a");
    assert_null(http_head_header(head, "x-absent"));
}

static bool keeps_alive(const char *text)
{
    scoped(http_parser_free) struct http_parser *parser = parse_head(HTTP_KIND_REQUEST, text);

    return http_parser_head(parser)->keep_alive;
}

static void keep_alive_follows_the_version_and_the_connection_header(void **state UNUSED)
{
    assert_true(keeps_alive(GET_WITH("")));
    assert_false(keeps_alive(GET_WITH("Connection: close\r\n")));
    assert_false(keeps_alive(GET_WITH("Connection: x, CLOSE\r\n")));
    assert_false(keeps_alive(GET_WITH("Connection: keep-alive\r\nConnection: close\r\n")));
    assert_true(keeps_alive(GET_WITH("Connection: not-close\r\n")));
    assert_false(keeps_alive("GET / HTTP/1.0\r\n\r\n"));
    assert_true(keeps_alive("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"));
}

static void an_expectation_counts_only_with_a_body_in_http_1_1(void **state UNUSED)
{
    scoped(http_parser_free) struct http_parser *with =
        parse_head(HTTP_KIND_REQUEST, GET_WITH("Expect: 100-Continue\r\nContent-Length: 1\r\n"));
    scoped(http_parser_free) struct http_parser *without =
        parse_head(HTTP_KIND_REQUEST, GET_WITH("Expect: 100-continue\r\n"));
    scoped(http_parser_free) struct http_parser *old = parse_head(
        HTTP_KIND_REQUEST, "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n");

    assert_true(http_parser_head(with)->expect_continue);
    assert_false(http_parser_head(without)->expect_continue);
    assert_false(http_parser_head(old)->expect_continue);
}

static void an_upgrade_needs_both_headers(void **state UNUSED)
{
    scoped(http_parser_free) struct http_parser *both =
        parse_head(HTTP_KIND_REQUEST, GET_WITH("Connection: Upgrade\r\nUpgrade: tcp\r\n"));
    scoped(http_parser_free) struct http_parser *one =
        parse_head(HTTP_KIND_REQUEST, GET_WITH("Upgrade: tcp\r\n"));

    assert_true(http_parser_head(both)->upgrade);
    assert_false(http_parser_head(one)->upgrade);
}

static void a_response_to_head_has_no_body(void **state UNUSED)
{
    scoped(http_parser_free) struct http_parser *parser = http_parser_new(HTTP_KIND_RESPONSE, NULL);
    static const char text[] = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n";
    const uint8_t *body;
    size_t length;
    size_t used;

    http_parser_expect_no_body(parser);
    assert_int_equal(http_parser_feed(parser, text, sizeof(text) - 1, &used, &body, &length),
                     HTTP_HEAD_DONE);
    assert_int_equal(http_parser_feed(parser, "", 0, &used, &body, &length), HTTP_DONE);
    assert_int_equal(http_parser_head(parser)->content_length, 9);
}

static void a_big_head_moves_in_memory_and_stays_readable(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(1 << 20);
    scoped(http_parser_free) struct http_parser *parser = NULL;
    char name[32];

    buffer_append_text(&text, "GET /path HTTP/1.1\r\n" H);
    for (int i = 0; i < 90; i++)
        buffer_appendf(&text, "X-%d: %0500d\r\n", i, i);
    buffer_append_text(&text, "\r\n");
    parser = parse_head(HTTP_KIND_REQUEST, buffer_text(&text));
    for (int i = 0; i < 90; i++) {
        snprintf(name, sizeof(name), "x-%d", i);
        assert_int_equal(atoi(http_head_header(http_parser_head(parser), name)), i);
    }
    assert_string_equal(http_parser_head(parser)->path, "/path");
}

/* --- queries ------------------------------------------------------------------------------- */

/* One parameter: 1, or 0 when absent. -1 when the query is malformed or has it more than once. */
static int query_get(const char *query, const char *name, struct buffer *value)
{
    scoped(buffer_fini) struct buffer found_name = BUFFER_INIT(strlen(query) + 1);
    scoped(buffer_fini) struct buffer found = BUFFER_INIT(strlen(query) + 1);
    bool has_value = false;
    int result;

    buffer_clear(value);
    while ((result = http_query_next(&query, &found_name, &found)) > 0) {
        if (strcmp(buffer_text(&found_name), name) != 0)
            continue;
        if (has_value || buffer_append(value, found.data, found.length) < 0)
            return -1;
        has_value = true;
    }
    return result < 0 ? -1 : has_value;
}

static void query_parameters_are_decoded(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer value = BUFFER_INIT(64);

    assert_int_equal(query_get("a=1&path=%2Ftmp%2fx+y&b", "path", &value), 1);
    assert_string_equal(buffer_text(&value), "/tmp/x y");
    assert_int_equal(query_get("a=1&b&c=", "b", &value), 1);
    assert_int_equal(value.length, 0);
    assert_int_equal(query_get("a=1&label=k=v", "label", &value), 1);
    assert_string_equal(buffer_text(&value), "k=v");
    assert_int_equal(query_get("a=1", "b", &value), 0);
    assert_int_equal(query_get("", "b", &value), 0);
    assert_int_equal(query_get("aa=1&%61=2", "a", &value), 1);
    assert_string_equal(buffer_text(&value), "2");
}

static void malformed_or_repeated_query_parameters_are_refused(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer value = BUFFER_INIT(8);

    assert_int_equal(query_get("a=%", "a", &value), -1);
    assert_int_equal(query_get("a=%4", "a", &value), -1);
    assert_int_equal(query_get("a=%zz", "a", &value), -1);
    assert_int_equal(query_get("a=%00", "a", &value), -1);
    assert_int_equal(query_get("a=1&a=2", "a", &value), -1);
    assert_int_equal(query_get("a=123456789", "a", &value), -1);
    assert_int_equal(query_get("b=123456789&a=1", "a", &value), 1);
}

static void repeated_parameters_are_read_one_by_one(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer name = BUFFER_INIT(64);
    scoped(buffer_fini) struct buffer value = BUFFER_INIT(64);
    const char *query = "label=a%3D1&&label=b";

    assert_int_equal(http_query_next(&query, &name, &value), 1);
    assert_string_equal(buffer_text(&value), "a=1");
    assert_int_equal(http_query_next(&query, &name, &value), 1);
    assert_string_equal(buffer_text(&name), "label");
    assert_string_equal(buffer_text(&value), "b");
    assert_int_equal(http_query_next(&query, &name, &value), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_of_the_table_ends_as_it_should),
        cmocka_unit_test(every_response_of_the_table_ends_as_it_should),
        cmocka_unit_test(a_message_cut_off_at_any_place_is_half_read),
        cmocka_unit_test(a_request_line_up_to_the_limit_is_taken_and_a_longer_one_is_414),
        cmocka_unit_test(a_head_up_to_the_limit_is_taken_and_a_longer_one_is_431),
        cmocka_unit_test(one_header_more_than_allowed_is_431),
        cmocka_unit_test(a_body_over_the_limit_is_413),
        cmocka_unit_test(trailers_without_an_end_are_431),
        cmocka_unit_test(sizes_of_chunks_never_add_up_past_the_limit_by_overflow),
        cmocka_unit_test(the_path_is_decoded_once_and_the_query_is_left_raw),
        cmocka_unit_test(names_are_lower_case_and_values_are_trimmed),
        cmocka_unit_test(keep_alive_follows_the_version_and_the_connection_header),
        cmocka_unit_test(an_expectation_counts_only_with_a_body_in_http_1_1),
        cmocka_unit_test(an_upgrade_needs_both_headers),
        cmocka_unit_test(a_response_to_head_has_no_body),
        cmocka_unit_test(a_big_head_moves_in_memory_and_stays_readable),
        cmocka_unit_test(query_parameters_are_decoded),
        cmocka_unit_test(malformed_or_repeated_query_parameters_are_refused),
        cmocka_unit_test(repeated_parameters_are_read_one_by_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
