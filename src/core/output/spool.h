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
 * exec.stall_timeout. So a reader that reads gets everything, and one that does not stops nobody
 * for long. One that vanishes, because its client or the daemon was cut off, may come back within
 * that time and finds what it has not read; the file's sticky bit tells the next daemon that
 * somebody was reading. With OUTPUT_BLOCK nothing is dropped that no reader has been given: the
 * pipe is not drained further than the cap ahead of the readers, and the program waits.
 *
 * Where more is kept than the owner of the output has room for (on_kept), the cap becomes smaller.
 *
 * When the spool cannot be written (disk full), the program is not stopped: its further bytes are
 * counted and dropped, and output_error() says why.
 */

#include "base/error.h"
#include "base/id.h"
#include "base/list.h"
#include "loop/loop.h"

#include <stdint.h>
#include <sys/types.h>

struct buffer;
struct journal;
struct output;

typedef void output_changed_fn(void *context);

/* So many bytes more (or less) are in the file; true when there are too many. */
typedef bool output_kept_fn(void *context, int64_t bytes);

enum { OUTPUT_NAME_SIZE = ID_SIZE + 16 };

/* What happens at the cap. */
enum output_full {
    OUTPUT_DROP,  /* the middle is dropped */
    OUTPUT_BLOCK, /* the program waits for a reader */
    OUTPUT_STOP,  /* as drop; the owner stops the program when output_is_over() says so */
    OUTPUT_FULL_KINDS
};

int output_full_parse(const char *name); /* -1 for an unknown one */

struct output_options {
    struct loop *loop;           /* borrowed */
    int directory;               /* borrowed: where spool files live */
    char name[OUTPUT_NAME_SIZE]; /* of the file, may be below one folder, which is made if missing:
                                    "output/exe_….out" */
    uint64_t cap_bytes;
    int64_t stall_timeout_us;
    enum output_full full;
    uint64_t recorded_bytes; /* so much came, as its record says; 0 when that is not known */
    bool is_new; /* there is no file of an earlier daemon: nobody has used the name before */
    struct flows *flows; /* borrowed: whose shares its bytes are taken in; NULL: no limit */
    const char *flow;    /* the name of its flow, borrowed for output_new() */
    output_changed_fn *on_change; /* new bytes, or the end; may be NULL */
    output_kept_fn *on_kept;      /* may be NULL */
    output_changed_fn *on_loss;   /* see output_accept_loss(); NULL: nobody has to know */
    void *context;
};

/* The file has failed, and on_loss was called, once: nothing is taken until now, so that the loss
 * can be recorded before there is one. From now on bytes are counted and dropped. */
void output_accept_loss(struct output *output);

/* Finds the file of an earlier daemon if there is one. */
struct output *output_new(const struct output_options *options);
void output_free(struct output *output); /* NULL is fine; closes, keeps the file */
SCOPED_DEFINE(output_free, struct output);

/* From now on the journal, which is borrowed, is told what comes; see stream_order.h. */
void output_set_journal(struct output *output, struct journal *journal, unsigned stream);

/* Starts reading from the pipe or terminal; takes over the descriptor. Continues at the file's
 * size. */
void output_attach(struct output *output, int fd);

/* The same for one that is known not to block, but nothing is read before output_finish(). */
void output_take(struct output *output, int fd, bool is_terminal);

/* The program has ended: what is in the pipe now is taken, then the output counts as complete, even
 * if a background child still holds the pipe. Such a child's later bytes are taken too, until the
 * pipe closes. */
void output_finish(struct output *output);
bool output_is_finished(const struct output *output);
bool output_is_closed(
    const struct output *output); /* the pipe has been read to its end, or was never there */

uint64_t output_length(const struct output *output); /* bytes written by the program so far */

bool output_is_over(const struct output *output); /* more came than the spool keeps */

/* The bytes that came and cannot be read: the dropped middle, or what could not be kept at the end.
 * With both, all from the first to the last of them. */
bool output_has_hole(const struct output *output, uint64_t *out_start, uint64_t *out_end);

/* The bytes that can be read at or after `offset`, up to the next hole or the end of the spool:
 * false when there are none (yet). */
bool output_extent(const struct output *output, uint64_t offset, uint64_t *out_start,
                   uint64_t *out_end);

/* Why bytes are missing, other than those of the dropped middle; NULL when none are. */
const struct error *output_error(const struct output *output);

/* Reading the spool has just failed, as errno says. */
void output_note_unread(struct output *output);

/* Bytes that output_extent() has told of; -1 when they cannot be read, which is noted. */
ssize_t output_read(struct output *output, uint64_t start, void *bytes, size_t length);

/* A descriptor of the spool for reading, borrowed; -1 while nothing was written. */
int output_fd(const struct output *output);

/* Whether bytes may be handed to a socket by reference, as sendfile(2) does: otherwise they could
 * be dropped before they are received. */
bool output_may_be_sent(struct output *output);

/* Head and tail, at most `capture` bytes in all; *out_truncated if some are missing between them. A
 * marker line with the number of bytes left out stands between them. */
int output_capture(struct output *output, size_t capture, struct buffer *text, bool *out_truncated);

/* --- followers ----------------------------------------------------------------------------- */

/* A reader that must not lose bytes: it says how far it has read. */
struct output_follower {
    struct list node;
    uint64_t offset;
    uint64_t start; /* where it began */
    int64_t moved_at_us;

    /* It has stalled for too long and is no longer waited for: what it has not read may be dropped
     * when this returns. May be NULL. */
    void (*on_stalled)(struct output_follower *follower);
};

void output_follow(struct output *output, struct output_follower *follower, uint64_t offset);
void output_follower_moved(struct output *output, struct output_follower *follower,
                           uint64_t offset);
void output_unfollow(struct output *output, struct output_follower *follower);

/* As output_unfollow(), of one that has not read everything it wanted: its place is kept for a
 * while, until another follower comes. */
void output_follower_vanished(struct output *output, struct output_follower *follower);
