/* SPDX-License-Identifier: Apache-2.0 */
/* The dashboard over HTTP: its files and headers, logging in and out, and who cannot use the cookie. */

#include "../api/client.h"
#include "../api/front_keys.h"

#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "web/dashboard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { HOUR_MS = 3600 * 1000 };

static struct front front;
static char key_path[96], ann[FRONT_KEY_SIZE], root[FRONT_KEY_SIZE];

#define PAGE "X-Sandglass-Page: 1\r\n"

static void use_keys(struct front *given)
{
    snprintf(key_path, sizeof(key_path), "%s/keys", given->path);
    front_keys_make(&given->world.config, key_path, ann, root);
}

static int setup(void **state)
{
    (void)state;
    front.configure = use_keys;
    front_start(&front);
    dashboard_serve_at(front.dashboard, "0.0.0.0:7070", 7070);
    return 0;
}

static void no_authentication(struct front *given)
{
    given->world.config.auth.failure_limit = 30;
}

static int setup_open(void **state)
{
    (void)state;
    front.configure = no_authentication;
    front_start(&front);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    front_stop(&front);
    front_keys_forget();
    return 0;
}

static const char *text_of(const struct answer *answer, const char *name)
{
    return json_string_value(json_object_get(answer->json, name));
}

/* "Cookie: NAME=VALUE" with its line end, of the cookie that the answer sets. */
static char *cookie_of(const struct answer *answer)
{
    const char *name = "Set-Cookie: ";
    const char *at = strstr(answer->head, name);

    assert_non_null(at);
    at += strlen(name);
    return xasprintf("Cookie: other=1; %.*s\r\n", (int)strcspn(at, ";"), at);
}

static char *log_in(const char *key)
{
    scoped(free) char *header = xasprintf("Authorization: Bearer %s\r\n", key);
    scoped(answer_fini) struct answer answer = call_tcp(&front, "POST", "/ui/login", header, NULL);

    assert_int_equal(answer.status, 200);
    assert_non_null(text_of(&answer, "expires_at"));
    return cookie_of(&answer);
}

static int status_of(const char *method, const char *target, const char *cookie, const char *more)
{
    scoped(free) char *headers = xasprintf("%s%s", cookie, more);
    scoped(answer_fini) struct answer answer = call_tcp(&front, method, target, headers, NULL);

    return answer.status;
}

/* --- the files ------------------------------------------------------------------------------- */

static void the_page_comes_with_a_strict_policy(void **state)
{
    scoped(answer_fini) struct answer page = call_tcp(&front, "GET", "/", "", NULL);

    (void)state;
    assert_int_equal(page.status, 200);
    assert_string_equal(page.body, "hello");
    assert_non_null(
        strstr(page.head, "Content-Security-Policy: default-src 'none'; script-src 'self';"));
    assert_null(strstr(page.head, "unsafe"));
    assert_non_null(strstr(page.head, "frame-ancestors 'none'"));
    assert_non_null(strstr(page.head, "X-Content-Type-Options: nosniff"));
    assert_non_null(strstr(page.head, "Referrer-Policy: no-referrer"));
    assert_non_null(strstr(page.head, "Cache-Control: no-cache\r\n"));
    assert_null(strstr(page.head, "Set-Cookie"));
}

static void files_are_compressed_and_stay_in_caches(void **state)
{
    scoped(answer_fini) struct answer packed =
        call_tcp(&front, "GET", "/ui/app-1234.js", "Accept-Encoding: br, gzip\r\n", NULL);
    scoped(answer_fini) struct answer plain = call_tcp(&front, "GET", "/ui/app-1234.js", "", NULL);
    scoped(answer_fini) struct answer unwanted =
        call_tcp(&front, "GET", "/ui/app-1234.js", "Accept-Encoding: gzip;q=0\r\n", NULL);
    scoped(answer_fini) struct answer unknown =
        call_tcp(&front, "GET", "/ui/app-9999.js", "", NULL);

    (void)state;
    assert_non_null(strstr(packed.head, "Content-Encoding: gzip"));
    assert_non_null(strstr(packed.head, "immutable"));
    assert_int_equal((unsigned char)packed.body[0], 0x1f);
    assert_string_equal(plain.body, "alert(1)");
    assert_string_equal(unwanted.body, "alert(1)");
    assert_null(strstr(plain.head, "Content-Encoding"));
    assert_int_equal(unknown.status, 404);
}

