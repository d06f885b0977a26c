/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/str.h"
#include "tools/file.h"
#include "tools/lines.h"
#include "tools/match.h"
#include "tools/text.h"

#include <string.h>

enum {
    EDIT_MAXIMUM = 16 * 1024 * 1024,
    LINES_AROUND = 3, /* of what was changed are shown */
    LINES_SHOWN = 30,
    LINE_CHARACTERS = 500,
    SHOWN_CHARACTERS = 4000,
    PLACES_TOLD = 10,
};

struct editing {
    struct tool_work work;
    struct tool_call *call;
    const char *path, *old, *new; /* borrowed from the arguments */
    enum match_edit mode;
    struct file_reader reader;
    struct file_writer writer;
    struct matches matches;
    struct buffer edited;
    bool was_current; /* what the model has seen of it is what it was */
};

static void editing_release(struct tool_work *work)
{
    struct editing *editing = container_of(work, struct editing, work);

    file_reader_fini(&editing->reader);
    file_writer_fini(&editing->writer, editing->call->in_use ? editing->call->hold.agent : NULL);
    matches_fini(&editing->matches);
    buffer_fini(&editing->edited);
    free(editing);
}

static uint64_t line_of(const struct editing *editing, size_t match)
{
    size_t start = editing->matches.spans[match].start;

    return text_count_lines(editing->reader.content.data, start) +
           (start == 0 || editing->reader.content.data[start - 1] == '\n');
}

/* --- the answer ------------------------------------------------------------------------------ */

static void put_structured(struct editing *editing)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_text(&json, "path", editing->path);
    json_put_int(&json, "replacements", (int64_t)editing->matches.count);
    json_put_int(&json, "first_line", (int64_t)line_of(editing, 0));
    json_put_text(&json, "ignored", match_way_name(editing->matches.way));
    json_end_object(&json);
    editing->call->result.structured = buffer_steal_text(&text);
}

/* The first place as it is now. */
static void show_place(struct editing *editing)
{
    uint64_t line = line_of(editing, 0);
    uint64_t first = line > LINES_AROUND ? line - LINES_AROUND : 1;
    uint64_t count = line - first + text_count_lines(editing->new, strlen(editing->new)) +
                     LINES_AROUND + 1;
    struct lines lines;

    lines_init(&lines, first, MIN(count, (uint64_t)LINES_SHOWN), LINE_CHARACTERS, SHOWN_CHARACTERS);
    lines_feed(&lines, editing->edited.data, editing->edited.length);
    lines_end(&lines);
    tool_say(editing->call, "It is now:\n");
    buffer_append(&editing->call->text, lines.text.data, lines.text.length);
    lines_fini(&lines);
}

/* The text to find, as the call names it. */
static const char *old_name(const struct tool_call *call)
{
    return json_object_get(call->arguments, "old_str") ? "old_str" : "old";
}

static void on_committed(struct file_writer *writer)
{
    struct editing *editing = container_of(writer, struct editing, writer);
    struct tool_call *call = editing->call;
    const char *ignored = match_way_name(editing->matches.way);

    if (writer->err.code) {
        tool_fail_transfer(call, writer->sys_errno, &writer->err, editing->path);
        return;
    }
    if (editing->was_current)
        tool_memory_saw(tool_call_memory(call), editing->path, &writer->stat);
    put_structured(editing);
    tool_say(call, "Edited %s: %zu %s, the first in line %llu.", editing->path,
             editing->matches.count, editing->matches.count == 1 ? "place" : "places",
             (unsigned long long)line_of(editing, 0));
    if (ignored)
        tool_say(call,
                 " Note: %s is not in the file exactly; it was found by ignoring %s. Check "
                 "the result.",
                 old_name(call), ignored);
    if (!editing->was_current)
        tool_say(call, " Note: the file has changed since you read it; read it again before you "
                       "rely on the rest.");
    tool_say(call, "\n");
    show_place(editing);
    tool_finish(call);
}

/* --- the steps ------------------------------------------------------------------------------- */

static void on_opened(struct file_writer *writer)
{
    struct editing *editing = container_of(writer, struct editing, writer);
    struct protocol_version expected = file_version(&editing->reader.stat);

    if (writer->err.code ||
        file_writer_add(writer, editing->edited.data, editing->edited.length) < 0)
        tool_fail_transfer(editing->call, writer->sys_errno, &writer->err, editing->path);
    else
        file_writer_commit(writer, editing->call->hold.agent, FILE_EXPECT, &expected, on_committed);
}

static void fail_absent(struct editing *editing)
{
    size_t line = match_nearest_line(editing->reader.content.data, editing->reader.content.length,
                                     editing->old);

    if (line)
        tool_fail(editing->call,
                  "%s not found in %s. Its first line is line %zu, but what follows differs: "
                  "read from there.",
                  old_name(editing->call), editing->path, line);
    else
        tool_fail(editing->call, "%s not found in %s. Read it and copy the text from there.",
                  old_name(editing->call), editing->path);
}

