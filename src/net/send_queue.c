/* SPDX-License-Identifier: Apache-2.0 */
#include "net/send_queue.h"

#include "base/alloc.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { KEPT_BYTES = 64 * 1024, FILE_BYTES_PER_FLUSH = 1024 * 1024, DIRECT_BYTES = 16 * 1024 };

struct send_queue_part {
    struct list link;
    int fd; /* owned */
    off_t offset;
    size_t left;
    struct buffer tail; /* the bytes behind the file */
};

static struct send_queue_part *part_first(const struct send_queue *queue)
{
    return list_first(&queue->parts, struct send_queue_part, link);
}

static void part_free(struct send_queue_part *part)
{
    list_remove(&part->link);
    fd_close(part->fd);
    buffer_fini(&part->tail);
    free(part);
}

void send_queue_init(struct send_queue *queue, size_t maximum_bytes)
{
    *queue = (struct send_queue){ .bytes = BUFFER_INIT(maximum_bytes) };
    list_init(&queue->parts);
}

void send_queue_fini(struct send_queue *queue)
{
    buffer_fini(&queue->bytes);
    while (!list_is_empty(&queue->parts))
        part_free(part_first(queue));
    queue->sent = 0;
    queue->pending = 0;
}

/* The front is given back when most of the buffer has been sent, so that a stream which never
 * becomes empty does not grow. */
static void send_queue_compact(struct send_queue *queue)
{
    if (queue->sent == queue->bytes.length) {
        if (queue->bytes.capacity > KEPT_BYTES)
            buffer_fini(&queue->bytes);
        buffer_clear(&queue->bytes);
        queue->sent = 0;
    } else if (queue->sent > KEPT_BYTES && queue->sent > queue->bytes.length / 2) {
        buffer_consume(&queue->bytes, queue->sent);
        queue->sent = 0;
    }
}

int send_queue_append(struct send_queue *queue, const void *data, size_t length)
{
    struct buffer *buffer = &queue->bytes;

    if (!list_is_empty(&queue->parts))
        buffer = &list_entry(queue->parts.previous, struct send_queue_part, link)->tail;
    if (buffer_append(buffer, data, length) < 0)
        return -1;
    queue->pending += length;
    return 0;
}

int send_queue_write(struct send_queue *queue, int socket, const void *data, size_t length)
{
    size_t waiting = queue->bytes.length - queue->sent;
    struct iovec pieces[2] = {
        { .iov_base = waiting ? queue->bytes.data + queue->sent : NULL, .iov_len = waiting },
        { .iov_base = (void *)data, .iov_len = length },
    };
    struct msghdr message = { .msg_iov = waiting ? pieces : pieces + 1,
                              .msg_iovlen = waiting ? 2 : 1 };
    ssize_t sent;

    if (length < DIRECT_BYTES || waiting > DIRECT_BYTES || !list_is_empty(&queue->parts))
        return send_queue_append(queue, data, length);
    sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 || (size_t)sent < waiting) {
        if (sent > 0) {
            queue->sent += (size_t)sent;
            queue->pending -= (size_t)sent;
        }
        return send_queue_append(queue, data, length);
    }
    queue->sent += waiting;
    queue->pending -= waiting;
    send_queue_compact(queue);
    sent -= (ssize_t)waiting;
    return send_queue_append(queue, (const char *)data + sent, length - (size_t)sent);
}

void send_queue_append_file(struct send_queue *queue, int fd, int64_t offset, size_t length)
{
    struct send_queue_part *part = xnew(struct send_queue_part);

    assert(fd >= 0 && offset >= 0);
    *part = (struct send_queue_part){
        .fd = fd,
        .offset = (off_t)offset,
        .left = length,
        .tail = BUFFER_INIT(queue->bytes.maximum),
    };
    list_append(&queue->parts, &part->link);
    queue->pending += length;
}

static enum send_queue_result result_of_errno(void)
{
    return errno == EAGAIN || errno == EINTR ? SEND_QUEUE_BLOCKED : SEND_QUEUE_BROKEN;
}

static enum send_queue_result flush_bytes(struct send_queue *queue, int socket)
{
    int more = list_is_empty(&queue->parts) ? 0 : MSG_MORE;

    assert(queue->pending >= queue->bytes.length - queue->sent);
    while (queue->sent < queue->bytes.length) {
        size_t left = queue->bytes.length - queue->sent;
        ssize_t sent =
            send(socket, queue->bytes.data + queue->sent, left, MSG_NOSIGNAL | MSG_DONTWAIT | more);

        if (sent < 0)
            return result_of_errno();
        queue->sent += (size_t)sent;
        queue->pending -= (size_t)sent;
        send_queue_compact(queue);
        if ((size_t)sent < left)
            return SEND_QUEUE_BLOCKED;
    }
    return SEND_QUEUE_EMPTY;
}

static enum send_queue_result flush_file(struct send_queue *queue, struct send_queue_part *part,
                                         int socket, size_t *budget)
{
    while (part->left) {
        ssize_t sent = *budget ? sendfile(socket, part->fd, &part->offset, MIN(part->left, *budget))
                               : -1;

        if (!*budget)
            return SEND_QUEUE_BLOCKED;
        if (sent < 0)
            return result_of_errno();
        if (sent == 0)
            return SEND_QUEUE_BROKEN;
        assert((size_t)sent <= part->left && part->left <= queue->pending);
        part->left -= (size_t)sent;
        queue->pending -= (size_t)sent;
        *budget -= (size_t)sent;
    }
    return SEND_QUEUE_EMPTY;
}

enum send_queue_result send_queue_flush(struct send_queue *queue, int socket)
{
    size_t budget = FILE_BYTES_PER_FLUSH;

    for (;;) {
        enum send_queue_result result = flush_bytes(queue, socket);
        struct send_queue_part *part = part_first(queue);

        if (result != SEND_QUEUE_EMPTY || !part)
            return result;
        result = flush_file(queue, part, socket, &budget);
        if (result != SEND_QUEUE_EMPTY)
            return result;
        buffer_fini(&queue->bytes);
        queue->bytes = part->tail;
        part->tail = BUFFER_INIT(queue->bytes.maximum);
        part_free(part);
    }
}
