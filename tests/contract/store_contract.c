/* SPDX-License-Identifier: Apache-2.0 */
#include "store_contract.h"

#include "base/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { WALL_US = 1750000000, MANY = 10000 };

static const struct store_contract *contract;

struct fixture {
    struct simulated_clock clock;
    struct loop *loop;
    struct store *store;
    unsigned lost[STORE_DOCUMENTS + 1];
    char last_lost[128];
};

static int open_fixture(void **state)
{
    struct fixture *fixture = xnew(struct fixture);

    simulated_clock_init(&fixture->clock, 6000000000, (int64_t)WALL_US * 1000000);
    fixture->loop = loop_new(&fixture->clock.clock);
    fixture->store = contract->open(fixture->loop);
    assert_non_null(fixture->store);
    *state = fixture;
    return 0;
}

static int close_fixture(void **state)
{
    struct fixture *fixture = *state;

    store_close(fixture->store);
    loop_free(fixture->loop);
    free(fixture);
    if (contract->clean_up)
        contract->clean_up();
    return 0;
}

static struct store *store_of(void **state)
{
    return ((struct fixture *)*state)->store;
}

/* --- records ------------------------------------------------------------------------------- */

static void a_session_comes_back_with_every_field(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct session_record record = sample_session(1);

    record.key = "notebook 1";
    store_put_session(store_of(state), &record);
    assert_int_equal(store_commit_and_wait(store_of(state)), ERR_NONE);
    found_records_ask(&found, store_of(state), STORE_SESSIONS);
    assert_int_equal(found.count, 1);
    assert_same_session(found_session(&found, 0), &record);
}

static void a_sandbox_comes_back_with_every_field(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct sandbox_record put = sample_sandbox(1);
    const struct sandbox_record *got;

    store_put_sandbox(store_of(state), &put);
    found_records_ask(&found, store_of(state), STORE_SANDBOXES);
    assert_int_equal(found.count, 1);
    got = found_sandbox(&found, 0);
    assert_string_equal(got->id, put.id);
    assert_string_equal(got->session_id, put.session_id);
    assert_string_equal(got->backend, put.backend);
    assert_string_equal(got->state, put.state);
    assert_string_equal(got->end_reason, put.end_reason);
    assert_string_equal(got->last_error, put.last_error);
    assert_int_equal(got->generation, put.generation);
    assert_string_equal(got->handle, put.handle);
    assert_int_equal(got->attempts, put.attempts);
    assert_int_equal(got->created.wall_us, put.created.wall_us);
    assert_int_equal(got->created.boot_us, put.created.boot_us);
}

static void an_execution_comes_back_with_every_field(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct execution_record put = sample_execution(1);
    const struct execution_record *got;

    store_put_execution(store_of(state), &put);
    found_records_ask(&found, store_of(state), STORE_EXECUTIONS);
    assert_int_equal(found.count, 1);
    got = found_execution(&found, 0);
    assert_string_equal(got->id, put.id);
    assert_string_equal(got->session_id, put.session_id);
    assert_string_equal(got->sandbox_id, put.sandbox_id);
    assert_string_equal(got->key, put.key);
    assert_string_equal(got->request_json, put.request_json);
    assert_string_equal(got->state, put.state);
    assert_string_equal(got->reason, put.reason);
    assert_string_equal(got->error, put.error);
    assert_int_equal(got->generation, put.generation);
    assert_int_equal(got->number, put.number);
    assert_int_equal(got->timeout_ms, put.timeout_ms);
    assert_int_equal(got->exit_code, put.exit_code);
    assert_int_equal(got->signal, put.signal);
    assert_true(got->background);
    assert_int_equal(got->stdout_bytes, put.stdout_bytes);
    assert_int_equal(got->stderr_bytes, put.stderr_bytes);
    assert_int_equal(got->cpu_us, put.cpu_us);
    assert_int_equal(got->max_rss_bytes, put.max_rss_bytes);
    assert_memory_equal(&got->created, &put.created, sizeof(put.created));
    assert_memory_equal(&got->started, &put.started, sizeof(put.started));
    assert_memory_equal(&got->ended, &put.ended, sizeof(put.ended));
}

static void an_event_comes_back_with_every_field(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct event_record put = sample_event(5);
    const struct event_record *got;

    store_put_event(store_of(state), &put);
    found_records_ask(&found, store_of(state), STORE_EVENTS);
    assert_int_equal(found.count, 1);
    got = found_event(&found, 0);
    assert_int_equal(got->sequence, put.sequence);
    assert_int_equal(got->session_sequence, put.session_sequence);
    assert_string_equal(got->session_id, put.session_id);
    assert_string_equal(got->owner, put.owner);
    assert_string_equal(got->type, put.type);
    assert_string_equal(got->data_json, put.data_json);
    assert_int_equal(got->wall_us, put.wall_us);
}

static void a_document_comes_back_with_every_field(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct document_record put = sample_document();
    const struct document_record *got;

    store_put_document(store_of(state), &put);
    found_records_ask(&found, store_of(state), STORE_DOCUMENTS);
    assert_int_equal(found.count, 1);
    got = found_document(&found, 0);
    assert_string_equal(got->kind, put.kind);
    assert_string_equal(got->id, put.id);
    assert_string_equal(got->owner, put.owner);
    assert_string_equal(got->json, put.json);
    assert_int_equal(got->expires_wall_us, put.expires_wall_us);
}

static void what_is_not_set_comes_back_as_zero_and_empty_text(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct session_record put = { .id = "ses_x", .state = "open" };
    const struct session_record *got;

    store_put_session(store_of(state), &put);
    found_records_ask(&found, store_of(state), STORE_SESSIONS);
    got = found_session(&found, 0);
    assert_string_equal(got->owner, "");
    assert_null(got->key);
    assert_string_equal(got->on_behalf_of, "");
    assert_string_equal(got->spec_json, "");
    assert_string_equal(got->end_reason, "");
    assert_int_equal(got->created.wall_us, 0);
    assert_int_equal(got->created.boot_us, 0);
    assert_int_equal(got->expires.wall_us, 0);
    assert_int_equal(got->expires.boot_us, 0);
    assert_int_equal(got->retain_until_wall_us, 0);
}

static void a_put_copies_the_record(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    char owner[] = "first";
    struct session_record put = { .id = "ses_x", .state = "open", .owner = owner };

    store_put_session(store_of(state), &put);
    memcpy(owner, "other", sizeof(owner));
    put.id[0] = '\0';
    found_records_ask(&found, store_of(state), STORE_SESSIONS);
    assert_string_equal(found_session(&found, 0)->owner, "first");
    assert_string_equal(found_session(&found, 0)->id, "ses_x");
}

