/* SPDX-License-Identifier: Apache-2.0 */
#include "init/relay_link.h"

#include "init/relay_reader.h"
#include "init/relay_usage.h"
#include "init/sys.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

enum {
    OUT_SIZE = RELAY_RESEND + 256 * 1024,
    RECEIVED_AFTER = RELAY_RECEIVED_EVERY / 4,
    FRAMES_PER_TURN = 64,
    MAX_PINGS = 4, /* that wait for their answers; more are not read before */
    USAGE_SIZE = sizeof(struct relay_frame) + sizeof(struct relay_usage),
    CONTROL_SIZE = sizeof(struct relay_frame) + sizeof(struct relay_welcome) + USAGE_SIZE +
                   (MAX_PINGS + 2) * (sizeof(struct relay_frame) + 8),
};

struct relay_link relay_link = { .fd = -1 };

static struct {
    struct relay_reader reader;
    uint64_t told; /* of reader.received, by RECEIVED */

    /* Offsets in the session. The frame that is being written ends at frame_end. */
    uint64_t kept_from;
    uint64_t written;
    uint64_t frame_end;
    uint64_t put;

    unsigned control_start;
    unsigned control_end;
    uint8_t control[CONTROL_SIZE];

    uint64_t trimmed; /* put, when memory was last given back */
    int64_t now_ms;
    int64_t heard_ms;
    int64_t pinged_ms;
    uint8_t out[OUT_SIZE];
} * wire;

