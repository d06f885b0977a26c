/* SPDX-License-Identifier: Apache-2.0 */
/* The header that a caller's identity travels in, and the counters that make it good for once. */

#include "cluster/relay_identity.h"

#include "base/alloc.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const struct relay_secret secret = { .bytes = "a secret of thirty-two bytes ...",
                                            .length = 32 };
static const struct relay_secret other = { .bytes = "another secret, of thirty-two ..",
                                           .length = 32 };
static const char target[] = "/api/v1/sessions/sess_1?usage=1";

static const struct relay_identity alice = {
    .from = "node-a",
    .from_epoch = 7,
    .to = "node-b",
    .to_epoch = UINT64_MAX,
    .counter = 42,
    .owner = "team;x/\xc3\xa4\"lice\n%",
    .principal = "agent 1",
    .on_behalf_of = "",
    .peer = "[::1]:4242",
    .roles = 5,
    .flags = RELAY_ANY_OWNER,
};

static char *written(const struct relay_identity *identity)
{
    struct buffer text = BUFFER_INIT(RELAY_TEXT_MAXIMUM);

    assert_int_equal(relay_identity_write(identity, &secret, HTTP_POST, target, &text), 0);
    return buffer_steal_text(&text);
}

static void what_is_written_reads_back(void **state UNUSED)
{
    scoped(free) char *text = written(&alice);
    scoped(relay_identity_fini) struct relay_identity read = { 0 };
    struct error err = { 0 };

    assert_int_equal(relay_identity_read(&read, &secret, HTTP_POST, target, text, &err), 0);
    assert_string_equal(read.from, alice.from);
    assert_int_equal(read.from_epoch, alice.from_epoch);
    assert_string_equal(read.to, alice.to);
    assert_true(read.to_epoch == alice.to_epoch);
    assert_int_equal(read.counter, alice.counter);
    assert_string_equal(read.owner, alice.owner);
    assert_string_equal(read.principal, alice.principal);
    assert_string_equal(read.on_behalf_of, "");
    assert_string_equal(read.peer, alice.peer);
    assert_int_equal(read.roles, 5);
    assert_int_equal(read.flags, RELAY_ANY_OWNER);
}

static void assert_refused(const struct relay_secret *with, enum http_method method,
                           const char *where, const char *text)
{
    struct relay_identity read = { 0 };
    struct error err = { 0 };

    assert_int_equal(relay_identity_read(&read, with, method, where, text, &err), -1);
    assert_int_equal(err.code, ERR_FORBIDDEN);
    assert_string_equal(err.name, "relay_refused");
    assert_null(read.storage);
}

static void another_method_target_or_secret_is_refused(void **state UNUSED)
{
    scoped(free) char *text = written(&alice);

    assert_refused(&secret, HTTP_DELETE, target, text);
    assert_refused(&secret, HTTP_POST, "/api/v1/sessions/sess_2?usage=1", text);
    assert_refused(&other, HTTP_POST, target, text);
}

static void any_changed_byte_is_refused(void **state UNUSED)
{
    scoped(free) char *text = written(&alice);

    for (size_t i = 0; text[i]; i++) {
        char before = text[i];

        text[i] = before == '0' ? '1' : '0';
        assert_refused(&secret, HTTP_POST, target, text);
        text[i] = before;
    }
    text[strlen(text) - 1] = '\0';
    assert_refused(&secret, HTTP_POST, target, text);
    assert_refused(&secret, HTTP_POST, target, "");
    assert_refused(&secret, HTTP_POST, target, ";;;");
}

static void an_identity_that_is_too_long_is_not_written(void **state UNUSED)
{
    scoped(free) char *owner = xmalloc(RELAY_TEXT_MAXIMUM);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(2 * RELAY_TEXT_MAXIMUM);
    struct relay_identity identity = alice;

    memset(owner, ';', RELAY_TEXT_MAXIMUM - 1);
    owner[RELAY_TEXT_MAXIMUM - 1] = '\0';
    identity.owner = owner;
    assert_int_equal(relay_identity_write(&identity, &secret, HTTP_GET, "/", &text), -1);
}

static void malformed_fields_are_not_parsed(void **state UNUSED)
{
    static const char *const texts[] = {
        "",
        "1",
        "2;a;1;b;1;1;o;p;q;r;1;0",
        "1;a;1;b;1;0;o;p;q;r;1;0",
        "1;;1;b;1;1;o;p;q;r;1;0",
        "1;a;1;;1;1;o;p;q;r;1;0",
        "1;a;-1;b;1;1;o;p;q;r;1;0",
        "1;a;1;b;1;1;%0;p;q;r;1;0",
        "1;a;1;b;1;1;%00;p;q;r;1;0",
        "1;a;1;b;1;1;%zz;p;q;r;1;0",
        "1;a;1;b;1;1;o;p;q;r;4294967296;0",
        "1;a;1;b;1;1;o;p;q;r;1;0;",
        "1;a;1;b;1;18446744073709551616;o;p;q;r;1;0",
    };
    struct relay_identity read = { 0 };

    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++)
        assert_int_equal(relay_identity_parse(&read, texts[i], strlen(texts[i])), -1);
    assert_null(read.storage);
}

