/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/relay_frame.h"

#include <string.h>

enum {
    OF_BRIDGE = 1 << RELAY_OF_BRIDGE,
    OF_RELAY = 1 << RELAY_OF_RELAY,
    OF_BOTH = OF_BRIDGE | OF_RELAY,
};

struct rule {
    uint8_t from;
    bool has_channel;
    uint32_t shortest, longest;
};

static const struct rule rules[] = {
    [RELAY_GREETING] = { OF_RELAY, false, sizeof(struct relay_greeting), 1024 },
    [RELAY_LOGIN] = { OF_BRIDGE, false, sizeof(struct relay_login), sizeof(struct relay_login) },
    [RELAY_WELCOME] = { OF_RELAY, false, sizeof(struct relay_welcome),
                        sizeof(struct relay_welcome) },
    [RELAY_RECEIVED] = { OF_BOTH, false, 0, 0 },
    [RELAY_PING] = { OF_BOTH, false, 8, 8 },
    [RELAY_PONG] = { OF_BOTH, false, 8, 8 },
    [RELAY_MEASURE] = { OF_BRIDGE, false, 0, 0 },
    [RELAY_USAGE] = { OF_RELAY, false, sizeof(struct relay_usage), sizeof(struct relay_usage) },
    [RELAY_BIND] = { OF_BRIDGE, false, RELAY_KEY_SIZE, RELAY_KEY_SIZE },
    [RELAY_MESSAGE] = { OF_BOTH, false, sizeof(struct relay_message), RELAY_MAX_MESSAGE },
    [RELAY_DATA] = { OF_BOTH, true, 1, RELAY_MAX_DATA },
    [RELAY_ACK] = { OF_BOTH, true, sizeof(struct relay_ack), sizeof(struct relay_ack) },
    [RELAY_END] = { OF_BOTH, true, sizeof(struct relay_end), sizeof(struct relay_end) },
    [RELAY_CLOSE] = { OF_BOTH, true, 0, 0 },
};

const char *relay_check(const struct relay_frame *frame, enum relay_side from)
{
    const struct rule *rule = frame->type < sizeof rules / sizeof rules[0] ? &rules[frame->type]
                                                                           : NULL;

    if (!rule || !rule->from) {
        if (!(frame->flags & RELAY_MAY_IGNORE))
            return "a frame of an unknown type";
        return frame->length > RELAY_MAX_DATA ? "a frame that is too long" : NULL;
    }
    if (!(rule->from & 1u << from))
        return "a frame that the other end does not send";
    if (frame->length < rule->shortest || frame->length > rule->longest)
        return "a frame of the wrong length";
    if (rule->has_channel != (frame->channel != 0) || frame->channel >= RELAY_CHANNELS)
        return "a frame of the wrong channel";
    if (frame->offset > INT64_MAX)
        return "an offset that cannot be";
    return NULL;
}

/* --- the handshake -------------------------------------------------------------------------- */

static void mac_login(const uint8_t key[RELAY_KEY_SIZE], const void *greeting,
                      size_t greeting_length, const struct relay_login *login,
                      uint8_t out_mac[SHA256_SIZE])
{
    static const char purpose[] = "sandglass relay: login";
    struct hmac hmac;

    hmac_init(&hmac, key, RELAY_KEY_SIZE);
    hmac_add(&hmac, purpose, sizeof purpose);
    hmac_add(&hmac, greeting, greeting_length);
    hmac_add(&hmac, login, offsetof(struct relay_login, mac));
    hmac_finish(&hmac, out_mac);
}

static void mac_welcome(const uint8_t key[RELAY_KEY_SIZE], const void *greeting,
                        size_t greeting_length, const struct relay_login *login,
                        const struct relay_welcome *welcome, uint8_t out_mac[SHA256_SIZE])
{
    static const char purpose[] = "sandglass relay: welcome";
    struct hmac hmac;

    hmac_init(&hmac, key, RELAY_KEY_SIZE);
    hmac_add(&hmac, purpose, sizeof purpose);
    hmac_add(&hmac, greeting, greeting_length);
    hmac_add(&hmac, login, sizeof *login);
    hmac_add(&hmac, welcome, offsetof(struct relay_welcome, mac));
    hmac_finish(&hmac, out_mac);
}

void relay_sign_login(const uint8_t key[RELAY_KEY_SIZE], const void *greeting,
                      size_t greeting_length, struct relay_login *login)
{
    mac_login(key, greeting, greeting_length, login, login->mac);
}

bool relay_verify_login(const uint8_t key[RELAY_KEY_SIZE], const void *greeting,
                        size_t greeting_length, const struct relay_login *login)
{
    uint8_t mac[SHA256_SIZE];

    mac_login(key, greeting, greeting_length, login, mac);
    return hmac_equal(mac, login->mac);
}

void relay_sign_welcome(const uint8_t key[RELAY_KEY_SIZE], const void *greeting,
                        size_t greeting_length, const struct relay_login *login,
                        struct relay_welcome *welcome)
{
    mac_welcome(key, greeting, greeting_length, login, welcome, welcome->mac);
}

bool relay_verify_welcome(const uint8_t key[RELAY_KEY_SIZE], const void *greeting,
                          size_t greeting_length, const struct relay_login *login,
                          const struct relay_welcome *welcome)
{
    uint8_t mac[SHA256_SIZE];

    mac_welcome(key, greeting, greeting_length, login, welcome, mac);
    return hmac_equal(mac, welcome->mac);
}

/* --- MESSAGE -------------------------------------------------------------------------------- */

static bool descriptor_is_sound(const struct relay_descriptor *descriptor, enum relay_side from)
{
    bool is_content = descriptor->kind == RELAY_CONTENT;

    if (!descriptor->kind || descriptor->kind >= RELAY_KINDS || !descriptor->channel ||
        descriptor->channel >= RELAY_CHANNELS || descriptor->base > INT64_MAX)
        return false;
    if (is_content && descriptor->base > PROTOCOL_MAX_SCRIPT_BYTES)
        return false;
    return is_content == (from == RELAY_OF_BRIDGE) &&
           is_content == (descriptor->channel >= RELAY_BRIDGE_CHANNEL);
}

int relay_message_decode(const void *payload, size_t length, enum relay_side from,
                         struct relay_message_view *out_message)
{
    struct relay_message fixed;
    struct relay_message_view view = { 0 };
    size_t prefix;

    if (length < sizeof fixed)
        return -1;
    memcpy(&fixed, payload, sizeof fixed);
    if (fixed.count > PROTOCOL_MAX_FDS)
        return -1;
    prefix = sizeof fixed + fixed.count * sizeof view.descriptors[0];
    if (length < prefix + sizeof(struct protocol_header) || length > prefix + PROTOCOL_MAX_MESSAGE)
        return -1;
    memcpy(view.descriptors, (const char *)payload + sizeof fixed, prefix - sizeof fixed);
    for (unsigned i = 0; i < fixed.count; i++)
        if (!descriptor_is_sound(&view.descriptors[i], from))
            return -1;
    view.count = fixed.count;
    view.packet = (const char *)payload + prefix;
    view.length = length - prefix;
    *out_message = view;
    return 0;
}

size_t relay_message_prefix(void *buffer, const struct relay_descriptor *descriptors,
                            unsigned count)
{
    struct relay_message fixed = { .count = count };

    memcpy(buffer, &fixed, sizeof fixed);
    if (count)
        memcpy((char *)buffer + sizeof fixed, descriptors, count * sizeof *descriptors);
    return sizeof fixed + count * sizeof *descriptors;
}
