/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of either end of a relay's connection: the first byte says whose, the rest is a stream of
 * them. What is accepted must be safe to use as it is. */

#include "wire/relay_frame.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void check_message(const uint8_t *payload, size_t length, enum relay_side from)
{
    struct relay_message_view view;
    size_t prefix;

    if (relay_message_decode(payload, length, from, &view) < 0)
        return;
    prefix = sizeof(struct relay_message) + view.count * sizeof(view.descriptors[0]);
    require(view.count <= PROTOCOL_MAX_FDS);
    require((const uint8_t *)view.packet == payload + prefix && view.length == length - prefix);
    require(view.length >= sizeof(struct protocol_header) && view.length <= PROTOCOL_MAX_MESSAGE);
    for (unsigned i = 0; i < view.count; i++) {
        const struct relay_descriptor *descriptor = &view.descriptors[i];

        require(descriptor->channel && descriptor->channel < RELAY_CHANNELS);
        require(descriptor->kind && descriptor->kind < RELAY_KINDS);
        require(descriptor->base <= INT64_MAX);
        require((descriptor->channel >= RELAY_BRIDGE_CHANNEL) == (from == RELAY_OF_BRIDGE));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum relay_side from = size && data[0] & 1 ? RELAY_OF_RELAY : RELAY_OF_BRIDGE;
    size_t at = 1;

    while (at + sizeof(struct relay_frame) <= size) {
        struct relay_frame frame;

        memcpy(&frame, data + at, sizeof(frame));
        at += sizeof(frame);
        if (relay_check(&frame, from))
            return 0;
        require(frame.length <= RELAY_MAX_FRAME - sizeof(frame));
        if (frame.length > size - at)
            return 0;
        if (frame.type == RELAY_MESSAGE)
            check_message(data + at, frame.length, from);
        at += frame.length;
    }
    return 0;
}
