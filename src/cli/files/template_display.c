/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "cli/files/template.h"

#include <unistd.h>

enum { TERMINAL_EVERY_US = 200 * 1000, PIPE_EVERY_US = 3 * 1000 * 1000 };

static void describe(const struct template_display *display,
                     const struct template_progress *progress, int64_t now_us, struct buffer *line)
{
    static const char *const verbs[] = {
        [TEMPLATE_READING] = "reading the archive",
        [TEMPLATE_DOWNLOADING] = "downloading",
        [TEMPLATE_UNPACKING] = "unpacking",
    };
    double seconds = (double)(now_us - display->began_us) / 1e6;
    char size[STR_UNIT_SIZE];

    buffer_append_text(line, verbs[progress->phase]);
    if (progress->layers)
        buffer_appendf(line, " layer %u of %u", progress->layer, progress->layers);
    str_format_size(progress->done, size);
    buffer_appendf(line, ": %s", size);
    if (progress->total) {
        str_format_size(progress->total, size);
        buffer_appendf(line, " of %s, %.0f%%", size,
                       100 * (double)progress->done / (double)progress->total);
    }
    if (seconds > 0.1 && progress->done > display->first.done) {
        str_format_size((uint64_t)((double)(progress->done - display->first.done) / seconds), size);
        buffer_appendf(line, ", %s/s", size);
    }
}

static void on_progress(void *user, const struct template_progress *progress)
{
    scoped(buffer_fini) struct buffer line = BUFFER_INIT(512);
    struct template_display *display = user;
    int64_t now_us = clock_now_us(&clock_system);

    if (progress->phase != display->first.phase || progress->done < display->first.done) {
        display->first = *progress;
        display->began_us = now_us;
    }
    /* The configuration of an image, which is small. */
    if (progress->phase == TEMPLATE_DOWNLOADING && !progress->layers)
        return;
    if (now_us - display->told_us < (display->is_terminal ? TERMINAL_EVERY_US : PIPE_EVERY_US))
        return;
    display->told_us = now_us;
    buffer_append_text(&line, display->is_terminal ? "\r" : "sandglass: ");
    describe(display, progress, now_us, &line);
    buffer_append_text(&line, display->is_terminal ? "\033[K" : "\n");
    display->is_dirty = true;
    (void)fd_write_all(STDERR_FILENO, line.data, line.length);
}

void template_display_begin(struct template_display *display, const struct cli *cli,
                            struct template_options *options)
{
    *display = (struct template_display){
        .is_shown = !cli->json,
        .is_terminal = isatty(STDERR_FILENO),
        .began_us = clock_now_us(&clock_system),
    };
    display->told_us = display->began_us;
    options->on_progress = display->is_shown ? on_progress : NULL;
    options->user = display;
}

void template_display_end(struct template_display *display)
{
    if (display->is_terminal && display->is_dirty)
        (void)fd_write_all(STDERR_FILENO, "\r\033[K", 4);
    display->is_dirty = false;
}
