#pragma once

/*
 * What waits to be sent on a socket: bytes, and pieces of files that go out by sendfile without
 * passing through user space. Order is kept.
 */

#include "base/buffer.h"
#include "base/list.h"

#include <stdint.h>

struct output {
    struct buffer bytes; /* sent first */
    size_t sent;         /* of the bytes */
    struct list parts;   /* files, each with the bytes behind it */
    size_t pending;      /* all that is not sent yet */
};

enum output_result {
    OUTPUT_EMPTY,
    OUTPUT_BLOCKED, /* try again when the socket is writable */
    OUTPUT_BROKEN   /* the peer is gone, or a file is shorter than promised */
};

void output_init(struct output *output, size_t maximum_bytes);
void output_fini(struct output *output);

/* 0, or -1 when the maximum would be passed. */
int output_append(struct output *output, const void *data, size_t length);

/* As output_append(), but what the socket takes now is never copied. */
int output_write(struct output *output, int socket, const void *data, size_t length);

/* Takes the descriptor over. */
void output_append_file(struct output *output, int fd, int64_t offset, size_t length);

/* Sends what the socket takes; of files a bounded amount, so that others have their turn. */
enum output_result output_flush(struct output *output, int socket);
