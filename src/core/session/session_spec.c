/* SPDX-License-Identifier: Apache-2.0 */
#include "core/session/session_private.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "config/config.h"
#include "core/money/budget.h"
#include "core/sandbox/sandbox.h"
#include "core/secrets.h"
#include "core/session/clocks.h"
#include "wire/json.h"

#include <stdlib.h>
#include <string.h>

/*
 * The record's spec_json: what was asked for, and the counters that go on after a restart. A field
 * that is missing or damaged takes the settings' default, so that the session still lives and ends.
 */
struct spec {
    const char *key, *template_name, *asked_backend, *flavor, *network, *on_timeout;
    const char *choice, *base_flavor, *leaving, *previous_end;
    const char *reset_told, *reset_reason;
    uint64_t memory_bytes, disk_bytes, base_memory_bytes, base_disk_bytes;
    int64_t cpu_millis, pids, base_cpu_millis, base_pids;
    int64_t timeout_ms, number, next_execution_number, executions, events;
    bool auto_restart, auto_resume, preload, in_use, reset_pending, crashed, teardown, wanted;
    bool keep_files;
    int64_t kept_bytes, kept_at_us, kept_generation, teardown_number, teardown_spent;
    json_t *env, *face, *mounts;
    const char *sealed;
};

enum { SPEC_MAXIMUM = 1024 * 1024 };

static const int64_t DURATION_MAXIMUM_MS = (int64_t)100 * 366 * 24 * 3600 * 1000;

/* A daemon that dies meanwhile leaves a sandbox that is to be made. Uses die with it: what only
 * they have asked for is not wanted any more. */
static bool wants_sandbox(const struct session *session)
{
    const struct sandbox *sandbox = session->slot.sandbox;

    return session->slot.demand == DEMAND_PRELOAD ||
           (sandbox && sandbox_state(sandbox) == SANDBOX_CREATING && sandbox_is_preloaded(sandbox));
}

/* The flavor that it began with, when it has another now; and the amount that it has spent. */
static void put_choice(struct json_writer *json, const struct session *session)
{
    int64_t spent = budget_spent(session);

    if (spent)
        json_put_int(json, "spent", spent);
    if (session->flavor.choice == CHOICE_AUTOMATIC)
        return;
    json_put_text(json, "choice", session_choice_name(session->flavor.choice));
    json_put_text(json, "base_flavor", session->flavor.base_name);
    json_put_int(json, "base_memory_bytes", (int64_t)session->flavor.base_limits.memory_bytes);
    json_put_int(json, "base_disk_bytes", (int64_t)session->flavor.base_limits.disk_bytes);
    json_put_int(json, "base_cpu_millis", session->flavor.base_limits.cpu_millis);
    json_put_int(json, "base_pids", session->flavor.base_limits.pids);
}

/* The limits in force where they differ from the request: an ended session is shown with them. */
static void put_limits(struct json_writer *json, const struct session *session)
{
    const struct sandbox_limits *asked = &session->flavor.limits;
    struct sandbox_limits in_force = backend_limits_in_force(session_backend(session), asked);

    json_put_int(json, "memory_bytes", (int64_t)asked->memory_bytes);
    json_put_int(json, "disk_bytes", (int64_t)asked->disk_bytes);
    json_put_int(json, "cpu_millis", asked->cpu_millis);
    json_put_int(json, "pids", asked->pids);
    if (in_force.memory_bytes != asked->memory_bytes)
        json_put_int(json, "memory_in_force", (int64_t)in_force.memory_bytes);
    if (in_force.disk_bytes != asked->disk_bytes)
        json_put_int(json, "disk_in_force", (int64_t)in_force.disk_bytes);
    if (in_force.cpu_millis != asked->cpu_millis)
        json_put_int(json, "cpu_in_force", in_force.cpu_millis);
    if (in_force.pids != asked->pids)
        json_put_int(json, "pids_in_force", in_force.pids);
}

