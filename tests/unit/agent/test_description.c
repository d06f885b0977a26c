/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/description.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct protocol_stat known_stat(void)
{
    return (struct protocol_stat){ .size = 7, .mode = 0100644, .uid = 1000 };
}

/* A note with the stat and these texts behind it. */
static bool read_note(const char *texts, size_t length, uint64_t number,
                      struct file_description *out)
{
    static char text[256];
    struct protocol_stat stat = known_stat();
    struct protocol_note_view note = { .fixed = { .kind = NOTE_ENTRY, .number = number },
                                       .path = "",
                                       .text = text };

    memcpy(text, &stat, sizeof(stat));
    memcpy(text + sizeof(stat), texts, length);
    note.fixed.text_length = (uint16_t)(sizeof(stat) + length);
    return file_description_read(&note, out);
}

#define READ(texts, out) read_note(texts, sizeof(texts) - 1, 0, out)

static void names_target_and_attributes_are_read(void **state UNUSED)
{
    struct file_description description;
    const char *name, *value;

    assert_true(READ("user\0group\0/target\0user.a\0"
                     "1\0user.b\0\0",
                     &description));
    assert_int_equal(description.stat.size, 7);
    assert_string_equal(description.owner, "user");
    assert_string_equal(description.group, "group");
    assert_string_equal(description.target, "/target");
    assert_true(file_description_next(&description, &name, &value));
    assert_string_equal(name, "user.a");
    assert_string_equal(value, "1");
    assert_true(file_description_next(&description, &name, &value));
    assert_string_equal(name, "user.b");
    assert_string_equal(value, "");
    assert_false(file_description_next(&description, &name, &value));
}

static void malformed_descriptions_are_refused(void **state UNUSED)
{
    struct protocol_note_view other = { .fixed.kind = NOTE_MATCH, .path = "", .text = "" };
    struct file_description description;
    const char *name, *value;

    assert_false(READ("", &description));
    assert_false(READ("user\0group\0", &description));
    assert_false(READ("user\0group\0target", &description));
    assert_false(READ("user\0group\0target\0name", &description));
    assert_false(read_note("user\0group\0\0", 12, 1ull << 32, &description));
    assert_false(file_description_read(&other, &description));
    assert_true(READ("user\0group\0\0name\0", &description)); /* without a value */
    assert_false(file_description_next(&description, &name, &value));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_target_and_attributes_are_read),
        cmocka_unit_test(malformed_descriptions_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
