/* SPDX-License-Identifier: Apache-2.0 */
#include "init/relay_stream_private.h"

#include "init/sys.h"

#include <errno.h>
#include <string.h>

enum {
    UNSENT_ENOUGH = 64 * 1024, /* more is not put: a message would wait behind it */
    TELL_SIZE = sizeof(struct relay_frame) + 8,
    /* Room that DATA frames leave for messages and for frames without bytes. */
    ROOM_FOR_MESSAGES = RELAY_MAX_FRAME + 1024 * TELL_SIZE,
};

/* --- frames that come ----------------------------------------------------------------------- */

static enum link_result take_data(struct stream *stream, const struct relay_frame *frame,
                                  const uint8_t *payload)
{
    long written = 0;

    if ((stream->state != STREAM_OPEN && stream->state != STREAM_REFUSED) ||
        frame->offset != stream->end || frame->length > stream->kept - stream->end)
        return LINK_BROKEN;
    if (stream->state == STREAM_REFUSED) {
        stream->end += frame->length;
        return LINK_TAKEN;
    }
    if (!stream->ring.length && stream->is_ready && stream->fd >= 0) {
        written = sys(write, stream->fd, payload, frame->length);
        if (written < 0 && written != -EAGAIN && written != -EINTR) {
            stream->end += frame->length;
            stream_refuse(stream);
            return LINK_TAKEN;
        }
        if (written < (long)frame->length)
            stream->is_ready = written == -EINTR;
        if (written < 0)
            written = 0;
    }
    if (!ring_append(&stream->ring, payload + written, frame->length - (size_t)written))
        return LINK_BROKEN; /* the window has promised that it fits */
    stream->end += frame->length;
    stream_widen(stream);
    stream_tell(stream, TELL_ACK);
    stream_enqueue(QUEUE_WORK, stream);
    return LINK_TAKEN;
}

static enum link_result take_end(struct stream *stream, const struct relay_frame *frame)
{
    if ((stream->state != STREAM_OPEN && stream->state != STREAM_REFUSED) ||
        frame->offset != stream->end)
        return LINK_BROKEN;
    stream->state = STREAM_ENDING;
    if (!stream->ring.length)
        stream_refuse(stream);
    else
        stream_enqueue(QUEUE_WORK, stream);
    return LINK_TAKEN;
}

static enum link_result take_ack(struct stream *stream, const struct relay_frame *frame,
                                 const uint8_t *payload)
{
    uint64_t in_ring = stream->end - stream->ring.length;
    struct relay_ack ack;

    memcpy(&ack, payload, sizeof ack);
    if ((stream->state != STREAM_OPEN && stream->state != STREAM_ENDING &&
         stream->state != STREAM_TOLD) ||
        frame->offset < stream->kept || frame->offset > stream->sent ||
        ack.window > RELAY_MAX_WINDOW)
        return LINK_BROKEN;
    stream->kept = frame->offset;
    stream->window = ack.window;
    if (stream->kept > in_ring) {
        ring_drop(&stream->ring, (size_t)(stream->kept - in_ring));
        if (stream->kept == stream->sent)
            stream->place = (struct ring_place){ 0 };
    }
    if (frame->flags & RELAY_ACK_END) {
        if (stream->state != STREAM_TOLD || frame->offset != stream->limit)
            return LINK_BROKEN;
        stream->state = STREAM_DONE;
        channel_settle(stream_channel(stream));
        return LINK_TAKEN;
    }
    stream_enqueue(QUEUE_WORK, stream);
    stream_enqueue(QUEUE_SEND, stream);
    return LINK_TAKEN;
}

static enum link_result take_close(struct stream *stream)
{
    if (stream->state != STREAM_OPEN && stream->state != STREAM_ENDING &&
        stream->state != STREAM_TOLD)
        return LINK_BROKEN;
    if (stream_channel(stream)->is_process)
        stream_stop(stream);
    else
        stream_drop(stream);
    return LINK_TAKEN;
}

enum link_result stream_take(const struct relay_frame *frame, const uint8_t *payload)
{
    struct channel *channel = &relay_channels[frame->channel];

