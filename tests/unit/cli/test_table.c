/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "cli/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char *const headings[] = { "ID", "NAME", "STATE", "NOTE", NULL };

static void fill(struct table *table, bool aligned)
{
    table_init(table, headings);
    table->aligned = aligned;
    table_set_optional(table, "STATE NOTE");
    table_add_id(table, "ses_0123456789abcdefghjkmnpqrs");
    table_add(table, "a name of thirty characters ok");
    table_add(table, "open");
    table_add(table, "a\tnote");
}

static void assert_text(const struct table *table, size_t width, const char *expected)
{
    struct buffer text = BUFFER_INIT(4096);

    table_write(table, width, &text);
    assert_string_equal(buffer_text(&text), expected);
    buffer_fini(&text);
}

static void a_wide_terminal_shows_every_column(void **state)
{
    struct table table;

    (void)state;
    fill(&table, true);
    assert_text(&table, 100,
                "ID            NAME                            STATE  NOTE\n"
                "ses_01234567  a name of thirty characters ok  open   a note\n");
    table_fini(&table);
}

static void a_narrow_terminal_leaves_columns_out_and_then_shortens_cells(void **state)
{
    struct table table;

    (void)state;
    fill(&table, true);
    assert_text(&table, 52,
                "ID            NAME                            NOTE\n"
                "ses_01234567  a name of thirty characters ok  a note\n");
    assert_text(&table, 30,
                "ID            NAME\n"
                "ses_01234567  a name of thirt…\n");
    assert_text(&table, 5,
                "ID   \n"
                "ses_0\n");
    table_fini(&table);
}

static void a_pipe_has_all_cells_whole(void **state)
{
    struct table table;

    (void)state;
    fill(&table, false);
    assert_text(&table, 0,
                "ses_0123456789abcdefghjkmnpqrs\ta name of thirty characters ok\topen\ta note\n");
    table_fini(&table);
}

static void a_column_that_is_added_has_its_heading(void **state)
{
    static const char *const few[] = { "ID", NULL };
    struct table table;

    (void)state;
    table_init(&table, few);
    table.aligned = true;
    table_add_column(&table, "OWNER");
    table_add(&table, "ü");
    table_add(&table, NULL);
    assert_text(&table, 0, "ID  OWNER\nü   -\n");
    table_fini(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wide_terminal_shows_every_column),
        cmocka_unit_test(a_narrow_terminal_leaves_columns_out_and_then_shortens_cells),
        cmocka_unit_test(a_pipe_has_all_cells_whole),
        cmocka_unit_test(a_column_that_is_added_has_its_heading),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
