/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/keys.h"

#include "base/alloc.h"
#include "base/macros.h"
#include "base/str.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static const int64_t now_us = 1700000000LL * 1000 * 1000;
static char directory[] = "/tmp/sandglass-keys-XXXXXX";
static char path[64];

static int make_directory(void **state UNUSED)
{
    if (!mkdtemp(directory))
        return -1;
    snprintf(path, sizeof(path), "%s/keys", directory);
    return 0;
}

static int remove_directory(void **state UNUSED)
{
    (void)unlink(path);
    return rmdir(directory);
}

static void write_file(const char *text, mode_t mode)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(path, mode), 0);
}

static void save(const struct key_set *set)
{
    struct error err = { 0 };

    if (key_set_save(set, path, geteuid(), getegid(), &err) < 0)
        fail_msg("%s", err.message);
}

static void load(struct key_set *set)
{
    struct error err = { 0 };

    if (key_set_load(set, path, &err) < 0)
        fail_msg("%s", err.message);
}

static void a_key_is_found_by_its_text_alone(void **state UNUSED)
{
    scoped(key_set_fini) struct key_set set = { 0 };
    char first[KEY_TEXT_SIZE], second[KEY_TEXT_SIZE];

    key_set_add(&set, "ann", ROLE_USER, now_us, 0, first);
    key_set_add(&set, "bob", ROLE_USER | ROLE_ADMIN, now_us, 0, second);
    assert_memory_equal(first, "sg_", 3);
    assert_int_equal(strlen(first), 3 + 64);
    assert_string_equal(key_set_find(&set, first, now_us)->principal, "ann");
    assert_string_equal(key_set_find(&set, second, now_us)->principal, "bob");
    first[10] = first[10] == '0' ? '1' : '0';
    assert_null(key_set_find(&set, first, now_us));
}

static void the_same_digits_behind_e2b_are_the_same_key(void **state UNUSED)
{
    scoped(key_set_fini) struct key_set set = { 0 };
    char text[KEY_TEXT_SIZE];
    scoped(free) char *other = NULL;

    key_set_add(&set, "ann", ROLE_USER, now_us, 0, text);
    other = xasprintf("e2b_%s", text + 3);
    assert_non_null(key_set_find(&set, other, now_us));
}

static void what_is_no_key_is_not_found(void **state UNUSED)
{
    static const char *const texts[] = { "", "sg_", "e2b_", "sg_00", "Bearer", "sg_\xc3\xa9" };
    scoped(key_set_fini) struct key_set set = { 0 };
    char text[KEY_TEXT_SIZE + 1] = "";

    key_set_add(&set, "ann", ROLE_USER, now_us, 0, text);
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++)
        assert_null(key_set_find(&set, texts[i], now_us));
    assert_null(key_set_find(&set, text + 3, now_us));
    strcat(text, "0");
    assert_null(key_set_find(&set, text, now_us));
}

static void expired_and_revoked_keys_are_not_found(void **state UNUSED)
{
    scoped(key_set_fini) struct key_set set = { 0 };
    char expires[KEY_TEXT_SIZE], revoked[KEY_TEXT_SIZE];

    key_set_add(&set, "ann", ROLE_USER, now_us, now_us + 5, expires);
    key_set_add(&set, "bob", ROLE_USER, now_us, 0, revoked)->revoked_us = now_us;
    assert_non_null(key_set_find(&set, expires, now_us + 4));
    assert_null(key_set_find(&set, expires, now_us + 5));
    assert_null(key_set_find(&set, revoked, now_us));
}

static void keys_come_back_from_their_file(void **state UNUSED)
{
    scoped(key_set_fini) struct key_set set = { 0 };
    scoped(key_set_fini) struct key_set again = { 0 };
    char text[KEY_TEXT_SIZE];
    struct stat status;

    key_set_add(&set, "anné", ROLE_USER | ROLE_DELEGATE, now_us, now_us + 1000000, text);
    save(&set);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    load(&again);
    assert_int_equal(again.count, 1);
    assert_string_equal(again.items[0].id, set.items[0].id);
    assert_int_equal(again.items[0].roles, ROLE_USER | ROLE_DELEGATE);
    assert_int_equal(again.items[0].created_us, now_us);
    assert_string_equal(key_set_find(&again, text, now_us)->principal, "anné");
}

static void the_file_does_not_hold_the_key(void **state UNUSED)
{
    scoped(key_set_fini) struct key_set set = { 0 };
    char text[KEY_TEXT_SIZE];
    char content[4096] = "";
    FILE *file;

    key_set_add(&set, "ann", ROLE_USER, now_us, 0, text);
    save(&set);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(content, 1, sizeof(content) - 1, file) > 0);
    fclose(file);
    assert_null(strstr(content, text + 3));
}

static void a_damaged_line_is_no_key_and_stays_in_the_file(void **state UNUSED)
{
    scoped(key_set_fini) struct key_set set = { 0 };
    scoped(key_set_fini) struct key_set again = { 0 };
    char text[KEY_TEXT_SIZE];

    write_file("not json\n{\"id\":\"key_x\"}\n\n", 0600);
    load(&set);
    assert_int_equal(set.count, 0);
    assert_int_equal(set.damaged_count, 2);
    key_set_add(&set, "ann", ROLE_USER, now_us, 0, text);
    save(&set);
    load(&again);
    assert_int_equal(again.count, 1);
    assert_int_equal(again.damaged_count, 2);
}

static void a_missing_file_has_no_keys(void **state UNUSED)
{
    scoped(key_set_fini) struct key_set set = { 0 };

    (void)unlink(path);
    load(&set);
    assert_int_equal(set.count, 0);
}

static void a_file_that_others_may_write_is_refused(void **state UNUSED)
{
    struct key_set set = { 0 };
    struct error err = { 0 };

    write_file("", 0660);
    assert_int_equal(key_set_load(&set, path, &err), -1);
    assert_non_null(strstr(err.message, "written by others"));
}

static void an_owner_is_utf8_without_control_characters(void **state UNUSED)
{
    char longest[OWNER_MAXIMUM + 2];

    assert_true(owner_is_valid(""));
    assert_true(owner_is_valid("ann@example.org/ünïcode 🎉"));
    assert_false(owner_is_valid("a\nb"));
    assert_false(owner_is_valid("a\x7f"));
    assert_false(owner_is_valid("a\xc2\x85"));
    assert_false(owner_is_valid("a\xff"));
    memset(longest, 'a', sizeof(longest));
    longest[OWNER_MAXIMUM] = '\0';
    assert_true(owner_is_valid(longest));
    longest[OWNER_MAXIMUM] = 'a';
    longest[OWNER_MAXIMUM + 1] = '\0';
    assert_false(owner_is_valid(longest));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_is_found_by_its_text_alone),
        cmocka_unit_test(the_same_digits_behind_e2b_are_the_same_key),
        cmocka_unit_test(what_is_no_key_is_not_found),
        cmocka_unit_test(expired_and_revoked_keys_are_not_found),
        cmocka_unit_test(keys_come_back_from_their_file),
        cmocka_unit_test(the_file_does_not_hold_the_key),
        cmocka_unit_test(a_damaged_line_is_no_key_and_stays_in_the_file),
        cmocka_unit_test(a_missing_file_has_no_keys),
        cmocka_unit_test(a_file_that_others_may_write_is_refused),
        cmocka_unit_test(an_owner_is_utf8_without_control_characters),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
