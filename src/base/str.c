/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include "base/alloc.h"
#include "base/scoped.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct unit {
    const char *suffix;
    uint64_t factor;
};

static const struct unit duration_units[] = {
    { "ms", 1 },        { "s", 1000 },
    { "m", 60 * 1000 }, { "h", 60 * 60 * 1000 },
    { "", 1000 },       { "d", 24 * 3600 * 1000 },
};

static const struct unit size_units[] = {
    { "", 1 },
    { "b", 1 },
    { "k", 1024 },
    { "kb", 1024 },
    { "m", 1024 * 1024 },
    { "mb", 1024 * 1024 },
    { "g", 1024 * 1024 * 1024 },
    { "gb", 1024 * 1024 * 1024 },
    { "t", 1024ULL * 1024 * 1024 * 1024 },
};

bool str_equal(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

bool str_starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool str_ends_with(const char *text, const char *suffix)
{
    size_t length = strlen(text);
    size_t tail = strlen(suffix);

    return length >= tail && strcmp(text + length - tail, suffix) == 0;
}

size_t str_utf8_sequence(const unsigned char *text, size_t left)
{
    static const uint32_t smallest[] = { 0, 0, 0x80, 0x800, 0x10000 };
    size_t length = text[0] < 0x80 ? 1 : text[0] >> 5 == 6 ? 2 : text[0] >> 4 == 14 ? 3 : 4;
    uint32_t code;

    if (length == 1)
        return text[0] != 0;
    if (length > left || (length == 4 && text[0] >> 3 != 30))
        return 0;
    code = text[0] & (0x7fU >> length);
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (text[i] & 0x3fU);
    }
    if (code < smallest[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return 0;
    return length;
}

bool str_is_utf8(const char *text, size_t length)
{
    for (size_t at = 0; at < length;) {
        size_t step = str_utf8_sequence((const unsigned char *)text + at, length - at);

        if (!step)
            return false;
        at += step;
    }
    return true;
}

size_t str_utf8_unfinished(const unsigned char *text, size_t length)
{
    for (size_t back = 1; back <= 3 && back <= length; back++) {
        unsigned char byte = text[length - back];
        size_t wants = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;

        if (byte == 0xc0 || byte == 0xc1 || byte > 0xf4)
            return 0; /* no sequence begins with it */
        if ((byte & 0xc0) != 0x80)
            return wants > back ? back : 0;
    }
    return 0;
}

unsigned str_distance(const char *a, const char *b)
{
    size_t width = MIN(strlen(b), (size_t)63);
    unsigned row[64];

    for (size_t j = 0; j <= width; j++)
        row[j] = (unsigned)j;
    for (size_t i = 0; a[i]; i++) {
        unsigned diagonal = row[0];

        row[0] = (unsigned)i + 1;
        for (size_t j = 1; j <= width; j++) {
            unsigned above = row[j];
            unsigned swap = diagonal + (a[i] != b[j - 1]);
            unsigned gap = MIN(above, row[j - 1]) + 1;

            row[j] = MIN(gap, swap);
            diagonal = above;
        }
    }
    return row[width];
}

int str_to_u64(const char *text, uint64_t *out_value)
{
    uint64_t value = 0;

    if (!*text)
        return -1;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return -1;
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
            return -1;
    }
    *out_value = value;
    return 0;
}

/* A decimal number, perhaps with a fraction, then exactly one of the units. */
static int parse_units(const char *text, const struct unit *units, size_t count, double *out_value)
{
    size_t digits = strspn(text, "0123456789.");
    double number;
    char *end;

    if (!digits || digits > 18 || text[0] == '.')
        return -1;
    number = strtod(text, &end);
    if (end != text + digits)
        return -1;
    for (size_t i = 0; i < count; i++) {
        if (strcasecmp(end, units[i].suffix) == 0) {
            *out_value = number * (double)units[i].factor;
            return *out_value < 9e15 ? 0 : -1;
        }
    }
    return -1;
}

/* "29m58s": one number after the other, each with its unit. */
static int parse_compound_duration(const char *text, double *out_ms)
{
    double total = 0;

    while (*text) {
        size_t length = strspn(text, "0123456789.");
        char part[24];
        double value;

        length += strcspn(text + length, "0123456789.");
        if (length >= sizeof(part))
            return -1;
        memcpy(part, text, length);
        part[length] = '\0';
        if (parse_units(part, duration_units, ARRAY_LENGTH(duration_units), &value) < 0)
            return -1;
        total += value;
        text += length;
    }
    *out_ms = total;
    return 0;
}

int str_to_duration_ms(const char *text, int64_t *out_ms, struct error *err)
{
    double value;

    if (!*text || parse_compound_duration(text, &value) < 0)
        return error_set(err, ERR_INVALID,
                         "\"%.40s\" is not a duration; write 90s, 30m, 4h or a number of seconds",
                         text);
    *out_ms = (int64_t)llround(value);
    return 0;
}

int str_to_size(const char *text, uint64_t *out_bytes, struct error *err)
{
    double value;

    if (parse_units(text, size_units, ARRAY_LENGTH(size_units), &value) < 0)
        return error_set(err, ERR_INVALID,
                         "\"%.40s\" is not a size; write 512m, 2g or a number of bytes", text);
    *out_bytes = (uint64_t)value;
    return 0;
}

void str_format_duration(int64_t ms, char text[STR_UNIT_SIZE])
{
    long long seconds = ms / 1000;

    if (ms < 1000)
        snprintf(text, STR_UNIT_SIZE, "%lldms", (long long)ms);
    else if (seconds < 60)
        snprintf(text, STR_UNIT_SIZE, "%llds", seconds);
    else if (seconds < 3600)
        snprintf(text, STR_UNIT_SIZE, "%lldm%llds", seconds / 60, seconds % 60);
    else
        snprintf(text, STR_UNIT_SIZE, "%lldh%lldm", seconds / 3600, seconds / 60 % 60);
}

void str_format_size(uint64_t bytes, char text[STR_UNIT_SIZE])
{
    static const char *const names[] = { "KB", "MB", "GB", "TB", "PB" };
    double value = (double)bytes / 1024;
    size_t unit = 0;

    if (bytes < 1024) {
        snprintf(text, STR_UNIT_SIZE, "%u B", (unsigned)bytes);
        return;
    }
    while (value >= 1024 && unit + 1 < ARRAY_LENGTH(names)) {
        value /= 1024;
        unit++;
    }
    snprintf(text, STR_UNIT_SIZE, "%.1f %s", value, names[unit]);
}

bool path_is_plain_name(const char *name)
{
    size_t length = strlen(name);

    return length > 0 && length <= 255 && !strchr(name, '/') && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

bool path_is_clean(const char *path)
{
    if (*path != '/')
        return false;
    if (!path[1])
        return true;
    while (*path == '/') {
        size_t length = strcspn(++path, "/");

        if (length == 0 || (length == 1 && path[0] == '.') ||
            (length == 2 && path[0] == '.' && path[1] == '.'))
            return false;
        path += length;
    }
    return true;
}

char *path_join(const char *dir, const char *name)
{
    return xasprintf("%s%s%s", dir, str_ends_with(dir, "/") ? "" : "/", name);
}

int path_make_dirs(const char *path, unsigned mode, struct error *err)
{
    scoped(free) char *copy = xstrdup(path);

    for (char *slash = copy + 1;; slash++) {
        slash += strcspn(slash, "/");
        bool last = !*slash;

        *slash = '\0';
        if (mkdir(copy, mode) < 0 && errno != EEXIST)
            return error_sys(err, "create %s", copy);
        if (last)
            return 0;
        *slash = '/';
    }
}
