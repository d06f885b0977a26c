/* SPDX-License-Identifier: Apache-2.0 */
#include "init/relay_usage.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static uint64_t find(const char *text, const char *word)
{
    return usage_find_number(text, strlen(text), word);
}

static void a_number_is_found_behind_its_word(void **state UNUSED)
{
    static const char events[] = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\n";

    assert_int_equal(find(events, "oom_kill "), 2);
    assert_int_equal(find(events, "max "), 12);
    assert_int_equal(find("oom_kill_disable 1\nunder_oom 0\noom_kill 5", "oom_kill "), 5);
    assert_int_equal(find("123456\n", ""), 123456);
    assert_int_equal(find("max\n", ""), 0);
    assert_int_equal(find("", "oom_kill "), 0);
    assert_int_equal(find("oom_kil", "oom_kill "), 0);
    assert_int_equal(find("oom_kill ", "oom_kill "), 0);
}

static bool parse(const char *text, struct usage_stat *out_stat)
{
    return usage_parse_stat(text, strlen(text), out_stat);
}

static void the_name_of_a_process_may_hold_anything(void **state UNUSED)
{
    struct usage_stat stat;

    assert_true(
        parse("7 (a) b (c) R 1 7 7 0 -1 4194304 1 0 0 0 250 50 0 0 20 0 1 0 5 9000 25 0\n", &stat));
    assert_string_equal(stat.process.name, "a) b (c");
    assert_int_equal(stat.process.cpu_us, 3000 * 1000);
    assert_int_equal(stat.memory_bytes, 25 * 4096);
    assert_true(parse("7 (0123456789012345678901234567890) S 1 7 ", &stat));
    assert_int_equal(strlen(stat.process.name), sizeof(stat.process.name) - 1);
    assert_int_equal(stat.process.cpu_us, 0);
}

static void what_is_no_process_is_refused(void **state UNUSED)
{
    static const char *const bad[] = {
        "", "7", "7 (", "7 (a", "7 a) S", ")(", "7 (a)", "7 )a( S 1"
    };
    struct usage_stat stat;

    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        assert_false(parse(bad[i], &stat));
}

static void the_busiest_processes_are_kept_in_order(void **state UNUSED)
{
    struct relay_usage usage = { 0 };

    for (uint32_t i = 1; i <= 20; i++) {
        struct relay_process process = { .number = i, .cpu_us = i * 7919 % 101 };

        usage_insert(&usage, &process);
    }
    for (unsigned i = 1; i < RELAY_PROCESSES; i++)
        assert_true(usage.processes[i - 1].cpu_us >= usage.processes[i].cpu_us);
    for (uint32_t i = 1; i <= 20; i++) {
        bool is_kept = false;

        for (unsigned k = 0; k < RELAY_PROCESSES; k++)
            is_kept |= usage.processes[k].number == i;
        assert_true(is_kept || i * 7919 % 101 <= usage.processes[RELAY_PROCESSES - 1].cpu_us);
    }
}

/* Whatever this host mounts at /sys/fs/cgroup. */
static void this_process_is_measured(void **state UNUSED)
{
    struct relay_usage usage;

    relay_usage_read(&usage);
    assert_true(usage.memory_bytes > 0 && usage.pids > 0);
    assert_true(usage.processes[0].number > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_is_found_behind_its_word),
        cmocka_unit_test(the_name_of_a_process_may_hold_anything),
        cmocka_unit_test(what_is_no_process_is_refused),
        cmocka_unit_test(the_busiest_processes_are_kept_in_order),
        cmocka_unit_test(this_process_is_measured),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
