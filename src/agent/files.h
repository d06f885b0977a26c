/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Files of a sandbox, read and written through its init. The daemon never opens a path inside a
 * sandbox: init does, with the sandbox's rights.
 *
 * Init on this kernel hands a descriptor of the file over; of a sandbox that is elsewhere the content
 * comes through a pipe, and goes through a socket. Which of the two it is, is decided here alone
 * (files_pass() in files.c), and no caller sees it.
 *
 * A source gives chosen bytes of a file, one piece after another; a reader takes a whole file into
 * memory; a writer makes a new file that replaces the old one only when it is complete. They are
 * embedded by the caller, call `done` once for each operation, from the loop, and may be given up
 * at any time.
 */

#include "agent/agent.h"
#include "base/buffer.h"
#include "base/error.h"
#include "loop/loop.h"
#include "wire/protocol.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Turns an errno from init into an error that names the path. */
int file_error(struct error *err, int number, const char *path);

/* The version of the file that the stat describes, for FILE_EXPECT. */
static inline struct protocol_version file_version(const struct protocol_stat *stat)
{
    return (struct protocol_version){ stat->size, stat->inode, stat->modified_us };
}

/* The user for whom content is read or written. */
struct file_actor {
    const char *user; /* borrowed, as long as the path is; "" is the default user of the sandbox */
    uint32_t flags;   /* FILE_BY_ROOT, or 0 */
};

/* --- asking --------------------------------------------------------------------------------- */

/* A request for content. Init has few streams at a time, of which a slow client can hold one for
 * long: where it refuses one more, it is asked again for a while. Private to the next three. */
struct file_ask {
    struct agent_request request; /* the answer */
    struct agent_file file;       /* its texts are borrowed */
    struct agent *agent;          /* borrowed while the request is open */
    agent_done_fn *done;
    struct timer again;
    unsigned attempts;
};

/* --- a source -------------------------------------------------------------------------------- */

struct file_source;
typedef void file_source_fn(struct file_source *source);

/* Sets source->offset and source->length by source->stat; false when no bytes are wanted. It may be
 * called again, when the file has changed before it could be opened. */
typedef bool file_choose_fn(struct file_source *source);

struct file_source {
    struct error err;          /* the failure, with the path; ERR_NONE otherwise */
    int sys_errno;             /* 0 when init did not report the failure */
    struct protocol_stat stat; /* of the whole file, in the version that is read */
    uint64_t offset, length;   /* the bytes that were chosen; at first all of them */
    int fd; /* owned: a regular file, to be read from `offset`, or a pipe that begins there; -1
               when no bytes were wanted, and after a failure */

    /* private */
    struct file_ask ask;
    struct agent *agent; /* borrowed while a request is open */
    struct file_actor actor;
    const char *path; /* borrowed */
    file_choose_fn *choose;
    file_source_fn *done, *on_ready;
    bool is_pipe;
    unsigned attempts;
    uint64_t position; /* of the next byte */
    struct io_watch pipe;
    struct timer next; /* the same for a regular file: others have their turn between two pieces */
};

/* `choose` is NULL for all of the file. The path is borrowed until file_source_fini(). */
void file_source_open(struct file_source *source, struct agent *agent, const char *path,
                      file_choose_fn *choose, file_source_fn *done);

/* The same for a user of the sandbox. */
void file_source_open_as(struct file_source *source, struct agent *agent,
                         const struct file_actor *actor, const char *path, file_choose_fn *choose,
                         file_source_fn *done);

/* The next bytes: how many they are, 0 at the end, -1 with errno: EAGAIN when there are none yet,
 * EIO when fewer came than the file has. Without `choose` the end is that of the file, which may have
 * grown. */
ssize_t file_source_read(struct file_source *source, void *bytes, size_t size);

/* Calls `on_ready` once, when the next read will not give EAGAIN; never inside of this call. */
void file_source_wait(struct file_source *source, file_source_fn *on_ready);
void file_source_fini(struct file_source *source); /* also of zeros */

/* --- reading --------------------------------------------------------------------------------- */

struct file_reader;
typedef void file_reader_fn(struct file_reader *reader);

struct file_reader {
    struct error err;          /* the failure, with the path; ERR_NONE otherwise */
    int sys_errno;             /* 0 when init did not report the failure */
    struct protocol_stat stat; /* of the file that was read */
    struct buffer content;     /* valid until file_reader_fini(); the beginning of one too large */

    /* private */
    struct agent_request request;
    struct file_source source;
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

/* A state leads only to later ones. */
enum file_writer_state {
    WRITER_UNUSED,
    WRITER_OPENING,
    WRITER_OPEN,
    WRITER_SENDING,    /* committed by the caller: the last bytes go to init */
    WRITER_CONFIRMING, /* init says whether all of it is in the file */
    WRITER_COMMITTING, /* init renames it */
    WRITER_DONE,
    WRITER_FAILED,
};

struct file_writer {
    struct error err;
    int sys_errno;
    struct protocol_stat stat; /* when committed: of the new file */
    file_writer_fn *on_room;   /* a full writer takes more, or has failed. May be NULL */
    const char *attributes;    /* set before the commit: see FILE_COMMIT; borrowed, NULL without */

    /* private */
    enum file_writer_state state;
    struct file_ask opening;
    struct agent_request request; /* after it has been opened */
    struct file_actor actor;
    const char *path; /* borrowed */
    int file;         /* owned: a regular file; -1 without */
    char *temporary;  /* owned; NULL without */
    file_writer_fn *done;

    bool is_streamed;
    struct loop *loop; /* borrowed */

    /* of a writer that is streamed */
    struct io_watch socket; /* its fd is owned; -1 without */
    struct buffer pending;  /* bytes that wait for the socket */
    struct buffer notes;    /* notes of init, perhaps incomplete */
    uint64_t sent;
    struct deferred failure;          /* of a commit after it has failed */
    struct agent *agent;              /* borrowed while its end is attended to */
    uint32_t flags;                   /* of the commit */
    struct protocol_version expected; /* of the commit */
};

/* Parents are made; mode 0 takes that of the file to be replaced. `on_room` can be set after. */
void file_writer_open(struct file_writer *writer, struct agent *agent, const char *path,
                      uint32_t mode, file_writer_fn *done);

/* The same for a user of the sandbox. */
void file_writer_open_as(struct file_writer *writer, struct agent *agent,
                         const struct file_actor *actor, const char *path, uint32_t mode,
                         file_writer_fn *done);

/* After `done` without an error. -1 with err when the data does not fit, or the writer has failed
 * before. Bytes that the socket does not take at once are copied. */
int file_writer_add(struct file_writer *writer, const void *data, size_t length);

/* The caller should wait for on_room before it adds more. */
bool file_writer_is_full(const struct file_writer *writer);

/* Flags: FILE_NO_REPLACE, FILE_SYNC, and FILE_EXPECT with the version that is to be replaced. The
 * agent is that of the sandbox now, perhaps another one than that of file_writer_open(); with NULL it
 * fails, as it does when the writer has failed before. */
void file_writer_commit(struct file_writer *writer, struct agent *agent, uint32_t flags,
                        const struct protocol_version *expected, file_writer_fn *done);

/* Removes a file that was not committed. The agent is NULL when it is gone already. */
void file_writer_fini(struct file_writer *writer, struct agent *agent);