/* --- logging in ------------------------------------------------------------------------------ */

static void a_key_is_exchanged_for_a_cookie_of_this_site(void **state)
{
    scoped(free) char *header = xasprintf("Authorization: Bearer %s\r\n", ann);
    scoped(answer_fini) struct answer answer = call_tcp(&front, "POST", "/ui/login", header, NULL);
    scoped(free) char *cookie = cookie_of(&answer);
    scoped(answer_fini) struct answer who = call_tcp(&front, "GET", "/api/v1/whoami", cookie, NULL);

    (void)state;
    assert_non_null(strstr(answer.head, "; Path=/; Max-Age=3600; HttpOnly; SameSite=Strict\r\n"));
    assert_null(strstr(answer.head, ann));
    assert_int_equal(who.status, 200);
    assert_string_equal(text_of(&who, "principal"), "ann");
}

static void wrong_credentials_get_no_cookie(void **state)
{
    scoped(answer_fini) struct answer wrong =
        call_tcp(&front, "POST", "/ui/login", "Authorization: Bearer sg_wrong\r\n", NULL);
    scoped(answer_fini) struct answer none = call_tcp(&front, "POST", "/ui/login", "", NULL);

    (void)state;
    assert_int_equal(wrong.status, 401);
    assert_int_equal(none.status, 401);
    assert_null(strstr(wrong.head, "Set-Cookie"));
}

static void a_cookie_that_was_changed_is_no_login(void **state)
{
    scoped(free) char *cookie = log_in(ann);
    scoped(free) char *forged = xstrdup(cookie);
    char *roles = strstr(forged, "log_");

    (void)state;
    roles[5] = roles[5] == 'a' ? 'b' : 'a';
    assert_int_equal(status_of("GET", "/api/v1/whoami", cookie, ""), 200);
    assert_int_equal(status_of("GET", "/api/v1/whoami", forged, ""), 401);
}

static void a_login_ends_with_its_time_with_its_key_and_with_logout(void **state)
{
    scoped(free) char *first = log_in(ann);
    scoped(free) char *second = log_in(ann);

    (void)state;
    assert_int_equal(status_of("POST", "/ui/logout", first, PAGE), 200);
    assert_int_equal(status_of("GET", "/api/v1/whoami", first, ""), 401);
    assert_int_equal(status_of("GET", "/api/v1/whoami", second, ""), 200);
    front_keys_revoke_ann(key_path);
    world_advance(&front.world, 10 * 1000);
    assert_int_equal(status_of("GET", "/api/v1/whoami", second, ""), 401);
    {
        scoped(free) char *third = log_in(root);

        world_advance(&front.world, HOUR_MS + 1);
        assert_int_equal(status_of("GET", "/api/v1/whoami", third, ""), 401);
    }
}

static void a_cookie_makes_no_other_login(void **state)
{
    scoped(free) char *cookie = log_in(ann);

    (void)state;
    assert_int_equal(status_of("POST", "/ui/login", cookie, PAGE), 403);
    assert_int_equal(status_of("POST", "/ui/tokens", cookie, PAGE), 403);
}

static void roles_are_those_of_the_key(void **state)
{
    scoped(free) char *user = log_in(ann);
    scoped(free) char *admin = log_in(root);

    (void)state;
    assert_int_equal(status_of("GET", "/metrics", user, ""), 403);
    assert_int_equal(status_of("GET", "/metrics", admin, ""), 200);
}

/* --- other web pages ------------------------------------------------------------------------- */

static void another_page_cannot_use_the_cookie(void **state)
{
    scoped(free) char *cookie = log_in(ann);
    static const char *const others[] = {
        "",                                    /* a form: no header of ours */
        PAGE "Origin: http://localhost:1\r\n", /* another port of this host */
        PAGE "Origin: https://example.com\r\n",
        PAGE "Origin: null\r\n",
        PAGE "Sec-Fetch-Site: same-site\r\n",
        PAGE "Sec-Fetch-Site: cross-site\r\n",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(others); i++)
        assert_int_equal(status_of("POST", "/api/v1/sessions", cookie, others[i]), 403);
    assert_int_equal(status_of("GET", "/api/v1/sessions", cookie, "Sec-Fetch-Site: same-site\r\n"),
                     403);
    assert_int_equal(
        status_of("GET", "/api/v1/sessions", cookie, "Sec-Fetch-Site: same-origin\r\n"), 200);
    assert_int_equal(
        status_of("POST", "/api/v1/sessions", cookie, PAGE "Origin: http://localhost\r\n"), 201);
}

