/* SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "wire/seal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t sandbox_key[AEAD_KEY_SIZE] = { 1, 2, 3 };
static const struct seal_greeting greeting = { .magic = SEAL_MAGIC, .newest = 1, .nonce = { 4 } };
static const struct seal_answer answer = { .version = 1, .nonce = { 5 } };

static struct seal seal_of(enum seal_direction direction)
{
    struct seal seal;

    seal_init(&seal, sandbox_key, &greeting, &answer, direction);
    return seal;
}

struct record {
    size_t length;
    uint8_t bytes[64 + SEAL_OVERHEAD];
};

static struct record record_of(struct seal *seal, const char *content)
{
    struct record record;

    memcpy(record.bytes + SEAL_HEAD, content, strlen(content));
    record.length = seal_close(seal, record.bytes, strlen(content));
    return record;
}

static enum seal_result open_record(struct seal *seal, struct record record, const char *content)
{
    size_t length = 0;
    enum seal_result result = seal_open(seal, record.bytes, record.length, &length);

    if (result == SEAL_WHOLE) {
        assert_int_equal(length, strlen(content));
        assert_memory_equal(record.bytes + SEAL_HEAD, content, length);
    }
    return result;
}

static void records_are_opened_in_their_order(void **state)
{
    struct seal one = seal_of(SEAL_TO_SANDBOX), other = seal_of(SEAL_TO_SANDBOX);
    struct record records[3] = { record_of(&one, ""), record_of(&one, "first"),
                                 record_of(&one, "second") };

    (void)state;
    assert_int_equal(records[0].length, SEAL_OVERHEAD);
    assert_null(memmem(records[1].bytes, records[1].length, "first", 5));
    assert_int_equal(open_record(&other, records[0], ""), SEAL_WHOLE);
    assert_int_equal(open_record(&other, records[1], "first"), SEAL_WHOLE);
    assert_int_equal(open_record(&other, records[2], "second"), SEAL_WHOLE);
}

static void a_record_that_is_repeated_left_out_or_moved_is_broken(void **state)
{
    struct seal one = seal_of(SEAL_TO_SANDBOX);
    struct record first = record_of(&one, "first"), second = record_of(&one, "second");
    struct seal other = seal_of(SEAL_TO_SANDBOX);

    (void)state;
    assert_int_equal(open_record(&other, second, "second"), SEAL_BROKEN);
    other = seal_of(SEAL_TO_SANDBOX);
    assert_int_equal(open_record(&other, first, "first"), SEAL_WHOLE);
    assert_int_equal(open_record(&other, first, "first"), SEAL_BROKEN);
}

static void a_record_of_the_other_direction_is_broken(void **state)
{
    struct seal one = seal_of(SEAL_TO_SANDBOX), other = seal_of(SEAL_TO_DAEMON);

    (void)state;
    assert_int_equal(open_record(&other, record_of(&one, "mirror"), ""), SEAL_BROKEN);
}

static void every_byte_of_the_handshake_and_of_the_key_counts(void **state)
{
    struct seal one = seal_of(SEAL_TO_DAEMON);
    struct record record = record_of(&one, "x");
    uint8_t parts[3][AEAD_KEY_SIZE];
    const size_t lengths[] = { sizeof(sandbox_key), sizeof(greeting), sizeof(answer) };

    (void)state;
    for (size_t part = 0; part < 3; part++) {
        for (size_t i = 0; i < lengths[part]; i++) {
            struct seal other;

            memcpy(parts[0], sandbox_key, sizeof(sandbox_key));
            memcpy(parts[1], &greeting, sizeof(greeting));
            memcpy(parts[2], &answer, sizeof(answer));
            parts[part][i] ^= 0x40;
            seal_init(&other, parts[0], (const struct seal_greeting *)(const void *)parts[1],
                      (const struct seal_answer *)(const void *)parts[2], SEAL_TO_DAEMON);
            assert_int_equal(open_record(&other, record, "x"), SEAL_BROKEN);
        }
    }
}

static void every_changed_bit_breaks_a_record(void **state)
{
    struct seal one = seal_of(SEAL_TO_DAEMON);
    struct record record = record_of(&one, "some content");

    (void)state;
    for (size_t bit = 0; bit < 8 * record.length; bit++) {
        struct seal other = seal_of(SEAL_TO_DAEMON);
        struct record changed = record;

        changed.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_not_equal(open_record(&other, changed, "some content"), SEAL_WHOLE);
    }
}

static void a_part_of_a_record_is_waited_for_and_one_that_is_too_long_is_not(void **state)
{
    struct seal one = seal_of(SEAL_TO_DAEMON), other = seal_of(SEAL_TO_DAEMON);
    struct record record = record_of(&one, "abc");
    uint32_t length = SEAL_MAX_CONTENT + 1;
    size_t all = record.length;

    (void)state;
    for (record.length = 0; record.length < all; record.length++)
        assert_int_equal(open_record(&other, record, "abc"), SEAL_PARTIAL);
    assert_int_equal(open_record(&other, record, "abc"), SEAL_WHOLE);
    memcpy(record.bytes, &length, sizeof(length));
    record.length = SEAL_HEAD;
    assert_int_equal(open_record(&other, record, ""), SEAL_BROKEN);
}

/* --- buffers ---------------------------------------------------------------------------------- */

