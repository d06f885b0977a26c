/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/chain.h"

#include "base/alloc.h"
#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { LINES = 4 };

static void make_lines(struct buffer *text, struct chain *chain)
{
    static const char *const members[LINES] = { "\"type\":\"a\"", "\"type\":\"b\",\"x\":\"\\\"\"",
                                                "\"type\":\"c\",\"hash\":\"no\"",
                                                "\"type\":\"d\"" };

    *chain = CHAIN_START;
    for (int i = 0; i < LINES; i++)
        chain_append(chain, members[i], text);
}

/* The first thing that is wrong: the line, from 1, or 0. */
static int first_bad(const char *text, enum chain_check *out_result)
{
    struct chain chain = CHAIN_START;
    int number = 0;

    for (; *text; text += strcspn(text, "\n") + 1) {
        scoped(free) char *line = xstrndup(text, strcspn(text, "\n"));
        enum chain_check result = chain_check_line(&chain, line, strlen(line), number == 0);

        number++;
        if (result != CHAIN_GOOD) {
            *out_result = result;
            return number;
        }
    }
    return 0;
}

static void a_log_as_it_was_written_is_good(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(8192);
    struct chain chain;
    enum chain_check result;

    make_lines(&text, &chain);
    assert_int_equal(chain.sequence, LINES);
    assert_int_equal(first_bad(buffer_text(&text), &result), 0);
}

static void a_line_without_members_is_malformed(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(512);
    struct chain chain = CHAIN_START;

    buffer_appendf(&text, "{\"seq\":1,\"prev\":\"%s\",\"hash\":\"%s\"}", chain.hash, chain.hash);
    assert_int_equal(chain_check_line(&chain, buffer_text(&text), text.length, true),
                     CHAIN_MALFORMED);
    assert_int_equal(chain.sequence, 0);
}

static void any_changed_byte_is_found_in_its_line(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(8192);
    struct chain chain;
    int line = 1;

    make_lines(&text, &chain);
    (void)buffer_text(&text);
    for (size_t i = 0; i < text.length; i++) {
        uint8_t kept = text.data[i];
        enum chain_check result;
        int found;

        if (kept == '\n') {
            line++;
            continue;
        }
        text.data[i] = kept == '1' ? '2' : '1';
        found = first_bad((const char *)text.data, &result);
        if (found != line)
            fail_msg("byte %zu of line %d: found in line %d", i, line, found);
        text.data[i] = kept;
    }
}

static void removed_swapped_and_repeated_lines_are_found(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(8192);
    struct chain chain;
    const char *lines[LINES + 1];
    scoped(free) char *changed = NULL;
    enum chain_check result;

    make_lines(&text, &chain);
    lines[0] = buffer_text(&text);
    for (int i = 0; i < LINES; i++)
        lines[i + 1] = strchr(lines[i], '\n') + 1;
#define LINE(n) (int)(lines[n] - lines[(n)-1]), lines[(n)-1]
    changed = xasprintf("%.*s%.*s", LINE(1), LINE(3));
    assert_int_equal(first_bad(changed, &result), 2);
    assert_int_equal(result, CHAIN_BROKEN);
    free(changed);
    changed = xasprintf("%.*s%.*s%.*s%.*s", LINE(1), LINE(3), LINE(2), LINE(4));
    assert_int_equal(first_bad(changed, &result), 2);
    free(changed);
    changed = xasprintf("%.*s%.*s%.*s", LINE(1), LINE(2), LINE(2));
    assert_int_equal(first_bad(changed, &result), 3);
    assert_int_equal(first_bad(lines[1], &result), 1);
    assert_int_equal(result, CHAIN_BROKEN);
}

static void a_rotated_log_may_begin_anywhere_when_it_says_so(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(8192);
    struct chain chain;
    enum chain_check result;

    make_lines(&text, &chain);
    buffer_clear(&text);
    chain_append(&chain, CHAIN_CONTINUED, &text);
    chain_append(&chain, "\"type\":\"e\"", &text);
    assert_int_equal(first_bad(buffer_text(&text), &result), 0);
}

static void how_far_it_went_reads_back(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(8192);
    struct chain chain, again = CHAIN_START;

    make_lines(&text, &chain);
    buffer_clear(&text);
    chain_write_head(&chain, &text);
    assert_int_equal(chain_read_head(&again, buffer_text(&text)), 0);
    assert_int_equal(again.sequence, LINES);
    assert_string_equal(again.hash, chain.hash);
    assert_int_equal(chain_read_head(&again, ""), -1);
    assert_int_equal(chain_read_head(&again, "5 abc\n"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_log_as_it_was_written_is_good),
        cmocka_unit_test(a_line_without_members_is_malformed),
        cmocka_unit_test(any_changed_byte_is_found_in_its_line),
        cmocka_unit_test(removed_swapped_and_repeated_lines_are_found),
        cmocka_unit_test(a_rotated_log_may_begin_anywhere_when_it_says_so),
        cmocka_unit_test(how_far_it_went_reads_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
