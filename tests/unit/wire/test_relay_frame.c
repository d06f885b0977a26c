/* SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "wire/relay_frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { OF_BRIDGE = 1 << RELAY_OF_BRIDGE, OF_RELAY = 1 << RELAY_OF_RELAY };

/* --- headers -------------------------------------------------------------------------------- */

/* What may be sent, said a second time. */
static const struct {
    enum relay_type type;
    unsigned from;
    bool has_channel;
    uint32_t shortest, longest;
} known[] = {
    { RELAY_GREETING, OF_RELAY, false, sizeof(struct relay_greeting), 1024 },
    { RELAY_LOGIN, OF_BRIDGE, false, sizeof(struct relay_login), sizeof(struct relay_login) },
    { RELAY_WELCOME, OF_RELAY, false, sizeof(struct relay_welcome), sizeof(struct relay_welcome) },
    { RELAY_RECEIVED, OF_BRIDGE | OF_RELAY, false, 0, 0 },
    { RELAY_PING, OF_BRIDGE | OF_RELAY, false, 8, 8 },
    { RELAY_PONG, OF_BRIDGE | OF_RELAY, false, 8, 8 },
    { RELAY_MEASURE, OF_BRIDGE, false, 0, 0 },
    { RELAY_USAGE, OF_RELAY, false, sizeof(struct relay_usage), sizeof(struct relay_usage) },
    { RELAY_BIND, OF_BRIDGE, false, RELAY_KEY_SIZE, RELAY_KEY_SIZE },
    { RELAY_MESSAGE, OF_BRIDGE | OF_RELAY, false, sizeof(struct relay_message), RELAY_MAX_MESSAGE },
    { RELAY_DATA, OF_BRIDGE | OF_RELAY, true, 1, RELAY_MAX_DATA },
    { RELAY_ACK, OF_BRIDGE | OF_RELAY, true, sizeof(struct relay_ack), sizeof(struct relay_ack) },
    { RELAY_END, OF_BRIDGE | OF_RELAY, true, sizeof(struct relay_end), sizeof(struct relay_end) },
    { RELAY_CLOSE, OF_BRIDGE | OF_RELAY, true, 0, 0 },
};

static struct relay_frame good_frame(size_t i)
{
    return (struct relay_frame){ .length = known[i].shortest,
                                 .type = (uint8_t)known[i].type,
                                 .channel = known[i].has_channel ? 1 : 0 };
}

static enum relay_side side_of(size_t i)
{
    return known[i].from & OF_BRIDGE ? RELAY_OF_BRIDGE : RELAY_OF_RELAY;
}

static void headers_have_a_layout_that_does_not_change(void **state)
{
    (void)state;
    assert_int_equal(sizeof(struct relay_frame), 16);
    assert_int_equal(sizeof(struct relay_greeting), 48);
    assert_int_equal(sizeof(struct relay_login), 80);
    assert_int_equal(sizeof(struct relay_welcome), 48);
    assert_int_equal(sizeof(struct relay_descriptor), 16);
    assert_int_equal(sizeof(struct relay_message), 8);
    assert_int_equal(sizeof(struct relay_ack), 8);
    assert_int_equal(sizeof(struct relay_end), 8);
}

static void each_type_is_taken_from_the_side_that_sends_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(known); i++) {
        struct relay_frame frame = good_frame(i);

        for (unsigned side = RELAY_OF_BRIDGE; side <= RELAY_OF_RELAY; side++)
            assert_int_equal(relay_check(&frame, side) == NULL, (known[i].from & 1u << side) != 0);
    }
}

static void a_length_outside_of_its_type_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(known); i++) {
        struct relay_frame frame = good_frame(i);

        frame.length = known[i].longest;
        assert_null(relay_check(&frame, side_of(i)));
        frame.length = known[i].longest + 1;
        assert_non_null(relay_check(&frame, side_of(i)));
        frame.length = UINT32_MAX;
        assert_non_null(relay_check(&frame, side_of(i)));
        if (known[i].shortest) {
            frame.length = known[i].shortest - 1;
            assert_non_null(relay_check(&frame, side_of(i)));
        }
    }
}

static void a_channel_is_named_exactly_where_one_is_meant(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(known); i++) {
        static const uint16_t channels[] = {
            0, 1, RELAY_BRIDGE_CHANNEL, RELAY_CHANNELS - 1, RELAY_CHANNELS, UINT16_MAX
        };

        for (size_t at = 0; at < ARRAY_LENGTH(channels); at++) {
            struct relay_frame frame = good_frame(i);
            bool is_right = known[i].has_channel ? channels[at] && channels[at] < RELAY_CHANNELS
                                                 : !channels[at];

            frame.channel = channels[at];
            assert_int_equal(relay_check(&frame, side_of(i)) == NULL, is_right);
        }
    }
}

