/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The spool of one stream: every byte a program wrote, by offset, in a file that outlives the run
 * and the daemon. Bytes go from the program's pipe into the file by splice(2): they are either
 * still in the pipe, which init keeps, or in the file, so a daemon killed at any instant loses
 * none; the file's size is the truth. There is no file until the first byte.
 *
 * Over the cap (exec.output_spool) the middle is dropped: head and tail stay, the hole is punched
 * out of the file, and is found there again after a restart. A follower that keeps reading is
 * waited for: the pipe is not drained further than the cap ahead of it, until it has stalled for
 * exec.stall_timeout. So a reader that reads gets every byte, and a reader that does not read stops
 * the program and other readers only for that time. A reader that vanishes, because its client or
 * the daemon was cut off, may come back within that time and finds its unread bytes; the file's
 * sticky bit shows the next daemon that the output had a reader. With SPOOL_BLOCK no byte is
 * dropped that no reader has been given: the pipe is not drained further than the cap ahead of the
 * readers, and the program waits.
 *
 * When more bytes are kept than the owner of the output has room for (on_kept), the cap becomes
 * smaller.
 *
 * When the spool cannot be written (disk full), the program is not stopped: its further bytes are
 * counted and dropped, and spool_error() says why.
 */

#include "base/error.h"
#include "base/id.h"
#include "base/list.h"
#include "core/output/spool_files.h"
#include "loop/loop.h"

#include <stdint.h>
#include <sys/types.h>

struct buffer;
struct stream_order;
struct spool;

typedef void spool_changed_fn(void *context);

/* The file has this many bytes more (or less); true when the file has too many. */
typedef bool spool_kept_fn(void *context, int64_t bytes);

/* The policy at the cap. */
enum spool_full {
    SPOOL_DROP,  /* the middle is dropped */
    SPOOL_BLOCK, /* the program waits for a reader */
    SPOOL_STOP,  /* as drop; the owner stops the program when spool_is_over() says so */
    SPOOL_FULL_KINDS
};

int spool_full_parse(const char *name); /* -1 for an unknown one */

struct spool_options {
    struct loop *loop;          /* borrowed */
    int directory;              /* borrowed: where spool files live */
    char name[SPOOL_NAME_SIZE]; /* of the file, may be in one directory, which is made if missing:
                                    "output/exe_….out" */
    uint64_t cap_bytes;
    int64_t stall_timeout_us;
    enum spool_full full;
    uint64_t recorded_bytes; /* bytes that came, by the record; 0 when that is not known */
    bool is_new; /* no earlier daemon has a file of this name: it is used for the first time */
    struct flows *flows;         /* borrowed: bytes are taken in their shares; NULL: no limit */
    const char *flow;            /* the name of its flow, borrowed for spool_new() */
    spool_changed_fn *on_change; /* new bytes, or the end; may be NULL */
    spool_kept_fn *on_kept;      /* may be NULL */
    spool_changed_fn *on_loss;   /* see spool_accept_loss(); NULL: accepted at once */
    void *context;
};

/* The file has failed, and on_loss was called, once. No byte is taken between the failure and this
 * call, so that the loss can be recorded before it happens. From now on bytes are counted and
 * dropped. */
void spool_accept_loss(struct spool *spool);

/* Finds the file of an earlier daemon if there is one. */
struct spool *spool_new(const struct spool_options *options);
void spool_free(struct spool *spool); /* NULL is fine; closes, keeps the file */
SCOPED_DEFINE(spool_free, struct spool);

/* From now on new bytes are reported to the order, which is borrowed; see stream_order.h. */
void spool_set_stream_order(struct spool *spool, struct stream_order *order, unsigned stream);

/* Starts reading from the pipe or terminal; takes over the descriptor. Continues at the file's
 * size. */
void spool_attach(struct spool *spool, int fd);

