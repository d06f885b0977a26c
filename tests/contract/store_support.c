/* SPDX-License-Identifier: Apache-2.0 */
#include "store_contract.h"

#include "base/alloc.h"
#include "store/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { DEADLINE_US = 90 * 1000 * 1000 };

void store_wait(struct loop *loop, const bool *flag)
{
    int64_t deadline_us = clock_now_us(&clock_system) + DEADLINE_US;

    while (!*flag) {
        loop_turn(loop, 100);
        assert_true(clock_now_us(&clock_system) < deadline_us);
    }
}

struct waiting {
    struct store_ticket ticket;
    enum error_code code;
    bool done;
};

static void on_durable(struct store_ticket *ticket)
{
    struct waiting *waiting = container_of(ticket, struct waiting, ticket);

    waiting->code = ticket->err->code;
    waiting->done = true;
}

enum error_code store_commit_and_wait(struct store *store)
{
    struct waiting waiting = { 0 };

    store_commit(store, &waiting.ticket, on_durable);
    assert_false(waiting.done);
    store_wait(store->loop, &waiting.done);
    return waiting.code;
}

/* --- claims --------------------------------------------------------------------------------- */

static void on_claimed(struct store_claim *claim)
{
    struct asked_claim *asked = container_of(claim, struct asked_claim, claim);

    assert_false(asked->done);
    assert_int_not_equal(claim->outcome, CLAIM_PENDING);
    if (claim->current) {
        snprintf(asked->current_json, sizeof(asked->current_json), "%s", claim->current->json);
        asked->current_version = claim->current->version;
    }
    asked->done = true;
}

void asked_claim_start(struct asked_claim *asked, struct store *store, uint64_t expected,
                       const char *id, const char *json)
{
    struct document_record document = { .kind = CLAIM_KIND, .id = id, .json = json };

    *asked = (struct asked_claim){ 0 };
    if (json)
        store_claim(store, &asked->claim, expected, &document, on_claimed);
    else
        store_release(store, &asked->claim, expected, CLAIM_KIND, id, on_claimed);
    assert_false(asked->done);
}

enum claim_outcome asked_claim_wait(struct asked_claim *asked, struct store *store)
{
    store_wait(store->loop, &asked->done);
    return asked->claim.outcome;
}

enum claim_outcome claim_and_wait(struct store *store, uint64_t expected, const char *id,
                                  const char *json, uint64_t *out_version)
{
    struct asked_claim asked;

    asked_claim_start(&asked, store, expected, id, json);
    if (out_version)
        *out_version = asked.claim.version;
    return asked_claim_wait(&asked, store);
}

static void take(struct store_query *query, const void *record)
{
    struct found_records *found = container_of(query, struct found_records, query);

    assert_false(found->done);
    found->records = xrealloc(found->records, found->count + 1, sizeof(void *));
    found->records[found->count++] = record_copy(&record_types[found->table], record, 0);
}

static void on_session(struct store_query *query, const struct session_record *record)
{
    take(query, record);
}

static void on_sandbox(struct store_query *query, const struct sandbox_record *record)
{
    take(query, record);
}

static void on_execution(struct store_query *query, const struct execution_record *record)
{
    take(query, record);
}

static void on_event(struct store_query *query, const struct event_record *record)
{
    take(query, record);
}

static void on_document(struct store_query *query, const struct document_record *record)
{
    take(query, record);
}

static void on_answered(struct store_query *query)
{
    container_of(query, struct found_records, query)->done = true;
}

static void found_records_prepare(struct found_records *found, enum store_table table)
{
    found_records_free(found);
    found->table = table;
    found->query.on_session = on_session;
    found->query.on_sandbox = on_sandbox;
    found->query.on_execution = on_execution;
    found->query.on_event = on_event;
    found->query.on_document = on_document;
    found->query.done = on_answered;
}

void found_records_ask(struct found_records *found, struct store *store, enum store_table table)
{
    found_records_prepare(found, table);
    store_query(store, table, &found->query);
    assert_false(found->done);
    store_wait(store->loop, &found->done);
    assert_int_equal(found->query.err.code, ERR_NONE);
}

void found_records_ask_expired(struct found_records *found, struct store *store,
                               int64_t now_wall_us)
{
    found_records_prepare(found, STORE_SESSIONS);
    store_query_expired(store, now_wall_us, &found->query);
    assert_false(found->done);
    store_wait(store->loop, &found->done);
    assert_int_equal(found->query.err.code, ERR_NONE);
}

void found_records_free(struct found_records *found)
{
    for (size_t i = 0; i < found->count; i++)
        free(found->records[i]);
    free(found->records);
    found->records = NULL;
    found->count = 0;
    found->done = false;
}