char *session_spec_text(const struct session *session)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(SPEC_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    char reason[END_TEXT_SIZE];

    json_begin_object(&json, NULL);
    json_put_text(&json, "key", session->identity.key);
    json_put_text(&json, "template", session->setup.template_name);
    json_put_text(&json, "flavor", session->flavor.name);
    put_choice(&json, session);
    json_put_text(&json, "backend", session_backend(session)->ops->name);
    if (session->setup.backend)
        json_put_text(&json, "asked_backend", session->setup.backend);
    json_put_text(&json, "network", session_network_name(session));
    put_limits(&json, session);
    json_put_int(&json, "timeout_ms", session->policy.timeout_ms);
    json_put_text(&json, "on_timeout",
                  session->policy.on_timeout == TIMEOUT_PAUSE ? "pause" : "kill");
    json_put_bool(&json, "auto_restart", session->policy.auto_restart);
    json_put_bool(&json, "auto_resume", session->policy.auto_resume);
    json_put_bool(&json, "preload", session->policy.preload);
    json_put_bool(&json, "in_use", session_is_used(session));
    json_put_bool(&json, "reset_pending", session->reset.state == RESET_PENDING);
    if (session->slot.previous_end.kind != END_NONE)
        json_put_text(&json, "previous_end",
                      end_reason_text_or_null(&session->slot.previous_end, reason));
    if (*session->reset.reported.execution_id) {
        json_put_text(&json, "reset_told", session->reset.reported.execution_id);
        json_put_text(&json, "reset_reason",
                      end_reason_text_or_null(&session->reset.reported.reason, reason));
    }
    json_put_bool(&json, "crashed", session->slot.crashed);
    json_put_bool(&json, "teardown",
                  timer_is_armed(&session->teardown.grace) ||
                      (session->slot.sandbox && sandbox_moves_files(session->slot.sandbox) &&
                       sandbox_state(session->slot.sandbox) == SANDBOX_DESTROYING));
    json_put_int(&json, "teardown_number", (int64_t)session->teardown.number);
    json_put_int(&json, "teardown_spent", (int64_t)session->teardown.spent);
    json_put_bool(&json, "keep_files", session->policy.keep_files);
    json_put_int(&json, "kept_bytes", (int64_t)session->slot.archive.bytes);
    json_put_int(&json, "kept_at_us", session->slot.archive.wall_us);
    json_put_int(&json, "kept_generation", (int64_t)session->slot.archive.generation);
    json_put_bool(&json, "wanted", wants_sandbox(session));
    if (*session->slot.leaving_id)
        json_put_text(&json, "leaving", session->slot.leaving_id);
    json_put_int(&json, "number", (int64_t)session->identity.number);
    json_put_int(&json, "next_execution_number", (int64_t)session->run.last_number);
    json_put_int(&json, "executions", (int64_t)session->run.started);
    json_put_int(&json, "events", (int64_t)session->record.event_sequence);
    if (session->setup.env_json)
        json_put_raw(&json, "env", session->setup.env_json);
    if (session->setup.mounts_json)
        json_put_raw(&json, "mounts", session->setup.mounts_json);
    if (session->setup.face_json)
        json_put_raw(&json, "face", session->setup.face_json);
    if (session->setup.secrets) {
        json_begin_array(&json, "secrets");
        secrets_write_names(session->setup.secrets->json, &json);
        json_end_array(&json);
        json_put_text(&json, "sealed", session->setup.secrets->sealed);
    }
    json_end_object(&json);
    return buffer_steal_text(&text);
}

#define FIELD(name) offsetof(struct spec, name)

