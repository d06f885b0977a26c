/* SPDX-License-Identifier: Apache-2.0 */
/* What passes between a client and a server inside of a sandbox. */

#include "face/port_rules.h"

#include "base/macros.h"
#include "base/scoped.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SESSION "ses_0123456789abcdefghjkmnpqrs"

static struct http_head head_of(struct http_header *headers, size_t count)
{
    return (struct http_head){ .method = HTTP_GET, .headers = headers, .header_count = count };
}

/* --- headers --------------------------------------------------------------------------------- */

static void credentials_and_hops_do_not_go_in(void **state)
{
    static const char *const never[] = { "authorization",
                                         "x-api-key",
                                         "cookie",
                                         "host",
                                         "x-sandglass-owner",
                                         "connection",
                                         "upgrade",
                                         "transfer-encoding",
                                         "te",
                                         "trailer",
                                         "proxy-authorization",
                                         "keep-alive",
                                         "x-forwarded-for",
                                         "forwarded",
                                         "expect",
                                         "content-length",
                                         "x-named",
                                         "e2b-sandbox-id" };
    struct http_header headers[] = { { "connection", "close, X-Named ,other" },
                                     { "connection", "\tx-second" } };
    struct http_head head = head_of(headers, 2);

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(never); i++) {
        assert_false(port_header_enters(PORT_DOOR_PATH, &head, never[i]));
        assert_false(port_header_enters(PORT_DOOR_HOST, &head, never[i]));
    }
    assert_false(port_header_enters(PORT_DOOR_HOST, &head, "x-second"));
    assert_true(port_header_enters(PORT_DOOR_HOST, &head, "x-name"));
    assert_true(port_header_enters(PORT_DOOR_HOST, &head, "accept"));
    assert_true(port_header_enters(PORT_DOOR_HOST, &head, "referer"));
    assert_false(port_header_enters(PORT_DOOR_PATH, &head, "referer"));
    assert_true(port_header_enters(PORT_DOOR_PATH, &head, "sec-websocket-key"));
}

static void what_reaches_beyond_the_page_does_not_come_out(void **state)
{
    static const char *const never[] = {
        "set-cookie",     "location",   "strict-transport-security", "alt-svc",     "nel",
        "content-length", "connection", "x-sandglass-any",           "x-request-id"
    };
    static const char *const of_host[] = {
        "clear-site-data",  "service-worker-allowed",      "refresh",
        "www-authenticate", "access-control-allow-origin", "access-control-allow-credentials",
        "report-to"
    };
    struct http_head head = head_of(NULL, 0);

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(never); i++) {
        assert_false(port_header_leaves(PORT_DOOR_PATH, &head, never[i]));
        assert_false(port_header_leaves(PORT_DOOR_HOST, &head, never[i]));
    }
    for (size_t i = 0; i < ARRAY_LENGTH(of_host); i++) {
        assert_false(port_header_leaves(PORT_DOOR_PATH, &head, of_host[i]));
        assert_true(port_header_leaves(PORT_DOOR_HOST, &head, of_host[i]));
    }
    assert_true(port_header_leaves(PORT_DOOR_PATH, &head, "content-type"));
    assert_true(port_header_leaves(PORT_DOOR_PATH, &head, "content-security-policy"));
}

static void keys_of_the_daemon_are_known_by_their_form(void **state)
{
    (void)state;
    assert_true(port_is_own_credential("Bearer sg_0123"));
    assert_true(port_is_own_credential("bearer   SGT_0123"));
    assert_true(port_is_own_credential("Bearer e2b_0123"));
    assert_false(port_is_own_credential("Bearer eyJ0"));
    assert_false(port_is_own_credential("Basic c2c6"));
    assert_false(port_is_own_credential(""));
}

/* --- redirects ------------------------------------------------------------------------------- */

