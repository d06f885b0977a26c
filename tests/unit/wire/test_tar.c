/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/tar.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* An archive that is put together, and what a reader makes of it. */
struct archive {
    char bytes[256 * 1024];
    size_t length;
};

struct found {
    unsigned members, ends;
    struct tar_member last;
    char path[TAR_PATH_SIZE], link[TAR_PATH_SIZE];
    char content[16 * 1024];
    size_t content_length;
    enum tar_event end;
    bool between;
};

static struct archive archive;
static struct tar_parser reader;
static struct found found;

static void add(const struct tar_member *member, const char *content)
{
    size_t length = tar_write_member(archive.bytes + archive.length,
                                     sizeof(archive.bytes) - archive.length, member);

    assert_true(length > 0 && length % TAR_BLOCK == 0);
    archive.length += length;
    memcpy(archive.bytes + archive.length, content, member->size);
    archive.length += member->size + tar_padding(member->size);
}

static void add_end(void)
{
    archive.length += 2 * TAR_BLOCK;
}

static void note_member(void)
{
    found.members++;
    found.last = reader.member;
    found.content_length = 0;
    strcpy(found.path, reader.member.path);
    strcpy(found.link, reader.member.link);
}

/* Feeds it in pieces, each in memory of its own so that a sanitizer sees a step beyond. */
static void read_in_pieces(size_t piece)
{
    size_t at = 0;

    memset(&found, 0, sizeof(found));
    tar_parser_init(&reader);
    while (at <= archive.length && found.end != TAR_BAD && found.end != TAR_END) {
        size_t count = archive.length - at < piece ? archive.length - at : piece;
        char *bytes = malloc(count ? count : 1);
        size_t done = 0;
        enum tar_event event;

        memcpy(bytes, archive.bytes + at, count);
        do {
            const void *data = NULL;
            size_t length = 0;
            size_t used = 0;

            event = tar_parser_feed(&reader, bytes + done, count - done, &used, &data, &length);
            done += used;
            if (event == TAR_MEMBER)
                note_member();
            if (event == TAR_MEMBER_END)
                found.ends++;
            if (event == TAR_DATA && found.content_length + length <= sizeof(found.content)) {
                memcpy(found.content + found.content_length, data, length);
                found.content_length += length;
            }
            found.end = event;
        } while (event != TAR_NEED_MORE && event != TAR_END && event != TAR_BAD);
        free(bytes);
        if (at == archive.length)
            break;
        at += count;
    }
    found.between = tar_parser_is_between(&reader);
}

static int reset(void **state)
{
    (void)state;
    memset(&archive, 0, sizeof(archive));
    return 0;
}

static void sign(unsigned char *header)
{
    unsigned sum = 0;

    memset(header + 148, ' ', 8);
    for (int i = 0; i < TAR_BLOCK; i++)
        sum += header[i];
    snprintf((char *)header + 148, 7, "%06o", sum);
}

static void what_is_written_is_read(void **state)
{
    static const size_t pieces[] = { 1, 7, 511, 512, 513, 4096, 100000 };
    struct tar_member member = { .type = TAR_FILE,
                                 .mode = 0640,
                                 .size = 700,
                                 .modified_s = 12345,
                                 .path = "a/b.txt",
                                 .link = "" };
    char content[700];

    (void)state;
    memset(content, 'x', sizeof(content));
    add(&(struct tar_member){ .type = TAR_DIRECTORY, .mode = 0755, .path = "a", .link = "" }, "");
    add(&member, content);
    add_end();
    for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
        read_in_pieces(pieces[i]);
        assert_int_equal(found.end, TAR_END);
        assert_int_equal(found.members, 2);
        assert_int_equal(found.ends, 2);
        assert_string_equal(found.path, "a/b.txt");
        assert_int_equal(found.last.mode, 0640);
        assert_int_equal(found.last.size, 700);
        assert_int_equal(found.last.modified_s, 12345);
        assert_int_equal(found.content_length, 700);
        assert_memory_equal(found.content, content, 700);
    }
}

