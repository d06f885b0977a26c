/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/protocol.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static _Alignas(8) char buffer[PROTOCOL_MAX_MESSAGE];
static const char *strings[PROTOCOL_MAX_STRINGS + 2];

static const char *const some_argv[] = { "sh", "-c", "", NULL };
static const char *const some_env[] = { "A=1", "B=", NULL };

static long encode_start(uint32_t flags, const char *user, const char *cwd, const char *script)
{
    struct protocol_start fixed = {
        .header = { .process = 7, .request = 9 },
        .flags = flags,
        .columns = 80,
        .rows = 24,
        .umask = 022,
        .nofile = 100,
        .file_size_bytes = 1ull << 40,
    };
    struct protocol_start_texts texts = { user, cwd, script, some_argv, some_env };

    return protocol_start_encode(buffer, sizeof(buffer), &fixed, &texts);
}

static void a_start_reads_back_as_it_was_written(void **state UNUSED)
{
    struct protocol_start_texts texts;
    long length = encode_start(START_SCRIPT | START_STDIN, "me", "/there", "/script");
    const struct protocol_start *start =
        protocol_start_decode(buffer, (size_t)length, strings, &texts);

    assert_non_null(start);
    assert_int_equal(start->header.process, 7);
    assert_int_equal(start->header.request, 9);
    assert_int_equal(start->flags, START_SCRIPT | START_STDIN);
    assert_int_equal(start->columns, 80);
    assert_int_equal(start->file_size_bytes, 1ull << 40);
    assert_string_equal(texts.user, "me");
    assert_string_equal(texts.cwd, "/there");
    assert_string_equal(texts.script_path, "/script");
    for (int i = 0; i < 4; i++)
        if (some_argv[i])
            assert_string_equal(texts.argv[i], some_argv[i]);
        else
            assert_null(texts.argv[i]);
    assert_string_equal(texts.env[0], "A=1");
    assert_string_equal(texts.env[1], "B=");
    assert_null(texts.env[2]);
}

static void a_start_that_makes_no_sense_is_not_written(void **state UNUSED)
{
    struct protocol_start fixed = { .header.process = 1 };
    struct protocol_start_texts texts = { "", "", "", (const char *const[]){ NULL }, some_env };

    assert_int_equal(encode_start(0, "", "relative", ""), -1);
    assert_int_equal(encode_start(0, "", "", "/script"), -1);
    assert_int_equal(encode_start(START_SCRIPT, "", "", ""), -1);
    assert_int_equal(encode_start(START_SCRIPT, "", "", "relative"), -1);
    assert_int_equal(encode_start(1u << 30, "", "", ""), -1);
    assert_int_equal(protocol_start_encode(buffer, sizeof(buffer), &fixed, &texts), -1);
    texts.argv = some_argv;
    assert_int_equal(protocol_start_encode(buffer, 70, &fixed, &texts), -1);
    fixed.header.process = 0;
    assert_int_equal(protocol_start_encode(buffer, sizeof(buffer), &fixed, &texts), -1);
}

static void strings_are_counted_together(void **state UNUSED)
{
    static const char *many[PROTOCOL_MAX_STRINGS + 2];
    struct protocol_start fixed = { .header.process = 1 };
    struct protocol_start_texts texts = { "", "", "", some_argv, many };
    long length;

    for (int i = 0; i < PROTOCOL_MAX_STRINGS - 3; i++)
        many[i] = "x";
    length = protocol_start_encode(buffer, sizeof(buffer), &fixed, &texts);
    assert_true(length > 0);
    assert_non_null(protocol_start_decode(buffer, (size_t)length, strings, &texts));
    texts.env = many;
    many[PROTOCOL_MAX_STRINGS - 3] = "x";
    assert_int_equal(protocol_start_encode(buffer, sizeof(buffer), &fixed, &texts), -1);
}

