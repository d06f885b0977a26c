/* SPDX-License-Identifier: Apache-2.0 */
/* What a daemon may send: whatever init takes for a message, its texts end inside of it, and
 * writing it again gives the same bytes. */

#include "wire/protocol.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const char *strings[PROTOCOL_MAX_STRINGS + 2];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text, const char *message, size_t length)
{
    assert(text >= message && text + strlen(text) < message + length);
}

static void check_again(const void *message, size_t length, const void *again, long again_length)
{
    assert(again_length == (long)length);
    assert(!memcmp(message, again, length));
}

static void check_start(const char *message, size_t length, char *again)
{
    struct protocol_start_texts texts;
    const struct protocol_start *start = protocol_start_decode(message, length, strings, &texts);

    if (!start)
        return;
    check_text(texts.user, message, length);
    check_text(texts.cwd, message, length);
    check_text(texts.script_path, message, length);
    for (uint32_t i = 0; i < start->argc; i++)
        check_text(texts.argv[i], message, length);
    for (uint32_t i = 0; i < start->envc; i++)
        check_text(texts.env[i], message, length);
    assert(!texts.argv[start->argc] && !texts.env[start->envc]);
    check_again(message, length, again,
                protocol_start_encode(again, PROTOCOL_MAX_MESSAGE, start, &texts));
}

static void check_file(const char *message, size_t length)
{
    struct protocol_file_texts texts;

    if (!protocol_file_decode(message, length, &texts))
        return;
    check_text(texts.user, message, length);
    check_text(texts.path, message, length);
    check_text(texts.second, message, length);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static _Alignas(8) char again[PROTOCOL_MAX_MESSAGE];
    char *message = malloc(size ? size : 1);
    const char *user;
    const char *path;

    assert(message);
    memcpy(message, data, size);
    if (size >= sizeof(struct protocol_header))
        ((struct protocol_header *)(void *)message)->length = (uint32_t)size;
    (void)protocol_peek(message, size);
    check_start(message, size, again);
    check_file(message, size);
    if (protocol_connect_decode(message, size, &user, &path)) {
        check_text(user, message, size);
        check_text(path, message, size);
    }
    (void)protocol_signal_decode(message, size);
    (void)protocol_resize_decode(message, size);
    (void)protocol_plain_decode(message, size);
    (void)protocol_forget_many_decode(message, size);
    free(message);
    return 0;
}