static void an_offset_fits_into_a_signed_number(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(known); i++) {
        struct relay_frame frame = good_frame(i);

        frame.offset = INT64_MAX;
        assert_null(relay_check(&frame, side_of(i)));
        frame.offset = (uint64_t)INT64_MAX + 1;
        assert_non_null(relay_check(&frame, side_of(i)));
    }
}

static bool is_known(unsigned type)
{
    for (size_t i = 0; i < ARRAY_LENGTH(known); i++)
        if (known[i].type == type)
            return true;
    return false;
}

static void an_unknown_type_is_taken_only_when_it_may_be_ignored(void **state)
{
    (void)state;
    for (unsigned type = 0; type <= UINT8_MAX; type++) {
        struct relay_frame frame = { .type = (uint8_t)type, .channel = UINT16_MAX };

        if (is_known(type))
            continue;
        assert_non_null(relay_check(&frame, RELAY_OF_BRIDGE));
        assert_non_null(relay_check(&frame, RELAY_OF_RELAY));
        frame.flags = RELAY_MAY_IGNORE;
        assert_null(relay_check(&frame, RELAY_OF_BRIDGE));
        frame.length = RELAY_MAX_DATA;
        assert_null(relay_check(&frame, RELAY_OF_RELAY));
        frame.length = RELAY_MAX_DATA + 1;
        assert_non_null(relay_check(&frame, RELAY_OF_RELAY));
    }
}

static void a_known_type_is_checked_even_when_it_may_be_ignored(void **state)
{
    struct relay_frame frame = {
        .type = RELAY_DATA, .flags = RELAY_MAY_IGNORE, .length = RELAY_MAX_DATA + 1, .channel = 1
    };

    (void)state;
    assert_non_null(relay_check(&frame, RELAY_OF_BRIDGE));
}

static void frames_from_message_on_are_sequenced(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(known); i++) {
        struct relay_frame frame = good_frame(i);

        assert_int_equal(relay_is_sequenced(&frame), known[i].type >= RELAY_MESSAGE);
    }
}

/* --- the handshake -------------------------------------------------------------------------- */

struct handshake {
    uint8_t key[RELAY_KEY_SIZE];
    struct {
        struct relay_greeting greeting;
        uint8_t rest[5]; /* of a later version */
    } hello;
    struct relay_login login;
    struct relay_welcome welcome;
};

static struct handshake good_handshake(void)
{
    struct handshake hands = { .hello = { .greeting = { .oldest = 1, .newest = 1 },
                                          .rest = { 1, 2, 3, 4, 5 } },
                               .login = { .version = 1, .received = 17 },
                               .welcome = { .is_resumed = 1, .received = 99 } };

    memcpy(hands.hello.greeting.magic, RELAY_MAGIC, sizeof(hands.hello.greeting.magic));
    memset(hands.key, 0x17, sizeof(hands.key));
    memset(hands.hello.greeting.nonce, 0xa1, sizeof(hands.hello.greeting.nonce));
    memset(hands.login.nonce, 0xb2, sizeof(hands.login.nonce));
    memset(hands.login.session, 0xc3, sizeof(hands.login.session));
    relay_sign_login(hands.key, &hands.hello, sizeof(hands.hello), &hands.login);
    relay_sign_welcome(hands.key, &hands.hello, sizeof(hands.hello), &hands.login, &hands.welcome);
    return hands;
}

static bool login_is_right(const struct handshake *hands)
{
    return relay_verify_login(hands->key, &hands->hello, sizeof(hands->hello), &hands->login);
}

static bool welcome_is_right(const struct handshake *hands)
{
    return relay_verify_welcome(hands->key, &hands->hello, sizeof(hands->hello), &hands->login,
                                &hands->welcome);
}

static void a_signed_handshake_is_believed(void **state)
{
    struct handshake hands = good_handshake();

    (void)state;
    assert_true(login_is_right(&hands));
    assert_true(welcome_is_right(&hands));
}