/* Every prefix, every single byte changed: either refused, or what was read stays inside. */
static void check_start(size_t length)
{
    struct protocol_start_texts texts;
    const struct protocol_start *start = protocol_start_decode(buffer, length, strings, &texts);

    if (!start)
        return;
    assert_in_range(start->argc, 1, PROTOCOL_MAX_STRINGS);
    assert_null(texts.argv[start->argc]);
    assert_null(texts.env[start->envc]);
    for (uint32_t i = 0; i < start->argc; i++)
        assert_true(texts.argv[i] + strlen(texts.argv[i]) < buffer + length);
    for (uint32_t i = 0; i < start->envc; i++)
        assert_true(texts.env[i] + strlen(texts.env[i]) < buffer + length);
}

static void a_damaged_start_is_refused_or_harmless(void **state UNUSED)
{
    struct protocol_start_texts texts;
    long length = encode_start(START_SCRIPT, "user", "/cwd", "/script");

    for (long cut = 0; cut < length; cut++) {
        ((struct protocol_header *)buffer)->length = (uint32_t)cut;
        assert_null(protocol_start_decode(buffer, (size_t)cut, strings, &texts));
    }
    for (long at = 0; at < length; at++)
        for (int bit = 0; bit < 8; bit++) {
            (void)encode_start(START_SCRIPT, "user", "/cwd", "/script");
            buffer[at] ^= (char)(1 << bit);
            check_start((size_t)length);
        }
}

static void counts_that_lie_are_refused(void **state UNUSED)
{
    static const struct {
        uint32_t argc;
        uint32_t envc;
    } cases[] = {
        { 0, 5 },
        { 3, 1 },
        { 3, 3 },
        { 2, 2 },
        { UINT32_MAX, 2 },
        { 3, UINT32_MAX },
        { 1u << 31, 1u << 31 },
        { PROTOCOL_MAX_STRINGS, 1 },
    };
    struct protocol_start_texts texts;

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        long length = encode_start(0, "", "", "");
        struct protocol_start *start = (struct protocol_start *)buffer;

        start->argc = cases[i].argc;
        start->envc = cases[i].envc;
        assert_null(protocol_start_decode(buffer, (size_t)length, strings, &texts));
    }
}

static void headers_that_lie_are_refused(void **state UNUSED)
{
    struct protocol_plain list = { protocol_header(PROTOCOL_LIST, sizeof(list), 0, 1) };
    struct protocol_plain wrong = list;

    assert_int_equal(protocol_peek(&list, sizeof(list)), PROTOCOL_LIST);
    assert_non_null(protocol_plain_decode(&list, sizeof(list)));
    assert_int_equal(protocol_peek(&list, sizeof(list) - 1), -1);
    assert_int_equal(protocol_peek(&list, 0), -1);
    wrong.header.length = 0;
    assert_int_equal(protocol_peek(&wrong, sizeof(wrong)), -1);
    wrong = list;
    wrong.header.version++;
    assert_int_equal(protocol_peek(&wrong, sizeof(wrong)), -1);
    wrong = list;
    wrong.header.type = PROTOCOL_START;
    assert_null(protocol_plain_decode(&wrong, sizeof(wrong)));
    wrong.header.type = PROTOCOL_DONE;
    assert_null(protocol_done_decode(&wrong, sizeof(wrong)));
}

static void a_file_operation_reads_back(void **state UNUSED)
{
    struct protocol_file fixed = { .header.request = 4, .kind = FILE_MOVE, .mode = 0644 };
    struct protocol_file_texts texts = { "u", "/a", "/b" };
    long length = protocol_file_encode(buffer, sizeof(buffer), &fixed, &texts);
    const struct protocol_file *file;

    assert_true(length > 0);
    file = protocol_file_decode(buffer, (size_t)length, &texts);
    assert_non_null(file);
    assert_int_equal(file->kind, FILE_MOVE);
    assert_string_equal(texts.user, "u");
    assert_string_equal(texts.path, "/a");
    assert_string_equal(texts.second, "/b");
    for (long cut = 0; cut < length; cut++) {
        ((struct protocol_header *)buffer)->length = (uint32_t)cut;
        assert_null(protocol_file_decode(buffer, (size_t)cut, &texts));
    }
}

