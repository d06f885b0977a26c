/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The key of a session, as a document that is claimed in the store: owner and key name at most one
 * session that is neither ending nor ended, on whichever node it lives.
 *
 * A session claims its key in the transaction that creates it, and releases it in the one that says
 * that it ends, so that the next session can claim it at once. A session whose claim is lost is
 * refused: it leaves no record.
 */

#include "core/core.h"
#include "store/store.h"

struct session;

#define SESSION_KEY_KIND "session-key"

/* Successors: none → asked → held | unwanted | none, unwanted → releasing | none,
 * held → asked | releasing, releasing → none | held. */
enum key_state {
    KEY_NONE,
    KEY_ASKED,    /* the claim is not answered yet */
    KEY_UNWANTED, /* nor here, and it is to be released when it is won */
    KEY_HELD,
    KEY_RELEASING,
};

struct session_key {
    enum key_state state;
    uint64_t version;        /* of the document */
    struct key_claim *asked; /* owned: the claim or release that is not answered yet */
};

void session_key_fini(struct session *session);

/* A session without a key claims nothing, and releases nothing. */
void session_key_claim(struct session *session);
void session_key_release(struct session *session);

/* At start: a claim of an earlier daemon. Then, once all are known, the sessions that have none
 * claim their keys: a daemon from before claims has left them. */
void session_key_restore(struct core *core, const struct document_record *document);
void session_keys_start(struct core *core);

/* A transaction has failed, and the store works again: claims what is not held. */
void session_key_repair(struct session *session);

/* The store may have lost what it had acknowledged: claims the key once more. When another session
 * has it meanwhile, this one ends. */
void session_key_assert(struct session *session);
