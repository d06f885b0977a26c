/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Quotas of the spool: how much output is kept of one session, of one owner and in all
 * (exec.spool_per_session, exec.spool_per_owner, exec.spool_total).
 *
 * When a quota is reached, the oldest output that has ended is evicted first, output of sessions
 * that are gone before that of others; for the quota in all, output of the owner with the most
 * bytes. Records stay, and show their readers that the bytes are not kept any more. When only
 * running programs are left, the program that writes has to drop some of its own output.
 *
 * Output of earlier daemons counts in all, not for its session and owner, and is evicted first.
 */

#include <stdbool.h>
#include <stdint.h>

struct core;
struct spool_shares;
struct spool_share;

struct spool_shares *spool_shares_new(struct core *core);
void spool_shares_free(struct spool_shares *shares); /* NULL is fine */

/* Counts the output that earlier daemons have left, a few files at a time. */
void spool_shares_scan(struct spool_shares *shares);

/* An execution that writes; all texts are copied. */
struct spool_share *spool_shares_begin(struct spool_shares *shares, const char *execution_id,
                                       const char *session_id, const char *owner);

/* This many bytes more, or less, are kept of the execution. True when it has to drop some of its
 * own. */
bool spool_share_add(struct spool_share *share, int64_t bytes);

/* The output is complete: it may be evicted, sooner when its session is gone. NULL is fine. */
void spool_share_end(struct spool_share *share, bool session_is_gone);

/* The session is gone: its output is evicted before that of others. */
void spool_shares_on_session_gone(struct spool_shares *shares, const char *session_id);

/* The files of this execution were removed. */
void spool_shares_forget(struct spool_shares *shares, const char *execution_id);

uint64_t spool_shares_bytes(const struct spool_shares *shares); /* in all */