static void putting_again_replaces_a_record_and_keeps_its_place(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct session_record record;

    for (unsigned i = 0; i < 3; i++) {
        record = sample_session(i);
        store_put_session(store_of(state), &record);
    }
    record = sample_session(1);
    record.owner = "somebody else";
    record.state = STORE_STATE_ENDED;
    record.generation = 8;
    store_put_session(store_of(state), &record);
    found_records_ask(&found, store_of(state), STORE_SESSIONS);
    assert_int_equal(found.count, 3);
    assert_same_session(found_session(&found, 1), &record);
}

/* --- commits ------------------------------------------------------------------------------- */

struct ordered_ticket {
    struct store_ticket ticket;
    unsigned place;
    unsigned *finished;
    bool done;
};

static void on_ordered(struct store_ticket *ticket)
{
    struct ordered_ticket *ordered = container_of(ticket, struct ordered_ticket, ticket);

    assert_int_equal(ticket->err->code, ERR_NONE);
    assert_int_equal(*ordered->finished, ordered->place);
    (*ordered->finished)++;
    ordered->done = true;
}

static void tickets_complete_in_order_and_never_inside_the_call(void **state)
{
    struct ordered_ticket tickets[20] = { 0 };
    unsigned finished = 0;

    for (unsigned i = 0; i < 20; i++) {
        struct session_record record = sample_session(i);

        tickets[i].place = i;
        tickets[i].finished = &finished;
        store_put_session(store_of(state), &record);
        store_commit(store_of(state), &tickets[i].ticket, on_ordered);
        assert_false(tickets[i].done);
        if (i % 7 == 0)
            loop_turn(store_of(state)->loop, 0);
    }
    store_wait(store_of(state)->loop, &tickets[19].done);
    assert_int_equal(finished, 20);
}

static void a_commit_of_nothing_succeeds(void **state)
{
    assert_int_equal(store_commit_and_wait(store_of(state)), ERR_NONE);
}

struct chain {
    struct store_ticket ticket;
    struct store *store;
    unsigned left;
    bool done;
};

static void on_chain(struct store_ticket *ticket)
{
    struct chain *chain = container_of(ticket, struct chain, ticket);
    struct session_record record = sample_session(chain->left);

    assert_int_equal(ticket->err->code, ERR_NONE);
    if (chain->left == 0) {
        chain->done = true;
        return;
    }
    chain->left--;
    store_put_session(chain->store, &record);
    store_commit(chain->store, &chain->ticket, on_chain);
}

static void a_callback_may_put_and_commit_again(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct chain chain = { .store = store_of(state), .left = 50 };

    store_commit(store_of(state), &chain.ticket, on_chain);
    store_wait(store_of(state)->loop, &chain.done);
    found_records_ask(&found, store_of(state), STORE_SESSIONS);
    assert_int_equal(found.count, 50);
}

static void closing_commits_what_is_pending_and_tells_the_tickets(void **state)
{
    struct fixture *fixture = *state;
    struct chain chain = { .store = fixture->store, .left = 3 };
    struct session_record record = sample_session(77);

    store_put_session(fixture->store, &record);
    store_commit(fixture->store, &chain.ticket, on_chain);
    store_close(steal_ptr(&fixture->store));
    assert_true(chain.done);
}

static void on_lost(struct store *store, enum store_table table, const char *id)
{
    struct fixture *fixture = store->on_lost_data;

    fixture->lost[table]++;
    snprintf(fixture->last_lost, sizeof(fixture->last_lost), "%s", id);
}

static void two_sessions_may_have_one_key(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };

    for (unsigned i = 0; i < 3; i++) {
        struct session_record record = sample_session(i);

        record.key = "same";
        record.state = i == 0 ? STORE_STATE_ENDED : "open";
        store_put_session(store_of(state), &record);
    }
    assert_int_equal(store_commit_and_wait(store_of(state)), ERR_NONE);
    found.query.key = "same";
    found_records_ask(&found, store_of(state), STORE_SESSIONS);
    assert_int_equal(found.count, 3);
    found.query.state = "open";
    found_records_ask(&found, store_of(state), STORE_SESSIONS);
    assert_int_equal(found.count, 2);
}

struct late_put {
    struct store_ticket first, second;
    struct store *store;
    struct deferred late;
    bool done;
};

static void put_late(struct deferred *deferred)
{
    struct late_put *put = container_of(deferred, struct late_put, late);
    struct session_record record = sample_session(1);

    store_put_session(put->store, &record);
}

/* Whatever was not part of the commit is lost from now on. */
static void on_late_put_durable(struct store_ticket *ticket)
{
    struct late_put *put = container_of(ticket, struct late_put, second);

    assert_int_equal(ticket->err->code, ERR_NONE);
    contract->set_failing(put->store, true);
    put->done = true;
}

static void on_first_durable(struct store_ticket *ticket)
{
    struct late_put *put = container_of(ticket, struct late_put, first);

    store_commit(put->store, &put->second, on_late_put_durable);
    loop_defer_late(put->store->loop, &put->late, put_late);
}

static void what_is_put_behind_a_ticket_in_the_same_turn_is_part_of_its_commit(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct late_put put = { .store = store_of(state) };

    store_commit(put.store, &put.first, on_first_durable);
    store_wait(put.store->loop, &put.done);
    for (unsigned i = 0; i < 5; i++)
        loop_turn(put.store->loop, 5);
    contract->set_failing(put.store, false);
    found_records_ask(&found, put.store, STORE_SESSIONS);
    assert_int_equal(found.count, 1);
}

static void a_failed_transaction_is_taken_back_as_a_whole(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct fixture *fixture = *state;
    struct session_record record = sample_session(9);
    struct event_record event = sample_event(9);

    store_put_session(fixture->store, &record);
    store_put_event(fixture->store, &event);
    assert_int_equal(store_commit_and_wait(fixture->store), ERR_NONE);

    fixture->store->on_lost = on_lost;
    fixture->store->on_lost_data = fixture;
    contract->set_failing(fixture->store, true);
    record.generation = 100;
    store_put_session(fixture->store, &record);
    store_forget_session(fixture->store, record.id);
    record = sample_session(2);
    store_put_session(fixture->store, &record);
    assert_int_not_equal(store_commit_and_wait(fixture->store), ERR_NONE);
    contract->set_failing(fixture->store, false);
    assert_int_equal(fixture->lost[STORE_SESSIONS], 3);
    assert_int_equal(fixture->store->counts.lost, 3);
    assert_int_equal(fixture->store->counts.failed_transactions, 1);
    assert_int_not_equal(fixture->store->counts.last_failure.code, ERR_NONE);
    assert_string_equal(fixture->last_lost, sample_session(2).id);

    found_records_ask(&found, fixture->store, STORE_SESSIONS);
    assert_int_equal(found.count, 1);
    assert_int_equal(found_session(&found, 0)->generation, sample_session(9).generation);
    found_records_ask(&found, fixture->store, STORE_EVENTS);
    assert_int_equal(found.count, 1);
}

