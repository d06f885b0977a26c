/* SPDX-License-Identifier: Apache-2.0 */
/* A text in a file, however it is meant: the spans are in order inside of the content, and what an
 * edit leaves is as long as they say. Input: the text, a NUL, the content. */

#include "tools/match.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *text, const uint8_t *content, size_t length)
{
    struct buffer out = BUFFER_INIT(length + 16);
    struct matches matches;
    size_t taken = 0, end = 0;

    matches_find(&matches, content, length, text);
    for (size_t i = 0; i < matches.count; i++) {
        assert(matches.spans[i].length > 0 && matches.spans[i].start >= end);
        end = matches.spans[i].start + matches.spans[i].length;
        taken += matches.spans[i].length;
        if (matches.way == MATCH_EXACT)
            assert(memcmp(content + matches.spans[i].start, text, strlen(text)) == 0);
    }
    assert(end <= length);
    assert(matches_apply(&matches, matches.count, MATCH_REPLACE, content, length, "", &out) == 0);
    assert(out.length == length - taken);
    (void)match_nearest_line(content, length, text);
    matches_fini(&matches);
    buffer_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *separator = size ? memchr(data, 0, size) : NULL;

    if (separator)
        check((const char *)data, separator + 1, size - (size_t)(separator + 1 - data));
    return 0;
}