static void a_stranger_sees_no_session_of_another(void **state)
{
    scoped(free) char *cookie = log_in(root);
    scoped(free) char *other = log_in(ann);
    scoped(free) char *headers = xasprintf("%s%s", cookie, PAGE);
    scoped(answer_fini) struct answer made =
        call_tcp(&front, "POST", "/api/v1/sessions", headers, "{}");
    scoped(free) char *path = xasprintf("/api/v1/sessions/%s", text_of(&made, "id"));
    scoped(free) char *list = xasprintf("/api/v1/sessions?ids=%s", text_of(&made, "id"));
    scoped(answer_fini) struct answer listed = call_tcp(&front, "GET", list, other, NULL);
    scoped(answer_fini) struct answer own = call_tcp(&front, "GET", list, cookie, NULL);

    (void)state;
    assert_int_equal(made.status, 201);
    assert_int_equal(status_of("GET", path, other, ""), 404);
    assert_int_equal(json_array_size(json_object_get(listed.json, "sessions")), 0);
    assert_int_equal(json_array_size(json_object_get(own.json, "sessions")), 1);
    assert_int_equal(status_of("GET", "/api/v1/sessions?ids=nonsense", other, ""), 400);
    assert_int_equal(status_of("GET", "/api/v1/events?owner=*&follow=0", other, ""), 403);
    assert_int_equal(status_of("GET", "/api/v1/events?owner=*&follow=0", cookie, ""), 200);
}

/* --- one-time tokens --------------------------------------------------------------------------- */

static char *make_ticket(const char *key)
{
    scoped(free) char *header = xasprintf("X-API-Key: %s\r\n", key);
    scoped(answer_fini) struct answer answer = call(&front, "POST", "/ui/tokens", header, NULL);
    const char *ticket = text_of(&answer, "token");
    scoped(free) char *url = xasprintf("http://127.0.0.1:7070/#token=%s", ticket);

    assert_int_equal(answer.status, 201);
    assert_string_equal(text_of(&answer, "url"), url);
    return xasprintf("{\"token\":\"%s\"}", ticket);
}

static struct answer exchange(const char *body)
{
    return call_tcp(&front, "POST", "/ui/exchange", PAGE, body);
}

static void a_one_time_token_works_once(void **state)
{
    scoped(free) char *body = make_ticket(ann);
    scoped(answer_fini) struct answer bare = call_tcp(&front, "POST", "/ui/exchange", "", body);
    scoped(answer_fini) struct answer first = exchange(body);
    scoped(answer_fini) struct answer again = exchange(body);
    scoped(free) char *cookie = cookie_of(&first);
    scoped(answer_fini) struct answer who = call_tcp(&front, "GET", "/api/v1/whoami", cookie, NULL);

    (void)state;
    assert_int_equal(bare.status, 403);
    assert_int_equal(first.status, 200);
    assert_int_equal(again.status, 401);
    assert_string_equal(error_code_of(&again), "token_used");
    assert_string_equal(text_of(&who, "principal"), "ann");
}

static void a_one_time_token_expires(void **state)
{
    scoped(free) char *body = make_ticket(ann);

    (void)state;
    world_advance(&front.world, 121 * 1000);
    {
        scoped(answer_fini) struct answer late = exchange(body);

        assert_int_equal(late.status, 401);
    }
}

static void other_texts_are_no_token(void **state)
{
    static const char *const bodies[] = { "{\"token\":\"\"}", "{\"token\":\"sgd_00\"}" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(bodies); i++) {
        scoped(answer_fini) struct answer answer = exchange(bodies[i]);

        assert_int_equal(answer.status, 401);
    }
    {
        scoped(answer_fini) struct answer nothing = exchange("{}");
        scoped(answer_fini) struct answer number = exchange("{\"token\":7}");

        assert_int_equal(nothing.status, 400);
        assert_int_equal(number.status, 400);
    }
}

/* --- without authentication --------------------------------------------------------------------- */