static void putting_a_lost_record_again_repairs_it(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct session_record first = sample_session(1);

    contract->set_failing(store_of(state), true);
    store_put_session(store_of(state), &first);
    assert_int_not_equal(store_commit_and_wait(store_of(state)), ERR_NONE);
    contract->set_failing(store_of(state), false);
    store_put_session(store_of(state), &first);
    assert_int_equal(store_commit_and_wait(store_of(state)), ERR_NONE);
    found_records_ask(&found, store_of(state), STORE_SESSIONS);
    assert_int_equal(found.count, 1);
    assert_same_session(found_session(&found, 0), &first);
}

static void a_failure_that_nobody_waited_for_is_told_to_the_next_ticket(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct session_record record = sample_session(1);

    contract->set_failing(store_of(state), true);
    store_put_session(store_of(state), &record);
    found_records_ask(&found, store_of(state), STORE_SESSIONS);
    assert_int_equal(found.count, 0);
    contract->set_failing(store_of(state), false);
    assert_int_not_equal(store_commit_and_wait(store_of(state)), ERR_NONE);
    assert_int_equal(store_commit_and_wait(store_of(state)), ERR_NONE);
}

/* --- claims --------------------------------------------------------------------------------- */

static void a_claim_of_what_nobody_holds_is_won(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    uint64_t version;

    assert_int_equal(claim_and_wait(store_of(state), 0, "a", "{\"by\":1}", &version), CLAIM_WON);
    found.query.kind = CLAIM_KIND;
    found_records_ask(&found, store_of(state), STORE_DOCUMENTS);
    assert_int_equal(found.count, 1);
    assert_string_equal(found_document(&found, 0)->json, "{\"by\":1}");
    assert_true(version != 0 && found_document(&found, 0)->version == version);
}

static void a_claim_of_what_another_holds_is_lost_and_shows_it(void **state)
{
    struct asked_claim asked;
    uint64_t version;

    assert_int_equal(claim_and_wait(store_of(state), 0, "a", "first", &version), CLAIM_WON);
    asked_claim_start(&asked, store_of(state), 0, "a", "second");
    assert_int_equal(asked_claim_wait(&asked, store_of(state)), CLAIM_LOST);
    assert_string_equal(asked.current_json, "first");
    assert_true(asked.current_version == version);
    asked_claim_start(&asked, store_of(state), version + 1, "b", "second");
    assert_int_equal(asked_claim_wait(&asked, store_of(state)), CLAIM_LOST);
    assert_string_equal(asked.current_json, "");
    assert_true(asked.current_version == 0);
}

static void a_claim_replaces_the_version_that_it_expects(void **state)
{
    struct store *store = store_of(state);
    uint64_t first, second;

    assert_int_equal(claim_and_wait(store, 0, "a", "1", &first), CLAIM_WON);
    assert_int_equal(claim_and_wait(store, first, "a", "2", &second), CLAIM_WON);
    assert_true(first != second);
    assert_int_equal(claim_and_wait(store, first, "a", "3", NULL), CLAIM_LOST);
    assert_int_equal(claim_and_wait(store, first, "a", NULL, NULL), CLAIM_LOST);
    assert_int_equal(claim_and_wait(store, second, "a", NULL, NULL), CLAIM_WON);
    assert_int_equal(claim_and_wait(store, second, "a", "4", NULL), CLAIM_LOST);
    assert_int_equal(claim_and_wait(store, 0, "a", "5", &first), CLAIM_WON);
    assert_true(first != second);
}

static void claims_of_one_turn_find_what_earlier_ones_have_written(void **state)
{
    struct store *store = store_of(state);
    struct asked_claim asked[5];

    asked_claim_start(&asked[0], store, 0, "a", "1");
    asked_claim_start(&asked[1], store, 0, "a", "2");
    asked_claim_start(&asked[2], store, asked[0].claim.version, "a", NULL);
    asked_claim_start(&asked[3], store, 0, "a", "3");
    asked_claim_start(&asked[4], store, asked[3].claim.version, "a", "4");
    assert_int_equal(asked_claim_wait(&asked[4], store), CLAIM_WON);
    assert_int_equal(asked[0].claim.outcome, CLAIM_WON);
    assert_int_equal(asked[1].claim.outcome, CLAIM_LOST);
    assert_string_equal(asked[1].current_json, "1");
    assert_int_equal(asked[2].claim.outcome, CLAIM_WON);
    assert_int_equal(asked[3].claim.outcome, CLAIM_WON);
}

struct claim_then_ticket {
    struct store_ticket ticket;
    struct asked_claim asked;
    bool done;
};

static void on_ticket_behind_claim(struct store_ticket *ticket)
{
    struct claim_then_ticket *both = container_of(ticket, struct claim_then_ticket, ticket);

    assert_true(both->asked.done);
    both->done = true;
}

static void a_claim_is_answered_before_the_tickets_of_its_turn(void **state)
{
    struct claim_then_ticket both = { 0 };

    store_commit(store_of(state), &both.ticket, on_ticket_behind_claim);
    asked_claim_start(&both.asked, store_of(state), 0, "a", "1");
    store_wait(store_of(state)->loop, &both.done);
    assert_int_equal(both.asked.claim.outcome, CLAIM_WON);
}

static void the_puts_of_a_turn_are_written_whether_its_claim_is_won_or_lost(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct asked_claim asked;

    for (unsigned i = 0; i < 2; i++) {
        struct session_record record = sample_session(i);

        asked_claim_start(&asked, store_of(state), 0, "a", "1");
        store_put_session(store_of(state), &record);
        assert_int_equal(asked_claim_wait(&asked, store_of(state)), i ? CLAIM_LOST : CLAIM_WON);
    }
    found_records_ask(&found, store_of(state), STORE_SESSIONS);
    assert_int_equal(found.count, 2);
}

static void claims_of_a_failed_transaction_fail_and_are_taken_back(void **state)
{
    struct store *store = store_of(state);
    struct asked_claim asked[4];
    uint64_t held;

    assert_int_equal(claim_and_wait(store, 0, "held", "1", &held), CLAIM_WON);
    contract->set_failing(store, true);
    asked_claim_start(&asked[0], store, held, "held", "2");
    asked_claim_start(&asked[1], store, asked[0].claim.version, "held", NULL);
    asked_claim_start(&asked[2], store, 0, "free", "1");
    asked_claim_start(&asked[3], store, 0, "held", "3");
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(asked_claim_wait(&asked[i], store), CLAIM_FAILED);
    contract->set_failing(store, false);
    (void)store_commit_and_wait(store); /* hears of the failure */
    assert_int_equal(claim_and_wait(store, 0, "free", "1", NULL), CLAIM_WON);
    assert_int_equal(claim_and_wait(store, held, "held", "2", NULL), CLAIM_WON);
}