/* --- samples ------------------------------------------------------------------------------- */

static struct stamp stamp_of(unsigned n, unsigned which)
{
    return (struct stamp){ .wall_us = 1700000000000000 + n * 100 + which,
                           .boot_us = 5000000000 + n * 100 + which };
}

struct session_record sample_session(unsigned n)
{
    struct session_record record = {
        .owner = "ada@example.org",
        .on_behalf_of = "grace",
        .spec_json = "{\"template\":\"host\",\"memory\":1073741824,\"text\":\"\xc3\xa9\\n'\"}",
        .labels_json = "{\"team\":\"a\"}",
        .state = "open",
        .end_reason = "none yet",
        .generation = UINT64_C(0xfedcba9876543210),
        .idle_timeout_ms = 1800000,
        .max_lifetime_ms = 86400000,
        .created = stamp_of(n, 1),
        .started = stamp_of(n, 2),
        .last_activity = stamp_of(n, 3),
        .expires = stamp_of(n, 4),
        .ended = stamp_of(n, 5),
        .retain_until_wall_us = 1800000000000000 + n,
    };

    snprintf(record.id, sizeof(record.id), "ses_%026u", n);
    return record;
}

struct sandbox_record sample_sandbox(unsigned n)
{
    struct sandbox_record record = {
        .backend = "native",
        .state = "ready",
        .end_reason = "crashed: oom",
        .last_error = "unmount: device busy",
        .generation = 7,
        .handle = "4194303:123456789012345:17",
        .attempts = 3,
        .created = stamp_of(n, 1),
    };

    snprintf(record.id, sizeof(record.id), "sbx_%026u", n);
    snprintf(record.session_id, sizeof(record.session_id), "ses_%026u", n);
    return record;
}

struct execution_record sample_execution(unsigned n)
{
    struct execution_record record = {
        .key = "call-1",
        .request_json = "{\"argv\":[\"true\"]}",
        .state = "running",
        .reason = "timeout",
        .error = "not found",
        .generation = 2,
        .number = 9,
        .timeout_ms = 60000,
        .exit_code = -1,
        .signal = 9,
        .background = true,
        .stdout_bytes = UINT64_C(1) << 40,
        .stderr_bytes = 17,
        .cpu_us = 123456,
        .max_rss_bytes = UINT64_C(3) << 30,
        .created = stamp_of(n, 1),
        .started = stamp_of(n, 2),
        .ended = stamp_of(n, 3),
    };

    snprintf(record.id, sizeof(record.id), "exe_%026u", n);
    snprintf(record.session_id, sizeof(record.session_id), "ses_%026u", n);
    snprintf(record.sandbox_id, sizeof(record.sandbox_id), "sbx_%026u", n);
    return record;
}

struct event_record sample_event(unsigned n)
{
    struct event_record record = {
        .sequence = n,
        .session_sequence = n + 1000,
        .owner = "ada@example.org",
        .type = "session.created",
        .data_json = "{\"reason\":\"idle\"}",
        .wall_us = 1700000000000000 + n,
    };

    snprintf(record.session_id, sizeof(record.session_id), "ses_%026u", n);
    return record;
}

struct document_record sample_document(void)
{
    return (struct document_record){
        .kind = "approval",
        .id = "app_1",
        .owner = "ada@example.org",
        .json = "{\"decision\":null}",
        .expires_wall_us = 1900000000000000,
    };
}

static void assert_same_stamp(struct stamp a, struct stamp b)
{
    assert_int_equal(a.wall_us, b.wall_us);
    assert_int_equal(a.boot_us, b.boot_us);
}

void assert_same_session(const struct session_record *a, const struct session_record *b)
{
    assert_string_equal(a->id, b->id);
    assert_string_equal(a->owner, b->owner);
    assert_string_equal(a->key ? a->key : "", b->key ? b->key : "");
    assert_string_equal(a->on_behalf_of, b->on_behalf_of);
    assert_string_equal(a->spec_json, b->spec_json);
    assert_string_equal(a->labels_json, b->labels_json);
    assert_string_equal(a->state, b->state);
    assert_string_equal(a->end_reason, b->end_reason);
    assert_int_equal(a->generation, b->generation);
    assert_int_equal(a->idle_timeout_ms, b->idle_timeout_ms);
    assert_int_equal(a->max_lifetime_ms, b->max_lifetime_ms);
    assert_same_stamp(a->created, b->created);
    assert_same_stamp(a->started, b->started);
    assert_same_stamp(a->last_activity, b->last_activity);
    assert_same_stamp(a->expires, b->expires);
    assert_same_stamp(a->ended, b->ended);
    assert_int_equal(a->retain_until_wall_us, b->retain_until_wall_us);
}