static const struct json_field fields[] = {
    { "key", JSON_KIND_TEXT, FIELD(key) },
    { "template", JSON_KIND_TEXT, FIELD(template_name) },
    { "asked_backend", JSON_KIND_TEXT, FIELD(asked_backend) },
    { "flavor", JSON_KIND_TEXT, FIELD(flavor) },
    { "choice", JSON_KIND_TEXT, FIELD(choice) },
    { "base_flavor", JSON_KIND_TEXT, FIELD(base_flavor) },
    { "base_memory_bytes", JSON_KIND_SIZE, FIELD(base_memory_bytes) },
    { "base_disk_bytes", JSON_KIND_SIZE, FIELD(base_disk_bytes) },
    { "base_cpu_millis", JSON_KIND_INT, FIELD(base_cpu_millis) },
    { "base_pids", JSON_KIND_INT, FIELD(base_pids) },
    { "network", JSON_KIND_TEXT, FIELD(network) },
    { "memory_bytes", JSON_KIND_SIZE, FIELD(memory_bytes) },
    { "disk_bytes", JSON_KIND_SIZE, FIELD(disk_bytes) },
    { "cpu_millis", JSON_KIND_INT, FIELD(cpu_millis) },
    { "pids", JSON_KIND_INT, FIELD(pids) },
    { "timeout_ms", JSON_KIND_INT, FIELD(timeout_ms) },
    { "on_timeout", JSON_KIND_TEXT, FIELD(on_timeout) },
    { "auto_restart", JSON_KIND_BOOL, FIELD(auto_restart) },
    { "auto_resume", JSON_KIND_BOOL, FIELD(auto_resume) },
    { "preload", JSON_KIND_BOOL, FIELD(preload) },
    { "in_use", JSON_KIND_BOOL, FIELD(in_use) },
    { "reset_pending", JSON_KIND_BOOL, FIELD(reset_pending) },
    { "previous_end", JSON_KIND_TEXT, FIELD(previous_end) },
    { "reset_told", JSON_KIND_TEXT, FIELD(reset_told), .max_length = ID_SIZE - 1 },
    { "reset_reason", JSON_KIND_TEXT, FIELD(reset_reason) },
    { "crashed", JSON_KIND_BOOL, FIELD(crashed) },
    { "teardown", JSON_KIND_BOOL, FIELD(teardown) },
    { "teardown_number", JSON_KIND_INT, FIELD(teardown_number) },
    { "teardown_spent", JSON_KIND_INT, FIELD(teardown_spent) },
    { "keep_files", JSON_KIND_BOOL, FIELD(keep_files) },
    { "kept_bytes", JSON_KIND_INT, FIELD(kept_bytes) },
    { "kept_at_us", JSON_KIND_INT, FIELD(kept_at_us) },
    { "kept_generation", JSON_KIND_INT, FIELD(kept_generation) },
    { "wanted", JSON_KIND_BOOL, FIELD(wanted) },
    { "leaving", JSON_KIND_TEXT, FIELD(leaving), .max_length = ID_SIZE - 1 },
    { "number", JSON_KIND_INT, FIELD(number) },
    { "next_execution_number", JSON_KIND_INT, FIELD(next_execution_number) },
    { "executions", JSON_KIND_INT, FIELD(executions) },
    { "events", JSON_KIND_INT, FIELD(events) },
    { "env", JSON_KIND_OBJECT, FIELD(env) },
    { "face", JSON_KIND_OBJECT, FIELD(face) },
    { "mounts", JSON_KIND_LIST, FIELD(mounts) },
    { "sealed", JSON_KIND_TEXT, FIELD(sealed) },
};

static struct spec spec_defaults(const struct config *config)
{
    return (struct spec){
        .template_name = config->sandbox.template_name,
        .flavor = config->flavors.count ? config->flavors.items[0].name : "",
        .network = config->sandbox.network == CONFIG_NETWORK_OPEN ? "open" : "none",
        .on_timeout = "kill",
        .memory_bytes = config->sandbox.memory_bytes,
        .disk_bytes = config->sandbox.disk_bytes,
        .cpu_millis = config->sandbox.cpu_millis,
        .pids = config->sandbox.pids,
        .auto_restart = config->sandbox.auto_restart,
        .auto_resume = true,
    };
}

/* Field by field, so that a damaged one costs nothing but itself. Records of a later version
 * may have more of them. */