static void without_authentication_tcp_needs_a_login_too(void **state)
{
    scoped(answer_fini) struct answer page = call_tcp(&front, "GET", "/", "", NULL);
    scoped(answer_fini) struct answer stranger =
        call_tcp(&front, "GET", "/api/v1/whoami", "", NULL);

    (void)state;
    dashboard_serve_at(front.dashboard, "127.0.0.1:7070", 7070);
    assert_int_equal(page.status, 200);
    assert_int_equal(stranger.status, 401);
    {
        scoped(answer_fini) struct answer made = call(&front, "POST", "/ui/tokens", "", NULL);
        scoped(free) char *body = xasprintf("{\"token\":\"%s\"}", text_of(&made, "token"));
        scoped(answer_fini) struct answer login = exchange(body);
        scoped(free) char *cookie = cookie_of(&login);

        assert_int_equal(made.status, 201);
        assert_int_equal(status_of("GET", "/api/v1/whoami", cookie, ""), 200);
        assert_int_equal(status_of("GET", "/api/v1/sessions?owner=*", cookie, ""), 200);
    }
}

static void without_a_port_the_reason_is_told(void **state)
{
    scoped(answer_fini) struct answer answer = call(&front, "POST", "/ui/tokens", "", NULL);

    (void)state;
    assert_int_equal(answer.status, 503);
    assert_string_equal(error_code_of(&answer), "no_port");
}

static void a_disabled_dashboard_accepts_no_cookie(void **state)
{
    scoped(free) char *cookie = NULL;

    (void)state;
    dashboard_serve_at(front.dashboard, "127.0.0.1:7070", 7070);
    {
        scoped(answer_fini) struct answer made = call(&front, "POST", "/ui/tokens", "", NULL);
        scoped(free) char *body = xasprintf("{\"token\":\"%s\"}", text_of(&made, "token"));
        scoped(answer_fini) struct answer login = exchange(body);

        cookie = cookie_of(&login);
    }
    front.world.config.dashboard.enabled = false;
    assert_int_equal(status_of("GET", "/api/v1/whoami", cookie, ""), 401);
}

/* --- behind a proxy ----------------------------------------------------------------------------- */

static void behind_a_proxy(struct front *given)
{
    use_keys(given);
    given->world.config.dashboard.url = (char *)"https://tools.example.com/sandglass/";
}

static int setup_proxy(void **state)
{
    (void)state;
    front.configure = behind_a_proxy;
    front_start(&front);
    return 0;
}

static void a_proxy_may_have_another_origin_and_a_prefix(void **state)
{
    scoped(free) char *header = xasprintf("Authorization: Bearer %s\r\nHost: tools.example.com\r\n"
                                          "Origin: https://tools.example.com\r\n",
                                          ann);
    scoped(answer_fini) struct answer login = call_tcp(&front, "POST", "/ui/login", header, NULL);
    scoped(free) char *cookie = cookie_of(&login);

    (void)state;
    assert_int_equal(login.status, 200);
    assert_non_null(strstr(login.head, "Set-Cookie: __Secure-sandglass_"));
    assert_non_null(strstr(login.head, "; Path=/sandglass/; "));
    assert_non_null(strstr(login.head, "; Secure\r\n"));
    assert_int_equal(
        status_of("POST", "/api/v1/sessions", cookie, PAGE "Origin: https://tools.example.com\r\n"),
        201);
    assert_int_equal(status_of("POST", "/api/v1/sessions", cookie,
                               PAGE "Origin: https://tools.example.com.evil.example\r\n"),
                     403);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define TEST_OPEN(name) cmocka_unit_test_setup_teardown(name, setup_open, teardown)
#define TEST_PROXY(name) cmocka_unit_test_setup_teardown(name, setup_proxy, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_page_comes_with_a_strict_policy),
        TEST(files_are_compressed_and_stay_in_caches),
        TEST(a_key_is_exchanged_for_a_cookie_of_this_site),
        TEST(wrong_credentials_get_no_cookie),
        TEST(a_cookie_that_was_changed_is_no_login),
        TEST(a_login_ends_with_its_time_with_its_key_and_with_logout),
        TEST(a_cookie_makes_no_other_login),
        TEST(roles_are_those_of_the_key),
        TEST(another_page_cannot_use_the_cookie),
        TEST(a_stranger_sees_no_session_of_another),
        TEST(a_one_time_token_works_once),
        TEST(a_one_time_token_expires),
        TEST(other_texts_are_no_token),
        TEST_OPEN(without_authentication_tcp_needs_a_login_too),
        TEST_OPEN(without_a_port_the_reason_is_told),
        TEST_OPEN(a_disabled_dashboard_accepts_no_cookie),
        TEST_PROXY(a_proxy_may_have_another_origin_and_a_prefix),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