    if (frame->channel >= RELAY_BRIDGE_CHANNEL || !channel->kind)
        return LINK_BROKEN;
    switch (frame->type) {
    case RELAY_DATA:
        return take_data(&channel->streams[CHANNEL_IN], frame, payload);
    case RELAY_END:
        return take_end(&channel->streams[CHANNEL_IN], frame);
    case RELAY_ACK:
        return take_ack(&channel->streams[CHANNEL_OUT], frame, payload);
    case RELAY_CLOSE:
        return take_close(&channel->streams[CHANNEL_OUT]);
    default:
        return LINK_BROKEN;
    }
}

/* --- frames that go ------------------------------------------------------------------------- */

static void put(const struct stream *stream, enum relay_type type, unsigned flags, uint64_t offset,
                const void *payload, size_t length)
{
    struct relay_frame frame = {
        .length = (uint32_t)length,
        .type = (uint8_t)type,
        .flags = (uint8_t)flags,
        .channel = channel_number(stream),
        .offset = offset,
    };

    link_put(&frame, payload);
}

static void tell_input(struct stream *stream)
{
    struct relay_ack ack = { 0 };

    if (stream->tell & TELL_CLOSE && stream->state == STREAM_REFUSED)
        put(stream, RELAY_CLOSE, 0, 0, NULL, 0);
    if (stream->tell & TELL_ACK && stream->state == STREAM_OPEN) {
        stream_grant(stream);
        ack.window = (uint32_t)(stream->kept - stream->end);
        put(stream, RELAY_ACK, 0, stream->end, &ack, sizeof ack);
    }
    stream->tell = 0;
    if (stream->state != STREAM_ENDING || stream->ring.length)
        return;
    put(stream, RELAY_ACK, RELAY_ACK_END, stream->end, &ack, sizeof ack);
    stream->state = STREAM_DONE;
    channel_settle(stream_channel(stream));
}

void channel_tell_input(uint16_t number)
{
    struct stream *in = &relay_channels[number].streams[CHANNEL_IN];

    if (in->state == STREAM_OPEN && in->tell & TELL_ACK)
        tell_input(in);
}

static void tell_output(struct stream *stream)
{
    struct relay_end end = { .error = stream->error };

    if (stream->state != STREAM_ENDING || stream->sent < stream->limit)
        return;
    put(stream, RELAY_END, 0, stream->limit, &end, sizeof end);
    stream->state = STREAM_TOLD;
}

static size_t sendable(const struct stream *stream)
{
    uint64_t to = stream->kept + stream->window;

    if (stream->state != STREAM_OPEN && stream->state != STREAM_ENDING)
        return 0;
    if (to > stream->end)
        to = stream->end;
    if (to > stream->limit)
        to = stream->limit;
    if (to <= stream->sent)
        return 0;
    return to - stream->sent < RELAY_MAX_DATA ? (size_t)(to - stream->sent) : RELAY_MAX_DATA;
}

static void send_bytes(struct stream *stream, size_t length)
{
    link_put_data(channel_number(stream), stream->sent, &stream->ring, &stream->place, length);
    stream->sent += length;
    if (!stream_channel(stream)->is_process) {
        ring_drop(&stream->ring, length);
        stream->place = (struct ring_place){ 0 };
        stream_enqueue(QUEUE_WORK, stream);
    }
    if (stream->sent == stream->limit)
        stream_enqueue(QUEUE_TELL, stream);
    stream_enqueue(QUEUE_SEND, stream);
}

bool stream_send(void)
{
    struct stream *stream;
    bool has_put = false;

    while (link_has_room(RELAY_MAX_FRAME + 3 * TELL_SIZE) &&
           (stream = stream_dequeue(QUEUE_TELL))) {
        if (stream_is_output(stream))
            tell_output(stream);
        else
            tell_input(stream);
        has_put = true;
    }
    while (link_unsent() < UNSENT_ENOUGH && link_has_room(ROOM_FOR_MESSAGES + STREAM_PIECE) &&
           (stream = stream_dequeue(QUEUE_SEND))) {
        size_t length = sendable(stream);

        if (!length)
            continue;
        send_bytes(stream, length);
        has_put = true;
    }
    return has_put;
}