static void names_of_any_length_come_through(void **state)
{
    static const size_t lengths[] = { 1, 99, 100, 101, 155, 255, 256, 500, 990, 1000, 4094 };
    char path[TAR_PATH_SIZE], link[TAR_PATH_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        memset(path, 'p', lengths[i]);
        path[lengths[i]] = 0;
        memset(link, 'l', lengths[i]);
        link[lengths[i]] = 0;
        reset(NULL);
        add(&(struct tar_member){ .type = TAR_LINK, .path = path, .link = link }, "");
        add_end();
        read_in_pieces(100);
        assert_int_equal(found.end, TAR_END);
        assert_int_equal(found.members, 1);
        assert_string_equal(found.path, path);
        assert_string_equal(found.link, link);
    }
}

static void a_large_size_is_written_in_decimal(void **state)
{
    struct tar_member member = { .type = TAR_FILE, .size = 1ull << 40, .path = "f", .link = "" };

    (void)state;
    archive.length = tar_write_member(archive.bytes, sizeof(archive.bytes), &member);
    read_in_pieces(512);
    assert_int_equal(found.members, 1);
    assert_true(found.last.size == 1ull << 40);
    assert_false(found.between);
}

static void a_header_that_does_not_fit_is_not_written(void **state)
{
    struct tar_member member = { .type = TAR_FILE, .path = "f", .link = "" };

    (void)state;
    assert_int_equal(tar_write_member(archive.bytes, TAR_BLOCK, &member), 0);
    assert_int_equal(tar_write_comment(archive.bytes, TAR_BLOCK, "text"), 0);
}

static void comments_are_passed_over(void **state)
{
    (void)state;
    archive.length = tar_write_comment(archive.bytes, sizeof(archive.bytes), "left out: x");
    add(&(struct tar_member){ .type = TAR_FILE, .path = "f", .link = "" }, "");
    add_end();
    read_in_pieces(64);
    assert_int_equal(found.end, TAR_END);
    assert_int_equal(found.members, 1);
    assert_string_equal(found.path, "f");
}

