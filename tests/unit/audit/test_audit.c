/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/audit.h"

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/log.h"
#include "base/macros.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmocka.h>

static char directory[64], path[96], moved[96], head[96];
static struct loop *loop;

static int open_scene(void **state UNUSED)
{
    log_setup(LOG_ERROR, LOG_TEXT, open("/dev/null", O_WRONLY | O_CLOEXEC));
    strcpy(directory, "/tmp/sandglass-audit-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    snprintf(path, sizeof(path), "%s/log", directory);
    snprintf(moved, sizeof(moved), "%s/log.1", directory);
    snprintf(head, sizeof(head), "%s/log.head", directory);
    loop = loop_new(&clock_system);
    return 0;
}

static int close_scene(void **state UNUSED)
{
    loop_free(loop);
    (void)unlink(path);
    (void)unlink(moved);
    (void)unlink(head);
    return rmdir(directory);
}

static struct audit *start(void)
{
    struct error err = { 0 };
    struct audit *audit = audit_open(loop, path, &err);

    if (!audit)
        fail_msg("%s", err.message);
    return audit;
}

static void put(struct audit *audit, int number)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(256);

    buffer_appendf(&text, "\"type\":\"test\",\"number\":%d", number);
    audit_write(audit, &text);
}

static void write_lines(int count)
{
    struct audit *audit = start();

    for (int i = 0; i < count; i++)
        put(audit, i);
    audit_close(audit);
}

static void note_finding(void *context, const char *file UNUSED,
                         const struct audit_finding *finding)
{
    *(struct audit_finding *)context = *finding;
}

/* The last finding is in `out`; how many lines there are is returned. */
static uint64_t verify(const char *const *paths, size_t count, struct audit_finding *out,
                       uint64_t *out_findings)
{
    struct audit_summary summary;
    struct error err = { 0 };

    if (audit_verify(paths, count, note_finding, out, &summary, &err) < 0)
        fail_msg("%s", err.message);
    *out_findings = summary.findings;
    return summary.lines;
}

static void assert_good(uint64_t lines)
{
    const char *const paths[] = { path };
    struct audit_finding finding = { 0 };
    uint64_t findings;

    assert_int_equal(verify(paths, 1, &finding, &findings), lines);
    if (findings)
        fail_msg("line %llu %s", (unsigned long long)finding.line, finding.message);
}