static void a_file_operation_that_makes_no_sense_is_refused(void **state UNUSED)
{
    static const struct {
        struct protocol_file fixed;
        struct protocol_file_texts texts;
    } cases[] = {
        { { .kind = 0 }, { "", "/a", "" } },
        { { .kind = FILE_KINDS }, { "", "/a", "" } },
        { { .kind = FILE_STAT }, { "", "", "" } },
        { { .kind = FILE_STAT }, { "", "/a", "/b" } },
        { { .kind = FILE_MOVE }, { "", "/a", "" } },
        { { .kind = FILE_STAT, .flags = 1u << 20 }, { "", "/a", "" } },
        { { .kind = FILE_MKDIR, .mode = 010000 }, { "", "/a", "" } },
        { { .kind = FILE_LIST, .depth = PROTOCOL_MAX_DEPTH + 1 }, { "", "/a", "" } },
    };

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
        assert_int_equal(
            protocol_file_encode(buffer, sizeof(buffer), &cases[i].fixed, &cases[i].texts), -1);
}

static void texts_over_their_limit_are_refused(void **state UNUSED)
{
    static char longest[PROTOCOL_MAX_PATH + 1];
    struct protocol_file fixed = { .kind = FILE_STAT };
    struct protocol_file_texts texts = { "", longest, "" };

    memset(longest, 'x', PROTOCOL_MAX_PATH - 1);
    assert_true(protocol_file_encode(buffer, sizeof(buffer), &fixed, &texts) > 0);
    longest[PROTOCOL_MAX_PATH - 1] = 'x';
    assert_int_equal(protocol_file_encode(buffer, sizeof(buffer), &fixed, &texts), -1);
    assert_int_equal(encode_start(0, longest, "", ""), -1);
}

static void a_connection_is_to_a_port_or_to_a_path(void **state UNUSED)
{
    struct protocol_connect fixed = { .header.request = 3, .port = 8080 };
    const char *user;
    const char *path;
    long length = protocol_connect_encode(buffer, sizeof(buffer), &fixed, "agent", "");

    assert_true(length > 0);
    assert_int_equal(protocol_connect_decode(buffer, (size_t)length, &user, &path)->port, 8080);
    assert_string_equal(user, "agent");
    assert_int_equal(protocol_connect_encode(buffer, sizeof(buffer), &fixed, "", "/a"), -1);
    fixed.port = 65536;
    assert_int_equal(protocol_connect_encode(buffer, sizeof(buffer), &fixed, "", ""), -1);
    fixed.port = 0;
    assert_int_equal(protocol_connect_encode(buffer, sizeof(buffer), &fixed, "", ""), -1);
    assert_int_equal(protocol_connect_encode(buffer, sizeof(buffer), &fixed, "", "relative"), -1);
    length = protocol_connect_encode(buffer, sizeof(buffer), &fixed, "", "/run/app.sock");
    assert_non_null(protocol_connect_decode(buffer, (size_t)length, &user, &path));
    assert_string_equal(path, "/run/app.sock");
    assert_null(protocol_connect_decode(buffer, (size_t)length - 1, &user, &path));
}

static struct protocol_hello hello_of(uint16_t oldest, uint16_t newest, size_t length)
{
    struct protocol_hello hello = {
        .header = protocol_header(PROTOCOL_HELLO, length, 0, 0),
        .processes = 7,
        .oldest = oldest,
        .newest = newest,
        .scratch = "/tmp/.own",
    };

    return hello;
}

static void a_hello_of_another_release_is_understood(void **state UNUSED)
{
    size_t first_release = offsetof(struct protocol_hello, oldest);
    struct protocol_hello hello = hello_of(0, 0, first_release);
    struct protocol_hello heard;

    assert_int_equal(protocol_hello_decode(&hello, first_release, &heard), 0);
    assert_int_equal(heard.oldest, 1);
    assert_int_equal(heard.newest, 1);
    assert_string_equal(heard.scratch, "/tmp/.sandglass");

    hello = hello_of(3, 5, sizeof(hello) + 40);
    hello.header.version = 3;
    memcpy(buffer, &hello, sizeof(hello));
    assert_int_equal(protocol_hello_decode(buffer, sizeof(hello) + 40, &heard), 0);
    assert_int_equal(heard.oldest, 3);
    assert_int_equal(heard.newest, 5);
    assert_int_equal(heard.processes, 7);
    assert_string_equal(heard.scratch, "/tmp/.own");
}