static void a_claim_that_has_expired_is_free(void **state)
{
    struct fixture *fixture = *state;
    struct document_record document = {
        .kind = CLAIM_KIND, .id = "a", .json = "1", .expires_wall_us = fixture->clock.wall_us + 1000
    };
    struct asked_claim asked = { 0 };

    asked_claim_start(&asked, fixture->store, 0, "b", "other"); /* the first one sweeps */
    assert_int_equal(asked_claim_wait(&asked, fixture->store), CLAIM_WON);
    asked_claim_start(&asked, fixture->store, 0, "b", NULL);
    assert_int_equal(asked_claim_wait(&asked, fixture->store), CLAIM_LOST);
    asked.done = false;
    store_claim(fixture->store, &asked.claim, 0, &document, asked.claim.done);
    assert_int_equal(asked_claim_wait(&asked, fixture->store), CLAIM_WON);
    assert_int_equal(claim_and_wait(fixture->store, 0, "a", "2", NULL), CLAIM_LOST);
    simulated_clock_advance(&fixture->clock, 1000);
    assert_int_equal(claim_and_wait(fixture->store, asked.claim.version, "a", "2", NULL),
                     CLAIM_LOST);
    assert_int_equal(claim_and_wait(fixture->store, 0, "a", "2", NULL), CLAIM_WON);
}

static void a_document_that_was_only_put_can_be_claimed(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct document_record document = { .kind = CLAIM_KIND, .id = "old", .json = "put" };

    store_put_document(store_of(state), &document);
    assert_int_equal(store_commit_and_wait(store_of(state)), ERR_NONE);
    assert_int_equal(claim_and_wait(store_of(state), 0, "old", "claimed", NULL), CLAIM_WON);
    found_records_ask(&found, store_of(state), STORE_DOCUMENTS);
    assert_int_equal(found.count, 1);
    assert_string_equal(found_document(&found, 0)->json, "claimed");
}

static void closing_answers_the_claims(void **state)
{
    struct fixture *fixture = *state;
    struct asked_claim asked;

    asked_claim_start(&asked, fixture->store, 0, "a", "1");
    store_close(steal_ptr(&fixture->store));
    assert_true(asked.done);
    assert_int_equal(asked.claim.outcome, CLAIM_WON);
}

/* --- watches -------------------------------------------------------------------------------- */

struct counting_watch {
    struct store_watch watch;
    bool is_active; /* has been reported */
    unsigned told;
    char last[64];
};

static void on_change(struct store_watch *watch, const char *id)
{
    struct counting_watch *counting = container_of(watch, struct counting_watch, watch);

    counting->is_active = counting->is_active || !id;
    counting->told += id != NULL;
    snprintf(counting->last, sizeof(counting->last), "%s", id ? id : "");
}

static void wait_until_active(struct store *store, const struct counting_watch *counting)
{
    if (contract->asks_server)
        store_wait(store->loop, &counting->is_active);
}

static void wait_for_reports(struct store *store, const struct counting_watch *counting,
                             unsigned told)
{
    int64_t deadline_us = clock_now_us(&clock_system) + 60 * 1000000;

    while (counting->told < told && clock_now_us(&clock_system) < deadline_us)
        loop_turn(store->loop, 10);
    assert_int_equal(counting->told, told);
}

static void a_watch_is_told_of_each_change_of_its_documents(void **state)
{
    struct store *store = store_of(state);
    struct document_record put = { .kind = "other", .id = "a", .json = "{}" };
    struct counting_watch all = { 0 }, one = { 0 };
    uint64_t version;

    store_watch_start(store, &all.watch, CLAIM_KIND, NULL, on_change);
    store_watch_start(store, &one.watch, "other", "a", on_change);
    wait_until_active(store, &all);
    wait_until_active(store, &one);
    assert_int_equal(claim_and_wait(store, 0, "a", "1", &version), CLAIM_WON);
    wait_for_reports(store, &all, 1);
    assert_string_equal(all.last, "a");
    assert_int_equal(claim_and_wait(store, 0, "a", "2", NULL), CLAIM_LOST);
    assert_int_equal(claim_and_wait(store, version, "a", NULL, NULL), CLAIM_WON);
    wait_for_reports(store, &all, 2);
    store_put_document(store, &put);
    put.id = "b";
    store_put_document(store, &put);
    assert_int_equal(store_commit_and_wait(store), ERR_NONE);
    wait_for_reports(store, &one, 1);
    store_forget_document(store, "other", "a");
    assert_int_equal(store_commit_and_wait(store), ERR_NONE);
    wait_for_reports(store, &one, 2);
    store_watch_stop(&one.watch);
    store_watch_stop(&all.watch);
    assert_int_equal(claim_and_wait(store, 0, "a", "1", NULL), CLAIM_WON);
    assert_int_equal(all.told, 2);
}

static void a_watch_is_not_told_of_what_could_not_be_written(void **state)
{
    struct store *store = store_of(state);
    struct counting_watch all = { 0 };

    store_watch_start(store, &all.watch, CLAIM_KIND, NULL, on_change);
    wait_until_active(store, &all);
    contract->set_failing(store, true);
    assert_int_equal(claim_and_wait(store, 0, "a", "1", NULL), CLAIM_FAILED);
    contract->set_failing(store, false);
    (void)store_commit_and_wait(store);
    assert_int_equal(claim_and_wait(store, 0, "b", "1", NULL), CLAIM_WON);
    wait_for_reports(store, &all, 1);
    assert_string_equal(all.last, "b");
    store_watch_stop(&all.watch);
}

/* --- queries ------------------------------------------------------------------------------- */

static void put_sessions_of(struct store *store, unsigned first, unsigned count, const char *owner,
                            const char *state)
{
    for (unsigned i = first; i < first + count; i++) {
        struct session_record record = sample_session(i);

        record.owner = owner;
        record.state = state;
        store_put_session(store, &record);
    }
}

static void a_query_sees_every_put_made_before_it(void **state)
{
    struct store *store = store_of(state);

    for (unsigned i = 0; i < 20; i++) {
        scoped(found_records_free) struct found_records found = { 0 };
        struct session_record record = sample_session(i);

        store_put_session(store, &record);
        found.query.id = record.id;
        found_records_ask(&found, store, STORE_SESSIONS);
        assert_int_equal(found.count, 1);
        assert_string_equal(found_session(&found, 0)->id, record.id);
    }
}

struct late_question {
    struct store_ticket ticket;
    struct store *store;
    struct store_query query;
    unsigned found;
    bool done;
};

static void count_session(struct store_query *query,
                          const struct session_record *record __attribute__((unused)))
{
    container_of(query, struct late_question, query)->found++;
}

static void on_late_answer(struct store_query *query)
{
    container_of(query, struct late_question, query)->done = true;
}

static void put_and_ask(struct store_ticket *ticket)
{
    struct late_question *late = container_of(ticket, struct late_question, ticket);
    struct session_record record = sample_session(2);

    store_put_session(late->store, &record);
    store_query(late->store, STORE_SESSIONS, &late->query);
}

