/* SPDX-License-Identifier: Apache-2.0 */
/* The router, the front door and the failures that every route shares. */

#include "client.h"

#include "api/files/files.h"
#include "base/alloc.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct front front;

static int setup(void **state)
{
    (void)state;
    front_start(&front);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    front_stop(&front);
    return 0;
}

/* --- the tables ------------------------------------------------------------------------------ */

static void every_route_is_described_and_none_is_there_twice(void **state)
{
    const struct faces *faces = front.faces;
    size_t count = faces->route_count;

    (void)state;
    for (size_t i = 0; i < count; i++) {
        const struct route *route = faces->routes[i];

        assert_non_null(route->handle);
        assert_non_null(route->summary);
        assert_non_null(route->answers);
        assert_int_equal(strstr(route->path, "{session}") != NULL,
                         route->session != ROUTE_NO_SESSION);
        for (size_t k = i + 1; k < count; k++)
            assert_false(faces->routes[k]->method == route->method &&
                         str_equal(faces->routes[k]->path, route->path));
    }
    assert_true(count > 30);
}

static void the_openapi_document_has_every_route(void **state)
{
    scoped(answer_fini) struct answer answer = call(&front, "GET", "/openapi.json", "", NULL);
    json_t *paths = json_object_get(answer.json, "paths");

    (void)state;
    assert_int_equal(answer.status, 200);
    for (size_t i = 0; i < front.faces->route_count; i++) {
        const struct route *route = front.faces->routes[i];
        scoped(free) char *method = xstrdup(http_method_name(route->method));
        json_t *operation;

        for (char *letter = method; *letter; letter++)
            *letter = (char)(*letter | 0x20);
        operation = json_object_get(json_object_get(paths, route->path), method);
        assert_non_null(operation);
        assert_non_null(json_object_get(operation, "responses"));
    }
}

struct mapping {
    enum error_code code;
    int status;
};

static void every_kind_of_failure_has_its_status(void **state)
{
    static const struct mapping table[] = {
        { ERR_INVALID, 400 },   { ERR_UNAUTHORIZED, 401 }, { ERR_FORBIDDEN, 403 },
        { ERR_NOT_FOUND, 404 }, { ERR_CONFLICT, 409 },     { ERR_GONE, 410 },
        { ERR_TOO_LARGE, 413 }, { ERR_LIMIT, 429 },        { ERR_INTERNAL, 500 },
        { ERR_BACKEND, 502 },   { ERR_UNAVAILABLE, 503 },  { ERR_TIMEOUT, 504 },
        { ERR_NO_SPACE, 507 },
    };

    (void)state;
    assert_int_equal(ARRAY_LENGTH(table), ERR_CODES - 1);
    for (size_t i = 0; i < ARRAY_LENGTH(table); i++)
        assert_int_equal(request_status_of(&(struct error){ .code = table[i].code }),
                         table[i].status);
}

/* --- finding the route ----------------------------------------------------------------------- */

struct request_case {
    const char *method, *target, *headers, *body;
    int status;
    const char *code;
};

static void check_cases(const struct request_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        scoped(answer_fini) struct answer answer =
            call(&front, cases[i].method, cases[i].target, cases[i].headers, cases[i].body);

        if (answer.status != cases[i].status)
            print_message("%s %s: %s\n", cases[i].method, cases[i].target, answer.body);
        assert_int_equal(answer.status, cases[i].status);
        assert_string_equal(error_code_of(&answer), cases[i].code);
        assert_non_null(strstr(answer.head, "application/json"));
        assert_non_null(strstr(answer.head, "X-Request-Id"));
    }
}