static void a_hello_that_cannot_be_is_refused(void **state UNUSED)
{
    struct protocol_hello hello = hello_of(2, 1, sizeof(hello));
    struct protocol_hello heard;

    assert_int_equal(protocol_hello_decode(&hello, sizeof(hello), &heard), -1);
    hello = hello_of(1, 1, sizeof(hello) - 1);
    assert_int_equal(protocol_hello_decode(&hello, sizeof(hello) - 1, &heard), -1);
    hello = hello_of(1, 1, sizeof(hello));
    memset(hello.scratch, '/', sizeof(hello.scratch));
    assert_int_equal(protocol_hello_decode(&hello, sizeof(hello), &heard), -1);
    hello = hello_of(1, 1, sizeof(hello));
    hello.scratch[0] = 'x';
    assert_int_equal(protocol_hello_decode(&hello, sizeof(hello), &heard), -1);
}

static void what_a_relay_adds_is_found(void **state UNUSED)
{
    struct {
        struct protocol_process process;
        struct protocol_bases bases;
        struct protocol_totals totals;
    } told = {
        .process = { .header = protocol_header(PROTOCOL_PROCESS, sizeof(told), 4, 0), .pid = 2 },
        .bases = { 1, 2, 3 },
        .totals = { 4, 5 },
    };

    assert_non_null(protocol_process_decode(&told, sizeof(told)));
    assert_int_equal(protocol_bases_after(&told, sizeof(told))->errors, 3);
    assert_int_equal(protocol_totals_after(&told, sizeof(told))->output, 4);
    told.process.header = protocol_header(PROTOCOL_PROCESS, sizeof(told.process), 4, 0);
    assert_non_null(protocol_process_decode(&told, sizeof(told.process)));
    assert_null(protocol_bases_after(&told, sizeof(told.process)));
    assert_null(protocol_totals_after(&told, sizeof(told.process)));
    told.process.header = protocol_header(PROTOCOL_PROCESS, sizeof(told) - 8, 4, 0);
    assert_null(protocol_process_decode(&told, sizeof(told) - 8));
}

static void ends_that_cannot_be_are_refused(void **state UNUSED)
{
    static const struct protocol_end bad[] = {
        { .code = 256 },
        { .code = -1 },
        { .code = 0, .signal = 9 },
        { .code = -1, .signal = 65 },
        { .code = -1, .signal = -9 },
        { .wall_us = -1 },
        { .cpu_us = -1 },
    };
    struct protocol_exited exited = {
        .header = protocol_header(PROTOCOL_EXITED, sizeof(exited), 1, 0),
    };

    assert_non_null(protocol_exited_decode(&exited, sizeof(exited)));
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        exited.end = bad[i];
        assert_null(protocol_exited_decode(&exited, sizeof(exited)));
    }
}

static void as_many_are_forgotten_as_fit(void **state UNUSED)
{
    struct protocol_forget_many forget = {
        .header = protocol_header(PROTOCOL_FORGET_MANY, sizeof(forget), 0, 0),
        .count = PROTOCOL_MAX_FORGOTTEN,
    };

    assert_non_null(protocol_forget_many_decode(&forget, sizeof(forget)));
    assert_null(protocol_forget_many_decode(&forget, sizeof(forget) - 8));
    forget.count++;
    assert_null(protocol_forget_many_decode(&forget, sizeof(forget)));
    forget.count = 0;
    assert_null(protocol_forget_many_decode(&forget, sizeof(forget)));
}

static void what_ran_left_nothing_behind(void **state UNUSED)
{
    struct protocol_ran ran = {
        .header = protocol_header(PROTOCOL_RAN, sizeof(ran), 1, 2),
        .pid = 3,
    };

    assert_non_null(protocol_ran_decode(&ran, sizeof(ran)));
    assert_null(protocol_ran_decode(&ran, sizeof(ran) - 1));
    ran.end.survivors = 1;
    assert_null(protocol_ran_decode(&ran, sizeof(ran)));
    ran.end = (struct protocol_end){ .code = 256 };
    assert_null(protocol_ran_decode(&ran, sizeof(ran)));
    ran.end.code = 0;
    ran.pid = 0;
    assert_null(protocol_ran_decode(&ran, sizeof(ran)));
    ran.pid = 3;
    ran.header.request = 0;
    assert_null(protocol_ran_decode(&ran, sizeof(ran)));
}