static void so_does_one_that_a_callback_asks_while_others_wait(void **state)
{
    struct late_question early = { .query = { .on_session = count_session,
                                              .done = on_late_answer } };
    struct late_question late = { .store = store_of(state), .query = early.query };
    struct session_record record = sample_session(1);

    store_put_session(store_of(state), &record);
    store_commit_as(store_of(state), &late.ticket, STORE_WRITTEN, put_and_ask);
    store_query(store_of(state), STORE_SESSIONS, &early.query);
    store_wait(store_of(state)->loop, &late.done);
    assert_true(early.done);
    assert_true(early.found >= 1);
    assert_int_equal(late.found, 2);
}

static void no_owner_means_any_and_an_empty_one_means_ownerless(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct store *store = store_of(state);

    put_sessions_of(store, 0, 3, NULL, "open");
    put_sessions_of(store, 3, 2, "ada", "open");
    found_records_ask(&found, store, STORE_SESSIONS);
    assert_int_equal(found.count, 5);
    found.query.owner = "";
    found_records_ask(&found, store, STORE_SESSIONS);
    assert_int_equal(found.count, 3);
    found.query.owner = "ada";
    found_records_ask(&found, store, STORE_SESSIONS);
    assert_int_equal(found.count, 2);
    found.query.owner = "ad";
    found_records_ask(&found, store, STORE_SESSIONS);
    assert_int_equal(found.count, 0);
    found.query.owner = "Ada";
    found_records_ask(&found, store, STORE_SESSIONS);
    assert_int_equal(found.count, 0);
}

static void sessions_are_found_by_state_with_and_without_an_owner(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct store *store = store_of(state);

    put_sessions_of(store, 0, 4, "ada", STORE_STATE_ENDED);
    put_sessions_of(store, 4, 3, "ada", "open");
    put_sessions_of(store, 7, 2, "bob", "open");
    put_sessions_of(store, 9, 1, "bob", "paused");
    found.query.state = "open";
    found_records_ask(&found, store, STORE_SESSIONS);
    assert_int_equal(found.count, 5);
    assert_string_equal(found_session(&found, 0)->id, sample_session(4).id);
    found.query.owner = "bob";
    found_records_ask(&found, store, STORE_SESSIONS);
    assert_int_equal(found.count, 2);
    found.query.state = STORE_STATE_ENDED;
    found_records_ask(&found, store, STORE_SESSIONS);
    assert_int_equal(found.count, 0);
    found.query.owner = NULL;
    found_records_ask(&found, store, STORE_SESSIONS);
    assert_int_equal(found.count, 4);
    found.query.state = "paused";
    found_records_ask(&found, store, STORE_SESSIONS);
    assert_int_equal(found.count, 1);
}

static void live_sessions_are_all_but_the_ended_ones(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct store *store = store_of(state);

    put_sessions_of(store, 0, 4, "ada", STORE_STATE_ENDED);
    put_sessions_of(store, 4, 3, "ada", "open");
    put_sessions_of(store, 7, 2, "bob", "never heard of");
    found.query.live = true;
    found_records_ask(&found, store, STORE_SESSIONS);
    assert_int_equal(found.count, 5);
    assert_string_equal(found_session(&found, 0)->id, sample_session(4).id);
    found.query.owner = "bob";
    found_records_ask(&found, store, STORE_SESSIONS);
    assert_int_equal(found.count, 2);
}

static void sessions_are_found_by_key(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct store *store = store_of(state);

    for (unsigned i = 0; i < 6; i++) {
        struct session_record record = sample_session(i);

        record.owner = i % 2 ? "ada" : "bob";
        record.key = i < 4 ? "k" : NULL;
        record.state = i < 2 ? STORE_STATE_ENDED : "open";
        store_put_session(store, &record);
    }
    found.query.key = "k";
    found_records_ask(&found, store, STORE_SESSIONS);
    assert_int_equal(found.count, 4);
    found.query.owner = "ada";
    found_records_ask(&found, store, STORE_SESSIONS);
    assert_int_equal(found.count, 2);
    found.query.state = "open";
    found_records_ask(&found, store, STORE_SESSIONS);
    assert_int_equal(found.count, 1);
    assert_string_equal(found_session(&found, 0)->id, sample_session(3).id);
    found.query.state = STORE_STATE_ENDED;
    found_records_ask(&found, store, STORE_SESSIONS);
    assert_int_equal(found.count, 1);
    assert_string_equal(found_session(&found, 0)->id, sample_session(1).id);
}

static void check_pages(struct store *store, bool by_position)
{
    uint64_t last = 0;

    put_sessions_of(store, 0, 25, "ada", "open");
    for (int newest_first = 0; newest_first < 2; newest_first++) {
        unsigned seen = 0;

        last = 0;
        for (;;) {
            scoped(found_records_free) struct found_records found = { 0 };

            found.query.owner = "ada";
            found.query.after = by_position ? 0 : seen;
            found.query.behind = by_position ? last : 0;
            found.query.limit = 10;
            found.query.count = true;
            found.query.newest_first = newest_first;
            found_records_ask(&found, store, STORE_SESSIONS);
            last = found.query.position;
            assert_int_equal(found.query.total, 25);
            for (size_t i = 0; i < found.count; i++, seen++)
                assert_string_equal(found_session(&found, i)->id,
                                    sample_session(newest_first ? 24 - seen : seen).id);
            if (found.count < 10)
                break;
        }
        assert_int_equal(seen, 25);
    }
}

static void pages_follow_each_other_without_gap_or_overlap(void **state)
{
    check_pages(store_of(state), false);
}

static void pages_behind_a_position_have_no_gap_or_overlap(void **state)
{
    check_pages(store_of(state), true);
}

/* --- labels -------------------------------------------------------------------------------- */

static void put_ended(struct store *store, unsigned n, const char *owner, const char *labels)
{
    struct session_record record = sample_session(n);

    record.owner = owner;
    record.key = NULL;
    record.state = STORE_STATE_ENDED;
    record.labels_json = labels;
    store_put_session(store, &record);
}

/* How many an owner (NULL: everybody) has with up to two labels, told and found page by page. */
static unsigned count_labelled(struct store *store, const char *owner, struct store_label first,
                               struct store_label second)
{
    const struct store_label labels[] = { first, second };
    scoped(found_records_free) struct found_records found = { 0 };
    uint64_t behind = 0, total = 0;
    unsigned count = 0;

    do {
        found.query = (struct store_query){ .owner = owner,
                                            .state = STORE_STATE_ENDED,
                                            .labels = labels,
                                            .label_count = second.name ? 2 : 1,
                                            .newest_first = true,
                                            .behind = behind,
                                            .limit = 2,
                                            .count = true };
        found_records_ask(&found, store, STORE_SESSIONS);
        assert_true(!behind || found.query.total == total);
        total = found.query.total;
        assert_true(found.count <= 2 && (found.count == 2 || !found.query.is_cut));
        count += (unsigned)found.count;
        behind = found.query.position;
    } while (found.query.is_cut);
    assert_int_equal(count, total);
    return count;
}