static void fail_ambiguous(struct editing *editing)
{
    scoped(buffer_fini) struct buffer places = BUFFER_INIT(1024);

    for (size_t i = 0; i < editing->matches.count && i < PLACES_TOLD; i++)
        buffer_appendf(&places, "%s%llu", i ? ", " : "", (unsigned long long)line_of(editing, i));
    if (editing->matches.count > PLACES_TOLD)
        buffer_append_text(&places, ", …");
    tool_fail(editing->call,
              "%s appears %zu times in %s (lines %s). Use replace_all=true or provide more "
              "context.",
              old_name(editing->call), editing->matches.count, editing->path, buffer_text(&places));
}

static void apply(struct editing *editing)
{
    struct buffer *content = &editing->reader.content;

    matches_find(&editing->matches, content->data, content->length, editing->old);
    if (editing->matches.count == 0) {
        fail_absent(editing);
    } else if (editing->matches.count > 1 && !tool_boolean(editing->call, "replace_all")) {
        fail_ambiguous(editing);
    } else if (matches_apply(&editing->matches, editing->matches.count, editing->mode,
                             content->data, content->length, editing->new, &editing->edited) < 0) {
        tool_fail(editing->call, "%s would become larger than 16 MiB. Use bash for that.",
                  editing->path);
    } else {
        file_writer_open(&editing->writer, editing->call->hold.agent, editing->path, 0, on_opened);
    }
}

static void on_read(struct file_reader *reader)
{
    struct editing *editing = container_of(reader, struct editing, reader);
    struct tool_call *call = editing->call;
    enum tool_knowledge knowledge;

    if (reader->err.code) {
        tool_fail_transfer(call, reader->sys_errno, &reader->err, editing->path);
        return;
    }
    knowledge = tool_memory_knows(tool_call_memory(call), editing->path, &reader->stat);
    editing->was_current = knowledge == TOOL_SEEN;
    if (knowledge == TOOL_NEVER_SEEN)
        tool_fail(call, "File %s has not been read this session. Read it first.", editing->path);
    else
        apply(editing);
}

static enum match_edit mode_of(const char *name)
{
    if (str_equal(name, "append_after"))
        return MATCH_APPEND_AFTER;
    return str_equal(name, "prepend_before") ? MATCH_PREPEND_BEFORE : MATCH_REPLACE;
}

static void start_edit(struct tool_call *call)
{
    struct editing *editing = xnew(struct editing);

    editing->work.release = editing_release;
    editing->call = call;
    editing->path = tool_text(call, "path");
    editing->old = tool_text(call, "old");
    editing->new = tool_text(call, "new");
    editing->mode = mode_of(tool_text(call, "mode"));
    editing->edited = BUFFER_INIT(EDIT_MAXIMUM);
    call->work = &editing->work;
    if (editing->mode == MATCH_REPLACE && strcmp(editing->old, editing->new) == 0) {
        tool_fail(call, "old and new are the same: there is nothing to change.");
        return;
    }
    file_reader_start(&editing->reader, call->hold.agent, editing->path, EDIT_MAXIMUM, true,
                      on_read);
}

static const char *const modes[] = { "replace", "append_after", "prepend_before", NULL };

static const struct tool_argument edit_arguments[] = {
    { "path", TOOL_TEXT, TOOL_PATH_HELP, .required = true, .max_length = TOOL_PATH_MAXIMUM },
    { "old", TOOL_TEXT,
      "The text to find, as it is in the file, without line numbers. It has to be there once.",
      .required = true, .old_name = "old_str", .max_length = EDIT_MAXIMUM },
    { "new", TOOL_TEXT, "What to put in its place, or beside it.", .required = true,
      .may_be_empty = true, .max_length = EDIT_MAXIMUM, .old_name = "new_str" },
    { "replace_all", TOOL_BOOLEAN, "Change every place where old is.", .fallback = "false" },
    { "mode", TOOL_TEXT,
      "replace: new takes the place of old. append_after, prepend_before: new goes "
      "right behind or before it, as it is.",
      .fallback = "replace", .choices = modes },
    { 0 },
};

const struct tool tool_edit = {
    .name = "edit",
    .title = "Edit a file",
    .description =
        "Change a part of a file that you have read: old is looked for exactly, and if it is "
        "not there, with differences in spaces and typographic characters ignored, which is then "
        "told. It has to be unique unless replace_all is set; take more of the text around it if "
        "it is not. The file is replaced as a whole or not at all.",
    .arguments = edit_arguments,
    .needs_session = true,
    .is_destructive = true,
    .start = start_edit,
    .needs_sandbox = true,
};
