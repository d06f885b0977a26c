/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Remembers for a day which session an Idempotency-Key made, so that a request sent twice makes
 * one. In memory, and as documents in the store. The day is measured by the boot clock; it begins
 * again when the machine is started anew.
 *
 * Where several nodes share the store, a key that is not in memory here is looked for there
 * (open_question.h), and its document ends by the wall clock: the nodes have no other in common.
 */

#include "core/core.h"
#include "store/store.h"

struct idempotency;
struct session_request;

enum idempotency_verdict { IDEMPOTENCY_NEW, IDEMPOTENCY_SAME, IDEMPOTENCY_DIFFERENT };

struct idempotency *idempotency_new(struct core *core);
void idempotency_free(struct idempotency *idempotency);

/* SAME gives the id of the session made then. Requests without a key are always new. */
enum idempotency_verdict idempotency_check(struct idempotency *idempotency,
                                           const struct session_request *request,
                                           char out_session_id[ID_SIZE]);

/* The same, compared with what is recorded of the request that was made elsewhere. */
enum idempotency_verdict idempotency_compare(const struct session_request *request,
                                             const char *text);

/* The id of its document, allocated: "owner\nkey". */
char *idempotency_name(const struct session_request *request);

void idempotency_remember(struct idempotency *idempotency, const struct session_request *request,
                          const char *session_id);

/* The session could not be made after all. */
void idempotency_forget_session(struct idempotency *idempotency, const char *session_id);

/* At start, from the store. */
void idempotency_restore(struct idempotency *idempotency, const struct document_record *document);

/* The store may have lost what it had acknowledged: claims the keys of this node again. */
void idempotency_assert(struct idempotency *idempotency);

#define IDEMPOTENCY_KIND "idempotency"
