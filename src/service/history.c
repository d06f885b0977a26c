/* SPDX-License-Identifier: Apache-2.0 */
#include "service/history.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "core/run/execution.h"
#include "core/secrets.h"
#include "core/session/session.h"
#include "service/find.h"
#include "wire/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DOCUMENT_MAXIMUM = 64 * 1024 * 1024 };

static void mask_document(struct past_session *past)
{
    static const char *const members[] = { "key", "labels", "on_behalf_of" };
    scoped(json_decref) json_t *session = NULL;

    if (mask_is_empty(past->secrets))
        return;
    session = json_read(past->json, strlen(past->json), NULL);
    for (size_t i = 0; i < ARRAY_LENGTH(members); i++) {
        const json_t *given = json_object_get(session, members[i]);

        if (given)
            json_object_set_new(session, members[i], json_masked(given, past->secrets));
    }
    free(past->json);
    past->json = json_dumps(session, JSON_COMPACT | JSON_REAL_PRECISION(15));
}

void past_session_take(struct past_session *past, const struct session *session)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(DOCUMENT_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    session_write_json(session, &json, NULL);
    past->json = buffer_steal_text(&text);
    past->secrets = mask_ref(session_mask(session));
    past->hides_output = session_has_lost_secrets(session);
    mask_document(past);
}

static void on_record(struct store_query *query, const struct session_record *record)
{
    struct past_session *past = container_of(query, struct past_session, query);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(DOCUMENT_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    scoped(json_decref)
        json_t *spec = json_read(record->spec_json, strlen(record->spec_json), NULL);
    const char *sealed = json_string_value(json_object_get(spec, "sealed"));
    struct error err = { 0 };
    scoped(secrets_free) struct secrets *secrets =
        sealed ? secrets_unseal(past->core->vault, record->owner, sealed, &err) : NULL;

    session_record_write_json(record, &json, NULL);
    past->json = buffer_steal_text(&text);
    past->secrets = secrets_join(secrets, NULL);
    past->hides_output = sealed && !secrets;
    mask_document(past);
}

static void on_answer(struct store_query *query)
{
    struct past_session *past = container_of(query, struct past_session, query);

    past->err = query->err;
    if (!past->err.code && !past->json)
        find_refuse(past->id, &past->err); /* its retention was over just now */
    past->done(past);
}

void past_session_read(struct past_session *past, struct core *core, const char *session_id,
                       past_session_fn *done)
{
    past->core = core;
    past->done = done;
    snprintf(past->id, sizeof(past->id), "%s", session_id);
    past->query = (struct store_query){
        .on_session = on_record, .done = on_answer, .id = past->id, .limit = 1
    };
    store_query(core->parts.store, STORE_SESSIONS, &past->query);
}

void past_session_fini(struct past_session *past)
{
    free(past->json);
    mask_free(past->secrets);
}

void past_session_write_execution(const struct past_session *past, struct core *core,
                                  const struct execution_record *record, struct json_writer *json,
                                  const char *key, bool with_output)
{
    struct execution_record shown = *record;
    scoped(free) char *masked_key = NULL;
    scoped(free) char *request = NULL;

    if (!mask_is_empty(past->secrets)) {
        masked_key = record->key ? mask_text(past->secrets, record->key) : NULL;
        request = json_masked_text(record->request_json ? record->request_json : "", past->secrets);
        shown.key = masked_key;
        shown.request_json = request;
    }
    execution_record_write_json(&shown, core, json, key, with_output && !past->hides_output,
                                past->secrets);
}
