/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The send queue of a socket: bytes, and pieces of files, which are sent by sendfile() without
 * passing through user space. The order is preserved.
 */

#include "base/buffer.h"
#include "base/list.h"

#include <stdint.h>

struct send_queue {
    struct buffer bytes; /* sent first */
    size_t sent;         /* of the bytes */
    struct list parts;   /* files, each with the bytes behind it */
    size_t pending;      /* all that is not sent yet */
};

enum send_queue_result {
    SEND_QUEUE_EMPTY,
    SEND_QUEUE_BLOCKED, /* try again when the socket is writable */
    SEND_QUEUE_BROKEN   /* the peer is gone, or a file is shorter than promised */
};

void send_queue_init(struct send_queue *queue, size_t maximum_bytes);
void send_queue_fini(struct send_queue *queue);

/* 0, or -1 when the maximum would be passed. */
int send_queue_append(struct send_queue *queue, const void *data, size_t length);

/* As send_queue_append(), but bytes that the socket takes at once are not copied. */
int send_queue_write(struct send_queue *queue, int socket, const void *data, size_t length);

/* Takes the descriptor over. */
void send_queue_append_file(struct send_queue *queue, int fd, int64_t offset, size_t length);

/* Sends until the socket is full; of files a bounded amount, so that other connections have their
 * turn. */
enum send_queue_result send_queue_flush(struct send_queue *queue, int socket);
