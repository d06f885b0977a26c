/* SPDX-License-Identifier: Apache-2.0 */
#include "core/session/session.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/money/approvals.h"
#include "core/money/budget.h"
#include "core/money/flavor.h"
#include "core/sandbox/sandbox.h"
#include "core/secrets.h"
#include "core/session/background.h"
#include "core/session/clocks.h"
#include "core/session/programs.h"
#include "core/session/session_private.h"
#include "core/stamp.h"
#include "wire/json.h"

#include <stdlib.h>
#include <string.h>

static void put_seconds(struct json_writer *json, const char *key, int64_t ms)
{
    if (ms < 0)
        json_put_null(json, key);
    else
        json_put_double(json, key, (double)ms / 1000);
}

/* Under its name, and under that of earlier versions. */
static void put_remaining(struct json_writer *json, const char *key, const char *old, int64_t ms)
{
    put_seconds(json, key, ms);
    put_seconds(json, old, ms);
}

static void put_timeout(struct json_writer *json, const char *key, const char *old, int64_t ms)
{
    put_remaining(json, key, old, ms ? ms : -1);
}

static void put_text_or_null(struct json_writer *json, const char *key, const char *text)
{
    json_put_text(json, key, str_is_empty(text) ? NULL : text);
}

static void put_labels(struct json_writer *json, const char *labels_json)
{
    json_put_raw(json, "labels", str_is_empty(labels_json) ? "{}" : labels_json);
}

static void put_secrets(struct json_writer *json, const struct session *session)
{
    json_begin_array(json, "secrets");
    if (session->setup.secrets)
        secrets_write_names(session->setup.secrets->json, json);
    json_end_array(json);
}

static void put_record_secrets(struct json_writer *json, const json_t *spec)
{
    const json_t *names = json_object_get(spec, "secrets");
    scoped(free) char *text = json_is_array(names) ? json_dumps(names, JSON_COMPACT) : NULL;

    json_put_raw(json, "secrets", text ? text : "[]");
}

static void put_kept(struct json_writer *json, bool keeps, const struct session_archive *kept)
{
    json_put_bool(json, "keep_files", keeps);
    if (!kept->bytes) {
        json_put_null(json, "kept");
        return;
    }
    json_begin_object(json, "kept");
    json_put_int(json, "size_bytes", (int64_t)kept->bytes);
    json_put_int(json, "bytes", (int64_t)kept->bytes);
    json_put_time(json, "kept_at", kept->wall_us);
    json_put_int(json, "generation", (int64_t)kept->generation);
    json_end_object(json);
}

static void put_limits(struct json_writer *json, const struct sandbox_limits *in_force)
{
    json_begin_object(json, "limits");
    limits_write_json(json, in_force);
    json_end_object(json);
}

const char *session_network_name(const struct session *session)
{
    if (!session_backend(session)->ops->capabilities.network)
        return "host";
    return session->setup.network.mode == NETWORK_OPEN ? "open" : "none";
}

static void put_policy(struct json_writer *json, const struct session *session)
{
    const struct backend *backend = session_backend(session);
    struct sandbox_limits limits = backend_limits_in_force(backend, &session->flavor.limits);

    json_put_text(json, "template", session->setup.template_name);
    put_text_or_null(json, "flavor", session->flavor.name);
    json_put_text(json, "choice", session_choice_name(session->flavor.choice));
    json_put_text(json, "backend", backend->ops->name);
    json_put_text(json, "network", session_network_name(session));
    put_limits(json, &limits);
    json_put_raw(json, "mounts", session->setup.mounts_json ? session->setup.mounts_json : "[]");
    put_secrets(json, session);
    put_kept(json, session->policy.keep_files, &session->slot.archive);
    json_put_bool(json, "auto_restart", session->policy.auto_restart);
    json_put_bool(json, "auto_resume", session->policy.auto_resume);
    json_put_text(json, "on_timeout",
                  session->policy.on_timeout == TIMEOUT_PAUSE ? "pause" : "kill");
    put_timeout(json, "lease_seconds", "timeout", session->policy.timeout_ms);
    put_timeout(json, "idle_timeout_seconds", "idle_timeout", session->policy.idle_timeout_ms);
    put_timeout(json, "max_lifetime_seconds", "max_lifetime", session->policy.max_lifetime_ms);
}

