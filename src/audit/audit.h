#pragma once

/*
 * The audit log: one line for each change that somebody asked for and for each end of an execution,
 * chained (chain.h), in a file of its own that nobody else may read.
 *
 * Lines are written in order by a thread of their own, a few milliseconds later at most. What waits
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
void audit_close(struct audit *audit); /* writes what waits; NULL is fine */
SCOPED_DEFINE(audit_close, struct audit);

/* One line: `members` as between the braces of a JSON object, beginning with "type". The time is
 * added. */
void audit_write(struct audit *audit, const struct buffer *members);

/* After the file was moved away: the next line begins a new one, which goes on with the chain. */
void audit_reopen(struct audit *audit);

/* --- afterwards ------------------------------------------------------------------------------ */

struct audit_finding {
    uint64_t line; /* of its file, from 1; 0 for the end of the log */
    uint64_t sequence;
    char message[160];
};

typedef void audit_finding_fn(void *context, const char *path, const struct audit_finding *finding);

struct audit_summary {
    uint64_t lines;
    uint64_t findings;
    uint64_t first, last; /* numbers of lines */
};

/* Checks logs that follow each other, oldest first. Findings are results; -1 is for a log that
 * cannot be read. */
int audit_verify(const char *const *paths, size_t count, audit_finding_fn *on_finding,
                 void *context, struct audit_summary *out, struct error *err);
