#pragma once

/*
 * Remembers for a day which session an Idempotency-Key made, so that a request sent twice makes
 * one. In memory, and as documents in the store. The day is measured by the boot clock; it begins
 * again when the machine is started anew.
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
void idempotency_remember(struct idempotency *idempotency, const struct session_request *request,
                          const char *session_id);

/* The session could not be made after all. */
void idempotency_forget_session(struct idempotency *idempotency, const char *session_id);

/* At start, from the store. */
void idempotency_restore(struct idempotency *idempotency, const struct document_record *document);

#define IDEMPOTENCY_KIND "idempotency"