/* --- clocks -------------------------------------------------------------------------------- */

static void put_clocks(struct json_writer *json, const struct session *session)
{
    int64_t lease_ms = session_lease_remaining_ms(session);
    bool has_lease = lease_ms >= 0;
    int64_t left_ms;
    enum end_kind next = session_next_end(session, &left_ms);

    json_put_time(json, "expires_at",
                  has_lease ? stamp_wall_us(session->core, &session->clocks.expires) : 0);
    json_put_text(json, "expires_at_clock", has_lease ? end_kind_name(END_LEASE) : NULL);
    put_remaining(json, "time_remaining_seconds", "time_remaining", left_ms);
    json_put_text(json, "time_remaining_clock", next == END_NONE ? NULL : end_kind_name(next));
    put_remaining(json, "lease_remaining_seconds", "lease_remaining", lease_ms);
    put_remaining(json, "idle_remaining_seconds", "idle_remaining",
                  session_idle_remaining_ms(session));
    put_remaining(json, "lifetime_remaining_seconds", "lifetime_remaining",
                  session_lifetime_remaining_ms(session));
    if (next == END_NONE) {
        json_put_null(json, "next_end");
        return;
    }
    json_begin_object(json, "next_end");
    json_put_text(json, "reason", end_kind_name(next));
    put_seconds(json, "in_seconds", left_ms);
    json_end_object(json);
}

static void put_no_clocks(struct json_writer *json)
{
    static const char *const names[] = { "expires_at",
                                         "expires_at_clock",
                                         "time_remaining",
                                         "time_remaining_clock",
                                         "lease_remaining",
                                         "idle_remaining",
                                         "lifetime_remaining",
                                         "next_end",
                                         "time_remaining_seconds",
                                         "lease_remaining_seconds",
                                         "idle_remaining_seconds",
                                         "lifetime_remaining_seconds" };

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        json_put_null(json, names[i]);
}

/* --- sandbox and executions ---------------------------------------------------------------- */

bool session_read_report(const struct session *session, struct report_wait *wait,
                         report_done_fn *done)
{
    return !session->slot.sandbox || sandbox_read_report(session->slot.sandbox, wait, done);
}

/* As an object like all errors, and as text under the name of earlier versions. */
static void put_last_error(struct json_writer *json, const struct error *err)
{
    json_put_text(json, "last_error", err ? err->message : NULL);
    if (!err) {
        json_put_null(json, "error");
        return;
    }
    json_begin_object(json, "error");
    json_put_text(json, "code", *err->name ? err->name : error_code_name(err->code));
    json_put_text(json, "message", err->message);
    json_put_text(json, "hint", err->hint);
    json_put_bool(json, "retryable", err->retryable);
    json_end_object(json);
}

static void put_sandbox(struct json_writer *json, const struct session *session)
{
    const struct sandbox *sandbox = session->slot.sandbox;
    const struct error *last_error = sandbox ? sandbox_last_error(sandbox)
                                             : session->slot.start_error;
    char previous_end[END_TEXT_SIZE];

    json_begin_object(json, "sandbox");
    json_put_text(json, "id", sandbox ? sandbox_id(sandbox) : NULL);
    json_put_text(json, "state",
                  sandbox_state_name(sandbox ? sandbox_state(sandbox) : SANDBOX_NONE));
    json_put_int(json, "generation",
                 (int64_t)(sandbox ? sandbox_generation(sandbox) : session->slot.generation));
    sandbox_put_location(session->core, sandbox, json);
    json_put_int(json, "attempts", sandbox ? sandbox_attempts(sandbox) : 0);
    put_last_error(json, last_error);
    json_put_text(json, "previous_end",
                  end_reason_text_or_null(&session->slot.previous_end, previous_end));
    if (sandbox && sandbox_is_up(sandbox) && sandbox_report(sandbox))
        json_put_raw(json, "isolation", sandbox_report(sandbox));
    else
        json_put_null(json, "isolation");
    json_end_object(json);
}

