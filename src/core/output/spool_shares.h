#pragma once

/*
 * Quotas of the spool: how much output is kept of one session, of one owner and in all
 * (exec.spool_per_session, exec.spool_per_owner, exec.spool_total).
 *
 * When a quota is reached, the oldest output that has ended goes first, that of sessions which are
 * gone before that of others; in all, that of the owner who has most. Records stay: their readers
 * are told that the bytes are not kept any more. When only running programs are left, the one that
 * writes has to drop some of its own.
 *
 * Output of earlier daemons counts in all, not for its session and owner, and goes first.
 */

#include <stdbool.h>
#include <stdint.h>

struct core;
struct spool;
struct spool_entry;

struct spool *spool_new(struct core *core);
void spool_free(struct spool *spool); /* NULL is fine */

/* Counts what earlier daemons have left, a few files at a time. */
void spool_scan(struct spool *spool);

/* An execution that writes; all texts are copied. */
struct spool_entry *spool_begin(struct spool *spool, const char *execution_id,
                                const char *session_id, const char *owner);

/* So many bytes more, or less, are kept of it. True when it has to drop some of its own. */
bool spool_add(struct spool_entry *entry, int64_t bytes);

/* Nothing more comes: it may be evicted. NULL is fine. */
void spool_end(struct spool_entry *entry);

/* The session is gone: its output goes before that of others. */
void spool_on_session_gone(struct spool *spool, const char *session_id);

/* The files of this execution were removed. */
void spool_forget(struct spool *spool, const char *execution_id);

uint64_t spool_bytes(const struct spool *spool); /* in all */
