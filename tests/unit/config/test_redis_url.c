/* SPDX-License-Identifier: Apache-2.0 */
#include "config/redis_url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct redis_url parse(const char *text)
{
    struct redis_url url = { 0 };
    struct error err = { 0 };

    if (redis_url_parse(&url, text, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return url;
}

static void a_server_has_a_host_a_port_and_a_database(void **state)
{
    scoped(redis_url_fini) struct redis_url plain = parse("redis://cache.example.org");
    scoped(redis_url_fini) struct redis_url full = parse("rediss://ann:p%40ss%2f@[::1]:7000/12");

    (void)state;
    assert_int_equal(plain.scheme, REDIS_TCP);
    assert_string_equal(plain.hosts[0], "cache.example.org:6379");
    assert_null(plain.password);
    assert_int_equal(plain.db, 0);
    assert_int_equal(full.scheme, REDIS_TLS);
    assert_string_equal(full.hosts[0], "[::1]:7000");
    assert_string_equal(full.user, "ann");
    assert_string_equal(full.password, "p@ss/");
    assert_int_equal(full.db, 12);
}

static void a_socket_has_a_path(void **state)
{
    scoped(redis_url_fini) struct redis_url url = parse("unix:///run/redis/redis.sock?db=3");
    scoped(redis_url_fini) struct redis_url secret = parse("unix://:word@/run/redis.sock");

    (void)state;
    assert_int_equal(url.scheme, REDIS_UNIX);
    assert_string_equal(url.path, "/run/redis/redis.sock");
    assert_int_equal(url.db, 3);
    assert_string_equal(secret.password, "word");
    assert_string_equal(secret.path, "/run/redis.sock");
}

static void sentinels_are_several_and_know_a_name(void **state)
{
    scoped(redis_url_fini) struct redis_url url =
        parse("redis+sentinel://:word@one,two:5000,three:26380/main/4");

    (void)state;
    assert_int_equal(url.scheme, REDIS_SENTINEL);
    assert_int_equal(url.host_count, 3);
    assert_string_equal(url.hosts[0], "one:26379");
    assert_string_equal(url.hosts[1], "two:5000");
    assert_string_equal(url.hosts[2], "three:26380");
    assert_string_equal(url.master, "main");
    assert_string_equal(url.password, "word");
    assert_int_equal(url.db, 4);
}

static void what_is_not_an_address_is_refused_without_its_password(void **state)
{
    static const char *const wrong[] = {
        "",
        "localhost:6379",
        "http://localhost",
        "redis://",
        "redis://:secret@",
        "redis://:secret@host:0",
        "redis://:secret@host:99999",
        "redis://:secret@host/one",
        "redis://:secret%4@host",
        "redis://ann:secret/word@host",
        "unix://relative/path",
        "unix:///path?secret=1",
        "redis+sentinel://:secret@host:1",
        "redis+sentinel://host/",
        "redis+sentinel://1,2,3,4,5,6,7,8,9/main",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct redis_url url = { 0 };
        struct error err = { 0 };

        if (redis_url_parse(&url, wrong[i], &err) == 0)
            fail_msg("%s was taken", wrong[i]);
        if (err.code != ERR_NONE && !strstr(wrong[i], "?secret"))
            assert_null(strstr(err.message, "secret"));
        redis_url_fini(&url);
    }
}

static void a_password_is_not_shown(void **state)
{
    scoped(free) char *shown = redis_url_shown("redis://ann:secret@host:1/2");
    scoped(free) char *plain = redis_url_shown("redis://host:1/2");
    scoped(free) char *odd = redis_url_shown("redis://:se@cret@host");

    (void)state;
    assert_string_equal(shown, "redis://***@host:1/2");
    assert_string_equal(plain, "redis://host:1/2");
    assert_null(strstr(odd, "cret"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_has_a_host_a_port_and_a_database),
        cmocka_unit_test(a_socket_has_a_path),
        cmocka_unit_test(sentinels_are_several_and_know_a_name),
        cmocka_unit_test(what_is_not_an_address_is_refused_without_its_password),
        cmocka_unit_test(a_password_is_not_shown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