/* Flips each bit of a part in turn and counts how many of the changed handshakes are believed. */
static unsigned believed(struct handshake *hands, void *part, size_t length,
                         bool (*is_right)(const struct handshake *hands))
{
    uint8_t *bytes = part;
    unsigned count = 0;

    for (size_t bit = 0; bit < 8 * length; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        count += is_right(hands);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    return count;
}

static void a_login_with_any_bit_changed_is_not_believed(void **state)
{
    struct handshake hands = good_handshake();
    size_t greeting = sizeof(hands.hello.greeting) + sizeof(hands.hello.rest);

    (void)state;
    assert_int_equal(believed(&hands, hands.key, sizeof(hands.key), login_is_right), 0);
    assert_int_equal(believed(&hands, &hands.hello, greeting, login_is_right), 0);
    assert_int_equal(believed(&hands, &hands.login, sizeof(hands.login), login_is_right), 0);
    assert_true(login_is_right(&hands));
}

static void a_welcome_with_any_bit_changed_is_not_believed(void **state)
{
    struct handshake hands = good_handshake();
    size_t greeting = sizeof(hands.hello.greeting) + sizeof(hands.hello.rest);

    (void)state;
    assert_int_equal(believed(&hands, hands.key, sizeof(hands.key), welcome_is_right), 0);
    assert_int_equal(believed(&hands, &hands.hello, greeting, welcome_is_right), 0);
    assert_int_equal(believed(&hands, &hands.login, sizeof(hands.login), welcome_is_right), 0);
    assert_int_equal(believed(&hands, &hands.welcome, sizeof(hands.welcome), welcome_is_right), 0);
    assert_true(welcome_is_right(&hands));
}

/* A peer that knows nothing could otherwise send back what it got. */
static void the_mac_of_one_side_is_not_that_of_the_other(void **state)
{
    struct handshake hands = good_handshake();

    (void)state;
    memcpy(hands.welcome.mac, hands.login.mac, sizeof(hands.welcome.mac));
    assert_false(welcome_is_right(&hands));
}

static void a_greeting_that_was_cut_short_is_not_believed(void **state)
{
    struct handshake hands = good_handshake();

    (void)state;
    assert_false(
        relay_verify_login(hands.key, &hands.hello, sizeof(hands.hello.greeting), &hands.login));
}

/* --- MESSAGE -------------------------------------------------------------------------------- */

struct payload {
    _Alignas(8) uint8_t bytes[RELAY_MAX_MESSAGE + 1];
    size_t length;
};

static const struct protocol_header packet = { .type = PROTOCOL_LIST };

static void build(struct payload *payload, const struct relay_descriptor *descriptors,
                  unsigned count)
{
    size_t prefix = relay_message_prefix(payload->bytes, descriptors, count);

    memcpy(payload->bytes + prefix, &packet, sizeof(packet));
    payload->length = prefix + sizeof(packet);
}

static int decode(const struct payload *payload, enum relay_side from,
                  struct relay_message_view *out_view)
{
    return relay_message_decode(payload->bytes, payload->length, from, out_view);
}

static void a_message_comes_out_as_it_was_put_in(void **state)
{
    static const struct relay_descriptor descriptors[PROTOCOL_MAX_FDS] = {
        { .channel = 1, .kind = RELAY_INPUT },
        { .channel = 2, .kind = RELAY_OUTPUT, .base = 17 },
        { .channel = 3, .kind = RELAY_BOTH, .base = INT64_MAX },
        { .channel = RELAY_BRIDGE_CHANNEL - 1, .kind = RELAY_OUTPUT },
    };

    (void)state;
    for (unsigned count = 0; count <= PROTOCOL_MAX_FDS; count++) {
        static struct payload payload;
        struct relay_message_view view;

        build(&payload, descriptors, count);
        assert_int_equal(decode(&payload, RELAY_OF_RELAY, &view), 0);
        assert_int_equal(view.count, count);
        assert_memory_equal(view.descriptors, descriptors, count * sizeof(descriptors[0]));
        assert_int_equal(view.length, sizeof(packet));
        assert_memory_equal(view.packet, &packet, sizeof(packet));
        assert_int_equal((uintptr_t)view.packet % 8, 0);
    }
}

static void a_message_that_was_cut_short_is_refused(void **state)
{
    static const struct relay_descriptor descriptor = { .channel = 1, .kind = RELAY_INPUT };
    static struct payload payload;
    struct relay_message_view view;
    size_t whole;

    (void)state;
    build(&payload, &descriptor, 1);
    whole = payload.length;
    for (payload.length = 0; payload.length < whole; payload.length++)
        assert_int_equal(decode(&payload, RELAY_OF_RELAY, &view), -1);
    assert_int_equal(decode(&payload, RELAY_OF_RELAY, &view), 0);
}

static void a_packet_that_is_too_long_for_init_is_refused(void **state)
{
    static struct payload payload;
    struct relay_message_view view;

    (void)state;
    build(&payload, NULL, 0);
    payload.length = sizeof(struct relay_message) + PROTOCOL_MAX_MESSAGE;
    assert_int_equal(decode(&payload, RELAY_OF_BRIDGE, &view), 0);
    payload.length++;
    assert_int_equal(decode(&payload, RELAY_OF_BRIDGE, &view), -1);
}

static void more_descriptors_than_a_message_has_are_refused(void **state)
{
    static const uint32_t counts[] = { PROTOCOL_MAX_FDS + 1, 0x10000000, UINT32_MAX };
    static struct payload payload;
    struct relay_message_view view;

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(counts); i++) {
        struct relay_message fixed = { .count = counts[i] };

        memcpy(payload.bytes, &fixed, sizeof(fixed));
        payload.length = RELAY_MAX_MESSAGE;
        assert_int_equal(decode(&payload, RELAY_OF_RELAY, &view), -1);
    }
}

