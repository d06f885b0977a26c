/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/str.h"
#include "tools/file.h"
#include "tools/lines.h"
#include "tools/text.h"
#include "wire/base64.h"

#include <errno.h>

enum {
    LINES_DEFAULT = 2000,
    LINE_CHARACTERS = 4000,
    STEP_BYTES = 1024 * 1024, /* in one turn of the loop */
    SNIFF_BYTES = 8192,
    IMAGE_MAXIMUM = 5 * 1024 * 1024,
    COUNTED_MAXIMUM = 64 * 1024 * 1024, /* files up to this size are read to their end */
    SCANNED_MAXIMUM = 1024 * 1024 * 1024,
};

struct reading {
    struct tool_work work;
    struct tool_call *call;
    const char *path; /* borrowed from the arguments */
    struct file_source source;
    struct protocol_stat stat;
    struct lines lines;
    struct buffer head; /* the first bytes, until they say what it is */
    struct buffer image;
    bool has_begun, is_image;
    uint64_t read_bytes;
};

static void reading_release(struct tool_work *work)
{
    struct reading *reading = container_of(work, struct reading, work);

    file_source_fini(&reading->source);
    lines_fini(&reading->lines);
    buffer_fini(&reading->head);
    buffer_fini(&reading->image);
    free(reading);
}

/* --- what it was ----------------------------------------------------------------------------- */

static void put_structured(struct reading *reading, const char *kind)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);
    const struct lines *lines = &reading->lines;

    json_begin_object(&json, NULL);
    json_put_text(&json, "path", reading->path);
    json_put_text(&json, "kind", kind);
    json_put_int(&json, "size", (int64_t)reading->stat.size);
    if (str_equal(kind, "text")) {
        json_put_int(&json, "first_line", lines->shown ? (int64_t)lines->first : 0);
        json_put_int(&json, "lines", (int64_t)lines->shown);
        json_put_int(&json, "lines_cut", (int64_t)lines->cut);
        json_put_bool(&json, "truncated", lines->number >= lines->first + lines->shown);
    }
    json_end_object(&json);
    reading->call->result.structured = buffer_steal_text(&text);
}

static void end_image(struct reading *reading)
{
    struct tool_call *call = reading->call;
    const char *mime = tool_image_mime(reading->image.data, reading->image.length);
    char size[STR_UNIT_SIZE];

    str_format_size(reading->stat.size, size);
    put_structured(reading, "image");
    tool_say(call, "%s is an image (%s, %s).", reading->path, mime, size);
    tool_add_image(call, mime, base64_encode(reading->image.data, reading->image.length));
    tool_memory_saw(tool_call_memory(call), reading->path, &reading->stat);
    tool_finish(call);
}

static void end_binary(struct reading *reading, const uint8_t *bytes, size_t length)
{
    char size[STR_UNIT_SIZE];

    str_format_size(reading->stat.size, size);
    put_structured(reading, "binary");
    tool_say(reading->call,
             "%s is not text (%s, %s). Look at it with bash (file, xxd, strings), with python, or "
             "get it with download.",
             reading->path, tool_mime(bytes, length, reading->path), size);
    tool_memory_saw(tool_call_memory(reading->call), reading->path, &reading->stat);
    tool_finish(reading->call);
}

static void say_rest(struct reading *reading, bool is_at_end)
{
    const struct lines *lines = &reading->lines;
    unsigned long long last = lines->first + lines->shown - 1;
    char size[STR_UNIT_SIZE];

    if (lines->number <= last)
        return;
    str_format_size(reading->stat.size, size);
    tool_say(reading->call, "\n[lines %llu to %llu of %s%llu are shown%s; go on with offset=%llu]",
             (unsigned long long)lines->first, last, is_at_end ? "" : "more than ",
             (unsigned long long)lines->number,
             lines->is_full ? ", as many as fit into 25,000 characters" : "", last + 1);
}

static void end_text(struct reading *reading, bool is_at_end)
{
    struct tool_call *call = reading->call;
    struct lines *lines = &reading->lines;

    if (is_at_end)
        lines_end(lines);
    put_structured(reading, "text");
    if (lines->shown == 0 && lines->first > 1) {
        tool_fail(call, "%s has only %llu lines; offset=%llu is behind its end.", reading->path,
                  (unsigned long long)lines->number, (unsigned long long)lines->first);
        return;
    }
    tool_memory_saw(tool_call_memory(call), reading->path, &reading->stat);
    if (lines->shown == 0)
        tool_say(call, "(%s is empty)", reading->path);
    buffer_append(&call->text, lines->text.data, lines->text.length);
    say_rest(reading, is_at_end);
    tool_finish(call);
}

/* --- step by step ---------------------------------------------------------------------------- */

