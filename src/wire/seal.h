/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Sealed streams: a stream of bytes over a network that others share. The gate of a sandbox
 * (init/gate.h) and the daemon (backend/remote/line.h) prove to each other that they know the key
 * of the sandbox, and every byte behind that is encrypted and authenticated.
 *
 *     gate     GREETING   a nonce, and the versions that the gate speaks
 *     daemon   ANSWER     a nonce, and the version that the daemon has chosen
 *     daemon   record     empty: the proof
 *     gate     record     empty: the proof
 *     both     records    of content
 *
 * Each direction has a key of its own, HMAC-SHA-256 by the key of the sandbox of a purpose, GREETING
 * and ANSWER. So a connection has keys that no other has, and a changed byte of the handshake
 * changes them.
 *
 *     record   length of the content, 4 bytes | content | tag, 16 bytes
 *
 * A record is ChaCha20-Poly1305 with the length as additional data. Its nonce is its number in its
 * direction, from 0, which is not sent: a record that was changed, repeated, left out or moved has
 * the wrong tag, and the connection is over. The end of a stream is not authenticated: to bridge and
 * relay it is a cut, after which they resume by their counts.
 *
 * There is no forward secrecy: whoever records a connection and learns the key of the sandbox later
 * can read it. Integers are little-endian, nothing here allocates.
 */

#include "wire/aead.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SEAL_VERSION = 1,
    SEAL_NONCE_SIZE = 16,
    SEAL_HEAD = 4,
    SEAL_OVERHEAD = SEAL_HEAD + AEAD_TAG_SIZE,
    SEAL_MAX_CONTENT = 16 * 1024,
    SEAL_MAX_RECORD = SEAL_MAX_CONTENT + SEAL_OVERHEAD,
    SEAL_HANDSHAKE_MS = 5000,
};

#define SEAL_MAGIC "SGSL"

struct seal_greeting {
    char magic[4];   /* SEAL_MAGIC */
    uint16_t oldest; /* versions that the gate speaks */
    uint16_t newest;
    uint8_t nonce[SEAL_NONCE_SIZE];
};

struct seal_answer {
    uint16_t version;
    uint16_t reserved[3];
    uint8_t nonce[SEAL_NONCE_SIZE];
};

/* One direction. */
struct seal {
    uint8_t key[AEAD_KEY_SIZE];
    uint64_t number; /* of the next record */
};

enum seal_direction { SEAL_TO_SANDBOX, SEAL_TO_DAEMON };

void seal_init(struct seal *seal, const uint8_t key[AEAD_KEY_SIZE],
               const struct seal_greeting *greeting, const struct seal_answer *answer,
               enum seal_direction direction);

/* The content is behind the first SEAL_HEAD bytes of the record. Returns the length of the record. */
size_t seal_close(struct seal *seal, uint8_t *record, size_t content_length);

enum seal_result {
    SEAL_WHOLE,
    SEAL_PARTIAL, /* more bytes have to come */
    SEAL_BROKEN,  /* no record of this stream, or not the next one */
};

/* Opens the record that the bytes begin with, in place: its content is behind SEAL_HEAD bytes. */
enum seal_result seal_open(struct seal *seal, uint8_t *bytes, size_t length,
                           size_t *out_content_length);

/* --- buffers of a stream ---------------------------------------------------------------------- */

/* Content on its way into records, one at a time. Zeroed but for the seal it is empty. */
struct seal_writer {
    struct seal seal;
    size_t start; /* the bytes from here to `end` have to be sent */
    size_t end;
    uint8_t bytes[SEAL_MAX_RECORD];
};

static inline bool seal_writer_is_empty(const struct seal_writer *writer)
{
    return writer->start == writer->end;
}

/* Where content goes, SEAL_MAX_CONTENT bytes at most; of an empty writer. */
static inline uint8_t *seal_writer_room(struct seal_writer *writer)
{
    return writer->bytes + SEAL_HEAD;
}

void seal_writer_close(struct seal_writer *writer, size_t content_length);

/* Records that have come. Zeroed but for the seal it is empty. */
struct seal_reader {
    struct seal seal;
    size_t content; /* where the content of the record begins that was opened last */
    size_t left;    /* how much of it was not taken */
    size_t start;   /* of the bytes that were not opened */
    size_t end;
    uint8_t bytes[2 * SEAL_MAX_RECORD];
};

/* Where received bytes go, and how many at most: never 0 when seal_reader_next() has said that more
 * have to come. */
uint8_t *seal_reader_room(struct seal_reader *reader, size_t *out_room);
void seal_reader_add(struct seal_reader *reader, size_t length);

/* Opens records until there is content to take: SEAL_WHOLE. */
enum seal_result seal_reader_next(struct seal_reader *reader);
void seal_reader_take(struct seal_reader *reader, size_t length);
