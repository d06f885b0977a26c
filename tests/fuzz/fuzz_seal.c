/* SPDX-License-Identifier: Apache-2.0 */
/* Records of a sealed stream, with one byte changed, and bytes that are no records: the reader gives
 * a beginning of what was sealed however the bytes are cut, all of it when none was changed, and
 * nothing that lies outside of what has come. */

#include "wire/seal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 5, LONGEST = 1024, MOST = LONGEST * (SEAL_OVERHEAD + 1) };

static struct seal make_seal(void)
{
    static const uint8_t key[AEAD_KEY_SIZE] = { 1 };
    static const struct seal_greeting greeting = { .magic = SEAL_MAGIC };
    static const struct seal_answer answer = { .version = 1 };
    struct seal seal;

    seal_init(&seal, key, &greeting, &answer, SEAL_TO_SANDBOX);
    return seal;
}

/* How many bytes of content came; `is_broken` when a record was not the next one. */
static size_t read_in_pieces(const uint8_t *stream, size_t size, size_t piece, uint8_t *out,
                             bool *is_broken)
{
    struct seal_reader *reader = calloc(1, sizeof *reader);
    enum seal_result result = SEAL_PARTIAL;
    size_t got = 0;

    assert(reader);
    reader->seal = make_seal();
    for (size_t done = 0; done < size && result != SEAL_BROKEN;) {
        size_t room;
        uint8_t *to = seal_reader_room(reader, &room);
        size_t length = size - done < piece ? size - done : piece;

        assert(room > 0);
        if (length > room)
            length = room;
        memcpy(to, stream + done, length);
        seal_reader_add(reader, length);
        done += length;
        while ((result = seal_reader_next(reader)) == SEAL_WHOLE) {
            size_t part = reader->left > 1000 ? 1000 : reader->left;

            assert(part > 0 && reader->content + reader->left <= reader->end);
            memcpy(out + got, reader->bytes + reader->content, part);
            got += part;
            seal_reader_take(reader, part);
        }
    }
    *is_broken = result == SEAL_BROKEN;
    free(reader);
    return got;
}

static size_t seal_all(const uint8_t *content, size_t size, size_t each, uint8_t *out)
{
    struct seal seal = make_seal();
    size_t end = 0;

    for (size_t done = 0; done < size;) {
        size_t length = size - done < each ? size - done : each;

        memcpy(out + end + SEAL_HEAD, content + done, length);
        end += seal_close(&seal, out + end, length);
        done += length;
    }
    return end;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *stream = malloc(MOST), *out = malloc(MOST);
    bool is_broken;
    size_t length, got;

    if (size >= HEAD && size <= LONGEST) {
        assert(stream && out);
        length = seal_all(data + HEAD, size - HEAD, (size_t)data[1] + 1, stream);
        if (length)
            stream[(data[2] | (size_t)data[3] << 8) % length] ^= data[4];
        got = read_in_pieces(stream, length, (size_t)data[0] + 1, out, &is_broken);
        assert(got <= size - HEAD && !memcmp(out, data + HEAD, got));
        assert(data[4] || (got == size - HEAD && !is_broken));
        got = read_in_pieces(data, size, (size_t)data[0] + 1, out, &is_broken);
        assert(got == 0);
    }
    free(stream);
    free(out);
    return 0;
}