/* Sends `length` bytes by records of random lengths, in pieces of random lengths. */
static void a_stream_arrives_however_it_is_cut(void **state)
{
    enum { LENGTH = 3 * 1000 * 1000 };
    struct seal_writer *writer = calloc(1, sizeof(*writer));
    struct seal_reader *reader = calloc(1, sizeof(*reader));
    uint32_t sent = 0, received = 0;

    (void)state;
    assert_true(writer && reader);
    srand(7);
    writer->seal = seal_of(SEAL_TO_DAEMON);
    reader->seal = seal_of(SEAL_TO_DAEMON);
    while (received < LENGTH) {
        size_t room, part;
        uint8_t *to;

        if (seal_writer_is_empty(writer)) {
            size_t length = (size_t)rand() % (SEAL_MAX_CONTENT + 1);

            for (size_t i = 0; i < length; i++)
                seal_writer_room(writer)[i] = (uint8_t)(sent++ % 251);
            seal_writer_close(writer, length);
        }
        to = seal_reader_room(reader, &room);
        assert_true(room > 0);
        part = MIN(room, (size_t)rand() % 50000);
        part = MIN(part, writer->end - writer->start);
        memcpy(to, writer->bytes + writer->start, part);
        writer->start += part;
        seal_reader_add(reader, part);
        while (seal_reader_next(reader) == SEAL_WHOLE) {
            size_t taken = 1 + (size_t)rand() % reader->left;

            for (size_t i = 0; i < taken; i++)
                assert_int_equal(reader->bytes[reader->content + i], received++ % 251);
            seal_reader_take(reader, taken);
        }
    }
    free(writer);
    free(reader);
}

static void a_reader_gives_nothing_of_a_broken_record(void **state)
{
    struct seal_reader *reader = calloc(1, sizeof(*reader));
    struct seal one = seal_of(SEAL_TO_DAEMON);
    struct record records[2] = { record_of(&one, "good"), record_of(&one, "bad") };

    (void)state;
    assert_non_null(reader);
    reader->seal = seal_of(SEAL_TO_DAEMON);
    records[1].bytes[SEAL_HEAD] ^= 1;
    for (unsigned i = 0; i < 2; i++) {
        size_t room;

        memcpy(seal_reader_room(reader, &room), records[i].bytes, records[i].length);
        seal_reader_add(reader, records[i].length);
    }
    assert_int_equal(seal_reader_next(reader), SEAL_WHOLE);
    assert_int_equal(reader->left, 4);
    seal_reader_take(reader, 4);
    assert_int_equal(seal_reader_next(reader), SEAL_BROKEN);
    assert_int_equal(reader->left, 0);
    free(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_are_opened_in_their_order),
        cmocka_unit_test(a_record_that_is_repeated_left_out_or_moved_is_broken),
        cmocka_unit_test(a_record_of_the_other_direction_is_broken),
        cmocka_unit_test(every_byte_of_the_handshake_and_of_the_key_counts),
        cmocka_unit_test(every_changed_bit_breaks_a_record),
        cmocka_unit_test(a_part_of_a_record_is_waited_for_and_one_that_is_too_long_is_not),
        cmocka_unit_test(a_stream_arrives_however_it_is_cut),
        cmocka_unit_test(a_reader_gives_nothing_of_a_broken_record),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
