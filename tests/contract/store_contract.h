/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What every implementation of store.h has to do, as one suite. A program for an implementation
 * says how to open one and calls store_contract_run().
 */

#include "store/store.h"

#include <stddef.h>

struct store_contract {
    const char *name;
    struct store *(*open)(struct loop *loop); /* an empty one */
    void (*clean_up)(void);                   /* after it is closed; may be NULL */
    /* While it is failing, a transaction fails; at least the next one does. */
    void (*set_failing)(struct store *store, bool failing);
    bool asks_server; /* a watch is active only when a server has answered, which it reports */
};

/* The number of failed tests. */
int store_contract_run(const struct store_contract *contract);

/* --- for other tests of stores ------------------------------------------------------------- */

/* Runs the loop until *flag; fails the test after a deadline. */
void store_wait(struct loop *loop, const bool *flag);

/* Commits and waits; the code of the ticket. */
enum error_code store_commit_and_wait(struct store *store);

/* A claim and what came of it; the document that was there instead is copied. */
struct asked_claim {
    struct store_claim claim;
    char current_json[256]; /* "" when there is none */
    uint64_t current_version;
    bool done;
};

void asked_claim_start(struct asked_claim *asked, struct store *store, uint64_t expected,
                       const char *id, const char *json); /* json NULL: a release */
enum claim_outcome asked_claim_wait(struct asked_claim *asked, struct store *store);

/* Both; a claim that is won gives the version. */
enum claim_outcome claim_and_wait(struct store *store, uint64_t expected, const char *id,
                                  const char *json, uint64_t *out_version);

#define CLAIM_KIND "claimed"

/* What a query finds, copied. */
struct found_records {
    struct store_query query; /* set the filter here */
    enum store_table table;
    void **records; /* owned */
    size_t count;
    bool done;
};

void found_records_ask(struct found_records *found, struct store *store, enum store_table table);
void found_records_ask_expired(struct found_records *found, struct store *store,
                               int64_t now_wall_us);
void found_records_free(struct found_records *found); /* and makes it ready to ask again */

#define found_session(found, i) ((const struct session_record *)(found)->records[i])
#define found_sandbox(found, i) ((const struct sandbox_record *)(found)->records[i])
#define found_execution(found, i) ((const struct execution_record *)(found)->records[i])
#define found_event(found, i) ((const struct event_record *)(found)->records[i])
#define found_document(found, i) ((const struct document_record *)(found)->records[i])

static inline void scoped_found_records_free(struct found_records *found)
{
    found_records_free(found);
}

/* Records with every field set to something of its own; `n` tells them apart. */
struct session_record sample_session(unsigned n);
struct sandbox_record sample_sandbox(unsigned n);
struct execution_record sample_execution(unsigned n);
struct event_record sample_event(unsigned n);
struct document_record sample_document(void);

void assert_same_session(const struct session_record *a, const struct session_record *b);