static void redirects_below_a_path_stay_there(void **state)
{
    static const struct {
        const char *location, *expected; /* NULL: refused */
    } rows[] = {
        { "/login", "/p/login" },
        { "/", "/p/" },
        { "next?x=/y:z", "next?x=/y:z" },
        { "?q=1", "?q=1" },
        { "#f", "#f" },
        { "http://localhost:80/a", "/p/a" },
        { "HTTPS://LOCALHOST:80", "/p/" },
        { "http://127.0.0.1:80//evil.example", "/p/evil.example" },
        { "//[::1]:80/b?c", "/p/b?c" },
        { "http://localhost:81/a", NULL },
        { "http://localhost:80@evil.example/", NULL },
        { "http://localhost:80.evil.example/", NULL },
        { "https://evil.example/", NULL },
        { "//evil.example", NULL },
        { "/\\evil.example", NULL },
        { "\\\\evil.example", NULL },
        { "\t//evil.example", NULL },
        { "javascript:alert(1)", NULL },
        { "mailto:x", NULL },
        { "", "" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        scoped(free) char *got =
            port_location_rewrite(PORT_DOOR_PATH, "/p", "localhost:80", rows[i].location);

        if (!str_equal(got, rows[i].expected))
            fail_msg("%s: %s", rows[i].location, got ? got : "refused");
    }
}

static void redirects_of_a_host_of_its_own_may_leave(void **state)
{
    static const struct {
        const char *location, *expected;
    } rows[] = {
        { "http://localhost:80/a", "/a" },
        { "//localhost:80//evil.example", "/evil.example" },
        { "https://example.com/", "https://example.com/" },
        { "/a", "/a" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        scoped(free) char *got =
            port_location_rewrite(PORT_DOOR_HOST, "", "localhost:80", rows[i].location);

        assert_string_equal(got, rows[i].expected);
    }
}

/* --- cookies --------------------------------------------------------------------------------- */

static void our_cookie_stays_out_and_others_pass(void **state)
{
    static const struct {
        const char *cookies, *expected, *found;
    } rows[] = {
        { "a=b; sandglass-port=t.1; c=d", "a=b; c=d", "t.1" },
        { "sandglass-port=t", NULL, "t" },
        { "__Host-sandglass-port=t ;x=", "x=", "t" },
        { "SANDGLASS-PORT=t", NULL, "t" },
        { "sandglass-ports=t", "sandglass-ports=t", NULL },
        { "sandglass-port", NULL, NULL },
        { " ; ;", NULL, NULL },
        { "a=sandglass-port=x", "a=sandglass-port=x", NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        scoped(free) char *kept = port_cookies_enter(rows[i].cookies);
        scoped(free) char *found = port_cookie_find(rows[i].cookies, 0);

        assert_true(str_equal(kept, rows[i].expected));
        assert_true(str_equal(found, rows[i].found));
    }
    assert_null(port_cookie_find(NULL, 0));
    assert_null(port_cookie_find("sandglass-port=a", 1));
    {
        scoped(free) char *second = port_cookie_find("sandglass-port=a; x=y; sandglass-port=b", 1);

        assert_string_equal(second, "b");
    }
}

static void cookies_of_a_server_are_for_its_host_alone(void **state)
{
    static const struct {
        const char *cookie, *expected;
    } rows[] = {
        { "a=b; Domain=example.com; Path=/", "a=b; Path=/" },
        { "a=b;domain = .example.com", "a=b" },
        { "domain=x; HttpOnly", "domain=x; HttpOnly" },
        { "sandglass-port=x", NULL },
        { "__host-SANDGLASS-port=x; Path=/", NULL },
        { "", NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        scoped(free) char *got = port_cookie_leave(rows[i].cookie);

        assert_true(str_equal(got, rows[i].expected));
    }
}

/* --- targets and names ------------------------------------------------------------------------ */

static void the_parameter_is_taken_out_of_a_target(void **state)
{
    static const struct {
        const char *target, *rest, *value;
    } rows[] = {
        { "/?sandglass=t", "/", "t" },
        { "//evil.example/x?a=1&sandglass=t&b=2", "/evil.example/x?a=1&b=2", "t" },
        { "/p?sandglass=t&sandglass=u", "/p?sandglass=u", "t" },
        { "/p?xsandglass=t", "/p?xsandglass=t", NULL },
        { "/p?", "/p?", NULL },
        { "/p", "/p", NULL },
        { "/p?a=b?sandglass=t", "/p?a=b?sandglass=t", NULL },
        { "/p?sandglass=", "/p", "" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        scoped(free) char *value = NULL;
        scoped(free) char *rest = port_target_split(rows[i].target, &value);

        assert_string_equal(rest, rows[i].rest);
        assert_true(str_equal(value, rows[i].value));
    }
}

static void host_names_name_a_port_and_a_session(void **state)
{
    static const char *const wrong[] = {
        "3000-" SESSION,
        "3000-" SESSION ".example.org",
        "3000-" SESSION ".example.com.evil",
        "3000-" SESSION "x.example.com",
        "0-" SESSION ".example.com",
        "65536-" SESSION ".example.com",
        "03-" SESSION ".example.com",
        "-" SESSION ".example.com",
        "+1-" SESSION ".example.com",
        "3000-ses_.example.com",
        "3000." SESSION ".example.com",
        "a.3000-" SESSION ".example.com",
        "example.com",
        "",
    };
    static const char *const right[] = { "3000-" SESSION ".example.com",
                                         "3000-" SESSION ".EXAMPLE.com:8443",
                                         "3000-ses-0123456789ABCDEFghjkmnpqrs.example.com" };
    struct port_name name;

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(right); i++) {
        assert_true(port_name_read(right[i], "https://example.com:8443", &name));
        assert_int_equal(name.port, 3000);
        assert_string_equal(name.session_id, SESSION);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
        assert_false(port_name_read(wrong[i], "example.com", &name));
    assert_false(port_name_read("3000-" SESSION ".", "", &name));
}

/* --- origins --------------------------------------------------------------------------------- */

static bool is_same(const char *origin, const char *site, const char *mode, const char *dest)
{
    struct http_header headers[4];
    struct http_head head = head_of(headers, 0);
    const char *const values[] = { origin, site, mode, dest };
    static const char *const names[] = { "origin", "sec-fetch-site", "sec-fetch-mode",
                                         "sec-fetch-dest" };

    for (size_t i = 0; i < ARRAY_LENGTH(values); i++)
        if (values[i])
            headers[head.header_count++] = (struct http_header){ names[i], values[i] };
    return port_is_same_origin(&head, "https://a.example.com");
}

static void a_cookie_counts_for_pages_of_its_host_alone(void **state)
{
    (void)state;
    assert_true(is_same(NULL, NULL, NULL, NULL));
    assert_true(is_same("https://a.example.com", "same-origin", "cors", "empty"));
    assert_true(is_same(NULL, "none", "navigate", "document"));
    assert_true(is_same(NULL, "cross-site", "navigate", "document"));
    assert_false(is_same(NULL, "same-site", "navigate", "iframe"));
    assert_false(is_same(NULL, "same-site", "no-cors", "script"));
    assert_false(is_same("https://b.example.com", "same-site", "websocket", "empty"));
    assert_false(is_same("http://a.example.com", NULL, NULL, NULL));
    assert_false(is_same("null", NULL, NULL, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(credentials_and_hops_do_not_go_in),
        cmocka_unit_test(what_reaches_beyond_the_page_does_not_come_out),
        cmocka_unit_test(keys_of_the_daemon_are_known_by_their_form),
        cmocka_unit_test(redirects_below_a_path_stay_there),
        cmocka_unit_test(redirects_of_a_host_of_its_own_may_leave),
        cmocka_unit_test(our_cookie_stays_out_and_others_pass),
        cmocka_unit_test(cookies_of_a_server_are_for_its_host_alone),
        cmocka_unit_test(the_parameter_is_taken_out_of_a_target),
        cmocka_unit_test(host_names_name_a_port_and_a_session),
        cmocka_unit_test(a_cookie_counts_for_pages_of_its_host_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
