/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/seal.h"

#include "wire/sha256.h"

#include <string.h>

_Static_assert((int)AEAD_KEY_SIZE == (int)SHA256_SIZE, "a MAC is a key");
_Static_assert(sizeof(struct seal_greeting) == 24 && sizeof(struct seal_answer) == 24,
               "as they are sent");

void seal_init(struct seal *seal, const uint8_t key[AEAD_KEY_SIZE],
               const struct seal_greeting *greeting, const struct seal_answer *answer,
               enum seal_direction direction)
{
    static const char purposes[][32] = {
        [SEAL_TO_SANDBOX] = "sandglass gate: to the sandbox",
        [SEAL_TO_DAEMON] = "sandglass gate: to the daemon",
    };
    struct hmac hmac;

    hmac_init(&hmac, key, AEAD_KEY_SIZE);
    hmac_add(&hmac, purposes[direction], sizeof purposes[direction]);
    hmac_add(&hmac, greeting, sizeof *greeting);
    hmac_add(&hmac, answer, sizeof *answer);
    hmac_finish(&hmac, seal->key);
    explicit_bzero(&hmac, sizeof hmac);
    seal->number = 0;
}

static void next_nonce(struct seal *seal, uint8_t nonce[AEAD_NONCE_SIZE])
{
    memset(nonce, 0, AEAD_NONCE_SIZE);
    memcpy(nonce + AEAD_NONCE_SIZE - sizeof seal->number, &seal->number, sizeof seal->number);
    seal->number++;
}

size_t seal_close(struct seal *seal, uint8_t *record, size_t content_length)
{
    uint32_t length = (uint32_t)content_length;
    uint8_t nonce[AEAD_NONCE_SIZE];

    memcpy(record, &length, SEAL_HEAD);
    next_nonce(seal, nonce);
    aead_encrypt(seal->key, nonce, record, SEAL_HEAD, record + SEAL_HEAD, content_length,
                 record + SEAL_HEAD + content_length);
    return content_length + SEAL_OVERHEAD;
}

enum seal_result seal_open(struct seal *seal, uint8_t *bytes, size_t length,
                           size_t *out_content_length)
{
    uint8_t nonce[AEAD_NONCE_SIZE];
    uint32_t content;

    if (length < SEAL_HEAD)
        return SEAL_PARTIAL;
    memcpy(&content, bytes, SEAL_HEAD);
    if (content > SEAL_MAX_CONTENT)
        return SEAL_BROKEN;
    if (length < content + SEAL_OVERHEAD)
        return SEAL_PARTIAL;
    next_nonce(seal, nonce);
    if (!aead_decrypt(seal->key, nonce, bytes, SEAL_HEAD, bytes + SEAL_HEAD, content,
                      bytes + SEAL_HEAD + content))
        return SEAL_BROKEN;
    *out_content_length = content;
    return SEAL_WHOLE;
}

/* --- buffers of a stream ---------------------------------------------------------------------- */

void seal_writer_close(struct seal_writer *writer, size_t content_length)
{
    writer->start = 0;
    writer->end = seal_close(&writer->seal, writer->bytes, content_length);
}

/* A part of a record moves to the front, so that the rest of it fits behind. */
uint8_t *seal_reader_room(struct seal_reader *reader, size_t *out_room)
{
    if (!reader->left && reader->start) {
        memmove(reader->bytes, reader->bytes + reader->start, reader->end - reader->start);
        reader->end -= reader->start;
        reader->start = 0;
    }
    *out_room = sizeof reader->bytes - reader->end;
    return reader->bytes + reader->end;
}

void seal_reader_add(struct seal_reader *reader, size_t length)
{
    reader->end += length;
}

enum seal_result seal_reader_next(struct seal_reader *reader)
{
    while (!reader->left) {
        size_t length;
        enum seal_result result = seal_open(&reader->seal, reader->bytes + reader->start,
                                            reader->end - reader->start, &length);

        if (result != SEAL_WHOLE)
            return result;
        reader->content = reader->start + SEAL_HEAD;
        reader->left = length;
        reader->start += length + SEAL_OVERHEAD;
    }
    return SEAL_WHOLE;
}

void seal_reader_take(struct seal_reader *reader, size_t length)
{
    reader->content += length;
    reader->left -= length;
}