static char *read_log(void)
{
    FILE *file = fopen(path, "r");
    char *text = xcalloc(1, 1 << 20);

    assert_non_null(file);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

static void write_log(const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void append(const char *text)
{
    FILE *file = fopen(path, "a");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void lines_are_written_in_order_and_only_for_us(void **state UNUSED)
{
    scoped(free) char *text = NULL;
    struct stat status;

    write_lines(1000);
    assert_good(1000);
    text = read_log();
    assert_non_null(strstr(text, "{\"seq\":1,"));
    assert_non_null(strstr(text, "\"number\":999,\"event\":0,\"time\":\"20"));
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
}

static void a_new_process_goes_on_with_the_chain(void **state UNUSED)
{
    write_lines(3);
    write_lines(2);
    assert_good(5);
}

static void half_a_line_of_a_killed_process_goes(void **state UNUSED)
{
    write_lines(3);
    append("{\"seq\":4,\"prev\":\"00");
    write_lines(1);
    assert_good(4);
}

static void a_moved_log_is_followed_by_a_new_one(void **state UNUSED)
{
    const char *const both[] = { moved, path };
    const char *const swapped[] = { path, moved };
    struct audit_finding finding = { 0 };
    struct audit *audit = start();
    uint64_t findings;

    put(audit, 1);
    put(audit, 2);
    audit_close(audit);
    audit = start();
    assert_int_equal(rename(path, moved), 0);
    audit_reopen(audit);
    put(audit, 3);
    audit_close(audit);

    assert_good(2);
    assert_int_equal(verify(both, 2, &finding, &findings), 4);
    assert_int_equal(findings, 0);
    (void)verify(swapped, 2, &finding, &findings);
    assert_true(findings > 0);
}

static void an_edited_line_is_named(void **state UNUSED)
{
    const char *const paths[] = { path };
    struct audit_finding finding = { 0 };
    scoped(free) char *text = NULL;
    uint64_t findings;

    write_lines(9);
    text = read_log();
    *(strstr(text, "\"number\":4") + 9) = '7';
    write_log(text);
    (void)verify(paths, 1, &finding, &findings);
    assert_int_equal(findings, 1);
    assert_int_equal(finding.line, 5);
    assert_non_null(strstr(finding.message, "altered"));
}

static void a_cut_off_end_is_found(void **state UNUSED)
{
    const char *const paths[] = { path };
    struct audit_finding finding = { .line = 99 };
    scoped(free) char *text = NULL;
    uint64_t findings;

    write_lines(9);
    text = read_log();
    *strstr(text, "{\"seq\":9") = '\0';
    write_log(text);
    assert_int_equal(verify(paths, 1, &finding, &findings), 8);
    assert_int_equal(findings, 1);
    assert_int_equal(finding.line, 0);
    assert_non_null(strstr(finding.message, "missing"));
}

static void a_line_that_is_being_written_is_no_finding(void **state UNUSED)
{
    const char *const paths[] = { path };
    struct audit_finding finding = { 0 };
    struct audit_summary summary = { 0 };
    struct error err = { 0 };

    write_lines(3);
    append("{\"seq\":4,\"prev\":\"00");
    assert_int_equal(audit_verify(paths, 1, note_finding, &finding, &summary, &err), 0);
    assert_int_equal(summary.findings, 0);
    assert_int_equal(summary.lines, 3);
    assert_true(summary.is_open);
}

static void a_line_that_was_cut_in_two_is_found(void **state UNUSED)
{
    const char *const paths[] = { path };
    struct audit_finding finding = { .line = 99 };
    scoped(free) char *text = NULL;
    uint64_t findings;

    write_lines(9);
    text = read_log();
    strstr(text, "{\"seq\":9")[20] = '\0';
    write_log(text);
    assert_int_equal(verify(paths, 1, &finding, &findings), 8);
    assert_int_equal(findings, 1);
    assert_non_null(strstr(finding.message, "missing"));
}

/* Turns the loop until something is logged. */
static void wait_for_log(int pipe)
{
    int64_t deadline_us = clock_now_us(&clock_system) + 60 * 1000 * INT64_C(1000);
    char byte;

    while (read(pipe, &byte, 1) != 1) {
        assert_true(clock_now_us(&clock_system) < deadline_us);
        loop_turn(loop, 5);
    }
}

static void a_disk_that_is_full_loses_lines_but_not_the_chain(void **state UNUSED)
{
    int logged[2];
    struct rlimit kept, small;
    scoped(free) char *text = NULL;
    struct audit *audit;
    struct stat status;

    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(pipe2(logged, O_CLOEXEC | O_NONBLOCK), 0);
    log_setup(LOG_ERROR, LOG_TEXT, logged[1]);
    write_lines(1);
    assert_int_equal(stat(path, &status), 0);
    audit = start();
    getrlimit(RLIMIT_FSIZE, &kept);
    small = kept;
    small.rlim_cur = (rlim_t)status.st_size + 100;
    setrlimit(RLIMIT_FSIZE, &small);
    put(audit, 1);
    wait_for_log(logged[0]); /* that it cannot be written */
    setrlimit(RLIMIT_FSIZE, &kept);
    put(audit, 2);
    audit_close(audit);
    log_setup(LOG_ERROR, LOG_TEXT, STDERR_FILENO);
    close(logged[0]);
    close(logged[1]);
    assert_good(3);
    text = read_log();
    assert_non_null(strstr(text, "\"type\":\"audit.dropped\",\"lines\":1,"));
    assert_non_null(strstr(text, "\"number\":2"));
}

/* Closes it, and makes of the log what a process leaves that is killed so many lines earlier. */
static void cut_lines(struct audit *audit, int lines)
{
    scoped(free) char *text = NULL;

    audit_close(audit);
    text = read_log();
    while (lines-- > 0) {
        text[strlen(text) - 1] = '\0';
        strrchr(text, '\n')[1] = '\0';
    }
    write_log(text);
    assert_int_equal(unlink(head), 0);
}

static struct audit_summary summary_of_log(void)
{
    const char *const paths[] = { path };
    struct audit_finding finding;
    struct audit_summary summary;
    struct error err = { 0 };

    assert_int_equal(audit_verify(paths, 1, note_finding, &finding, &summary, &err), 0);
    return summary;
}

static void a_log_that_was_closed_is_whole(void **state UNUSED)
{
    struct audit *audit = start();
    struct audit_summary summary;

    assert_false(audit_left(audit).was_interrupted);
    audit_covers(audit, 41);
    audit_start(audit, 0);
    put(audit, 1);
    audit_close(audit);
    summary = summary_of_log();
    assert_int_equal(summary.findings, 0);
    assert_false(summary.is_open);
    audit = start();
    assert_false(audit_left(audit).was_interrupted);
    assert_int_equal(audit_left(audit).event, 41);
    audit_close(audit);
}

static void a_log_without_its_end_was_interrupted(void **state UNUSED)
{
    struct audit *audit = start();
    struct audit_summary summary;

    audit_start(audit, 0);
    audit_covers(audit, 7);
    put(audit, 1);
    audit_covers(audit, 9);
    put(audit, 2);
    cut_lines(audit, 2);
    assert_true(summary_of_log().is_open);

    audit = start();
    assert_true(audit_left(audit).was_interrupted);
    assert_int_equal(audit_left(audit).event, 7);
    put(audit, 2);
    audit_start(audit, 1);
    audit_close(audit);
    summary = summary_of_log();
    assert_false(summary.is_open);
    assert_int_equal(summary.interruptions, 1);
    assert_int_equal(summary.recovered, 1);
}

static void a_start_that_failed_leaves_the_log_as_it_was(void **state UNUSED)
{
    struct audit *audit = start();

    audit_start(audit, 0);
    cut_lines(audit, 1);
    audit_close(start());
    audit = start();
    assert_true(audit_left(audit).was_interrupted);
    audit_close(audit);
}

static void a_line_about_another_line_is_not_taken_for_it(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(512);
    struct audit *audit = start();

    audit_start(audit, 0);
    audit_covers(audit, 3);
    buffer_append_text(&text, "\"type\":\"request\",\"body\":{\"type\":\"audit.stopped\",\"x\":"
                              "1,\"event\":99,\"type\":\"audit.started\",\"interrupted\":true,"
                              "\"recovered\":5}");
    audit_write(audit, &text);
    cut_lines(audit, 1);
    assert_int_equal(summary_of_log().interruptions, 0);
    audit = start();
    assert_true(audit_left(audit).was_interrupted);
    assert_int_equal(audit_left(audit).event, 3);
    audit_close(audit);
}

static void a_link_in_its_place_is_refused(void **state UNUSED)
{
    struct error err = { 0 };

    assert_int_equal(symlink("/dev/null", path), 0);
    assert_null(audit_open(loop, path, &err));
}

static void put_about(struct audit *audit, const char *session, int number)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(256);

    buffer_appendf(&text, "\"type\":\"test\",\"session\":\"%s\",\"number\":%d", session, number);
    audit_write(audit, &text);
}

static void the_newest_lines_about_a_session_are_found(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer all = BUFFER_INIT(65536);
    scoped(buffer_fini) struct buffer two = BUFFER_INIT(65536);
    scoped(buffer_fini) struct buffer none = BUFFER_INIT(65536);
    struct audit *audit = start();
    struct error err = { 0 };

    for (int i = 0; i < 5; i++) {
        put_about(audit, "ses_a", i);
        put_about(audit, "ses_ab", 10 + i);
    }
    audit_close(audit);
    assert_int_equal(audit_tail(path, "ses_a", 100, &all, &err), 0);
    assert_int_equal(audit_tail(path, "ses_a", 2, &two, &err), 0);
    assert_int_equal(audit_tail(path, "ses_c", 2, &none, &err), 0);
    assert_string_equal(buffer_text(&none), "[]");
    assert_non_null(strstr(buffer_text(&all), "\"number\":0,"));
    assert_null(strstr(buffer_text(&all), "ses_ab"));
    assert_null(strstr(buffer_text(&two), "\"number\":2,"));
    assert_true(strstr(buffer_text(&two), "\"number\":3,") <
                strstr(buffer_text(&two), "\"number\":4,"));
    assert_int_equal(audit_tail("/nonexistent/log", "ses_a", 2, &none, &err), -1);
}

#define SCENE(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE(lines_are_written_in_order_and_only_for_us),
        SCENE(a_new_process_goes_on_with_the_chain),
        SCENE(half_a_line_of_a_killed_process_goes),
        SCENE(a_moved_log_is_followed_by_a_new_one),
        SCENE(an_edited_line_is_named),
        SCENE(a_cut_off_end_is_found),
        SCENE(a_line_that_is_being_written_is_no_finding),
        SCENE(a_line_that_was_cut_in_two_is_found),
        SCENE(a_disk_that_is_full_loses_lines_but_not_the_chain),
        SCENE(a_log_that_was_closed_is_whole),
        SCENE(a_log_without_its_end_was_interrupted),
        SCENE(a_start_that_failed_leaves_the_log_as_it_was),
        SCENE(a_line_about_another_line_is_not_taken_for_it),
        SCENE(a_link_in_its_place_is_refused),
        SCENE(the_newest_lines_about_a_session_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
