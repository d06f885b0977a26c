#include "net/send_queue.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { KEPT_BYTES = 64 * 1024, FILE_BYTES_PER_FLUSH = 1024 * 1024, DIRECT_BYTES = 16 * 1024 };

struct output_part {
    struct list link;
    int fd; /* owned */
    off_t offset;
    size_t left;
    struct buffer tail; /* the bytes behind the file */
};

static struct output_part *part_first(const struct output *output)
{
    return list_first(&output->parts, struct output_part, link);
}

static void part_free(struct output_part *part)
{
    list_remove(&part->link);
    fd_close(part->fd);
    buffer_fini(&part->tail);
    free(part);
}

void output_init(struct output *output, size_t maximum_bytes)
{
    *output = (struct output){ .bytes = BUFFER_INIT(maximum_bytes) };
    list_init(&output->parts);
}

void output_fini(struct output *output)
{
    buffer_fini(&output->bytes);
    while (!list_is_empty(&output->parts))
        part_free(part_first(output));
    output->sent = 0;
    output->pending = 0;
}

/* The front is given back when most of the buffer has been sent, so that a stream which never
 * becomes empty does not grow. */
static void output_compact(struct output *output)
{
    if (output->sent == output->bytes.length) {
        if (output->bytes.capacity > KEPT_BYTES)
            buffer_fini(&output->bytes);
        buffer_clear(&output->bytes);
        output->sent = 0;
    } else if (output->sent > KEPT_BYTES && output->sent > output->bytes.length / 2) {
        buffer_consume(&output->bytes, output->sent);
        output->sent = 0;
    }
}

int output_append(struct output *output, const void *data, size_t length)
{
    struct buffer *buffer = &output->bytes;

    if (!list_is_empty(&output->parts))
        buffer = &list_entry(output->parts.previous, struct output_part, link)->tail;
    if (buffer_append(buffer, data, length) < 0)
        return -1;
    output->pending += length;
    return 0;
}

int output_write(struct output *output, int socket, const void *data, size_t length)
{
    size_t waiting = output->bytes.length - output->sent;
    struct iovec pieces[2] = {
        { .iov_base = output->bytes.data + output->sent, .iov_len = waiting },
        { .iov_base = (void *)data, .iov_len = length },
    };
    struct msghdr message = { .msg_iov = waiting ? pieces : pieces + 1,
                              .msg_iovlen = waiting ? 2 : 1 };
    ssize_t sent;

    if (length < DIRECT_BYTES || waiting > DIRECT_BYTES || !list_is_empty(&output->parts))
        return output_append(output, data, length);
    sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 || (size_t)sent < waiting) {
        if (sent > 0) {
            output->sent += (size_t)sent;
            output->pending -= (size_t)sent;
        }
        return output_append(output, data, length);
    }
    output->sent += waiting;
    output->pending -= waiting;
    output_compact(output);
    sent -= (ssize_t)waiting;
    return output_append(output, (const char *)data + sent, length - (size_t)sent);
}

void output_append_file(struct output *output, int fd, int64_t offset, size_t length)
{
    struct output_part *part = xnew(struct output_part);

    *part = (struct output_part){
        .fd = fd,
        .offset = (off_t)offset,
        .left = length,
        .tail = BUFFER_INIT(output->bytes.maximum),
    };
    list_append(&output->parts, &part->link);
    output->pending += length;
}

static enum output_result result_of_errno(void)
{
    return errno == EAGAIN || errno == EINTR ? OUTPUT_BLOCKED : OUTPUT_BROKEN;
}

static enum output_result flush_bytes(struct output *output, int socket)
{
    int more = list_is_empty(&output->parts) ? 0 : MSG_MORE;

    while (output->sent < output->bytes.length) {
        size_t left = output->bytes.length - output->sent;
        ssize_t sent = send(socket, output->bytes.data + output->sent, left,
                            MSG_NOSIGNAL | MSG_DONTWAIT | more);

        if (sent < 0)
            return result_of_errno();
        output->sent += (size_t)sent;
        output->pending -= (size_t)sent;
        output_compact(output);
        if ((size_t)sent < left)
            return OUTPUT_BLOCKED;
    }
    return OUTPUT_EMPTY;
}

static enum output_result flush_file(struct output *output, struct output_part *part, int socket,
                                     size_t *budget)
{
    while (part->left) {
        ssize_t sent = *budget ? sendfile(socket, part->fd, &part->offset, MIN(part->left, *budget))
                               : -1;

        if (!*budget)
            return OUTPUT_BLOCKED;
        if (sent < 0)
            return result_of_errno();
        if (sent == 0)
            return OUTPUT_BROKEN;
        part->left -= (size_t)sent;
        output->pending -= (size_t)sent;
        *budget -= (size_t)sent;
    }
    return OUTPUT_EMPTY;
}

enum output_result output_flush(struct output *output, int socket)
{
    size_t budget = FILE_BYTES_PER_FLUSH;

    for (;;) {
        enum output_result result = flush_bytes(output, socket);
        struct output_part *part = part_first(output);

        if (result != OUTPUT_EMPTY || !part)
            return result;
        result = flush_file(output, part, socket, &budget);
        if (result != OUTPUT_EMPTY)
            return result;
        buffer_fini(&output->bytes);
        output->bytes = part->tail;
        part->tail = BUFFER_INIT(output->bytes.maximum);
        part_free(part);
    }
}
