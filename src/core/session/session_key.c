/* SPDX-License-Identifier: Apache-2.0 */
#include "core/session/session_key.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "core/session/session_private.h"
#include "wire/json.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A claim on its way, one at a time. The session outlives it: its end waits for a later commit. */
struct key_claim {
    struct store_claim claim;
    struct session *session; /* borrowed */
    uint64_t expected;       /* 0: it held nothing before */
};

/* A key that is claimed by a session that may be gone without having released it. */
struct stale_check {
    struct store_query query;
    struct store_claim claim;
    struct core *core; /* borrowed */
    char *key;         /* owned: "owner\nkey" */
    char session_id[ID_SIZE];
    uint64_t version;
    bool is_alive;
};

/* --- a claim that another session holds ----------------------------------------------------- */

static void stale_check_free(struct stale_check *check)
{
    free(check->key);
    free(check);
}

static void on_stale_released(struct store_claim *claim)
{
    struct stale_check *check = container_of(claim, struct stale_check, claim);

    if (claim->outcome == CLAIM_WON)
        log_warn("session key released: its session is gone", kv("session", check->session_id));
    stale_check_free(check);
}

static void on_holder(struct store_query *query, const struct session_record *record)
{
    struct stale_check *check = container_of(query, struct stale_check, query);

    check->is_alive = !str_equal(record->state, STORE_STATE_ENDED);
}

static void on_holder_known(struct store_query *query)
{
    struct stale_check *check = container_of(query, struct stale_check, query);

    if (query->err.code != ERR_NONE || check->is_alive)
        stale_check_free(check);
    else
        store_release(check->core->parts.store, &check->claim, check->version, SESSION_KEY_KIND,
                      check->key, on_stale_released);
}

/* The record of a session and its claim are one transaction: a claim without a live record is one
 * that damage has left behind. */
static void check_holder(struct core *core, const struct document_record *document,
                         const char *session_id)
{
    struct stale_check *check;

    if (map_get(&core->sessions_by_id, session_id))
        return;
    check = xnew(struct stale_check);
    check->core = core;
    check->key = xstrdup(document->id);
    check->version = document->version;
    snprintf(check->session_id, sizeof(check->session_id), "%s", session_id);
    check->query = (struct store_query){ .on_session = on_holder,
                                         .done = on_holder_known,
                                         .id = check->session_id };
    store_query(core->parts.store, STORE_SESSIONS, &check->query);
}

/* --- claiming ------------------------------------------------------------------------------- */

static void holder_of(const struct document_record *document, char out_session_id[ID_SIZE])
{
    scoped(json_decref) json_t *json = json_read(document->json, strlen(document->json), NULL);
    const char *session_id = json_string_value(json_object_get(json, "session"));

    snprintf(out_session_id, ID_SIZE, "%s", session_id ? session_id : "");
}

static void lose(struct session *session, const struct document_record *current)
{
    char holder[ID_SIZE] = "";
    struct error err = { 0 };

    if (current) {
        holder_of(current, holder);
        check_holder(session->core, current, holder);
    }
    error_named(&err, ERR_CONFLICT, "key_taken", "session %s has this key already",
                *holder ? holder : "another one");
    error_hint(&err, "repeat the request: it finds that session, or the key is free then");
    err.retryable = true;
    session_refuse(session, &err);
}

static struct key_claim *ask(struct session *session)
{
    struct key_claim *asked = xnew(struct key_claim);

    assert(!session->identity.claim.asked);
    asked->session = session;
    session->identity.claim.asked = asked;
    return asked;
}

static void claim(struct session *session, uint64_t expected);

/* The store has lost the document, and no other session has claimed the key since. */
static bool is_vanished(const struct key_claim *asked)
{
    return asked->claim.outcome == CLAIM_LOST && asked->expected && !asked->claim.current;
}

static void on_claimed(struct store_claim *done)
{
    struct session *session = container_of(done, struct key_claim, claim)->session;
    struct session_key *key = &session->identity.claim;
    scoped(free) struct key_claim *asked = steal_ptr(&key->asked);
    enum key_state before = key->state;

    assert(before == KEY_ASKED || before == KEY_UNWANTED);
    key->state = done->outcome == CLAIM_WON ? KEY_HELD : KEY_NONE;
    if (done->outcome == CLAIM_FAILED && asked->expected) {
        key->state = KEY_HELD;
        key->version = asked->expected;
    }
    if (is_vanished(asked) && before == KEY_ASKED)
        claim(session, 0);
    else if (done->outcome == CLAIM_LOST && !is_vanished(asked))
        lose(session, done->current);
    if (before == KEY_UNWANTED)
        session_key_release(session);
}

static void claim(struct session *session, uint64_t expected)
{
    struct session_key *key = &session->identity.claim;
    struct key_claim *asked = ask(session);
    char json[ID_SIZE + 32];

    asked->expected = expected;
    snprintf(json, sizeof(json), "{\"session\":\"%s\"}", session->identity.id);
    store_claim(session->core->parts.store, &asked->claim, expected,
                &(struct document_record){ .kind = SESSION_KEY_KIND,
                                           .id = session->identity.map_key,
                                           .owner = session->identity.owner,
                                           .json = json },
                on_claimed);
    store_claim_guard(&asked->claim, session->identity.id);
    key->state = KEY_ASKED;
    key->version = asked->claim.version;
}

void session_key_claim(struct session *session)
{
    if (!session->identity.map_key)
        return;
    assert(session->identity.claim.state == KEY_NONE);
    claim(session, 0);
}

/* --- releasing ------------------------------------------------------------------------------ */

/* When it has failed, the end is recorded again, and it is released with that. */
static void on_released(struct store_claim *claim)
{
    struct session_key *key =
        &container_of(claim, struct key_claim, claim)->session->identity.claim;
    scoped(free) struct key_claim *asked = steal_ptr(&key->asked);

    assert(key->state == KEY_RELEASING);
    key->state = claim->outcome == CLAIM_FAILED ? KEY_HELD : KEY_NONE;
}

void session_key_release(struct session *session)
{
    struct session_key *key = &session->identity.claim;
    scoped(free) char *id = NULL;

    if (key->state == KEY_ASKED)
        key->state = KEY_UNWANTED;
    if (key->state != KEY_HELD)
        return;
    key->state = KEY_RELEASING;
    id = xasprintf("%s\n%s", session->identity.owner, session->identity.key);
    store_release(session->core->parts.store, &ask(session)->claim, key->version, SESSION_KEY_KIND,
                  id, on_released);
}

void session_key_fini(struct session *session)
{
    free(steal_ptr(&session->identity.claim.asked));
}

/* --- after a restart or a failure ------------------------------------------------------------ */

void session_key_restore(struct core *core, const struct document_record *document)
{
    struct session *session;
    char holder[ID_SIZE];

    holder_of(document, holder);
    session = map_get(&core->sessions_by_id, holder);
    if (session && str_equal(session->identity.map_key, document->id))
        session->identity.claim =
            (struct session_key){ .state = KEY_HELD, .version = document->version };
}

void session_key_repair(struct session *session)
{
    if (session->identity.claim.state == KEY_NONE)
        session_key_claim(session);
}

void session_key_assert(struct session *session)
{
    if (session->identity.claim.state == KEY_HELD && session->identity.map_key)
        claim(session, session->identity.claim.version);
    else
        session_key_repair(session);
}

void session_keys_start(struct core *core)
{
    struct session *session;

    list_for_each (session, &core->sessions, node)
        session_key_repair(session);
}
