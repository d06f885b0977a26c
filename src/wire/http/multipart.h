/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * multipart/form-data as a pure function: bytes in, events out. The content of a part is handed
 * out as it stands in the caller's input, without a copy, so that parts may have any size; heads
 * of parts are bounded.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MULTIPART_BOUNDARY = 70, /* as in RFC 2046 */
    MULTIPART_HEAD = 16 * 1024,
    MULTIPART_NAME = 128,
    MULTIPART_FILENAME = 4096,
};

enum multipart_event {
    MULTIPART_MORE,     /* bytes that were not used have to come again, with more behind them */
    MULTIPART_PART,     /* a part begins: `name`, and `filename` if it is a file */
    MULTIPART_DATA,     /* bytes of it */
    MULTIPART_PART_END, /* it is complete */
    MULTIPART_DONE,     /* so is all of it */
    MULTIPART_BAD,      /* malformed, here and ever after */
};

struct multipart {
    char name[MULTIPART_NAME]; /* of the part; "" without one */
    char filename[MULTIPART_FILENAME];
    bool has_filename;

    enum multipart_state {
        MULTIPART_BEFORE, /* the first delimiter */
        MULTIPART_BEHIND, /* a delimiter */
        MULTIPART_IN_HEAD,
        MULTIPART_IN_DATA,
        MULTIPART_AFTER, /* the last one */
        MULTIPART_BROKEN,
    } state;                                /* private, here and below */
    char delimiter[MULTIPART_BOUNDARY + 8]; /* with the line break before it */
    size_t delimiter_length;
};

/* 0, or -1 when the Content-Type is not multipart/form-data with a boundary. */
int multipart_init(struct multipart *multipart, const char *content_type);

/* The next event; *out_used says how much of the input was consumed. With MULTIPART_DATA
 * *out_data and *out_length point into the input. Each event but MULTIPART_MORE asks for another
 * call. */
enum multipart_event multipart_next(struct multipart *multipart, const void *bytes, size_t length,
                                    size_t *out_used, const uint8_t **out_data, size_t *out_length);
