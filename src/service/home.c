/* SPDX-License-Identifier: Apache-2.0 */
#include "service/home.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "core/session/session.h"
#include "wire/json.h"

#include <stdlib.h>
#include <string.h>

enum { KEYS_MAXIMUM = 8 }; /* records with one key that are looked at */

/* A live one before those that have ended, of which the newest comes first. */
static void on_record(struct store_query *query, const struct session_record *record)
{
    struct session_home *home = container_of(query, struct session_home, query);
    bool is_ended = str_equal(record->state, session_state_name(SESSION_ENDED));

    if (home->found == HOME_LIVE || (home->found == HOME_ENDED && is_ended))
        return;
    home->found = is_ended ? HOME_ENDED : HOME_LIVE;
    memcpy(home->id, record->id, sizeof(home->id));
    free(home->node);
    free(home->owner_of);
    home->node = xstrdup(record->node ? record->node : "");
    home->owner_of = xstrdup(record->owner ? record->owner : "");
}

static void on_answer(struct store_query *query)
{
    struct session_home *home = container_of(query, struct session_home, query);

    home->err = query->err;
    home->done(home);
}

static void ask(struct session_home *home)
{
    bool by_key = str_starts_with(home->reference, "key:");

    home->query = (struct store_query){
        .on_session = on_record,
        .done = on_answer,
        .id = by_key ? NULL : home->reference,
        .key = by_key ? home->reference + strlen("key:") : NULL,
        .owner = home->any_owner ? NULL : home->owner,
        .newest_first = true,
        .limit = by_key ? KEYS_MAXIMUM : 1,
    };
    store_query(home->store, STORE_SESSIONS, &home->query);
}

static void begin(struct session_home *home, struct core *core, session_home_fn *done)
{
    *home = (struct session_home){ .done = done, .store = core->parts.store, .node = xstrdup("") };
}

void session_home_find(struct session_home *home, struct core *core,
                       const struct caller_identity *identity, const char *reference,
                       session_home_fn *done)
{
    begin(home, core, done);
    home->reference = xstrdup(reference);
    home->owner = xstrdup(identity->owner);
    home->any_owner = identity->any_owner;
    ask(home);
}

/* --- by a document --------------------------------------------------------------------------- */

static void on_document(struct store_query *query, const struct document_record *record)
{
    struct session_home *home = container_of(query, struct session_home, query);
    scoped(json_decref) json_t *json = json_read(record->json, strlen(record->json), NULL);
    const char *session = json_string_value(json_object_get(json, "session"));

    if (session && !home->reference && id_is_valid(session, ID_SESSION))
        home->reference = xstrdup(session);
}

static void on_documents(struct store_query *query)
{
    struct session_home *home = container_of(query, struct session_home, query);

    if (home->reference && !query->err.code)
        ask(home);
    else
        on_answer(query);
}

void session_home_find_by(struct session_home *home, struct core *core, const char *kind,
                          const char *document, session_home_fn *done)
{
    begin(home, core, done);
    home->any_owner = true; /* the home asks whose it is */
    home->document = xstrdup(document);
    home->query = (struct store_query){ .on_document = on_document,
                                        .done = on_documents,
                                        .kind = kind,
                                        .id = home->document,
                                        .limit = 1 };
    store_query(home->store, STORE_DOCUMENTS, &home->query);
}

void session_home_fini(struct session_home *home)
{
    free(home->node);
    free(home->owner_of);
    free(home->reference);
    free(home->owner);
    free(home->document);
    *home = (struct session_home){ 0 };
}
