#pragma once

/*
 * In which order the bytes of an execution's two streams came, so that they can be read as one.
 *
 * Time is cut into runs: bytes of one stream with none of the other between them. When a run is
 * over, because the other stream has bytes, the end of its stream at that moment is appended to a
 * file: runs alternate, so two neighbours tell the whole state, and any place is found by
 * bisection. The run that goes on is not in the file; the sizes of the spools tell it. So there is
 * no file until both streams have bytes, and after a crash nothing is missing: one change of
 * streams at most was not written down, and it comes after the last that was.
 *
 * The order is that in which the daemon found the bytes in the pipes. What a program wrote to both
 * within one turn of the loop may be told in the other order.
 *
 * A program that changes streams without end fills JOURNAL_BYTES; then the middle of the journal is
 * dropped as that of a spool is, and the order of those bytes is not known any more.
 */

#include "core/output/spool.h"

enum { JOURNAL_STREAMS = 2 };

struct journal;

/* Finds the file of an earlier daemon if there is one. `lengths`: of the streams. */
struct journal *journal_new(int directory, const char *name,
                            const uint64_t lengths[JOURNAL_STREAMS]);
void journal_free(struct journal *journal); /* NULL is fine; keeps the file */

/* Bytes of this stream came, which is now so long. */
void journal_took(struct journal *journal, unsigned stream, uint64_t length);

uint64_t journal_length(const struct journal *journal); /* of both streams together */

/* Where a byte of the merged output is. */
struct journal_place {
    unsigned stream;
    uint64_t offset;    /* in the stream */
    uint64_t run_bytes; /* that follow it there, itself included, before the other stream's turn */
    uint64_t other;     /* how far the other stream had come */
};

/* False when the byte has not come, or the journal does not know any more where it is. */
bool journal_find(const struct journal *journal, uint64_t merged, struct journal_place *out_place);

/* The merged offset of a byte of a stream, which must have come; in the dropped part of the journal
 * it is that of the next byte that is known. */
uint64_t journal_merged(const struct journal *journal, unsigned stream, uint64_t offset);

/* The merged bytes whose order is not known any more. */
bool journal_has_hole(const struct journal *journal, uint64_t *out_start, uint64_t *out_end);
