/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The past of a session, as callers may see it: its document, and the values that have to be masked
 * in it and in everything that its programs wrote. Texts of the caller (key, labels, on whose
 * behalf) are masked here; the rest of the document is ours, and a secret that is the same word as
 * a state has nothing to do with it.
 */

#include "base/error.h"
#include "base/id.h"
#include "base/mask.h"
#include "store/store.h"

#include <stdbool.h>

struct core;
struct json_writer;
struct session;

struct past_session;
typedef void past_session_fn(struct past_session *past);

/* Embedded by the caller. */
struct past_session {
    struct error err;     /* of the store, or find_refuse() when the record is gone meanwhile */
    char *json;           /* owned: its document */
    struct mask *secrets; /* a reference; NULL without any */
    bool hides_output; /* its secrets cannot be read any more: what cannot be masked is not shown */

    past_session_fn *done; /* private, here and below */
    struct core *core;
    struct store_query query;
    char id[ID_SIZE];
};

/* Of a live one: at once. */
void past_session_take(struct past_session *past, const struct session *session);

/* Of an ended one: `done` comes once, from the loop; the caller keeps it until then. */
void past_session_read(struct past_session *past, struct core *core, const char *session_id,
                       past_session_fn *done);
void past_session_fini(struct past_session *past);

/* An execution of it as its record tells it, with everything masked that has to be. */
void past_session_write_execution(const struct past_session *past, struct core *core,
                                  const struct execution_record *record, struct json_writer *json,
                                  const char *key, bool with_output);
