/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/audit.h"

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WINDOW = 8 * 1024 * 1024 };

/* The end of the file from a line's beginning on; allocated, NULL on error. */
static char *read_end(const char *path, size_t *out_length, struct error *err)
{
    scoped(fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    off_t start = size > WINDOW ? size - WINDOW : 0;
    scoped(free) char *text = NULL;
    size_t length = 0;
    char *line;

    if (size < 0) {
        error_sys(err, "read the audit log");
        return NULL;
    }
    text = xmalloc((size_t)(size - start) + 1);
    while ((off_t)length < size - start) {
        ssize_t count =
            pread(fd, text + length, (size_t)(size - start) - length, start + (off_t)length);

        if (count <= 0)
            break;
        length += (size_t)count;
    }
    text[length] = '\0';
    line = start ? memchr(text, '\n', length) : NULL;
    if (line) {
        length -= (size_t)(line + 1 - text);
        memmove(text, line + 1, length + 1);
    }
    *out_length = length;
    return steal_ptr(&text);
}

/* The newest lines with this text in them, whose beginnings go into `lines` in order. */
static size_t find_lines(char *text, size_t length, const char *mark, char **lines, size_t maximum)
{
    size_t found = 0, mark_length = strlen(mark);
    char *end = text + length;

    for (char *line = text; line < end;) {
        char *stop = memchr(line, '\n', (size_t)(end - line));

        if (!stop)
            break; /* it is being written */
        if (memmem(line, (size_t)(stop - line), mark, mark_length)) {
            *stop = '\0';
            lines[found++ % maximum] = line;
        }
        line = stop + 1;
    }
    return found;
}

int audit_tail(const char *path, const char *session_id, size_t maximum, struct buffer *out,
               struct error *err)
{
    scoped(free) char *mark = xasprintf("\"session\":\"%s\"", session_id);
    scoped(free) char **lines = xcalloc(maximum, sizeof(*lines));
    scoped(free) char *text = NULL;
    size_t length, found, shown;

    text = read_end(path, &length, err);
    if (!text)
        return -1;
    found = find_lines(text, length, mark, lines, maximum);
    shown = found < maximum ? found : maximum;
    buffer_append_byte(out, '[');
    for (size_t i = found - shown; i < found; i++)
        buffer_appendf(out, "%s%s", i == found - shown ? "" : ",", lines[i % maximum]);
    buffer_append_byte(out, ']');
    return out->overflowed ? error_set(err, ERR_TOO_LARGE, "the audit entries are too long") : 0;
}