static void read_spec(const struct session_record *record, const json_t *document,
                      struct spec *spec)
{
    for (size_t i = 0; document && i < ARRAY_LENGTH(fields); i++) {
        json_t *value = json_object_get(document, fields[i].name);
        json_t *alone = value ? json_pack("{s:O}", fields[i].name, value) : NULL;
        struct error err = { 0 };

        if (alone && json_decode(alone, &fields[i], 1, spec, &err) < 0)
            log_warn("session record has a damaged field; continuing with its default",
                     kv("session", record->id), kv("error", err.message));
        json_decref(alone);
    }
}

static void apply_choice(struct session *session, const struct spec *spec)
{
    for (unsigned choice = 0; choice < CHOICE_KINDS; choice++)
        if (spec->choice && str_equal(spec->choice, session_choice_name(choice)))
            session->flavor.choice = choice;
    session->flavor.base_limits = session->flavor.limits;
    session->flavor.base_name =
        xstrdup(spec->base_flavor ? spec->base_flavor : session->flavor.name);
    if (session->flavor.choice == CHOICE_AUTOMATIC || !spec->base_memory_bytes)
        return;
    session->flavor.base_limits =
        (struct sandbox_limits){ .memory_bytes = spec->base_memory_bytes,
                                 .disk_bytes = spec->base_disk_bytes,
                                 .cpu_millis = (uint32_t)spec->base_cpu_millis,
                                 .pids = (uint32_t)spec->base_pids };
}

static void apply_spec(struct session *session, const struct spec *spec)
{
    session->setup.template_name = xstrdup(spec->template_name ? spec->template_name : "");
    session->setup.backend = spec->asked_backend ? xstrdup(spec->asked_backend) : NULL;
    session->flavor.name = xstrdup(spec->flavor ? spec->flavor : "");
    session->setup.network.mode = str_equal(spec->network, "open") ? NETWORK_OPEN : NETWORK_NONE;
    session->flavor.limits = (struct sandbox_limits){ .memory_bytes = spec->memory_bytes,
                                                      .disk_bytes = spec->disk_bytes,
                                                      .cpu_millis = (uint32_t)spec->cpu_millis,
                                                      .pids = (uint32_t)spec->pids };
    apply_choice(session, spec);
    session->slot.demand = spec->wanted ? DEMAND_PRELOAD : DEMAND_NONE;
    snprintf(session->slot.leaving_id, sizeof(session->slot.leaving_id), "%s",
             spec->leaving ? spec->leaving : "");
    session->policy.timeout_ms = spec->timeout_ms;
    session->policy.on_timeout = str_equal(spec->on_timeout, "pause") ? TIMEOUT_PAUSE
                                                                      : TIMEOUT_KILL;
    session->policy.auto_restart = spec->auto_restart;
    session->policy.auto_resume = spec->auto_resume;
    session->policy.preload = spec->preload;
    session->reset.state = spec->reset_pending ? RESET_PENDING : RESET_NONE;
    session->slot.previous_end = end_reason_parse(spec->previous_end);
    session->reset.reported.reason = end_reason_parse(spec->reset_reason);
    snprintf(session->reset.reported.execution_id, sizeof(session->reset.reported.execution_id),
             "%s", spec->reset_told ? spec->reset_told : "");
    session->slot.crashed = spec->crashed;
    session->teardown.number = (uint64_t)spec->teardown_number;
    session->teardown.spent = (uint64_t)spec->teardown_spent;
    session->policy.keep_files = spec->keep_files;
    session->slot.archive =
        (struct session_archive){ .bytes = (uint64_t)spec->kept_bytes,
                                  .wall_us = spec->kept_at_us,
                                  .generation = (uint64_t)spec->kept_generation };
    if (spec->teardown)
        timer_arm_in(&session->teardown.grace, 0);
    session->identity.number = (uint64_t)spec->number;
    session->run.last_number = (uint64_t)spec->next_execution_number;
    session->run.started = (uint64_t)spec->executions;
    session->record.event_sequence = (uint64_t)spec->events;
    session->setup.env_json = spec->env ? json_dumps(spec->env, JSON_COMPACT) : NULL;
    session->setup.mounts_json = spec->mounts ? json_dumps(spec->mounts, JSON_COMPACT) : NULL;
    session->setup.face_json = spec->face ? json_dumps(spec->face, JSON_COMPACT) : NULL;
}

