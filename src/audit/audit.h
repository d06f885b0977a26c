/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The audit log: one line for each change that a caller asked for, and for each start and end of an
 * execution, a sandbox or a session, chained (chain.h), in a file that only its owner may read.
 *
 * The store numbers what happens, and each line says up to which number the log is complete. A
 * process that is killed loses the lines of its last milliseconds; the next one finds what of them
 * the store knows (audit_left()), writes it, and says in audit_start() that it had to.
 *
 * Lines are written in order by a thread of their own, a few milliseconds later at most. The queue
 * is bounded: when the disk does not keep up or cannot be written, lines are dropped and counted,
 * and the next line that can be written says how many. The process may be killed at any time
 * without a broken log.
 */

#include "base/error.h"
#include "loop/loop.h"

struct audit;
struct buffer;

/* The loop is borrowed. Goes on where the file at `path` ends. */
struct audit *audit_open(struct loop *loop, const char *path, struct error *err);
void audit_close(struct audit *audit); /* writes waiting lines; NULL is fine */
SCOPED_DEFINE(audit_close, struct audit);

/* How the process before left the log. */
struct audit_left {
    bool was_interrupted; /* it was killed: lines may be missing */
    uint64_t event;       /* later events are not in the log; for such a log only */
};

struct audit_left audit_left(const struct audit *audit);

/* Everything up to this event of the store has been handed to audit_write(), or is not for the log.
 */
void audit_covers(struct audit *audit, uint64_t event);

/* The lines that were missing have been written: `recovered` of them. From now on the end of the
 * log is written when it is closed. */
void audit_start(struct audit *audit, uint64_t recovered);

/* One line: `members` as between the braces of a JSON object, beginning with "type". The event
 * and the time are added. */
void audit_write(struct audit *audit, const struct buffer *members);

/* After the file was moved away: the next line begins a new one, which goes on with the chain. */
void audit_reopen(struct audit *audit);

/* --- afterwards ------------------------------------------------------------------------------ */

/* The newest lines about a session, at most `maximum`, oldest first, as a JSON array; as far as they are
 * in the last 8 MiB of the file. Reads the file, and touches nothing else: any thread may. */
int audit_tail(const char *path, const char *session_id, size_t maximum, struct buffer *out,
               struct error *err);

struct audit_finding {
    uint64_t line; /* of its file, from 1; 0 for the end of the log */
    uint64_t sequence;
    char message[160];
};

typedef void audit_finding_fn(void *context, const char *path, const struct audit_finding *finding);

struct audit_summary {
    uint64_t lines;
    uint64_t findings;
    uint64_t first, last;   /* numbers of lines */
    uint64_t interruptions; /* the process that wrote it was killed so often */
    uint64_t recovered;     /* lines that were written afterwards, by the next one */
    bool is_open;           /* it has no end: it is being written, or its writer was killed */
};

/* Checks logs that follow each other, oldest first. Findings are results; -1 is for a log that
 * cannot be read. */
int audit_verify(const char *const *paths, size_t count, audit_finding_fn *on_finding,
                 void *context, struct audit_summary *out, struct error *err);