static bool is_taken(struct relay_descriptor descriptor, enum relay_side from)
{
    static struct payload payload;
    struct relay_message_view view;

    build(&payload, &descriptor, 1);
    return decode(&payload, from, &view) == 0;
}

static void kinds_and_channels_belong_to_a_side(void **state)
{
    (void)state;
    for (uint16_t kind = 0; kind <= RELAY_KINDS; kind++) {
        bool streams = kind >= RELAY_INPUT && kind <= RELAY_BOTH;
        bool content = kind == RELAY_CONTENT;
        struct relay_descriptor low = { .channel = 1, .kind = kind };
        struct relay_descriptor high = { .channel = RELAY_BRIDGE_CHANNEL, .kind = kind };

        assert_int_equal(is_taken(low, RELAY_OF_RELAY), streams);
        assert_false(is_taken(high, RELAY_OF_RELAY));
        assert_false(is_taken(low, RELAY_OF_BRIDGE));
        assert_int_equal(is_taken(high, RELAY_OF_BRIDGE), content);
    }
}

static void channels_and_bases_have_ranges(void **state)
{
    (void)state;
    assert_false(is_taken((struct relay_descriptor){ .kind = RELAY_INPUT }, RELAY_OF_RELAY));
    assert_false(
        is_taken((struct relay_descriptor){ .kind = RELAY_INPUT, .channel = 1, .base = UINT64_MAX },
                 RELAY_OF_RELAY));
    assert_false(
        is_taken((struct relay_descriptor){ .kind = RELAY_CONTENT, .channel = RELAY_CHANNELS },
                 RELAY_OF_BRIDGE));
    assert_true(is_taken((struct relay_descriptor){ .kind = RELAY_CONTENT,
                                                    .channel = RELAY_CHANNELS - 1,
                                                    .base = PROTOCOL_MAX_SCRIPT_BYTES },
                         RELAY_OF_BRIDGE));
    assert_false(is_taken((struct relay_descriptor){ .kind = RELAY_CONTENT,
                                                     .channel = RELAY_CHANNELS - 1,
                                                     .base = PROTOCOL_MAX_SCRIPT_BYTES + 1 },
                          RELAY_OF_BRIDGE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_have_a_layout_that_does_not_change),
        cmocka_unit_test(each_type_is_taken_from_the_side_that_sends_it),
        cmocka_unit_test(a_length_outside_of_its_type_is_refused),
        cmocka_unit_test(a_channel_is_named_exactly_where_one_is_meant),
        cmocka_unit_test(an_offset_fits_into_a_signed_number),
        cmocka_unit_test(an_unknown_type_is_taken_only_when_it_may_be_ignored),
        cmocka_unit_test(a_known_type_is_checked_even_when_it_may_be_ignored),
        cmocka_unit_test(frames_from_message_on_are_sequenced),
        cmocka_unit_test(a_signed_handshake_is_believed),
        cmocka_unit_test(a_login_with_any_bit_changed_is_not_believed),
        cmocka_unit_test(a_welcome_with_any_bit_changed_is_not_believed),
        cmocka_unit_test(the_mac_of_one_side_is_not_that_of_the_other),
        cmocka_unit_test(a_greeting_that_was_cut_short_is_not_believed),
        cmocka_unit_test(a_message_comes_out_as_it_was_put_in),
        cmocka_unit_test(a_message_that_was_cut_short_is_refused),
        cmocka_unit_test(a_packet_that_is_too_long_for_init_is_refused),
        cmocka_unit_test(more_descriptors_than_a_message_has_are_refused),
        cmocka_unit_test(kinds_and_channels_belong_to_a_side),
        cmocka_unit_test(channels_and_bases_have_ranges),
    };

    return cmocka_run_group_tests_name("wire/relay_frame", tests, NULL, NULL);
}
