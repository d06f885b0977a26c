/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/macros.h"
#include "base/str.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int ends[2];
static char line[65536];

static int capture(void **state UNUSED)
{
    return pipe2(ends, O_CLOEXEC | O_NONBLOCK);
}

static int release(void **state UNUSED)
{
    log_setup(LOG_INFO, LOG_TEXT, STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    return 0;
}

static const char *read_line(void)
{
    ssize_t length = read(ends[0], line, sizeof(line) - 1);

    line[MAX(length, (ssize_t)0)] = '\0';
    return line;
}

static void assert_contains(const char *part)
{
    if (!strstr(line, part))
        fail_msg("no \"%s\" in %s", part, line);
}

static void text_lines_have_time_level_event_and_fields(void **state UNUSED)
{
    bool yes = true;

    log_setup(LOG_INFO, LOG_TEXT, ends[1]);
    log_warn("session stopped", kv("session", "ses_1"), kv("reason", "two words"), kv("age_s", 5),
             kv("ratio", 0.5), kv("last", yes), kv("none", (const char *)NULL));
    read_line();
    assert_contains("Z warn  session stopped session=ses_1 reason=\"two words\" age_s=5 ratio=0.5 "
                    "last=true none=-\n");
}

static void json_lines_have_typed_fields(void **state UNUSED)
{
    bool no = false;

    log_setup(LOG_DEBUG, LOG_JSON, ends[1]);
    log_debug("event", kv("text", "a\"b"), kv("big", UINT64_MAX), kv("small", INT64_MIN),
              kv("off", no), kv("none", (const char *)NULL));
    read_line();
    assert_contains("{\"time\":\"20");
    assert_contains("\"level\":\"debug\",\"event\":\"event\",\"text\":\"a\\\"b\","
                    "\"big\":18446744073709551615,\"small\":-9223372036854775808,\"off\":false,"
                    "\"none\":null}\n");
}

static void events_below_the_level_are_not_written(void **state UNUSED)
{
    log_setup(LOG_WARN, LOG_TEXT, ends[1]);
    log_info("quiet", kv("a", 1));
    assert_string_equal(read_line(), "");
    assert_false(log_enabled(LOG_INFO));
    assert_true(log_enabled(LOG_ERROR));
    log_error("loud", kv("a", 1));
    read_line();
    assert_contains("error loud a=1\n");
}

static void a_field_cannot_forge_a_line(void **state UNUSED)
{
    log_setup(LOG_INFO, LOG_TEXT, ends[1]);
    log_info("event", kv("owner", "x\n2026 error forged\r\x1b[31m"));
    read_line();
    assert_contains("owner=\"x\\u000a2026 error forged\\u000d\\u001b[31m\"\n");
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
}

static void bytes_that_are_not_utf8_do_not_break_json(void **state UNUSED)
{
    log_setup(LOG_INFO, LOG_JSON, ends[1]);
    log_info("event", kv("owner", "caf\xc3\xa9 \xff\xc3"));
    read_line();
    assert_contains("\"owner\":\"caf\xc3\xa9 \xef\xbf\xbd\xef\xbf\xbd\"");
    assert_true(str_is_utf8(line, strlen(line)));
}

static void a_long_field_is_cut_and_the_line_stays_whole(void **state UNUSED)
{
    char *text = malloc(100001);

    memset(text, 'x', 100000);
    text[100000] = '\0';
    log_setup(LOG_INFO, LOG_JSON, ends[1]);
    log_info("event", kv("long", text), kv("after", 1));
    read_line();
    assert_contains("xxx...\",\"after\":1}\n");
    assert_true(strlen(line) < 5000);
    free(text);
}

#define LOG_TEST(name) cmocka_unit_test_setup_teardown(name, capture, release)

static void what_repeats_is_logged_once_in_a_while_with_its_number(void **state)
{
    struct log_repeat repeat = { 0 };
    uint64_t left_out = 99;

    (void)state;
    assert_true(log_repeat_is_due(&repeat, 5, &left_out));
    assert_int_equal(left_out, 0);
    for (int64_t i = 0; i < 1000; i++)
        assert_false(log_repeat_is_due(&repeat, 5 + i * 9999, &left_out));
    assert_true(log_repeat_is_due(&repeat, 5 + 10 * 1000 * 1000, &left_out));
    assert_int_equal(left_out, 1000);
    assert_false(log_repeat_is_due(&repeat, 6 + 10 * 1000 * 1000, &left_out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOG_TEST(what_repeats_is_logged_once_in_a_while_with_its_number),
        LOG_TEST(text_lines_have_time_level_event_and_fields),
        LOG_TEST(json_lines_have_typed_fields),
        LOG_TEST(events_below_the_level_are_not_written),
        LOG_TEST(a_field_cannot_forge_a_line),
        LOG_TEST(bytes_that_are_not_utf8_do_not_break_json),
        LOG_TEST(a_long_field_is_cut_and_the_line_stays_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
