/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes as the clients of E2B see them. */

#include "base/str.h"
#include "core/core.h"
#include "core/session/session.h"
#include "core/stamp.h"
#include "e2b/private.h"
#include "face/port_rules.h"

#include <string.h>

enum { FAR_S = 365 * 24 * 3600 };

bool e2b_is_paused(const struct session *session)
{
    return session_state(session) == SESSION_PAUSED;
}

int64_t e2b_end_wall_us(const struct session *session)
{
    int64_t lease_us = session_expires(session).wall_us;
    int64_t lifetime_us = session_max_lifetime_ms(session) * 1000;
    int64_t last_us = session_created(session).wall_us +
                      (lifetime_us ? lifetime_us : FAR_S * 1000000LL);

    return lease_us && !e2b_is_paused(session) ? MIN(lease_us, last_us) : last_us;
}

/* --- ids and tokens -------------------------------------------------------------------------- */

static void put_domain(struct json_writer *json, const struct request *request)
{
    const struct e2b *e2b = request->context;
    size_t length;

    json_put_text(json, "domain",
                  str_is_empty(e2b->parts.domain) ? NULL
                                                  : port_domain_find(e2b->parts.domain, &length));
}

static void put_names(struct json_writer *json, const struct session *session,
                      const struct e2b_notes *notes)
{
    char id[ID_SIZE];

    e2b_id_write(session_id(session), id);
    json_put_text(json, "sandboxID", id);
    json_put_text(json, "templateID", e2b_template_of(session, notes));
    json_put_text(json, "alias", e2b_template_of(session, notes));
    json_put_text(json, "clientID", "sandglass");
    json_put_text(json, "envdVersion", E2B_ENVD_VERSION);
}

static void put_token(struct json_writer *json, const char *key, const struct request *request,
                      const struct session *session, enum e2b_token_kind kind)
{
    char token[E2B_TOKEN_SIZE];

    e2b_token_write(request->core, session_id(session), kind, token);
    json_put_text(json, key, token);
}

static void put_tokens(struct json_writer *json, const struct request *request,
                       const struct session *session, const struct e2b_notes *notes)
{
    if (notes->is_secure)
        put_token(json, "envdAccessToken", request, session, E2B_TOKEN_ENVD);
    put_token(json, "trafficAccessToken", request, session, E2B_TOKEN_TRAFFIC);
}

static void write_sandbox(const struct request *request, const struct session *session,
                          struct buffer *text)
{
    scoped(e2b_notes_fini) struct e2b_notes notes = { 0 };
    struct json_writer json = JSON_WRITER(text);

    e2b_notes_read(&notes, session);
    json_begin_object(&json, NULL);
    put_names(&json, session, &notes);
    put_tokens(&json, request, session, &notes);
    put_domain(&json, request);
    json_end_object(&json);
}

void e2b_reply_sandbox(struct request *request, int status, const struct session *session)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);

    write_sandbox(request, session, &text);
    request_reply(request, status, &text);
}

void e2b_reply_sandbox_recorded(struct request *request, int status, const struct session *session)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);

    write_sandbox(request, session, &text);
    request_reply_recorded(request, status, &text);
}

/* --- entries of lists ------------------------------------------------------------------------ */

static int64_t in_mb(uint64_t bytes)
{
    return (int64_t)(bytes / (1024 * 1024));
}

static void put_size(struct json_writer *json, const struct session *session)
{
    const struct sandbox_limits *limits = session_limits(session);

    json_put_int(json, "cpuCount", MAX((limits->cpu_millis + 999) / 1000, 1U));
    json_put_int(json, "memoryMB", in_mb(limits->memory_bytes));
    json_put_int(json, "diskSizeMB", in_mb(limits->disk_bytes));
}

static void put_detail(struct json_writer *json, const struct request *request,
                       const struct session *session, const struct e2b_notes *notes)
{
    put_tokens(json, request, session, notes);
    put_domain(json, request);
    json_put_bool(json, "allowInternetAccess", !str_equal(session_network_name(session), "none"));
    json_begin_object(json, "network");
    json_put_bool(json, "allowPublicTraffic", notes->is_public);
    json_end_object(json);
    json_begin_object(json, "lifecycle");
    json_put_bool(json, "autoResume", notes->auto_resume);
    json_put_text(json, "onTimeout", notes->auto_pause ? "pause" : "kill");
    json_end_object(json);
}

void e2b_write_listed(struct request *request, const struct session *session, bool in_detail,
                      struct json_writer *json)
{
    const char *labels = session_labels_json(session);
    scoped(e2b_notes_fini) struct e2b_notes notes = { 0 };

    e2b_notes_read(&notes, session);
    json_begin_object(json, NULL);
    put_names(json, session, &notes);
    json_put_time(json, "startedAt", session_created(session).wall_us);
    json_put_time(json, "endAt", e2b_end_wall_us(session));
    put_size(json, session);
    json_put_text(json, "state", e2b_is_paused(session) ? "paused" : "running");
    json_put_raw(json, "metadata", labels ? labels : "{}");
    json_begin_array(json, "volumeMounts");
    json_end_array(json);
    if (in_detail)
        put_detail(json, request, session, &notes);
    json_end_object(json);
}