/* The last measurement; a request for the document does not wait for a new one. */
static void put_usage(struct json_writer *json, const struct sandbox *sandbox)
{
    const struct sandbox_usage *usage = sandbox ? sandbox_usage(sandbox) : NULL;

    if (!sandbox || !sandbox_measured_us(sandbox)) {
        json_put_null(json, "usage");
        return;
    }
    json_begin_object(json, "usage");
    json_put_double(json, "cpu_seconds", (double)usage->cpu_us / 1e6);
    json_put_int(json, "memory_bytes", (int64_t)usage->memory_bytes);
    json_put_int(json, "memory_peak_bytes", (int64_t)usage->memory_peak_bytes);
    json_put_int(json, "disk_bytes", (int64_t)usage->disk_bytes);
    json_put_int(json, "pids", usage->pids);
    json_put_int(json, "oom_kills", usage->oom_kills);
    json_put_time(json, "measured_at", sandbox_measured_us(sandbox));
    json_end_object(json);
}

/* Why the idle clock does not run out. */
static void put_kept_alive_by(struct json_writer *json, const struct session *session)
{
    const struct session_programs *programs = session->core->session_programs;
    struct session_program oldest;
    bool is_busy = programs->find_oldest(session, &oldest);

    if (!is_busy && !background_works(session)) {
        json_put_null(json, "kept_alive_by");
        return;
    }
    json_begin_object(json, "kept_alive_by");
    if (is_busy) {
        json_put_text(json, "kind", "execution");
        json_put_text(json, "execution_id", oldest.id);
        json_put_time(json, "since", oldest.created_wall_us);
    } else {
        background_write_json(session, json);
    }
    json_end_object(json);
}

static void put_executions(struct json_writer *json, const struct session *session)
{
    json_begin_object(json, "executions");
    json_put_int(json, "running", (int64_t)session->core->session_programs->count(session));
    json_put_int(json, "total", (int64_t)session->run.started);
    json_end_object(json);
}

/* --- the session --------------------------------------------------------------------------- */

static void put_identity(struct json_writer *json, const struct session *session)
{
    char reason[END_TEXT_SIZE];

    json_put_text(json, "id", session->identity.id);
    json_put_text(json, "owner", session->identity.owner);
    put_text_or_null(json, "key", session->identity.key);
    put_text_or_null(json, "on_behalf_of", session->identity.on_behalf_of);
    put_labels(json, session->identity.labels_json);
    json_put_text(json, "state", session_state_name(session->state));
    if (session->ending.reason.kind != END_NONE)
        end_reason_text(&session->ending.reason, reason);
    json_put_text(json, "end_reason", session->ending.reason.kind == END_NONE ? NULL : reason);
    json_put_int(json, "generation", (int64_t)session->slot.generation);
    put_text_or_null(json, "node", session->core->parts.store->node);
}

static void put_times(struct json_writer *json, const struct session *session)
{
    json_put_time(json, "created_at", session->clocks.created.wall_us);
    json_put_time(json, "started_at", session->clocks.started.wall_us);
    json_put_time(json, "last_activity_at", session->clocks.last_activity.wall_us);
    json_put_time(json, "ended_at", session->clocks.ended.wall_us);
}

void session_write_fields(const struct session *session, struct json_writer *json)
{
    put_identity(json, session);
    put_policy(json, session);
    put_times(json, session);
    put_clocks(json, session);
    put_sandbox(json, session);
    put_usage(json, session->slot.sandbox);
    put_executions(json, session);
    put_kept_alive_by(json, session);
    json_put_money(json, "spent_usd", budget_spent(session));
    json_put_text(json, "approval", session->money.approval ? session->money.approval->id : NULL);
}

void session_write_json(const struct session *session, struct json_writer *json, const char *key)
{
    json_begin_object(json, key);
    session_write_fields(session, json);
    json_end_object(json);
}

static int64_t get_int(const json_t *spec, const char *name)
{
    return json_integer_value(json_object_get(spec, name));
}

/* Recorded as asked for, and as in force where that is something else. */
static uint64_t recorded_limit(const json_t *spec, const char *asked, const char *in_force)
{
    return (uint64_t)get_int(spec, json_object_get(spec, in_force) ? in_force : asked);
}

static void put_record_limits(struct json_writer *json, const json_t *spec)
{
    /* A backend without a wall to the network has none for files either. */
    bool has_disk = !str_equal(json_string_value(json_object_get(spec, "network")), "host");
    const struct sandbox_limits in_force = {
        .memory_bytes = recorded_limit(spec, "memory_bytes", "memory_in_force"),
        .disk_bytes = has_disk ? recorded_limit(spec, "disk_bytes", "disk_in_force") : 0,
        .cpu_millis = (uint32_t)recorded_limit(spec, "cpu_millis", "cpu_in_force"),
        .pids = (uint32_t)recorded_limit(spec, "pids", "pids_in_force"),
    };

    put_limits(json, &in_force);
}