/* By its first bytes; true when that is all that is needed. */
static bool sniff(struct reading *reading, const uint8_t *bytes, size_t length)
{
    reading->has_begun = true;
    reading->is_image = tool_image_mime(bytes, length) && reading->stat.size <= IMAGE_MAXIMUM;
    if (reading->is_image || !tool_is_binary(bytes, MIN(length, (size_t)SNIFF_BYTES)))
        return false;
    end_binary(reading, bytes, length);
    return true;
}

static void on_ready(struct file_source *source);

static void take(struct reading *reading, const uint8_t *bytes, size_t length)
{
    if (reading->is_image) {
        if (buffer_append(&reading->image, bytes, length) < 0) {
            tool_fail(reading->call, "%s grows while it is read. Try again.", reading->path);
            return;
        }
    } else {
        lines_feed(&reading->lines, bytes, length);
        if (lines_are_done(&reading->lines) && reading->stat.size > COUNTED_MAXIMUM) {
            end_text(reading, false);
            return;
        }
    }
    reading->read_bytes += length;
    if (reading->read_bytes > SCANNED_MAXIMUM)
        tool_fail(reading->call,
                  "line %llu of %s is too far behind its beginning. Use bash: tail -c, or sed -n.",
                  (unsigned long long)reading->lines.first, reading->path);
    else
        file_source_wait(&reading->source, on_ready);
}

/* There are enough of the first bytes, or these are all. */
static void begin(struct reading *reading)
{
    if (reading->head.length == 0)
        end_text(reading, true);
    else if (!sniff(reading, reading->head.data, reading->head.length))
        take(reading, reading->head.data, reading->head.length);
}

static void gather_head(struct reading *reading)
{
    size_t wanted = (size_t)MIN(reading->stat.size, (uint64_t)SNIFF_BYTES);
    uint8_t bytes[SNIFF_BYTES];
    ssize_t count = file_source_read(&reading->source, bytes, sizeof(bytes) - reading->head.length);

    if (count < 0 && errno != EINTR && errno != EAGAIN) {
        tool_fail_file(reading->call, errno, reading->path);
        return;
    }
    if (count > 0)
        (void)buffer_append(&reading->head, bytes, (size_t)count);
    if (count == 0 || (reading->head.length && reading->head.length >= wanted))
        begin(reading);
    else
        file_source_wait(&reading->source, on_ready);
}

/* One step: others have their turn before the next one. */
static void on_ready(struct file_source *source)
{
    static uint8_t bytes[STEP_BYTES];
    struct reading *reading = container_of(source, struct reading, source);
    ssize_t count;

    if (!reading->has_begun) {
        gather_head(reading);
        return;
    }
    count = file_source_read(source, bytes, sizeof(bytes));
    if (count < 0 && errno != EINTR && errno != EAGAIN)
        tool_fail_file(reading->call, errno, reading->path);
    else if (count == 0 && reading->is_image)
        end_image(reading);
    else if (count == 0)
        end_text(reading, true);
    else
        take(reading, bytes, count > 0 ? (size_t)count : 0);
}

static void on_opened(struct file_source *source)
{
    struct reading *reading = container_of(source, struct reading, source);

    reading->stat = source->stat;
    if (source->err.code)
        tool_fail_transfer(reading->call, source->sys_errno, &source->err, reading->path);
    else
        file_source_wait(source, on_ready);
}

static void start_read(struct tool_call *call)
{
    struct reading *reading = xnew(struct reading);

    reading->work.release = reading_release;
    reading->call = call;
    reading->path = tool_text(call, "path");
    reading->head = BUFFER_INIT(SNIFF_BYTES);
    reading->image = BUFFER_INIT(IMAGE_MAXIMUM);
    lines_init(&reading->lines, (uint64_t)tool_integer(call, "offset"),
               (uint64_t)tool_integer(call, "limit"), LINE_CHARACTERS, TOOL_OUTPUT_CHARACTERS);
    call->work = &reading->work;
    file_source_open(&reading->source, call->hold.agent, reading->path, NULL, on_opened);
}

static const struct tool_argument read_arguments[] = {
    { "path", TOOL_TEXT, TOOL_PATH_HELP, .required = true, .max_length = TOOL_PATH_MAXIMUM },
    { "offset", TOOL_INTEGER, "The first line to show, counted from 1.", .fallback = "1",
      .minimum = 1, .maximum = INT32_MAX },
    { "limit", TOOL_INTEGER, "How many lines to show.", .fallback = "2000", .minimum = 1,
      .maximum = 100000 },
    { 0 },
};

const struct tool tool_read = {
    .name = "read",
    .title = "Read a file",
    .description =
        "Read a file of the sandbox: its lines with their numbers (not part of the file), up to "
        "2000 lines or 25,000 characters; go on with offset. Lines over 4000 characters are cut. "
        "Images (PNG, JPEG, GIF, WebP) come as images. Read a file before you overwrite or edit "
        "it.",
    .arguments = read_arguments,
    .needs_session = true,
    .is_read_only = true,
    .is_idempotent = true,
    .start = start_read,
    .needs_sandbox = true,
};
