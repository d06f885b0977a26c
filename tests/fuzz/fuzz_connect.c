/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever is taken for an envelope can be written again, and is the same bytes. Its message is undone
 * as gzip where it says so. */

#include "wire/http/connect.h"
#include "wire/http/gzip.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MAXIMUM = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const uint8_t *bytes, long length, const struct connect_envelope *envelope)
{
    scoped(buffer_fini) struct buffer again = BUFFER_INIT(MAXIMUM + CONNECT_ENVELOPE);
    scoped(buffer_fini) struct buffer plain = BUFFER_INIT(MAXIMUM);

    assert(envelope->length <= MAXIMUM);
    assert(connect_envelope_append(&again, envelope->flags, envelope->message, envelope->length) ==
           0);
    assert(again.length == (size_t)length && memcmp(again.data, bytes, again.length) == 0);
    if (envelope->flags & CONNECT_COMPRESSED)
        (void)gunzip_message(envelope->message, envelope->length, &plain);
    assert(plain.length <= MAXIMUM);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct connect_envelope envelope;
    long used;

    while ((used = connect_envelope_decode(data, size, MAXIMUM, &envelope)) > 0) {
        check(data, used, &envelope);
        data += used;
        size -= (size_t)used;
    }
    return 0;
}
