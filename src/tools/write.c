/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "tools/file.h"
#include "tools/text.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

enum { CONTENT_MAXIMUM = 16 * 1024 * 1024 };

struct writing {
    struct tool_work work;
    struct tool_call *call;
    const char *path, *content; /* borrowed from the arguments */
    struct agent_request request;
    struct file_writer writer;
    uint32_t flags;
    struct protocol_version expected;
};

static void writing_release(struct tool_work *work)
{
    struct writing *writing = container_of(work, struct writing, work);

    agent_cancel(&writing->request);
    file_writer_fini(&writing->writer, writing->call->in_use ? writing->call->hold.agent : NULL);
    free(writing);
}

static void put_structured(struct writing *writing, uint64_t lines)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_text(&json, "path", writing->path);
    json_put_int(&json, "size", (int64_t)writing->writer.stat.size);
    json_put_int(&json, "lines", (int64_t)lines);
    json_put_bool(&json, "created", writing->flags & FILE_NO_REPLACE);
    json_end_object(&json);
    writing->call->result.structured = buffer_steal_text(&text);
}

static void on_committed(struct file_writer *writer)
{
    struct writing *writing = container_of(writer, struct writing, writer);
    struct tool_call *call = writing->call;
    uint64_t lines = text_count_lines(writing->content, strlen(writing->content));
    char bytes[TEXT_NUMBER_SIZE];

    if (writer->err.code) {
        tool_fail_transfer(call, writer->sys_errno, &writer->err, writing->path);
        return;
    }
    tool_memory_saw(tool_call_memory(call), writing->path, &writer->stat);
    put_structured(writing, lines);
    tool_say(call, "Wrote %s: %llu lines, %s bytes, %s.", writing->path, (unsigned long long)lines,
             text_number(writer->stat.size, bytes),
             writing->flags & FILE_NO_REPLACE ? "a new file" : "in place of the old content");
    tool_finish(call);
}

static void on_opened(struct file_writer *writer)
{
    struct writing *writing = container_of(writer, struct writing, writer);

    if (writer->err.code || file_writer_add(writer, writing->content, strlen(writing->content)) < 0)
        tool_fail_transfer(writing->call, writer->sys_errno, &writer->err, writing->path);
    else
        file_writer_commit(writer, writing->call->hold.agent, writing->flags, &writing->expected,
                           on_committed);
}

static void replace(struct writing *writing, const struct protocol_stat *stat)
{
    switch (tool_memory_knows(tool_call_memory(writing->call), writing->path, stat)) {
    case TOOL_NEVER_SEEN:
        tool_fail(writing->call,
                  "File %s exists but has not been read this session. Read it first, or use edit "
                  "for targeted changes.",
                  writing->path);
        return;
    case TOOL_SEEN_OTHERWISE:
        tool_fail(writing->call,
                  "File %s has changed since it was read. Read it again before overwriting it, or "
                  "use edit for targeted changes.",
                  writing->path);
        return;
    case TOOL_SEEN:
        writing->flags = FILE_EXPECT;
        writing->expected = file_version(stat);
        file_writer_open(&writing->writer, writing->call->hold.agent, writing->path, 0, on_opened);
        return;
    }
}

static void on_looked_at(struct agent_request *request)
{
    struct writing *writing = container_of(request, struct writing, request);
    const struct protocol_stat *stat = &request->result.file.stat;

    if (request->sys_errno == ENOENT) {
        writing->flags = FILE_NO_REPLACE;
        file_writer_open(&writing->writer, writing->call->hold.agent, writing->path, 0, on_opened);
    } else if (request->err.code) {
        tool_fail_transfer(writing->call, request->sys_errno, &request->err, writing->path);
    } else if (S_ISLNK(stat->mode)) {
        tool_fail(writing->call,
                  "%s is a symbolic link. Write to the file that it leads to (ls shows which).",
                  writing->path);
    } else if (!S_ISREG(stat->mode)) {
        tool_fail_file(writing->call, S_ISDIR(stat->mode) ? EISDIR : ENXIO, writing->path);
    } else {
        replace(writing, stat);
    }
}

static void start_write(struct tool_call *call)
{
    struct writing *writing = xnew(struct writing);
    struct agent_file file = { .kind = FILE_STAT, .user = "", .flags = FILE_NO_FOLLOW };

    writing->work.release = writing_release;
    writing->call = call;
    writing->path = tool_text(call, "path");
    writing->content = tool_text(call, "content");
    call->work = &writing->work;
    file.path = writing->path;
    agent_file(call->hold.agent, &file, &writing->request, on_looked_at);
}

static const struct tool_argument write_arguments[] = {
    { "path", TOOL_TEXT, TOOL_PATH_HELP " Directories that are missing are made.", .required = true,
      .max_length = TOOL_PATH_MAXIMUM },
    { "content", TOOL_TEXT, "All of the new content.", .required = true, .may_be_empty = true,
      .max_length = CONTENT_MAXIMUM },
    { 0 },
};

const struct tool tool_write = {
    .name = "write",
    .title = "Write a file",
    .description =
        "Make a file in the sandbox, or replace all of its content at once. A file that exists "
        "has to be read before it is overwritten, and again when something else has changed it "
        "since. For a change in a part of it use edit.",
    .arguments = write_arguments,
    .needs_session = true,
    .is_destructive = true,
    .is_idempotent = true,
    .start = start_write,
    .needs_sandbox = true,
};