static void damaged_headers_are_bad(void **state)
{
    static const struct {
        size_t at;
        const char *bytes;
        size_t length;
    } cases[] = {
        { 124, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12 }, /* negative */
        { 124, "\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12 }, /* over 63 bits */
        { 124, "abcdefghijkl", 12 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        reset(NULL);
        add(&(struct tar_member){ .type = TAR_FILE, .path = "f", .link = "" }, "");
        memcpy(archive.bytes + cases[i].at, cases[i].bytes, cases[i].length);
        sign((unsigned char *)archive.bytes);
        read_in_pieces(512);
        assert_int_equal(found.end, TAR_BAD);
        assert_non_null(reader.problem);
    }
    archive.bytes[0] ^= 1;
    read_in_pieces(512);
    assert_int_equal(found.end, TAR_BAD);
}

/* A pax header with any data before a member. */
static void read_with_pax(const char *data, size_t length)
{
    struct tar_member member = { .type = TAR_FILE, .size = length, .path = "pax", .link = "" };

    reset(NULL);
    add(&member, data);
    archive.bytes[156] = 'x';
    sign((unsigned char *)archive.bytes);
    add(&(struct tar_member){ .type = TAR_FILE, .path = "f", .link = "" }, "");
    add_end();
    read_in_pieces(300);
}

static void malformed_extended_headers_are_bad(void **state)
{
    static const char *const bad[] = {
        "9 path=x\n1",   "99 path=x\n", "0 path=x\n",
        "x path=x\n",    "9 path=xy",   "8 pathxx\n",
        "12 size=-12\n", "10 size=x\n", "999999999999999999999 path=x\n"
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        read_with_pax(bad[i], strlen(bad[i]));
        if (found.end != TAR_BAD)
            fail_msg("%s", bad[i]);
    }
    read_with_pax("10 path=g\n", 10);
    assert_int_equal(found.end, TAR_END);
    assert_string_equal(found.path, "g");
    read_with_pax("12 path=a\0b\n", 12);
    assert_true(found.last.has_nul);
    read_with_pax("22 GNU.sparse.major=1\n", 22);
    assert_true(found.last.is_sparse);
}

static void numbers_of_owners_are_read(void **state)
{
    const struct tar_member member = { .type = TAR_FILE, .path = "a", .link = "" };

    (void)state;
    add(&member, "");
    memcpy(archive.bytes + 108, "0001750\0", 8);
    memcpy(archive.bytes + 116, "\x80\0\0\0\0\1\0\0", 8);
    sign((unsigned char *)archive.bytes);
    add_end();
    read_in_pieces(100);
    assert_int_equal(found.end, TAR_END);
    assert_int_equal(found.last.uid, 1000);
    assert_int_equal(found.last.gid, 65536);
    memcpy(archive.bytes + 108, "nobody\0\0", 8);
    sign((unsigned char *)archive.bytes);
    read_in_pieces(100);
    assert_int_equal(found.end, TAR_END);
    assert_true(found.last.uid == UINT64_MAX);
}

/* It may have more to say than any parser has room for. */
static void a_header_for_all_members_may_be_of_any_length(void **state)
{
    const struct tar_member member = { .type = TAR_FILE, .path = "a", .link = "", .size = 2 };
    const size_t length = 3 * TAR_EXTRA_SIZE + 7;

    (void)state;
    add(&(struct tar_member){ .type = TAR_FILE, .path = "global", .link = "" }, "");
    archive.bytes[156] = 'g';
    snprintf(archive.bytes + 124, 12, "%011zo", length);
    sign((unsigned char *)archive.bytes);
    archive.length += length + tar_padding(length);
    add(&member, "hi");
    add_end();
    read_in_pieces(1000);
    assert_int_equal(found.end, TAR_END);
    assert_int_equal(found.members, 1);
    assert_string_equal(found.path, "a");
    assert_memory_equal(found.content, "hi", 2);
}

static void the_end_is_told_from_a_cut(void **state)
{
    (void)state;
    read_in_pieces(10);
    assert_true(found.between);
    add(&(struct tar_member){ .type = TAR_FILE, .size = 10, .path = "f", .link = "" },
        "0123456789");
    read_in_pieces(100);
    assert_true(found.between);
    archive.length -= 506;
    read_in_pieces(100);
    assert_false(found.between);
    archive.length = 300;
    read_in_pieces(100);
    assert_false(found.between);
}

static void paths_that_lead_out_are_told(void **state)
{
    static const char *const bad[] = { "",       "/a", "..", "../a",         "a/..",
                                       "a/../b", ".",  "./", "a/b/../../..", "//a" };
    static const struct {
        const char *path, *clean;
    } good[] = { { "a", "a" },     { "./a", "a" },   { "a//b/", "a/b" },  { "a/./b", "a/b" },
                 { "..a", "..a" }, { "...", "..." }, { "a/b..", "a/b.." } };
    char out[TAR_PATH_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        if (!tar_clean_path(bad[i], out))
            fail_msg("%s", bad[i]);
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        assert_null(tar_clean_path(good[i].path, out));
        assert_string_equal(out, good[i].clean);
    }
}

static void links_that_lead_out_are_told(void **state)
{
    (void)state;
    assert_null(tar_link_problem("a", "b"));
    assert_null(tar_link_problem("d/a", "../b"));
    assert_null(tar_link_problem("d/e/a", "../../b/../c"));
    assert_non_null(tar_link_problem("a", "../b"));
    assert_non_null(tar_link_problem("d/a", "../../b"));
    assert_non_null(tar_link_problem("d/a", "x/../../../b"));
    assert_non_null(tar_link_problem("a", "/etc"));
    assert_non_null(tar_link_problem("a", ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_is_written_is_read, reset),
        cmocka_unit_test_setup(names_of_any_length_come_through, reset),
        cmocka_unit_test_setup(a_large_size_is_written_in_decimal, reset),
        cmocka_unit_test_setup(a_header_that_does_not_fit_is_not_written, reset),
        cmocka_unit_test_setup(comments_are_passed_over, reset),
        cmocka_unit_test_setup(damaged_headers_are_bad, reset),
        cmocka_unit_test_setup(malformed_extended_headers_are_bad, reset),
        cmocka_unit_test_setup(numbers_of_owners_are_read, reset),
        cmocka_unit_test_setup(a_header_for_all_members_may_be_of_any_length, reset),
        cmocka_unit_test_setup(the_end_is_told_from_a_cut, reset),
        cmocka_unit_test_setup(paths_that_lead_out_are_told, reset),
        cmocka_unit_test_setup(links_that_lead_out_are_told, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