static void wrong_paths_methods_and_parameters_are_told_apart(void **state)
{
    static const struct request_case cases[] = {
        { "GET", "/ui", "", NULL, 404, "route_not_found" },
        { "POST", "/", "", NULL, 405, "method_not_allowed" },
        { "GET", "/api/v1/nothing", "", NULL, 404, "route_not_found" },
        { "GET", "/api/v1/sessions/", "", NULL, 404, "route_not_found" },
        { "GET", "/api/v1/sessions/a/b/c/d/e/f/g/h/i/j/k/l/m", "", NULL, 404, "route_not_found" },
        { "PUT", "/api/v1/sessions", "", NULL, 405, "method_not_allowed" },
        { "DELETE", "/healthz", "", NULL, 405, "method_not_allowed" },
        { "GET", "/api/v1/sessions?nonsense=1", "", NULL, 400, "unknown_parameter" },
        { "GET", "/api/v1/sessions?limit=x", "", NULL, 400, "invalid_parameter" },
        { "GET", "/api/v1/sessions?limit=-1", "", NULL, 400, "invalid_parameter" },
        { "GET", "/api/v1/sessions?limit=99999", "", NULL, 400, "invalid_parameter" },
        { "GET", "/api/v1/sessions?limit=1&limit=2", "", NULL, 400, "invalid_query" },
        { "GET", "/api/v1/sessions?state=odd", "", NULL, 400, "invalid_parameter" },
        { "GET", "/api/v1/sessions?label=x", "", NULL, 400, "invalid_parameter" },
        { "GET", "/api/v1/sessions/ses_unknown", "", NULL, 404, "session_not_found" },
        { "GET", "/api/v1/sessions/..%2f..%2fetc", "", NULL, 404, "session_not_found" },
        { "GET", "/api/v1/sessions/key:none", "", NULL, 404, "session_not_found" },
    };

    (void)state;
    check_cases(cases, ARRAY_LENGTH(cases));
}

static void a_wrong_method_names_the_right_ones(void **state)
{
    scoped(answer_fini) struct answer answer = call(&front, "PUT", "/api/v1/sessions", "", NULL);

    (void)state;
    assert_non_null(strstr(answer.head, "Allow: POST, GET, HEAD, DELETE"));
}

static void head_is_get_without_a_body(void **state)
{
    scoped(answer_fini) struct answer answer = call(&front, "HEAD", "/healthz", "", NULL);

    (void)state;
    assert_int_equal(answer.status, 200);
    assert_non_null(strstr(answer.head, "Content-Length: "));
    assert_int_equal(answer.length, 0);
}

/* --- the front door -------------------------------------------------------------------------- */

static void bodies_of_another_type_are_refused(void **state)
{
    static const struct request_case cases[] = {
        { "POST", "/api/v1/sessions", "Content-Type: text/plain\r\n", "{}", 415,
          "unsupported_media_type" },
        { "POST", "/api/v1/sessions", "Content-Type: application/x-www-form-urlencoded\r\n", "a=b",
          415, "unsupported_media_type" },
        { "POST", "/api/v1/sessions", "", "[1]", 400, "invalid_json" },
        { "POST", "/api/v1/sessions", "", "{", 400, "invalid_json" },
        { "POST", "/api/v1/sessions", "", "{} x", 400, "invalid_json" },
        { "POST", "/api/v1/sessions", "", "{\"key\":\"a\",\"key\":\"b\"}", 400, "invalid_json" },
    };

    (void)state;
    check_cases(cases, ARRAY_LENGTH(cases));
}

static void strangers_web_pages_are_refused(void **state)
{
    static const struct request_case cases[] = {
        { "GET", "/api/v1/sessions", "Origin: http://evil.example\r\n", NULL, 403,
          "origin_not_allowed" },
        { "GET", "/api/v1/sessions", "Origin: null\r\n", NULL, 403, "origin_not_allowed" },
        { "POST", "/api/v1/sessions", "Sec-Fetch-Site: cross-site\r\n", NULL, 403,
          "origin_not_allowed" },
        { "POST", "/api/v1/sessions", "Sec-Fetch-Site: same-site\r\n", NULL, 403,
          "origin_not_allowed" },
        { "GET", "/api/v1/sessions",
          "X-Sandglass-On-Behalf-Of: a\r\nX-Sandglass-On-Behalf-Of: b\r\n", NULL, 400, "invalid" },
    };
    scoped(answer_fini) struct answer same =
        call(&front, "GET", "/api/v1/sessions", "Origin: http://localhost\r\n", NULL);

    (void)state;
    check_cases(cases, ARRAY_LENGTH(cases));
    assert_int_equal(same.status, 200);
}