static void put_record_mounts(struct json_writer *json, const json_t *spec)
{
    const json_t *mounts = json_object_get(spec, "mounts");
    scoped(free) char *text = json_is_array(mounts) ? json_dumps(mounts, JSON_COMPACT) : NULL;

    json_put_raw(json, "mounts", text ? text : "[]");
}

static void put_record_policy(struct json_writer *json, const struct session_record *record,
                              const json_t *spec)
{
    const char *choice = json_string_value(json_object_get(spec, "choice"));
    static const char *const texts[] = { "template", "flavor", "backend", "network", "on_timeout" };
    static const char *const flags[] = { "auto_restart", "auto_resume" };

    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++)
        put_text_or_null(json, texts[i], json_string_value(json_object_get(spec, texts[i])));
    /* Recorded where it is another one. */
    json_put_text(json, "choice", choice ? choice : session_choice_name(CHOICE_AUTOMATIC));
    for (size_t i = 0; i < ARRAY_LENGTH(flags); i++)
        json_put_bool(json, flags[i], json_is_true(json_object_get(spec, flags[i])));
    put_record_limits(json, spec);
    put_record_mounts(json, spec);
    put_record_secrets(json, spec);
    put_kept(json, json_is_true(json_object_get(spec, "keep_files")),
             &(struct session_archive){ .bytes = (uint64_t)get_int(spec, "kept_bytes"),
                                        .wall_us = get_int(spec, "kept_at_us"),
                                        .generation = (uint64_t)get_int(spec, "kept_generation") });
    put_timeout(json, "lease_seconds", "timeout", get_int(spec, "timeout_ms"));
    put_timeout(json, "idle_timeout_seconds", "idle_timeout", record->idle_timeout_ms);
    put_timeout(json, "max_lifetime_seconds", "max_lifetime", record->max_lifetime_ms);
}

static void put_record_identity(struct json_writer *json, const struct session_record *record)
{
    json_put_text(json, "id", record->id);
    json_put_text(json, "owner", record->owner);
    put_text_or_null(json, "key", record->key);
    put_text_or_null(json, "on_behalf_of", record->on_behalf_of);
    put_labels(json, record->labels_json);
    json_put_text(json, "state", record->state);
    put_text_or_null(json, "end_reason", record->end_reason);
    json_put_int(json, "generation", (int64_t)record->generation);
    put_text_or_null(json, "node", record->node);
}

static void put_record_sandbox(struct json_writer *json, const struct session_record *record)
{
    json_begin_object(json, "sandbox");
    json_put_null(json, "id");
    json_put_text(json, "state", sandbox_state_name(SANDBOX_NONE));
    json_put_int(json, "generation", (int64_t)record->generation);
    json_put_int(json, "attempts", 0);
    put_last_error(json, NULL);
    json_put_null(json, "previous_end");
    json_put_null(json, "isolation");
    json_end_object(json);
}

void session_record_write_json(const struct session_record *record, struct json_writer *json,
                               const char *key)
{
    const char *text = record->spec_json ? record->spec_json : "";
    scoped(json_decref) json_t *spec = json_read(text, strlen(text), NULL);

    json_begin_object(json, key);
    put_record_identity(json, record);
    put_record_policy(json, record, spec);
    json_put_time(json, "created_at", record->created.wall_us);
    json_put_time(json, "started_at", record->started.wall_us);
    json_put_time(json, "last_activity_at", record->last_activity.wall_us);
    json_put_time(json, "ended_at", record->ended.wall_us);
    put_no_clocks(json);
    put_record_sandbox(json, record);
    put_usage(json, NULL);
    json_begin_object(json, "executions");
    json_put_int(json, "running", 0);
    json_put_int(json, "total", get_int(spec, "executions"));
    json_end_object(json);
    json_put_null(json, "kept_alive_by");
    json_put_money(json, "spent_usd", get_int(spec, "spent"));
    json_put_null(json, "approval");
    json_end_object(json);
}
