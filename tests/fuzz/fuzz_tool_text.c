/* SPDX-License-Identifier: Apache-2.0 */
/* Lines and cuts of a text: pieces of any size give the same as the whole, and what is shown is
 * UTF-8 and no longer than it may be. Input: the size of the pieces, then the text. */

#include "base/str.h"
#include "tools/lines.h"
#include "tools/text.h"

#include <assert.h>
#include <string.h>

enum { LIMIT = 20, MARKER = 300 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_lines(struct lines *lines, const uint8_t *text, size_t length, size_t step)
{
    lines_init(lines, 2, 3, 8, LIMIT * 2);
    for (size_t at = 0; at < length; at += step)
        lines_feed(lines, text + at, MIN(step, length - at));
    lines_end(lines);
}

static void cut_text(struct buffer *out, const uint8_t *text, size_t length, size_t step)
{
    struct text_cut cut;

    text_cut_init(&cut, LIMIT);
    for (size_t at = 0; at < length; at += step)
        (void)text_cut_add(&cut, text + at, MIN(step, length - at));
    text_cut_write(&cut, NULL, out);
    assert(cut.bytes == length);
    text_cut_fini(&cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t step = size ? (size_t)(data[0] % 16) + 1 : 1;
    struct buffer out = BUFFER_INIT(size * 4 + 4096), whole = BUFFER_INIT(size * 4 + 4096);
    struct lines lines, all;

    if (size == 0)
        return 0;
    read_lines(&lines, data + 1, size - 1, step);
    read_lines(&all, data + 1, size - 1, size);
    assert(lines.number == all.number && lines.shown == all.shown && lines.shown <= 3);
    assert(strcmp(buffer_text(&lines.text), buffer_text(&all.text)) == 0);
    assert(lines.number == text_count_lines(data + 1, size - 1));
    lines_fini(&lines);
    lines_fini(&all);
    cut_text(&out, data + 1, size - 1, step);
    cut_text(&whole, data + 1, size - 1, size);
    assert(str_is_utf8((const char *)out.data, out.length));
    assert(text_count(out.data, out.length) <= LIMIT + MARKER);
    assert(out.length == whole.length &&
           (!out.length || !memcmp(out.data, whole.data, out.length)));
    buffer_fini(&out);
    buffer_fini(&whole);
    return 0;
}