/* As spool_attach(), of a stream whose first byte from this pipe is known to have that offset: it is
 * resumed, with another pipe. Bytes that the file has already are skipped. Bytes between the file's
 * end and `base` are lost: they become a gap of the file, and spool_error() says so. A pipe that is
 * attached already is given up for this one, with the bytes in it: they come again. */
void spool_attach_at(struct spool *spool, int fd, uint64_t base);

/* As spool_attach(), for a descriptor that is known not to block; no byte is read before
 * spool_finish(). */
void spool_take(struct spool *spool, int fd, bool is_terminal);

/* The program has ended: the bytes that are in the pipe now are taken, then the output counts as
 * complete, even if a background child still holds the pipe. Such a child's later bytes are taken
 * too, until the pipe closes. */
void spool_finish(struct spool *spool);

/* As spool_finish(), of a program that has written `total` bytes, which may still be under way to
 * the pipe: the output counts as complete when that much has come. When the pipe ends before, the
 * output waits for another one, until spool_end_sources(). */
void spool_finish_at(struct spool *spool, uint64_t total);

/* No other pipe will be attached: bytes below the total that the last one did not give are lost, and
 * spool_error() says so. */
void spool_end_sources(struct spool *spool);
bool spool_is_finished(const struct spool *spool);
bool spool_is_closed(
    const struct spool *spool); /* the pipe has been read to its end, or was never there */

uint64_t spool_length(const struct spool *spool); /* bytes written by the program so far */

bool spool_is_over(const struct spool *spool); /* the program wrote more than the spool keeps */

/* The bytes that the program wrote and that cannot be read: the dropped middle, bytes that were lost
 * on their way, or bytes at the end that could not be kept. With several, the range from the first
 * to the last of them. */
bool spool_has_hole(const struct spool *spool, uint64_t *out_start, uint64_t *out_end);

/* The bytes that can be read at or after `offset`, up to the next hole or the end of the spool:
 * false when there are none (yet). */
bool spool_extent(const struct spool *spool, uint64_t offset, uint64_t *out_start,
                  uint64_t *out_end);

/* Why bytes are missing, other than those of the dropped middle; NULL when none are. */
const struct error *spool_error(const struct spool *spool);

/* Reading the spool has just failed, as errno says. */
void spool_note_unread(struct spool *spool);

/* Reads bytes of a range that spool_extent() has returned; -1 when they cannot be read, which is
 * noted. */
ssize_t spool_read(struct spool *spool, uint64_t start, void *bytes, size_t length);

/* A descriptor of the spool for reading, borrowed; -1 while nothing was written. */
int spool_fd(const struct spool *spool);

/* Whether bytes may be handed to a socket by reference, as sendfile(2) does: otherwise they could
 * be dropped before they are received. */
bool spool_may_be_sent(struct spool *spool);

/* Head and tail, at most `capture` bytes in all; *out_truncated if some are missing between them. A
 * marker line with the number of bytes left out stands between them. */
int spool_capture(struct spool *spool, size_t capture, struct buffer *text, bool *out_truncated);

/* --- followers ----------------------------------------------------------------------------- */

/* A reader that must not lose bytes: it says how far it has read. */
struct spool_follower {
    struct list node;
    uint64_t offset;
    uint64_t start; /* where it began */
    int64_t moved_at_us;

    /* The follower has stalled for too long and is no longer waited for: its unread bytes may be
     * dropped when this returns. May be NULL. */
    void (*on_stalled)(struct spool_follower *follower);
};

void spool_follow(struct spool *spool, struct spool_follower *follower, uint64_t offset);
void spool_follower_moved(struct spool *spool, struct spool_follower *follower, uint64_t offset);
void spool_unfollow(struct spool *spool, struct spool_follower *follower);

/* As spool_unfollow(), for a follower that has not read every byte it wanted: its offset is kept
 * for a while, until another follower comes. */
void spool_follower_vanished(struct spool *spool, struct spool_follower *follower);