int link_prepare(void)
{
    long address = sys(mmap, NULL, sizeof *wire, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (address < 0 && address > -4096)
        return (int)address;
    wire = (void *)address;
    return 0;
}

/* --- sessions and connections --------------------------------------------------------------- */

void link_close(void)
{
    sys_drop(&relay_link.fd); /* there is no duplicate, so closing removes it from the poll */
    relay_link.is_readable = relay_link.is_writable = false;
}

void link_end_session(void)
{
    link_close();
    relay_link.has_session = false;
    wire->reader.received = wire->told = 0;
    wire->kept_from = wire->written = wire->frame_end = wire->put = wire->trimmed = 0;
}

void link_begin_session(const uint8_t session[RELAY_SESSION_SIZE])
{
    link_end_session();
    relay_link.has_session = true;
    memcpy(relay_link.session, session, RELAY_SESSION_SIZE);
}

/* The part of [offset, offset + length) that lies together, from its beginning. */
static uint8_t *out_part(uint64_t offset, size_t length, size_t *out_length)
{
    size_t at = (size_t)(offset % sizeof wire->out);

    *out_length = length < sizeof wire->out - at ? length : sizeof wire->out - at;
    return wire->out + at;
}

/* Where the frame that begins there ends. */
static uint64_t frame_after(uint64_t offset)
{
    struct relay_frame frame;
    size_t first;
    const uint8_t *at = out_part(offset, sizeof frame, &first);

    memcpy(&frame, at, first);
    memcpy((uint8_t *)&frame + first, wire->out, sizeof frame - first);
    return offset + sizeof frame + frame.length;
}

/* Whether a frame that is kept ends there, or nothing was put since. */
static bool is_end_of_frame(uint64_t offset, uint64_t last)
{
    uint64_t at = wire->kept_from;

    if (offset < at || offset > last)
        return false;
    while (at < offset)
        at = frame_after(at);
    return at == offset;
}

bool link_can_resume(uint64_t received)
{
    return is_end_of_frame(received, wire->put);
}

uint64_t link_received(void)
{
    return wire->reader.received;
}

static void put_control(enum relay_type type, uint64_t offset, const void *payload, size_t length)
{
    struct relay_frame frame = {
        .length = (uint32_t)length,
        .type = (uint8_t)type,
        .offset = offset,
    };

    memcpy(wire->control + wire->control_end, &frame, sizeof frame);
    if (length)
        memcpy(wire->control + wire->control_end + sizeof frame, payload, length);
    wire->control_end += (unsigned)(sizeof frame + length);
}

void link_connect(int fd, uint64_t received, const struct relay_welcome *welcome)
{
    link_close();
    relay_link.fd = fd;
    relay_link.is_readable = relay_link.is_writable = true;
    relay_reader_restart(&wire->reader);
    wire->told = wire->reader.received;
    wire->kept_from = wire->written = wire->frame_end = received;
    wire->control_start = wire->control_end = 0;
    wire->heard_ms = wire->pinged_ms = wire->now_ms;
    put_control(RELAY_WELCOME, 0, welcome, sizeof *welcome);
}

/* --- receiving ------------------------------------------------------------------------------ */

static enum link_result answer_measure(void)
{
    struct relay_usage usage;

    if (sizeof wire->control - wire->control_end < USAGE_SIZE + sizeof(struct relay_frame) + 8)
        return LINK_WAITS;
    relay_usage_read(&usage);
    put_control(RELAY_USAGE, 0, &usage, sizeof usage);
    return LINK_TAKEN;
}

/* Anything but a frame of the session. */
static enum link_result take_control(const struct relay_frame *frame, const uint8_t *payload)
{
    switch (frame->type) {
    case RELAY_RECEIVED:
        if (!is_end_of_frame(frame->offset, wire->written))
            return LINK_BROKEN;
        wire->kept_from = frame->offset;
        return LINK_TAKEN;
    case RELAY_PING:
        if (sizeof wire->control - wire->control_end < 2 * (sizeof *frame + 8))
            return LINK_WAITS;
        put_control(RELAY_PONG, 0, payload, frame->length);
        return LINK_TAKEN;
    case RELAY_MEASURE:
        return answer_measure();
    case RELAY_LOGIN:
        return LINK_BROKEN;
    default: /* PONG, and frames that may be ignored */
        return LINK_TAKEN;
    }
}

/* The next frame, if there is a whole one. */
static enum link_result take_frame(enum link_result (*on_frame)(const struct relay_frame *frame,
                                                                const uint8_t *payload))
{
    struct relay_frame frame;
    const uint8_t *payload;
    enum link_result result = LINK_BROKEN;
    int found = relay_reader_peek(&wire->reader, &frame, &payload);

    if (found == READER_WANTS_MORE)
        return LINK_WANTS_MORE;
    if (found == READER_HAS_FRAME)
        result = frame.type >= RELAY_MESSAGE && frame.type <= RELAY_CLOSE
                     ? on_frame(&frame, payload)
                     : take_control(&frame, payload);
    if (result == LINK_BROKEN)
        link_end_session();
    if (result == LINK_TAKEN)
        relay_reader_take(&wire->reader, &frame);
    return result;
}

static void read_socket(void)
{
    size_t size;
    void *room = relay_reader_room(&wire->reader, &size);
    long length;

    if (!size)
        return; /* a frame waits, and others behind it */
    length = sys(read, relay_link.fd, room, size);
    if (length > 0) {
        relay_reader_add(&wire->reader, (size_t)length);
        wire->heard_ms = wire->pinged_ms = wire->now_ms;
    } else if (length == -EAGAIN) {
        relay_link.is_readable = false;
    } else if (length != -EINTR) {
        link_close();
    }
}

bool link_receive(enum link_result (*on_frame)(const struct relay_frame *frame,
                                               const uint8_t *payload))
{
    if (relay_link.fd < 0)
        return false;
    if (relay_link.is_readable)
        read_socket();
    for (unsigned i = 0; i < FRAMES_PER_TURN && relay_link.fd >= 0; i++) {
        enum link_result result = take_frame(on_frame);

        if (result != LINK_TAKEN)
            return result == LINK_WANTS_MORE && relay_link.is_readable;
    }
    return relay_link.fd >= 0;
}

/* --- sending -------------------------------------------------------------------------------- */

bool link_has_room(size_t length)
{
    return wire->put - wire->kept_from + length <= sizeof wire->out;
}

size_t link_unsent(void)
{
    return (size_t)(wire->put - wire->written);
}

static void put_bytes(const void *bytes, size_t length)
{
    size_t first;
    uint8_t *at = out_part(wire->put, length, &first);

    memcpy(at, bytes, first);
    if (first < length)
        memcpy(wire->out, (const uint8_t *)bytes + first, length - first);
    wire->put += length;
}

void link_put(const struct relay_frame *frame, const void *payload)
{
    put_bytes(frame, sizeof *frame);
    if (frame->length)
        put_bytes(payload, frame->length);
}

void link_put_message(const struct relay_descriptor *descriptors, unsigned count,
                      const void *packet, size_t length)
{
    uint64_t prefix[sizeof(struct relay_message) / 8 +
                    PROTOCOL_MAX_FDS * sizeof(struct relay_descriptor) / 8];
    size_t prefix_length = relay_message_prefix(prefix, descriptors, count);
    struct relay_frame frame = {
        .length = (uint32_t)(prefix_length + length),
        .type = RELAY_MESSAGE,
    };

    put_bytes(&frame, sizeof frame);
    put_bytes(prefix, prefix_length);
    put_bytes(packet, length);
}

void link_put_data(uint16_t channel, uint64_t offset, const struct ring *ring,
                   struct ring_place *place, size_t length)
{
    struct relay_frame frame = {
        .length = (uint32_t)length,
        .type = RELAY_DATA,
        .channel = channel,
        .offset = offset,
    };
    size_t first;
    uint8_t *at;

    put_bytes(&frame, sizeof frame);
    at = out_part(wire->put, length, &first);
    ring_copy(ring, place, at, first);
    ring_copy(ring, place, wire->out, length - first);
    wire->put += length;
}

/* How many bytes of the session were written since: moves the end of the current frame. */
static void count_written(size_t length)
{
    wire->written += length;
    while (wire->frame_end < wire->written)
        wire->frame_end = frame_after(wire->frame_end);
}

static unsigned add_out(struct iovec *parts, unsigned count, uint64_t from, uint64_t to)
{
    while (from < to) {
        size_t length;
        uint8_t *at = out_part(from, (size_t)(to - from), &length);

        parts[count++] = (struct iovec){ at, length };
        from += length;
    }
    return count;
}

static void tell_received(void)
{
    if (wire->reader.received - wire->told < RECEIVED_AFTER ||
        sizeof wire->control - wire->control_end < sizeof(struct relay_frame))
        return;
    wire->told = wire->reader.received;
    put_control(RELAY_RECEIVED, wire->told, NULL, 0);
}

/* Counts written bytes: of the session up to `begun`, then the connection's control frames, then
 * more of the session. */
static void count_flushed(size_t length, uint64_t begun)
{
    size_t before = (size_t)(begun - wire->written);
    size_t control = wire->control_end - wire->control_start;

    if (length > before) {
        if (control > length - before)
            control = length - before;
        wire->control_start += (unsigned)control;
        if (wire->control_start == wire->control_end)
            wire->control_start = wire->control_end = 0;
        length -= control;
    }
    count_written(length);
}

/* Sends the rest of the frame that was begun, then the connection's control frames, then frames. */
bool link_flush(void)
{
    struct iovec parts[5];
    size_t control;
    uint64_t begun;
    unsigned part_count;
    long length;

    if (relay_link.fd < 0 || !relay_link.is_writable)
        return false;
    tell_received();
    control = wire->control_end - wire->control_start;
    begun = control ? wire->frame_end : wire->put;
    part_count = add_out(parts, 0, wire->written, begun);
    if (control)
        parts[part_count++] = (struct iovec){ wire->control + wire->control_start, control };
    part_count = add_out(parts, part_count, begun, wire->put);
    if (!part_count)
        return false;

    length = sys(writev, relay_link.fd, parts, part_count);
    if (length == -EAGAIN)
        relay_link.is_writable = false;
    else if (length < 0 && length != -EINTR)
        link_close();
    if (length < 0)
        return false;
    count_flushed((size_t)length, begun);
    return true;
}

/* --- time ----------------------------------------------------------------------------------- */

int link_tick(int64_t now_ms)
{
    static uint64_t ping_number;

    wire->now_ms = now_ms;
    if (relay_link.fd < 0)
        return -1;
    if (now_ms - wire->heard_ms >= RELAY_SILENCE_MS) {
        link_close();
        return -1;
    }
    if (now_ms - wire->pinged_ms >= RELAY_PING_MS && !wire->control_end) {
        ping_number++;
        put_control(RELAY_PING, 0, &ping_number, sizeof ping_number);
    }
    if (now_ms - wire->pinged_ms >= RELAY_PING_MS)
        wire->pinged_ms = now_ms;
    return (int)(wire->pinged_ms + RELAY_PING_MS - now_ms);
}

/* Releases whole pages of the unused part of the buffer. */
static void trim_between(size_t from, size_t to)
{
    uintptr_t first = ((uintptr_t)wire->out + from + POOL_BLOCK - 1) & ~(uintptr_t)(POOL_BLOCK - 1);
    uintptr_t end = ((uintptr_t)wire->out + to) & ~(uintptr_t)(POOL_BLOCK - 1);

    if (first < end)
        (void)sys(madvise, first, end - first, MADV_DONTNEED);
}

void link_trim(void)
{
    size_t start = (size_t)(wire->kept_from % sizeof wire->out);
    size_t end = (size_t)(wire->put % sizeof wire->out);

    if (wire->put - wire->trimmed < sizeof wire->out / 8)
        return;
    wire->trimmed = wire->put;
    trim_between(end, start > end ? start : sizeof wire->out);
    if (start <= end)
        trim_between(0, start);
}