/* Without its key the session lives on, and says so when something is to be run in it. */
static void restore_secrets(struct session *session, const char *sealed)
{
    struct error err = { 0 };

    if (!sealed)
        return;
    session->setup.secrets =
        secrets_unseal(session->core->vault, session->identity.owner, sealed, &err);
    session->setup.secrets_lost = !session->setup.secrets;
    if (session->setup.secrets_lost)
        log_error("the secrets of a session are lost", kv("session", session->identity.id),
                  kv("error", err.message));
}

static bool parse_state(const char *name, enum session_state *out_state)
{
    for (unsigned state = 0; state < SESSION_ENDED; state++) {
        if (!str_equal(name, session_state_name(state)))
            continue;
        *out_state = state;
        return true;
    }
    return false;
}

/* An unknown state is read as open: its clocks end it. */
static void restore_state(struct session *session, const struct session_record *record)
{
    if (!parse_state(record->state, &session->state)) {
        log_warn("session record has an unknown state; continuing as open",
                 kv("session", record->id), kv("state", record->state));
        session_changed(session);
    }
    session->ending.reason = end_reason_parse(record->end_reason);
    if (session->state == SESSION_ENDING && session->ending.reason.kind == END_NONE)
        session->ending.reason.kind = END_DELETED;
}

/* Zero is off; what cannot be meant takes the setting. A record that does not even say when it was
 * made says nothing about durations either: nothing lives for ever by omission. */
static int64_t sane_ms(const struct session_record *record, int64_t recorded_ms,
                       int64_t fallback_ms)
{
    bool says_nothing = recorded_ms == 0 && record->created.wall_us <= 0;

    return says_nothing || recorded_ms < 0 || recorded_ms > DURATION_MAXIMUM_MS ? fallback_ms
                                                                                : recorded_ms;
}

static void restore_clocks(struct session *session, const struct session_record *record,
                           bool was_held)
{
    const struct config *config = session->core->parts.config;

    session->policy.timeout_ms =
        sane_ms(record, session->policy.timeout_ms, config->session.timeout_ms);
    session->policy.idle_timeout_ms =
        sane_ms(record, record->idle_timeout_ms, config->session.idle_timeout_ms);
    session->policy.max_lifetime_ms =
        sane_ms(record, record->max_lifetime_ms, config->session.max_lifetime_ms);
    session->clocks.created = record->created;
    session->clocks.started = record->started;
    session->clocks.last_activity = record->last_activity;
    session->clocks.expires = record->expires;
    clocks_complete_stamps(session, was_held);
}

struct session *session_restore(struct core *core, const struct session_record *record)
{
    struct session *session = session_new(core);
    struct spec spec = spec_defaults(core->parts.config);
    struct error err = { 0 };
    scoped(json_decref)
        json_t *document = json_read(record->spec_json, strlen(record->spec_json), &err);

    if (!document)
        log_warn("session record is damaged; continuing with defaults", kv("session", record->id),
                 kv("error", err.message));
    read_spec(record, document, &spec);
    memcpy(session->identity.id, record->id, sizeof(session->identity.id));
    session->identity.owner = xstrdup(record->owner ? record->owner : "");
    session->identity.on_behalf_of = xstrdup(record->on_behalf_of ? record->on_behalf_of : "");
    session->identity.key = record->key ? xstrdup(record->key)
                            : spec.key  ? xstrdup(spec.key)
                                        : NULL;
    session->identity.labels_json =
        str_is_empty(record->labels_json) ? NULL : xstrdup(record->labels_json);
    apply_spec(session, &spec);
    restore_secrets(session, spec.sealed);
    restore_state(session, record);
    session->slot.generation = record->generation;
    session->record.state = RECORD_DURABLE;
    restore_clocks(session, record, spec.in_use);
    session_link(session);
    return session;
}