static const struct store_label no_label = { 0 };
static const struct store_label red = { "colour", "red" };
static const struct store_label blue = { "colour", "blue" };
static const struct store_label big = { "size", "big" };

static void ended_sessions_are_found_by_label(void **state)
{
    struct store *store = store_of(state);

    for (unsigned i = 1; i <= 5; i++)
        put_ended(store, i, "ada", "{\"colour\":\"red\",\"size\":\"big\"}");
    put_ended(store, 6, "ada", "{\"colour\":\"blue\",\"size\":\"big\"}");
    put_ended(store, 7, "bob", "{\"colour\":\"red\"}");
    put_ended(store, 8, "ada", "");
    put_ended(store, 9, "ada", "{\"colour\":7}");
    assert_int_equal(count_labelled(store, "ada", red, no_label), 5);
    assert_int_equal(count_labelled(store, "ada", big, no_label), 6);
    assert_int_equal(count_labelled(store, "ada", big, red), 5);
    assert_int_equal(count_labelled(store, "ada", blue, big), 1);
    assert_int_equal(count_labelled(store, "ada", blue, red), 0);
    assert_int_equal(count_labelled(store, "bob", red, no_label), 1);
    assert_int_equal(count_labelled(store, "bob", red, big), 0);
    assert_int_equal(count_labelled(store, NULL, red, no_label), 6);
    assert_int_equal(count_labelled(store, "*", red, no_label), 0);
    assert_int_equal(count_labelled(store, "ada", (struct store_label){ "colour", "7" }, no_label),
                     0);
}

static void a_label_filter_follows_what_is_put_and_forgotten(void **state)
{
    struct store *store = store_of(state);
    struct session_record open = sample_session(3);

    put_ended(store, 1, "ada", "{\"colour\":\"red\"}");
    put_ended(store, 2, "ada", "{\"colour\":\"red\"}");
    open.owner = "ada";
    open.labels_json = "{\"colour\":\"red\"}";
    store_put_session(store, &open);
    assert_int_equal(count_labelled(store, "ada", red, no_label), 2);
    put_ended(store, 1, "ada", "{\"colour\":\"blue\"}");
    assert_int_equal(count_labelled(store, "ada", red, no_label), 1);
    assert_int_equal(count_labelled(store, "ada", blue, no_label), 1);
    put_ended(store, 3, "ada", "{\"colour\":\"red\"}");
    assert_int_equal(count_labelled(store, "ada", red, no_label), 2);
    store_put_session(store, &open);
    assert_int_equal(count_labelled(store, "ada", red, no_label), 1);
    put_ended(store, 2, "bob", "{\"colour\":\"red\"}");
    assert_int_equal(count_labelled(store, "ada", red, no_label), 0);
    assert_int_equal(count_labelled(store, "bob", red, no_label), 1);
    assert_int_equal(count_labelled(store, NULL, red, no_label), 1);
    open = sample_session(2);
    store_forget_session(store, open.id);
    assert_int_equal(count_labelled(store, NULL, red, no_label), 0);
    open = sample_session(1);
    store_forget_session(store, open.id);
    assert_int_equal(count_labelled(store, NULL, blue, no_label), 0);
}

/* In one transaction: some leave lists that others enter, and one does both. */
static void a_label_filter_follows_many_changes_at_once(void **state)
{
    struct store *store = store_of(state);

    for (unsigned i = 1; i <= 40; i++)
        put_ended(store, i, i % 2 ? "ada" : "bob", "{\"colour\":\"red\",\"size\":\"big\"}");
    assert_int_equal(count_labelled(store, NULL, red, big), 40);
    for (unsigned i = 1; i <= 30; i++) {
        struct session_record record = sample_session(i);

        store_forget_session(store, record.id);
    }
    put_ended(store, 31, "ada", "{\"colour\":\"blue\",\"size\":\"big\"}");
    put_ended(store, 32, "bob", "{\"colour\":\"red\",\"size\":\"big\"}");
    put_ended(store, 50, "ada", "{\"colour\":\"red\"}");
    assert_int_equal(count_labelled(store, NULL, red, no_label), 10);
    assert_int_equal(count_labelled(store, "ada", red, no_label), 5);
    assert_int_equal(count_labelled(store, "bob", red, big), 5);
    assert_int_equal(count_labelled(store, "ada", blue, big), 1);
    assert_int_equal(count_labelled(store, NULL, big, no_label), 10);
}

static uint64_t total_ended(struct store *store, const char *owner)
{
    scoped(found_records_free) struct found_records found = { 0 };

    found.query = (struct store_query){
        .owner = owner, .state = STORE_STATE_ENDED, .limit = 1, .count = true
    };
    found_records_ask(&found, store, STORE_SESSIONS);
    return found.query.total;
}

static void the_number_of_ended_sessions_is_told(void **state)
{
    struct store *store = store_of(state);
    struct session_record record = sample_session(1);

    assert_int_equal(total_ended(store, "ada"), 0);
    for (unsigned i = 1; i <= 5; i++)
        put_ended(store, i, i < 4 ? "ada" : "bob", "");
    put_ended(store, 1, "ada", "");
    assert_int_equal(total_ended(store, "ada"), 3);
    assert_int_equal(total_ended(store, "bob"), 2);
    assert_int_equal(total_ended(store, NULL), 5);
    assert_int_equal(total_ended(store, ""), 0);
    store_forget_session(store, record.id);
    store_forget_session(store, record.id);
    assert_int_equal(total_ended(store, "ada"), 2);
    assert_int_equal(total_ended(store, NULL), 4);
}

static void a_page_is_bounded_in_bytes_and_says_that_there_is_more(void **state)
{
    struct store *store = store_of(state);
    scoped(found_records_free) struct found_records found = { 0 };
    scoped(free) char *text = xmalloc(10001);

    memset(text, 'x', 10000);
    text[10000] = '\0';
    for (unsigned i = 1; i <= 10; i++) {
        struct event_record event = sample_event(i);

        event.data_json = text;
        store_put_event(store, &event);
    }
    found.query.limit_bytes = 25000;
    found_records_ask(&found, store, STORE_EVENTS);
    assert_int_equal(found.count, 3);
    assert_true(found.query.is_cut);
    found.query.limit_bytes = 1;
    found_records_ask(&found, store, STORE_EVENTS);
    assert_int_equal(found.count, 1);
    found.query.limit_bytes = 1000 * 1000;
    found_records_ask(&found, store, STORE_EVENTS);
    assert_int_equal(found.count, 10);
    assert_false(found.query.is_cut);
    found.query.limit = 10;
    found_records_ask(&found, store, STORE_EVENTS);
    assert_false(found.query.is_cut);
    found.query.limit = 9;
    found_records_ask(&found, store, STORE_EVENTS);
    assert_int_equal(found.count, 9);
    assert_true(found.query.is_cut);
}

