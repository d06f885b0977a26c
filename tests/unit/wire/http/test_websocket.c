/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buffer.h"
#include "base/macros.h"
#include "wire/http/websocket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A frame of a server, with the shortest form of its length. */
static void put_frame(struct buffer *out, uint8_t first, const void *content, size_t length)
{
    uint8_t head[4] = { first, (uint8_t)(length < 126 ? length : 126), (uint8_t)(length >> 8),
                        (uint8_t)length };

    buffer_append(out, head, length < 126 ? 2 : 4);
    buffer_append(out, content, length);
}

/* Events as letters: "(" begin, ")" end, "c" control, "!" bad; the runs go into `content`. */
static void feed(struct websocket_reader *reader, const uint8_t *data, size_t length, size_t step,
                 struct buffer *events, struct buffer *content)
{
    static const char letters[] = { [WEBSOCKET_BEGIN] = '(',
                                    [WEBSOCKET_END] = ')',
                                    [WEBSOCKET_CONTROL] = 'c',
                                    [WEBSOCKET_BAD] = '!' };

    for (size_t at = 0; at < length; at += step) {
        size_t left = MIN(step, length - at);
        const uint8_t *from = data + at;
        enum websocket_event event;

        do {
            const uint8_t *run;
            size_t run_length, used;

            event = websocket_next(reader, from, left, &used, &run, &run_length);
            assert_true(used <= left);
            from += used;
            left -= used;
            if (event == WEBSOCKET_RUN || event == WEBSOCKET_CONTROL)
                buffer_append(content, run, run_length);
            if (event != WEBSOCKET_RUN && event != WEBSOCKET_NEED_MORE)
                buffer_append_byte(events, (uint8_t)letters[event]);
        } while (event != WEBSOCKET_NEED_MORE && event != WEBSOCKET_BAD);
        if (event == WEBSOCKET_BAD)
            return;
    }
}

static void expect(const struct buffer *wire, const char *events, const char *content)
{
    for (size_t step = 1; step <= wire->length; step++) {
        struct websocket_reader reader = { 0 };
        scoped(buffer_fini) struct buffer happened = BUFFER_INIT(4096);
        scoped(buffer_fini) struct buffer bytes = BUFFER_INIT(1 << 20);

        feed(&reader, wire->data, wire->length, step, &happened, &bytes);
        assert_string_equal(buffer_text(&happened), events);
        if (content)
            assert_string_equal(buffer_text(&bytes), content);
    }
}

static void messages_are_read_at_every_cut(void **state)
{
    scoped(buffer_fini) struct buffer wire = BUFFER_INIT(4096);

    (void)state;
    put_frame(&wire, 0x82, "one", 3);
    put_frame(&wire, 0x82, "", 0);
    put_frame(&wire, 0x81, "two", 3);
    expect(&wire, "()()()", "onetwo");
}

static void a_message_in_pieces_is_one(void **state)
{
    scoped(buffer_fini) struct buffer wire = BUFFER_INIT(4096);

    (void)state;
    put_frame(&wire, 0x02, "a", 1);
    put_frame(&wire, 0x89, "ping", 4); /* may come between the pieces */
    put_frame(&wire, 0x00, "", 0);
    put_frame(&wire, 0x80, "b", 1);
    put_frame(&wire, 0x88, "\x03\xe8", 2);
    expect(&wire, "(c)c", NULL);
}

static void a_long_message_needs_no_memory(void **state)
{
    scoped(buffer_fini) struct buffer wire = BUFFER_INIT(4096);
    char content[1001];

    (void)state;
    memset(content, 'x', 1000);
    content[1000] = '\0';
    put_frame(&wire, 0x82, content, 1000);
    expect(&wire, "()", content);
}

static void frames_that_no_server_sends_are_bad(void **state)
{
    static const struct {
        const char *what;
        uint8_t bytes[12];
        size_t length;
    } rows[] = {
        { "masked", { 0x82, 0x81, 1, 2, 3, 4, 5 }, 7 },
        { "reserved bit", { 0xc2, 0x01, 5 }, 3 },
        { "unknown kind", { 0x83, 0x01, 5 }, 3 },
        { "unknown control", { 0x8b, 0x00 }, 2 },
        { "a ping in pieces", { 0x09, 0x01, 5 }, 3 },
        { "a long ping", { 0x89, 0x7e, 0x00, 0x7e }, 4 },
        { "a continuation of nothing", { 0x80, 0x01, 5 }, 3 },
        { "a length over 2^63", { 0x82, 0x7f, 0x80, 0, 0, 0, 0, 0, 0, 0 }, 10 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        scoped(buffer_fini) struct buffer wire = BUFFER_INIT(64);

        print_message("# %s\n", rows[i].what);
        buffer_append(&wire, rows[i].bytes, rows[i].length);
        expect(&wire, "!", NULL);
    }
}

static void a_message_within_a_message_is_bad(void **state)
{
    scoped(buffer_fini) struct buffer wire = BUFFER_INIT(64);

    (void)state;
    put_frame(&wire, 0x02, "a", 1);
    put_frame(&wire, 0x82, "b", 1);
    expect(&wire, "(!", "a");
}

static void heads_have_the_shortest_length(void **state)
{
    static const uint8_t mask[4] = { 1, 2, 3, 4 };
    static const struct {
        uint64_t length;
        size_t size;
        uint8_t second;
    } rows[] = {
        { 0, 6, 0x80 },     { 125, 6, 0xfd },    { 126, 8, 0xfe },
        { 65535, 8, 0xfe }, { 65536, 14, 0xff }, { 1ull << 40, 14, 0xff },
    };
    uint8_t head[WEBSOCKET_HEAD_MAXIMUM];

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        assert_int_equal(websocket_put_head(head, WEBSOCKET_BINARY, rows[i].length, mask),
                         rows[i].size);
        assert_int_equal(head[0], 0x82);
        assert_int_equal(head[1], rows[i].second);
        assert_memory_equal(head + rows[i].size - 4, mask, 4);
    }
}

static void a_mask_goes_on_where_it_stopped(void **state)
{
    static const uint8_t mask[4] = { 0x11, 0x22, 0x33, 0x44 };
    uint8_t whole[9] = "abcdefgh";
    uint8_t pieces[9] = "abcdefgh";

    (void)state;
    websocket_mask(whole, 8, mask, 0);
    websocket_mask(pieces, 3, mask, 0);
    websocket_mask(pieces + 3, 5, mask, 3);
    assert_memory_equal(whole, pieces, 8);
    assert_int_equal(whole[0], 'a' ^ 0x11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_read_at_every_cut),
        cmocka_unit_test(a_message_in_pieces_is_one),
        cmocka_unit_test(a_long_message_needs_no_memory),
        cmocka_unit_test(frames_that_no_server_sends_are_bad),
        cmocka_unit_test(a_message_within_a_message_is_bad),
        cmocka_unit_test(heads_have_the_shortest_length),
        cmocka_unit_test(a_mask_goes_on_where_it_stopped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
