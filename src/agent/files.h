#pragma once

/*
 * Files of a sandbox, read and written through its init. The daemon never opens a path inside a
 * sandbox: init does, with the sandbox's rights, and hands a descriptor over.
 *
 * A reader takes a whole file into memory; a writer makes a new file that replaces the old one only
 * when it is complete. Both are embedded by the caller, call `done` once for each operation, from
 * the loop, and may be given up at any time.
 */

#include "agent/agent.h"
#include "base/buffer.h"
#include "base/error.h"
#include "wire/protocol.h"

#include <stdbool.h>

/* Turns an errno from init into an error that names the path. */
int file_error(struct error *err, int number, const char *path);

/* The version of the file that the stat describes, for FILE_EXPECT. */
static inline struct protocol_version file_version(const struct protocol_stat *stat)
{
    return (struct protocol_version){ stat->size, stat->inode, stat->modified_us };
}

/* --- reading --------------------------------------------------------------------------------- */

struct file_reader;
typedef void file_reader_fn(struct file_reader *reader);

struct file_reader {
    struct error err;          /* the failure, with the path; ERR_NONE otherwise */
    int sys_errno;             /* 0 when init did not report the failure */
    struct protocol_stat stat; /* of the file that was read */
    struct buffer content;     /* valid until file_reader_fini() */

    /* private */
    struct agent_request request;
    struct agent *agent;
    const char *path; /* borrowed */
    file_reader_fn *done;
};

/* A file that is larger than the maximum is ERR_TOO_LARGE. With `refuses_links` a symbolic link is
 * reported as a link, because a writer would replace the link and not the file. */
void file_reader_start(struct file_reader *reader, struct agent *agent, const char *path,
                       size_t maximum, bool refuses_links, file_reader_fn *done);
void file_reader_fini(struct file_reader *reader);

/* --- writing --------------------------------------------------------------------------------- */

struct file_writer;
typedef void file_writer_fn(struct file_writer *writer);

struct file_writer {
    struct error err;
    int sys_errno;
    struct protocol_stat stat; /* when committed: of the new file */

    /* private */
    struct agent_request request;
    struct agent *agent;
    const char *path; /* borrowed */
    int fd;           /* owned; -1 without */
    char *temporary;  /* owned; NULL without */
    file_writer_fn *done;
};

/* Parents are made; mode 0 takes that of the file to be replaced. */
void file_writer_open(struct file_writer *writer, struct agent *agent, const char *path,
                      uint32_t mode, file_writer_fn *done);

/* After `done` without an error. -1 with err when the data does not fit. */
int file_writer_add(struct file_writer *writer, const void *data, size_t length);

/* Flags: FILE_NO_REPLACE, FILE_SYNC, and FILE_EXPECT with the version that is to be replaced. */
void file_writer_commit(struct file_writer *writer, uint32_t flags,
                        const struct protocol_version *expected, file_writer_fn *done);

/* Removes a file that was not committed. The agent is NULL when it is gone already. */
void file_writer_fini(struct file_writer *writer, struct agent *agent);