static void signals_out_of_range_are_refused(void **state UNUSED)
{
    struct protocol_signal signal = {
        .header = protocol_header(PROTOCOL_SIGNAL, sizeof(signal), 1, 2),
        .number = 15,
        .scope = SCOPE_TREE,
    };

    assert_non_null(protocol_signal_decode(&signal, sizeof(signal)));
    signal.number = 65;
    assert_null(protocol_signal_decode(&signal, sizeof(signal)));
    signal.number = -1;
    assert_null(protocol_signal_decode(&signal, sizeof(signal)));
    signal.number = 9;
    signal.scope = 2;
    assert_null(protocol_signal_decode(&signal, sizeof(signal)));
}

/* --- entries of a list ------------------------------------------------------------------------ */

static void entries_are_read_from_any_cut_of_the_stream(void **state UNUSED)
{
    struct protocol_entry entry = { .stat = { .mode = S_IFLNK | 0777, .size = 6 } };
    struct protocol_entry_view view;
    long length = protocol_entry_encode(buffer, sizeof(buffer), &entry, "dir/name", "target");

    assert_true(length > 0);
    for (long cut = 0; cut < length; cut++)
        assert_int_equal(protocol_entry_decode(buffer, (size_t)cut, &view), 0);
    assert_int_equal(protocol_entry_decode(buffer, (size_t)length + 10, &view), length);
    assert_false(view.is_last);
    assert_int_equal(view.fixed.path_length, 8);
    assert_memory_equal(view.path, "dir/name", 8);
    assert_memory_equal(view.target, "target", 6);
}

static void paths_that_lead_out_of_the_list_are_refused(void **state UNUSED)
{
    static const char *const bad[] = {
        "", "/", "/a", "a/", "a//b", "..", "../a", "a/..", "a/../b", ".", "./a", "a/./b",
    };
    struct protocol_entry entry = { .stat.mode = S_IFREG | 0644 };
    struct protocol_entry_view view;
    long length;

    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        length = protocol_entry_encode(buffer, sizeof(buffer), &entry, bad[i], "");
        assert_int_equal(protocol_entry_decode(buffer, (size_t)length, &view), -1);
    }
    length = protocol_entry_encode(buffer, sizeof(buffer), &entry, "..a/b..", "");
    assert_int_equal(protocol_entry_decode(buffer, (size_t)length, &view), length);
    entry.stat.mode = 0;
    length = protocol_entry_encode(buffer, sizeof(buffer), &entry, "", "");
    assert_int_equal(protocol_entry_decode(buffer, (size_t)length, &view), length);
    assert_true(view.is_last);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_reads_back_as_it_was_written),
        cmocka_unit_test(a_start_that_makes_no_sense_is_not_written),
        cmocka_unit_test(strings_are_counted_together),
        cmocka_unit_test(a_damaged_start_is_refused_or_harmless),
        cmocka_unit_test(counts_that_lie_are_refused),
        cmocka_unit_test(headers_that_lie_are_refused),
        cmocka_unit_test(a_file_operation_reads_back),
        cmocka_unit_test(a_file_operation_that_makes_no_sense_is_refused),
        cmocka_unit_test(texts_over_their_limit_are_refused),
        cmocka_unit_test(a_connection_is_to_a_port_or_to_a_path),
        cmocka_unit_test(a_hello_of_another_release_is_understood),
        cmocka_unit_test(a_hello_that_cannot_be_is_refused),
        cmocka_unit_test(what_a_relay_adds_is_found),
        cmocka_unit_test(ends_that_cannot_be_are_refused),
        cmocka_unit_test(as_many_are_forgotten_as_fit),
        cmocka_unit_test(what_ran_left_nothing_behind),
        cmocka_unit_test(signals_out_of_range_are_refused),
        cmocka_unit_test(entries_are_read_from_any_cut_of_the_stream),
        cmocka_unit_test(paths_that_lead_out_of_the_list_are_refused),
    };

    return cmocka_run_group_tests_name("wire/protocol", tests, NULL, NULL);
}
