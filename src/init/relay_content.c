/* SPDX-License-Identifier: Apache-2.0 */
#include "init/relay_content.h"

#include "init/sys.h"

#include <errno.h>
#include <sys/mman.h>

static struct content contents[RELAY_MAX_CONTENTS];

static void drop(struct content *content)
{
    sys_drop(&content->fd);
    content->channel = 0;
}

static struct content *find(uint16_t channel)
{
    for (unsigned i = 0; i < RELAY_MAX_CONTENTS; i++)
        if (contents[i].channel == channel)
            return &contents[i];
    return NULL;
}

static struct content *begin(uint16_t channel)
{
    struct content *content = find(0);
    int fd;

    if (!content)
        return NULL;
    fd = (int)sys(memfd_create, "script", MFD_CLOEXEC);
    *content = (struct content){
        .channel = channel,
        .fd = fd < 0 ? -1 : fd,
        .error = fd < 0 ? -fd : 0,
    };
    return content;
}

static void append(struct content *content, const uint8_t *bytes, size_t length)
{
    while (length && !content->error) {
        long written = sys(write, content->fd, bytes, length);

        if (written == -EINTR)
            continue;
        if (written <= 0) {
            content->error = written ? (int)-written : ENOSPC;
            return;
        }
        bytes += written;
        length -= (size_t)written;
    }
}

static void put_ack(const struct content *content, unsigned flags)
{
    struct relay_ack ack = { .window = RELAY_WINDOW };
    struct relay_frame frame = {
        .length = sizeof ack,
        .type = RELAY_ACK,
        .flags = (uint8_t)flags,
        .channel = content->channel,
        .offset = content->length,
    };

    link_put(&frame, &ack);
}

enum link_result content_take(const struct relay_frame *frame, const uint8_t *payload)
{
    struct content *content = find(frame->channel);

    if (frame->type != RELAY_DATA)
        return LINK_BROKEN;
    if (!link_has_room(sizeof *frame + sizeof(struct relay_ack)))
        return LINK_WAITS;
    if (!content)
        content = begin(frame->channel);
    if (!content || frame->offset != content->length ||
        content->length + frame->length > PROTOCOL_MAX_SCRIPT_BYTES)
        return LINK_BROKEN;
    append(content, payload, frame->length);
    content->length += frame->length;
    put_ack(content, 0);
    return LINK_TAKEN;
}

/* Empty content has no frames, so it begins here. */
struct content *content_find(uint16_t channel, uint64_t length)
{
    struct content *content = find(channel);

    if (!content && !length)
        content = begin(channel);
    return content && content->length == length ? content : NULL;
}

void content_finish(struct content *content)
{
    put_ack(content, RELAY_ACK_END);
    drop(content);
}

void content_drop_all(void)
{
    for (unsigned i = 0; i < RELAY_MAX_CONTENTS; i++)
        if (contents[i].channel)
            drop(&contents[i]);
}