static int status_for_host(const char *host)
{
    struct caller caller;
    scoped(answer_fini) struct answer answer = { 0 };
    scoped(free) char *text = xasprintf("GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n", host);

    caller_send(&front, &caller, true, text, strlen(text));
    for (int i = 0; i < 100 && !caller_poll(&front, &caller, &answer); i++)
        continue;
    caller_close(&front, &caller);
    return answer.status;
}

static void over_tcp_only_local_names_are_answered(void **state)
{
    (void)state;
    assert_int_equal(status_for_host("localhost"), 200);
    assert_int_equal(status_for_host("localhost:7420"), 200);
    assert_int_equal(status_for_host("127.0.0.1:7420"), 200);
    assert_int_equal(status_for_host("[::1]:7420"), 200);
    assert_int_equal(status_for_host("evil.example:7420"), 403);
    assert_int_equal(status_for_host("localhost.evil.example"), 403);
}

/* --- owners ---------------------------------------------------------------------------------- */

static char *fill_path(const char *pattern, const char *session)
{
    struct buffer text = BUFFER_INIT(4096);

    while (*pattern) {
        if (str_starts_with(pattern, "{session}")) {
            buffer_append_text(&text, session);
            pattern += strlen("{session}");
        } else if (*pattern == '{') {
            buffer_append_text(&text, "exe_00000000000000000000000000");
            pattern = strchr(pattern, '}') + 1;
        } else {
            buffer_append_byte(&text, (uint8_t)*pattern++);
        }
    }
    return buffer_steal_text(&text);
}

static void every_route_of_a_session_is_404_for_a_stranger(void **state)
{
    struct session *session = world_open_simple(&front.world, "ann", "mine");
    size_t tried = 0;

    (void)state;
    for (size_t k = 0; k < front.faces->route_count; k++) {
        const struct route *route = front.faces->routes[k];
        static const char *const strangers[] = { "", "X-Sandglass-On-Behalf-Of: bob\r\n" };

        if (route->session == ROUTE_NO_SESSION)
            continue;
        for (size_t i = 0; i < ARRAY_LENGTH(strangers); i++) {
            scoped(free) char *path = fill_path(route->path, session_id(session));
            scoped(answer_fini) struct answer answer =
                call(&front, http_method_name(route->method), path, strangers[i], NULL);

            assert_int_equal(answer.status, 404);
            assert_string_equal(error_code_of(&answer), "session_not_found");
            tried++;
        }
    }
    assert_true(tried > 40);
    assert_non_null(world_find(&front.world, session_id(session)));
}

/* --- small functions ------------------------------------------------------------------------- */

struct range_case {
    const char *header;
    int result;
    uint64_t start, end;
};

static void ranges_are_one_range_or_none(void **state)
{
    static const struct range_case cases[] = {
        { NULL, 0, 0, 0 },
        { "bytes=0-9", 1, 0, 10 },
        { "bytes=5-", 1, 5, 100 },
        { "bytes=-10", 1, 90, 100 },
        { "bytes=-1000", 1, 0, 100 },
        { "bytes=99-1000", 1, 99, 100 },
        { "bytes=100-", -1, 0, 0 },
        { "bytes=-0", -1, 0, 0 },
        { "bytes=99999999999999999999-", -1, 0, 0 },
        { "bytes=5-2", 0, 0, 0 },
        { "bytes=0-1,5-6", 0, 0, 0 },
        { "bytes=a-b", 0, 0, 0 },
        { "bytes=--5", 0, 0, 0 },
        { "items=0-1", 0, 0, 0 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        uint64_t start = 0, end = 0;

        assert_int_equal(http_range(cases[i].header, 100, &start, &end), cases[i].result);
        assert_int_equal(start, cases[i].start);
        assert_int_equal(end, cases[i].end);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(every_route_is_described_and_none_is_there_twice),
        TEST(the_openapi_document_has_every_route),
        TEST(every_kind_of_failure_has_its_status),
        TEST(wrong_paths_methods_and_parameters_are_told_apart),
        TEST(a_wrong_method_names_the_right_ones),
        TEST(head_is_get_without_a_body),
        TEST(bodies_of_another_type_are_refused),
        TEST(strangers_web_pages_are_refused),
        TEST(over_tcp_only_local_names_are_answered),
        TEST(every_route_of_a_session_is_404_for_a_stranger),
        TEST(ranges_are_one_range_or_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
