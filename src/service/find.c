/* SPDX-License-Identifier: Apache-2.0 */
#include "service/find.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "core/session/session.h"
#include "wire/json.h"

#include <stdlib.h>
#include <string.h>

enum {
    NOT_FOUND_US = 2 * 1000, /* from the request to the answer */
    KEYS_MAXIMUM = 8,        /* records with one key that are looked at */
    RECORD_MAXIMUM = 256 * 1024 * 1024,
};

int find_refuse(const char *reference, struct error *err)
{
    return error_named(err, ERR_NOT_FOUND, "session_not_found", "session \"%.80s\" not found",
                       reference);
}

struct session *find_live_session(struct core *core, const struct caller_identity *identity,
                                  const char *reference, struct error *err)
{
    struct session *session = session_find(core, identity->owner, identity->any_owner, reference);

    if (!session)
        find_refuse(reference, err);
    return session;
}

/* --- ended ----------------------------------------------------------------------------------- */

/* Its files go before its record does. */
static bool is_past_retention(const struct ended_session *ended,
                              const struct session_record *record)
{
    return record->retain_until_wall_us && record->retain_until_wall_us <= ended->began_wall_us;
}

static void on_record(struct store_query *query, const struct session_record *record)
{
    struct ended_session *ended = container_of(query, struct ended_session, query);
    struct json_writer json = JSON_WRITER(&ended->record);

    if (*ended->id || !str_equal(record->state, session_state_name(SESSION_ENDED)) ||
        is_past_retention(ended, record))
        return;
    ended->end_reason = xstrdup(record->end_reason ? record->end_reason : "");
    memcpy(ended->id, record->id, sizeof(ended->id));
    session_record_write_json(record, &json, NULL);
}

static void on_not_found(struct timer *timer)
{
    struct ended_session *ended = container_of(timer, struct ended_session, timer);

    find_refuse(ended->reference, &ended->err);
    ended->done(ended);
}

static void on_answer(struct store_query *query)
{
    struct ended_session *ended = container_of(query, struct ended_session, query);

    ended->err = query->err;
    if (ended->err.code || *ended->id)
        ended->done(ended);
    else
        timer_arm_at(&ended->timer, ended->began_us + NOT_FOUND_US);
}

/* The store need not be asked for what cannot be the name of a session. */
bool find_may_exist(const char *reference)
{
    return str_starts_with(reference, "key:") ? reference[4] != '\0'
                                              : id_is_valid(reference, ID_SESSION);
}

void find_ended_session(struct ended_session *ended, struct core *core,
                        const struct caller_identity *identity, const char *reference,
                        int64_t began_us, find_ended_fn *done)
{
    bool by_key = str_starts_with(reference, "key:");

    *ended = (struct ended_session){
        .done = done,
        .began_us = began_us,
        .began_wall_us = clock_wall_us(loop_clock(core->loop)),
        .reference = xstrdup(reference),
        .owner = xstrdup(identity->owner),
        .record = BUFFER_INIT(RECORD_MAXIMUM),
    };
    timer_init(&ended->timer, core->loop, on_not_found);
    if (!find_may_exist(reference)) {
        timer_arm_in(&ended->timer, 0);
        return;
    }
    ended->query = (struct store_query){
        .on_session = on_record,
        .done = on_answer,
        .id = by_key ? NULL : ended->reference,
        .key = by_key ? ended->reference + 4 : NULL,
        .owner = identity->any_owner ? NULL : ended->owner,
        .newest_first = true,
        .limit = by_key ? KEYS_MAXIMUM : 1,
    };
    store_query(core->parts.store, STORE_SESSIONS, &ended->query);
}

void ended_session_fini(struct ended_session *ended)
{
    timer_stop(&ended->timer);
    free(ended->reference);
    free(ended->owner);
    free(ended->end_reason);
    buffer_fini(&ended->record);
}
