/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes in and out: upload and download. */

#include "base/alloc.h"
#include "base/str.h"
#include "tools/file.h"
#include "wire/base64.h"

#include <errno.h>
#include <string.h>

enum {
    UPLOAD_TEXT_MAXIMUM = 22 * 1024 * 1024, /* base64; a request holds 24 MiB */
    DOWNLOAD_MAXIMUM = 8 * 1024 * 1024,
    SNIFF_BYTES = 8192,
};

/* --- in -------------------------------------------------------------------------------------- */

struct upload {
    struct tool_work work;
    struct tool_call *call;
    const char *path; /* borrowed from the arguments */
    struct buffer bytes;
    struct file_writer writer;
};

static void upload_release(struct tool_work *work)
{
    struct upload *upload = container_of(work, struct upload, work);

    file_writer_fini(&upload->writer, upload->call->in_use ? upload->call->hold.agent : NULL);
    buffer_fini(&upload->bytes);
    free(upload);
}

static void on_uploaded(struct file_writer *writer)
{
    struct upload *upload = container_of(writer, struct upload, writer);
    struct tool_call *call = upload->call;
    char size[STR_UNIT_SIZE];

    if (writer->sys_errno == EEXIST) {
        tool_fail(call, "%s exists already. Use another path, or overwrite=true.", upload->path);
        return;
    }
    if (writer->err.code) {
        tool_fail_transfer(call, writer->sys_errno, &writer->err, upload->path);
        return;
    }
    str_format_size(writer->stat.size, size);
    tool_say(call, "Uploaded %s (%s).", upload->path, size);
    tool_add_file(call, upload->path,
                  tool_mime(upload->bytes.data, upload->bytes.length, upload->path),
                  writer->stat.size, NULL);
    tool_finish(call);
}

static void on_opened(struct file_writer *writer)
{
    struct upload *upload = container_of(writer, struct upload, writer);
    bool overwrites = tool_boolean(upload->call, "overwrite");

    if (writer->err.code || file_writer_add(writer, upload->bytes.data, upload->bytes.length) < 0)
        tool_fail_transfer(upload->call, writer->sys_errno, &writer->err, upload->path);
    else
        file_writer_commit(writer, upload->call->hold.agent, overwrites ? 0 : FILE_NO_REPLACE, NULL,
                           on_uploaded);
}

static void start_upload(struct tool_call *call)
{
    struct upload *upload = xnew(struct upload);
    const char *content = tool_text(call, "content");

    upload->work.release = upload_release;
    upload->call = call;
    upload->path = tool_text(call, "path");
    upload->bytes = BUFFER_INIT(UPLOAD_TEXT_MAXIMUM);
    call->work = &upload->work;
    if (base64_decode(content, strlen(content), &upload->bytes) < 0)
        tool_fail(call, "content is not base64. For text use write.");
    else
        file_writer_open(&upload->writer, call->hold.agent, upload->path, 0, on_opened);
}

static const struct tool_argument upload_arguments[] = {
    { "path", TOOL_TEXT, TOOL_PATH_HELP " Directories that are missing are made.", .required = true,
      .max_length = TOOL_PATH_MAXIMUM },
    { "content", TOOL_TEXT, "The bytes of the file as base64.", .required = true,
      .may_be_empty = true, .max_length = UPLOAD_TEXT_MAXIMUM },
    { "overwrite", TOOL_BOOLEAN, "Replace a file that is there.", .fallback = "false" },
    { 0 },
};

const struct tool tool_upload = {
    .name = "upload",
    .title = "Put a file into the sandbox",
    .description = "Put a file of any kind into the sandbox, from bytes as base64 (16 MiB at "
                   "most). For text use write.",
    .arguments = upload_arguments,
    .needs_session = true,
    .is_destructive = true,
    .is_idempotent = true,
    .start = start_upload,
    .needs_sandbox = true,
};

/* --- out ------------------------------------------------------------------------------------- */

struct download {
    struct tool_work work;
    struct tool_call *call;
    const char *path; /* borrowed from the arguments */
    struct file_reader reader;
};

static void download_release(struct tool_work *work)
{
    struct download *download = container_of(work, struct download, work);

    file_reader_fini(&download->reader);
    free(download);
}

/* Too large for a result: where it can be fetched from. Its beginning says what it is. */
static void refer_to(struct download *download)
{
    const struct file_reader *reader = &download->reader;
    struct tool_call *call = download->call;
    char size[STR_UNIT_SIZE];

    str_format_size(reader->stat.size, size);
    tool_say(call,
             "%s (%s) is too large to be sent along. It can be fetched with GET "
             "/api/v1/sessions/%s/files?path=…",
             download->path, size, call->session_id);
    tool_add_file(call, download->path,
                  tool_mime(reader->content.data, MIN(reader->content.length, (size_t)SNIFF_BYTES),
                            download->path),
                  reader->stat.size, NULL);
    tool_finish(call);
}

static void on_downloaded(struct file_reader *reader)
{
    struct download *download = container_of(reader, struct download, reader);
    struct tool_call *call = download->call;
    const char *mime;
    char size[STR_UNIT_SIZE];

    if (reader->err.code == ERR_TOO_LARGE) {
        refer_to(download);
        return;
    }
    if (reader->err.code) {
        tool_fail_transfer(call, reader->sys_errno, &reader->err, download->path);
        return;
    }
    mime = tool_mime(reader->content.data, reader->content.length, download->path);
    str_format_size(reader->content.length, size);
    tool_say(call, "%s (%s, %s) is attached.", download->path, mime, size);
    tool_add_file(call, download->path, mime, reader->content.length,
                  base64_encode(reader->content.data, reader->content.length));
    tool_finish(call);
}

static void start_download(struct tool_call *call)
{
    struct download *download = xnew(struct download);

    download->work.release = download_release;
    download->call = call;
    download->path = tool_text(call, "path");
    call->work = &download->work;
    file_reader_start(&download->reader, call->hold.agent, download->path, DOWNLOAD_MAXIMUM, false,
                      on_downloaded);
}

static const struct tool_argument download_arguments[] = {
    { "path", TOOL_TEXT, TOOL_PATH_HELP, .required = true, .max_length = TOOL_PATH_MAXIMUM },
    { 0 },
};

const struct tool tool_download = {
    .name = "download",
    .title = "Hand a file over",
    .description = "Hand a file of the sandbox over to the user: it is attached to the result (up "
                   "to 8 MiB; of larger ones you get where they can be fetched). To look at a "
                   "file yourself use read.",
    .arguments = download_arguments,
    .needs_session = true,
    .is_read_only = true,
    .is_idempotent = true,
    .start = start_download,
    .needs_sandbox = true,
};
