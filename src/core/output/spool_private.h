/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Declarations shared by the sources of spool.h: spool.c, its life and its followers; spool_file.c,
 * the file and the bytes dropped from it; spool_gap.c, bytes that were lost before they came;
 * spool_room.c, room in it for a terminal; spool_take.c, from the pipe or terminal into the file.
 */

#include "core/output/spool.h"
#include "loop/flow.h"

enum {
    PAGE_BYTES = 4096,
    READ_BYTES = 8 * 1024,    /* in one read from a terminal, which has half as much at most */
    AHEAD_BYTES = 256 * 1024, /* room made in the file for reads from a terminal */
    LEAST_AHEAD_BYTES = 16 * 1024,
    ON_ITS_WAY_BYTES = 8 * 1024 * 1024, /* sent to a follower, and perhaps not received */

    /* Sockets that bytes were sent to refer to the very pages of the file. A hole takes whole
     * folios of the page cache away, which does them no harm, but it fills the rest of a folio that
     * it cuts with zeros. No folio is larger than this. */
    FOLIO_BYTES = 4 * 1024 * 1024,
};

/* The loss of bytes when the file cannot take them any more. Until the loss is accepted the bytes
 * stay where they are. */
enum spool_loss {
    LOSS_NONE,
    LOSS_FOUND,
    LOSS_TOLD, /* reported to on_loss */
    LOSS_ACCEPTED,
};

/* How far the output of the program is. From running it is finishing or expecting, then finished; a
 * source that is closed while finishing has finished. */
enum spool_phase {
    SPOOL_RUNNING,
    SPOOL_FINISHING, /* the program has ended; bytes up to finish_at are still in the pipe */
    SPOOL_EXPECTING, /* the program has ended; bytes up to finish_at are still to come */
    SPOOL_FINISHED,  /* its bytes are complete; those of a background child may follow */
};

/* How bytes leave the source. */
enum spool_source {
    SOURCE_PIPE,     /* by splice(2) */
    SOURCE_COPIED,   /* a pipe that splice(2) refuses: through memory */
    SOURCE_TERMINAL, /* through memory; it says when it has no bytes, not how many it has */
};

/* Offsets of bytes; start and end are the same where there are none. */
struct spool_range {
    uint64_t start, end;
};

/* At the end of the file, as memory. */
struct spool_room {
    char *memory; /* owned; NULL without */
    uint64_t start;
    size_t length;
};

struct spool {
    struct spool_options options;
    struct io_watch source;     /* fd: the pipe or terminal, owned; -1 without */
    struct flow_source share;   /* of the turns of the loop */
    struct timer stall;         /* armed while the pipe waits for a follower */
    struct stream_order *order; /* borrowed; may be NULL */
    unsigned stream;            /* its index in the order */
    struct list followers;
    uint64_t passed;             /* by the reader that has come furthest */
    struct spool_follower ghost; /* offset of a vanished follower; not linked without one */
    int file;                    /* owned; -1 until the first byte */
    uint64_t length;             /* bytes that came */
    uint64_t stored;             /* bytes of them that are in the file: all, unless it failed */
    uint64_t hole_start;         /* where the dropped middle begins and ends; both 0 without one */
    uint64_t hole_end;
    struct spool_range gap; /* bytes that were lost before they came */
    struct error *lost;     /* owned: why bytes never came; NULL when all did */
    uint64_t skip;          /* bytes that the source gives first and that are in the file already */
    uint64_t finish_at;  /* complete when this much has come, or in FINISHING the pipe is empty */
    uint64_t cap_bytes;  /* as in the options, or less */
    uint64_t told_bytes; /* reported to on_kept */
    unsigned busy_turns;
    unsigned rests;         /* of a terminal, before it is watched again */
    struct spool_room room; /* of a terminal that writes */
    bool is_sent;           /* sockets may refer to pages of the file */
    bool is_marked;         /* as being followed, by the sticky bit */
    bool is_grown;
    bool is_ahead;        /* marked: the file may be longer than its bytes, by zeros */
    bool is_waiting;      /* for a reader: the source is not watched */
    bool has_last_source; /* no other one will be attached */
    enum spool_phase phase;
    enum spool_source kind; /* of the source */
    enum spool_loss loss;
    struct error error;  /* of writing: nothing is kept any more */
    struct error unread; /* of reading */
};

/* --- spool_file.c --------------------------------------------------------------------------- */

void spool_write_marks(const struct spool *spool); /* for the next daemon */

/* Finds the bytes that an earlier daemon wrote, with the hole that it punched. */
void spool_find_earlier(struct spool *spool);

/* The record counts more bytes than the file has. */
void spool_note_missing(struct spool *spool);

/* 0 also when the file exists already. */
int spool_create_file(struct spool *spool);

/* Whether bytes that no reader has passed must not be lost. */
bool spool_is_blocking(const struct spool *spool);

void spool_drop_middle(struct spool *spool);
void spool_keep_quota(struct spool *spool);

/* --- spool_gap.c ---------------------------------------------------------------------------- */

/* The next byte that comes has this offset, which is larger than the length: those before are lost.
 */
void spool_note_gap(struct spool *spool, uint64_t next);

/* The source has ended for good before the total was reached. */
void spool_lose_rest(struct spool *spool);

/* The gap that an earlier daemon has noted. */
void spool_find_gap(struct spool *spool);
uint64_t spool_gap_bytes(const struct spool *spool); /* of it, outside the dropped middle */

/* --- spool_room.c --------------------------------------------------------------------------- */

/* Where the next READ_BYTES of a terminal go; NULL without room. */
char *spool_make_room(struct spool *spool);

/* Cuts the file to the length of its bytes. */
void spool_cut_room(struct spool *spool);

/* --- spool_take.c --------------------------------------------------------------------------- */

void spool_close_source(struct spool *spool);

/* There is no source, and bytes up to the total are expected: they have come, another source will
 * give them, or they are lost. */
void spool_end_early(struct spool *spool);
void spool_watch_source(struct spool *spool);
void spool_continue_source(struct spool *spool);
void spool_mark_followed(struct spool *spool);

/* Takes the bytes of the source, as far as its share of the turn and its followers allow. */
void spool_drain(struct spool *spool);
void spool_on_served(struct flow_source *source);