static void executions_are_found_by_session_key_and_state(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct store *store = store_of(state);

    for (unsigned i = 0; i < 6; i++) {
        struct execution_record record = sample_execution(i);

        snprintf(record.session_id, sizeof(record.session_id), "ses_%u", i % 2);
        record.key = i < 2 ? "mine" : NULL;
        record.state = i < 4 ? "exited" : "running";
        store_put_execution(store, &record);
    }
    found.query.session_id = "ses_1";
    found_records_ask(&found, store, STORE_EXECUTIONS);
    assert_int_equal(found.count, 3);
    assert_string_equal(found_execution(&found, 2)->id, sample_execution(5).id);
    assert_null(found_execution(&found, 2)->key);
    found.query.newest_first = true;
    found.query.limit = 1;
    found_records_ask(&found, store, STORE_EXECUTIONS);
    assert_string_equal(found_execution(&found, 0)->id, sample_execution(5).id);
    found.query.key = "mine";
    found_records_ask(&found, store, STORE_EXECUTIONS);
    assert_int_equal(found.count, 1);
    assert_string_equal(found_execution(&found, 0)->id, sample_execution(1).id);
    found.query = (struct store_query){ .state = "running" };
    found_records_ask(&found, store, STORE_EXECUTIONS);
    assert_int_equal(found.count, 2);
    found.query = (struct store_query){ .id = sample_execution(2).id };
    found_records_ask(&found, store, STORE_EXECUTIONS);
    assert_int_equal(found.count, 1);
}

static void sandboxes_are_found_by_id_session_and_state(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct store *store = store_of(state);

    for (unsigned i = 0; i < 4; i++) {
        struct sandbox_record record = sample_sandbox(i);

        if (i == 3)
            record.session_id[0] = '\0';
        record.state = i < 2 ? "ready" : "destroying";
        store_put_sandbox(store, &record);
    }
    found.query.state = "destroying";
    found_records_ask(&found, store, STORE_SANDBOXES);
    assert_int_equal(found.count, 2);
    assert_string_equal(found_sandbox(&found, 1)->session_id, "");
    found.query = (struct store_query){ .session_id = sample_sandbox(1).session_id };
    found_records_ask(&found, store, STORE_SANDBOXES);
    assert_int_equal(found.count, 1);
    found.query = (struct store_query){ .id = sample_sandbox(2).id };
    found_records_ask(&found, store, STORE_SANDBOXES);
    assert_int_equal(found.count, 1);
}

static void events_are_replayed_after_a_sequence_number(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct store *store = store_of(state);

    for (unsigned i = 1; i <= 30; i++) {
        struct event_record record = sample_event(i);

        snprintf(record.session_id, sizeof(record.session_id), "ses_%u", i % 3);
        record.owner = i % 2 ? "ada" : "";
        store_put_event(store, &record);
    }
    found.query.after = 27;
    found_records_ask(&found, store, STORE_EVENTS);
    assert_int_equal(found.count, 3);
    assert_int_equal(found_event(&found, 0)->sequence, 28);
    found.query.session_id = "ses_0";
    found.query.after = 20;
    found_records_ask(&found, store, STORE_EVENTS);
    assert_int_equal(found.count, 4);
    assert_int_equal(found_event(&found, 0)->sequence, 21);
    found.query.limit = 2;
    found.query.newest_first = true;
    found_records_ask(&found, store, STORE_EVENTS);
    assert_int_equal(found.count, 2);
    assert_int_equal(found_event(&found, 0)->sequence, 30);
    found.query = (struct store_query){ .owner = "", .after = 10 };
    found_records_ask(&found, store, STORE_EVENTS);
    assert_int_equal(found.count, 10);
    assert_int_equal(found_event(&found, 0)->sequence, 12);
}

static void expired_sessions_come_longest_expired_first(void **state)
{
    static const int64_t retain[] = { 500, 100, 0, 300, 900, 300 };
    static const unsigned expected[] = { 1, 3, 5, 0 };
    scoped(found_records_free) struct found_records found = { 0 };
    struct store *store = store_of(state);

    for (unsigned i = 0; i < 6; i++) {
        struct session_record record = sample_session(i);

        record.state = retain[i] ? STORE_STATE_ENDED : "open";
        record.retain_until_wall_us = retain[i];
        store_put_session(store, &record);
    }
    found_records_ask_expired(&found, store, 500);
    assert_int_equal(found.count, 4);
    for (unsigned i = 0; i < 4; i++)
        assert_string_equal(found_session(&found, i)->id, sample_session(expected[i]).id);
    found.query.limit = 2;
    found_records_ask_expired(&found, store, 500);
    assert_int_equal(found.count, 2);
    found_records_ask_expired(&found, store, 99);
    assert_int_equal(found.count, 0);
}

static void put_document(struct store *store, const char *kind, const char *id, const char *owner,
                         int64_t expires_wall_us)
{
    struct document_record record = {
        .kind = kind, .id = id, .owner = owner, .json = "{}", .expires_wall_us = expires_wall_us
    };

    store_put_document(store, &record);
}

static void documents_are_found_by_kind_id_and_owner(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct store *store = store_of(state);

    put_document(store, "key", "1", "ada", 0);
    put_document(store, "approval", "1", "ada", 0);
    put_document(store, "approval", "2", "bob", 0);
    found.query.kind = "approval";
    found_records_ask(&found, store, STORE_DOCUMENTS);
    assert_int_equal(found.count, 2);
    found.query.owner = "bob";
    found_records_ask(&found, store, STORE_DOCUMENTS);
    assert_int_equal(found.count, 1);
    found.query = (struct store_query){ .kind = "key", .id = "1" };
    found_records_ask(&found, store, STORE_DOCUMENTS);
    assert_int_equal(found.count, 1);
    store_forget_document(store, "key", "1");
    found_records_ask(&found, store, STORE_DOCUMENTS);
    assert_int_equal(found.count, 0);
    found.query = (struct store_query){ .owner = "ada" };
    found_records_ask(&found, store, STORE_DOCUMENTS);
    assert_int_equal(found.count, 1);
}

static void documents_are_not_found_once_they_have_expired(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct fixture *fixture = *state;
    int64_t now_us = fixture->clock.wall_us;

    put_document(fixture->store, "idempotency", "soon", "", now_us + 1000);
    put_document(fixture->store, "idempotency", "later", "", now_us + 1000000);
    put_document(fixture->store, "idempotency", "never", "", 0);
    found_records_ask(&found, fixture->store, STORE_DOCUMENTS);
    assert_int_equal(found.count, 3);
    simulated_clock_advance(&fixture->clock, 1000);
    found_records_ask(&found, fixture->store, STORE_DOCUMENTS);
    assert_int_equal(found.count, 2);
    put_document(fixture->store, "idempotency", "soon", "", now_us + 5000);
    found_records_ask(&found, fixture->store, STORE_DOCUMENTS);
    assert_int_equal(found.count, 3);
    simulated_clock_advance(&fixture->clock, 2000000);
    put_document(fixture->store, "idempotency", "new", "", 0);
    found_records_ask(&found, fixture->store, STORE_DOCUMENTS);
    assert_int_equal(found.count, 2);
}