/* --- counters -------------------------------------------------------------------------------- */

static void a_counter_is_good_for_once_in_any_order(void **state UNUSED)
{
    scoped(free) struct relay_window *window = xnew(struct relay_window);

    assert_int_equal(relay_window_take(window, 1, 5), RELAY_NEW);
    assert_int_equal(relay_window_take(window, 1, 5), RELAY_USED);
    assert_int_equal(relay_window_take(window, 1, 3), RELAY_NEW);
    assert_int_equal(relay_window_take(window, 1, 3), RELAY_USED);
    assert_int_equal(relay_window_take(window, 1, 4000), RELAY_NEW);
    assert_int_equal(relay_window_take(window, 1, 4), RELAY_NEW);
    assert_int_equal(relay_window_take(window, 1, 5), RELAY_USED);
    assert_int_equal(relay_window_take(window, 1, 4000 + RELAY_WINDOW), RELAY_NEW);
    assert_int_equal(relay_window_take(window, 1, 4000), RELAY_OLD);
    assert_int_equal(relay_window_take(window, 1, 4100), RELAY_NEW);
    assert_int_equal(relay_window_take(window, 1, 4100), RELAY_USED);
}

static void a_leap_forgets_nothing_that_could_come_again(void **state UNUSED)
{
    scoped(free) struct relay_window *window = xnew(struct relay_window);

    for (uint64_t counter = 1; counter < 3 * RELAY_WINDOW; counter += 7)
        assert_int_equal(relay_window_take(window, 1, counter), RELAY_NEW);
    for (uint64_t counter = 1; counter < 3 * RELAY_WINDOW; counter += 7)
        assert_int_not_equal(relay_window_take(window, 1, counter), RELAY_NEW);
    assert_int_equal(relay_window_take(window, 1, UINT64_MAX), RELAY_NEW);
    assert_int_equal(relay_window_take(window, 1, UINT64_MAX), RELAY_USED);
    assert_int_equal(relay_window_take(window, 1, UINT64_MAX - 1), RELAY_NEW);
    assert_int_equal(relay_window_take(window, 1, 1), RELAY_OLD);
}

static void a_new_incarnation_of_the_sender_begins_anew(void **state UNUSED)
{
    scoped(free) struct relay_window *window = xnew(struct relay_window);

    assert_int_equal(relay_window_take(window, 2, 5), RELAY_NEW);
    assert_int_equal(relay_window_take(window, 3, 5), RELAY_NEW);
    assert_int_equal(relay_window_take(window, 3, 5), RELAY_USED);
    assert_int_equal(relay_window_take(window, 2, 6), RELAY_STALE);
}

/* --- the file of the secret -------------------------------------------------------------------- */

static int read_secret(const char *content, mode_t mode, struct relay_secret *read,
                       struct error *err)
{
    char path[] = "/tmp/sandglass-secret-XXXXXX";
    int fd = mkstemp(path);
    int result;

    assert_true(fd >= 0 && fchmod(fd, mode) == 0);
    assert_int_equal(write(fd, content, strlen(content)), strlen(content));
    close(fd);
    result = relay_secret_read(read, path, err);
    unlink(path);
    return result;
}

static void a_secret_is_long_and_not_for_others(void **state UNUSED)
{
    static const char good[] = "0123456789abcdef0123456789abcdef";
    struct relay_secret read = { 0 };
    struct error err = { 0 };

    assert_int_equal(read_secret("0123456789abcdef0123456789abcdef\n", 0600, &read, &err), 0);
    assert_int_equal(read.length, strlen(good));
    assert_memory_equal(read.bytes, good, strlen(good));
    assert_int_equal(read_secret(good, 0640, &read, &err), 0);
    assert_int_equal(read_secret(good, 0644, &read, &err), -1);
    assert_non_null(strstr(err.message, "read by others"));
    assert_int_equal(read_secret("short\n", 0600, &read, &err), -1);
    assert_non_null(strstr(err.message, "32"));
    assert_int_equal(relay_secret_read(&read, "/nonexistent/secret", &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(another_method_target_or_secret_is_refused),
        cmocka_unit_test(any_changed_byte_is_refused),
        cmocka_unit_test(an_identity_that_is_too_long_is_not_written),
        cmocka_unit_test(malformed_fields_are_not_parsed),
        cmocka_unit_test(a_counter_is_good_for_once_in_any_order),
        cmocka_unit_test(a_leap_forgets_nothing_that_could_come_again),
        cmocka_unit_test(a_new_incarnation_of_the_sender_begins_anew),
        cmocka_unit_test(a_secret_is_long_and_not_for_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
