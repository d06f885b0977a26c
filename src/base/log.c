/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/str.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* A field's text is cut, so that a line always fits and its JSON stays whole. */
enum { TEXT_MAXIMUM = 1024, LINE_MAXIMUM = 256 * 1024 };

static atomic_int log_minimum = LOG_INFO;
static enum log_format log_style = LOG_TEXT;
static int log_fd = STDERR_FILENO;

static const char *const level_names[] = {
    [LOG_DEBUG] = "debug",
    [LOG_INFO] = "info",
    [LOG_WARN] = "warn",
    [LOG_ERROR] = "error",
};

void log_setup(enum log_level level, enum log_format format, int fd)
{
    atomic_store(&log_minimum, (int)level);
    log_style = format;
    log_fd = fd;
}

bool log_enabled(enum log_level level)
{
    return (int)level >= atomic_load_explicit(&log_minimum, memory_order_relaxed);
}

/* One character; returns its length. Control characters never reach the log as they are: a field
 * cannot forge a line. */
static size_t append_character(struct buffer *line, const unsigned char *at, size_t left)
{
    size_t length = str_utf8_sequence(at, left);

    if (!length)
        buffer_append_text(line, "\xef\xbf\xbd");
    else if (*at == '"' || *at == '\\')
        buffer_appendf(line, "\\%c", *at);
    else if (*at < 0x20 || *at == 0x7f)
        buffer_appendf(line, "\\u%04x", *at);
    else
        buffer_append(line, at, length);
    return MAX(length, (size_t)1);
}

static void append_quoted(struct buffer *line, const char *text)
{
    size_t length = strlen(text);
    size_t shown = MIN(length, (size_t)TEXT_MAXIMUM);

    buffer_append_byte(line, '"');
    for (size_t at = 0; at < shown;)
        at += append_character(line, (const unsigned char *)text + at, length - at);
    buffer_append_text(line, shown < length ? "...\"" : "\"");
}

/* Plain characters only: anything that could be taken for something else is quoted. */
static bool text_is_bare(const char *text)
{
    size_t length = 0;

    for (; text[length] > ' ' && text[length] < 0x7f && length < TEXT_MAXIMUM; length++)
        if (strchr("\"\\=", text[length]))
            return false;
    return length > 0 && !text[length];
}

static void append_value(struct buffer *line, const struct log_field *field)
{
    switch (field->kind) {
    case LOG_KIND_TEXT:
        if (!field->value.text)
            buffer_append_text(line, log_style == LOG_JSON ? "null" : "-");
        else if (log_style == LOG_TEXT && text_is_bare(field->value.text))
            buffer_append_text(line, field->value.text);
        else
            append_quoted(line, field->value.text);
        break;
    case LOG_KIND_INT:
        buffer_appendf(line, "%lld", (long long)field->value.integer);
        break;
    case LOG_KIND_UINT:
        buffer_appendf(line, "%llu", (unsigned long long)field->value.natural);
        break;
    case LOG_KIND_DOUBLE:
        buffer_appendf(line, "%.6g", field->value.number);
        break;
    case LOG_KIND_BOOL:
        buffer_append_text(line, field->value.truth ? "true" : "false");
        break;
    }
}

static void append_json(struct buffer *line, const char *time, enum log_level level,
                        const char *event, const struct log_field *fields, size_t count)
{
    buffer_appendf(line, "{\"time\":\"%s\",\"level\":\"%s\",\"event\":", time, level_names[level]);
    append_quoted(line, event);
    for (size_t i = 0; i < count; i++) {
        buffer_append_byte(line, ',');
        append_quoted(line, fields[i].key);
        buffer_append_byte(line, ':');
        append_value(line, &fields[i]);
    }
    buffer_append_byte(line, '}');
}

static void append_plain(struct buffer *line, const char *time, enum log_level level,
                         const char *event, const struct log_field *fields, size_t count)
{
    buffer_appendf(line, "%s %-5s %s", time, level_names[level], event);
    for (size_t i = 0; i < count; i++) {
        buffer_appendf(line, " %s=", fields[i].key);
        append_value(line, &fields[i]);
    }
}

void log_event(enum log_level level, const char *event, const struct log_field *fields,
               size_t count)
{
    scoped(buffer_fini) struct buffer line = BUFFER_INIT(LINE_MAXIMUM);
    char time[CLOCK_TEXT_SIZE];

    clock_format(clock_wall_us(&clock_system), time);
    if (log_style == LOG_JSON)
        append_json(&line, time, level, event, fields, count);
    else
        append_plain(&line, time, level, event, fields, count);
    buffer_append_byte(&line, '\n');
    (void)!write(log_fd, line.data, line.length);
}

enum { REPEAT_US = 10 * 1000 * 1000 };

bool log_repeat_is_due(struct log_repeat *repeat, int64_t now_us, uint64_t *out_left_out)
{
    if (now_us < repeat->next_us) {
        repeat->left_out++;
        return false;
    }
    *out_left_out = repeat->left_out;
    *repeat = (struct log_repeat){ .next_us = now_us + REPEAT_US };
    return true;
}