/* --- forgetting ---------------------------------------------------------------------------- */

static void forgetting_a_session_takes_its_executions_and_events(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct store *store = store_of(state);

    for (unsigned i = 1; i <= 2; i++) {
        struct session_record session = sample_session(i);
        struct sandbox_record sandbox = sample_sandbox(i);
        struct execution_record execution = sample_execution(i);
        struct event_record event = sample_event(i);

        store_put_session(store, &session);
        store_put_sandbox(store, &sandbox);
        store_put_execution(store, &execution);
        store_put_event(store, &event);
    }
    store_forget_session(store, sample_session(1).id);
    store_forget_session(store, "ses_unknown");
    found_records_ask(&found, store, STORE_SESSIONS);
    assert_int_equal(found.count, 1);
    assert_string_equal(found_session(&found, 0)->id, sample_session(2).id);
    found_records_ask(&found, store, STORE_EXECUTIONS);
    assert_int_equal(found.count, 1);
    found_records_ask(&found, store, STORE_EVENTS);
    assert_int_equal(found.count, 1);
    found_records_ask(&found, store, STORE_SANDBOXES);
    assert_int_equal(found.count, 2);
    store_forget_sandbox(store, sample_sandbox(1).id);
    found_records_ask(&found, store, STORE_SANDBOXES);
    assert_int_equal(found.count, 1);
}

static void what_is_forgotten_can_be_put_again(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct session_record record = sample_session(1);

    record.key = "k";
    store_put_session(store_of(state), &record);
    store_forget_session(store_of(state), record.id);
    store_put_session(store_of(state), &record);
    assert_int_equal(store_commit_and_wait(store_of(state)), ERR_NONE);
    found_records_ask(&found, store_of(state), STORE_SESSIONS);
    assert_int_equal(found.count, 1);
}

/* --- size ---------------------------------------------------------------------------------- */

static void ten_thousand_records_keep_their_order(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct store *store = store_of(state);

    for (unsigned i = 0; i < MANY; i++) {
        struct session_record record = sample_session(i);
        char key[32];

        snprintf(key, sizeof(key), "key %u", i);
        record.key = key;
        store_put_session(store, &record);
    }
    assert_int_equal(store_commit_and_wait(store), ERR_NONE);
    found_records_ask(&found, store, STORE_SESSIONS);
    assert_int_equal(found.count, MANY);
    for (unsigned i = 0; i < MANY; i++)
        assert_string_equal(found_session(&found, i)->id, sample_session(i).id);
}

static void a_megabyte_of_text_is_kept(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    scoped(free) char *text = xmalloc(1 << 20);
    struct session_record record = sample_session(1);

    memset(text, 'x', (1 << 20) - 1);
    text[(1 << 20) - 1] = '\0';
    record.spec_json = text;
    store_put_session(store_of(state), &record);
    found_records_ask(&found, store_of(state), STORE_SESSIONS);
    assert_string_equal(found_session(&found, 0)->spec_json, text);
}

#define contract_test(name) cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)

int store_contract_run(const struct store_contract *which)
{
    const struct CMUnitTest tests[] = {
        contract_test(a_session_comes_back_with_every_field),
        contract_test(a_sandbox_comes_back_with_every_field),
        contract_test(an_execution_comes_back_with_every_field),
        contract_test(an_event_comes_back_with_every_field),
        contract_test(a_document_comes_back_with_every_field),
        contract_test(what_is_not_set_comes_back_as_zero_and_empty_text),
        contract_test(a_put_copies_the_record),
        contract_test(putting_again_replaces_a_record_and_keeps_its_place),
        contract_test(tickets_complete_in_order_and_never_inside_the_call),
        contract_test(a_commit_of_nothing_succeeds),
        contract_test(a_callback_may_put_and_commit_again),
        contract_test(what_is_put_behind_a_ticket_in_the_same_turn_is_part_of_its_commit),
        contract_test(closing_commits_what_is_pending_and_tells_the_tickets),
        contract_test(two_sessions_may_have_one_key),
        contract_test(a_failed_transaction_is_taken_back_as_a_whole),
        contract_test(putting_a_lost_record_again_repairs_it),
        contract_test(a_failure_that_nobody_waited_for_is_told_to_the_next_ticket),
        contract_test(a_claim_of_what_nobody_holds_is_won),
        contract_test(a_claim_of_what_another_holds_is_lost_and_shows_it),
        contract_test(a_claim_replaces_the_version_that_it_expects),
        contract_test(claims_of_one_turn_find_what_earlier_ones_have_written),
        contract_test(a_claim_is_answered_before_the_tickets_of_its_turn),
        contract_test(the_puts_of_a_turn_are_written_whether_its_claim_is_won_or_lost),
        contract_test(claims_of_a_failed_transaction_fail_and_are_taken_back),
        contract_test(a_claim_that_has_expired_is_free),
        contract_test(a_document_that_was_only_put_can_be_claimed),
        contract_test(closing_answers_the_claims),
        contract_test(a_watch_is_told_of_each_change_of_its_documents),
        contract_test(a_watch_is_not_told_of_what_could_not_be_written),
        contract_test(a_query_sees_every_put_made_before_it),
        contract_test(so_does_one_that_a_callback_asks_while_others_wait),
        contract_test(no_owner_means_any_and_an_empty_one_means_ownerless),
        contract_test(sessions_are_found_by_state_with_and_without_an_owner),
        contract_test(live_sessions_are_all_but_the_ended_ones),
        contract_test(sessions_are_found_by_key),
        contract_test(pages_follow_each_other_without_gap_or_overlap),
        contract_test(pages_behind_a_position_have_no_gap_or_overlap),
        contract_test(executions_are_found_by_session_key_and_state),
        contract_test(sandboxes_are_found_by_id_session_and_state),
        contract_test(events_are_replayed_after_a_sequence_number),
        contract_test(expired_sessions_come_longest_expired_first),
        contract_test(documents_are_found_by_kind_id_and_owner),
        contract_test(documents_are_not_found_once_they_have_expired),
        contract_test(forgetting_a_session_takes_its_executions_and_events),
        contract_test(what_is_forgotten_can_be_put_again),
        contract_test(ten_thousand_records_keep_their_order),
        contract_test(a_page_is_bounded_in_bytes_and_says_that_there_is_more),
        contract_test(the_number_of_ended_sessions_is_told),
        contract_test(a_label_filter_follows_what_is_put_and_forgotten),
        contract_test(a_label_filter_follows_many_changes_at_once),
        contract_test(ended_sessions_are_found_by_label),
        contract_test(a_megabyte_of_text_is_kept),
    };

    contract = which;
    return cmocka_run_group_tests_name(which->name, tests, NULL, NULL);
}
