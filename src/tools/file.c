/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/file.h"

#include "base/str.h"
#include "tools/text.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

static const struct {
    int number;
    const char *text; /* with one %s for the path */
} failures[] = {
    { ENOENT, "There is no file %.300s. Look with ls or glob what there is." },
    { ENOTDIR, "A part of the path %.300s is not a directory." },
    { EISDIR, "%.300s is a directory. Use ls to see what is in it." },
    { EACCES, "Permission denied: %.300s." },
    { EPERM, "Not permitted: %.300s." },
    { EROFS, "%.300s is on a read-only file system. Write to the workspace or to /tmp." },
    { ENOSPC, "No space is left in the sandbox for %.300s. Remove what is not needed." },
    { EDQUOT, "No space is left in the sandbox for %.300s. Remove what is not needed." },
    { ENXIO, "%.300s is not a regular file." },
    { EINVAL, "%.300s is not a regular file, or not a valid path." },
    { EEXIST, "%.300s has just been made by something else. Read it first." },
    { ESTALE,
      "%.300s was changed by something else meanwhile; nothing was written. Read it again." },
};

void tool_fail_file(struct tool_call *call, int number, const char *path)
{
    struct error err = { 0 };

    for (size_t i = 0; i < ARRAY_LENGTH(failures); i++) {
        if (failures[i].number != number)
            continue;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        tool_fail(call, failures[i].text, path);
#pragma GCC diagnostic pop
        return;
    }
    file_error(&err, number, path);
    tool_fail_error(call, &err);
}

void tool_fail_transfer(struct tool_call *call, int number, const struct error *err,
                        const char *path)
{
    if (number)
        tool_fail_file(call, number, path);
    else
        tool_fail_error(call, err);
}

/* --- kinds ----------------------------------------------------------------------------------- */

static const struct {
    const char *magic;
    size_t length;
    const char *mime;
    bool is_image;
} magics[] = {
    { "\x89PNG\r\n\x1a\n", 8, "image/png", true },
    { "\xff\xd8\xff", 3, "image/jpeg", true },
    { "GIF8", 4, "image/gif", true },
    { "RIFF", 4, "image/webp", true }, /* with WEBP behind it */
    { "%PDF-", 5, "application/pdf", false },
    { "PK\x03\x04", 4, "application/zip", false },
    { "\x1f\x8b", 2, "application/gzip", false },
    { "\x7f"
      "ELF",
      4, "application/x-executable", false },
    { "SQLite format 3", 15, "application/vnd.sqlite3", false },
};

static const struct {
    const char *suffix, *mime;
} suffixes[] = {
    { ".png", "image/png" },
    { ".jpg", "image/jpeg" },
    { ".pdf", "application/pdf" },
    { ".zip", "application/zip" },
    { ".txt", "text/plain" },
    { ".md", "text/markdown" },
    { ".csv", "text/csv" },
    { ".html", "text/html" },
    { ".json", "application/json" },
    { ".svg", "image/svg+xml" },
    { ".py", "text/x-python" },
    { ".js", "text/javascript" },
    { ".css", "text/css" },
    { ".xml", "application/xml" },
    { ".yaml", "application/yaml" },
    { ".yml", "application/yaml" },
    { ".parquet", "application/vnd.apache.parquet" },
    { ".tar", "application/x-tar" },
};

static const char *find_magic(const void *bytes, size_t length, bool images_only)
{
    if (length == 0)
        return NULL;
    for (size_t i = 0; i < ARRAY_LENGTH(magics); i++) {
        if (length < magics[i].length || memcmp(bytes, magics[i].magic, magics[i].length) != 0)
            continue;
        if (str_equal(magics[i].mime, "image/webp") &&
            (length < 12 || memcmp((const char *)bytes + 8, "WEBP", 4) != 0))
            continue;
        return images_only && !magics[i].is_image ? NULL : magics[i].mime;
    }
    return NULL;
}

const char *tool_image_mime(const void *bytes, size_t length)
{
    return find_magic(bytes, length, true);
}

bool tool_is_binary(const void *bytes, size_t length)
{
    const uint8_t *text = bytes;
    size_t bad = 0;

    for (size_t at = 0; at < length;) {
        size_t step = str_utf8_sequence(text + at, length - at);

        if (text[at] == 0)
            return true;
        bad += step == 0;
        at += step ? step : 1;
    }
    return bad * 10 > length;
}

const char *tool_mime(const void *bytes, size_t length, const char *path)
{
    const char *mime = find_magic(bytes, length, false);
    const char *dot = strrchr(path, '.');

    for (size_t i = 0; !mime && dot && i < ARRAY_LENGTH(suffixes); i++) {
        if (strcasecmp(dot, suffixes[i].suffix) == 0)
            mime = suffixes[i].mime;
    }
    if (mime)
        return mime;
    return length == 0 || tool_is_binary(bytes, length) ? "application/octet-stream" : "text/plain";
}

struct tool_memory *tool_call_memory(const struct tool_call *call)
{
    return tool_memory_of(call->tools, call->hold.session);
}
