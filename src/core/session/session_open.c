/* SPDX-License-Identifier: Apache-2.0 */
#include "core/session/session.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "config/config.h"
#include "core/backend_choice.h"
#include "core/ceiling.h"
#include "core/events.h"
#include "core/metrics.h"
#include "core/money/budget.h"
#include "core/money/flavor.h"
#include "core/mounts.h"
#include "core/sandbox/templates.h"
#include "core/secrets.h"
#include "core/session/clocks.h"
#include "core/session/idempotency.h"
#include "core/session/open_question.h"
#include "core/session/scopes.h"
#include "core/session/session_private.h"
#include "core/session/source_question.h"
#include "core/stamp.h"
#include "core/vault.h"
#include "wire/json.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- what the caller did not say ----------------------------------------------------------- */

static int64_t or_default(int64_t asked, int64_t fallback)
{
    return asked < 0 ? fallback : asked;
}

static char *text_or(const char *asked, const char *fallback)
{
    return xstrdup(!str_is_empty(asked) ? asked : fallback ? fallback : "");
}

static char *text_or_null(const char *text)
{
    return str_is_empty(text) ? NULL : xstrdup(text);
}

static void fill_policy(struct session *session, const struct session_request *request)
{
    const struct config *config = session->core->parts.config;
    const struct ceiling *ceiling = session->core->ceiling;
    const struct config_flavor *flavor = config_flavor_find(config, session->flavor.name);
    const char *owner = session->identity.owner;

    session->flavor.limits = session->flavor.base_limits =
        flavor_limits(session->core, owner, flavor, &request->limits);
    session->setup.network = ceiling_cut_network(
        ceiling, owner, flavor,
        (struct network_policy){
            .mode = (enum network_mode)or_default(request->network, config->sandbox.network) });
    session->policy.auto_restart = or_default(request->auto_restart, config->sandbox.auto_restart);
    session->policy.auto_resume = or_default(request->auto_resume, true);
    session->policy.preload = or_default(request->preload, config->session.preload);
    session->policy.keep_files = or_default(request->keep_files, config->keep.files);
    session->policy.on_timeout = (enum timeout_action)or_default(request->on_timeout, TIMEOUT_KILL);
    session->policy.timeout_ms =
        ceiling_cut_ms(ceiling, owner, flavor, LIMIT_TIMEOUT,
                       or_default(request->timeout_ms, config->session.timeout_ms));
    session->policy.idle_timeout_ms =
        ceiling_cut_ms(ceiling, owner, flavor, LIMIT_IDLE_TIMEOUT,
                       or_default(request->idle_timeout_ms, config->session.idle_timeout_ms));
    session->policy.max_lifetime_ms =
        ceiling_cut_ms(ceiling, owner, flavor, LIMIT_LIFETIME,
                       or_default(request->max_lifetime_ms, config->session.max_lifetime_ms));
}

/* A backend may have another default than the template of the settings. A template that has chosen
 * the backend by a row of the settings stays. */
static void use_default_source(struct session *session, const struct session_request *request)
{
    const struct config *config = session->core->parts.config;
    const struct backend *backend = session_next_backend(session);

    if (!str_is_empty(request->template_name) || !backend_has_sources(backend) ||
        config_template_find(config, config->sandbox.template_name))
        return;
    free(session->setup.template_name);
    session->setup.template_name =
        xstrdup(backend_default_source(backend, config->sandbox.template_name));
}

/* The share becomes the session's. */
static struct session *make(struct core *core, const struct session_request *request,
                            const struct share *share)
{
    const struct config *config = core->parts.config;
    struct session *session = session_new(core);

    id_make(session->identity.id, ID_SESSION);
    session->share = *share;
    session->identity.owner = text_or(request->owner, "");
    session->identity.on_behalf_of = text_or(request->on_behalf_of, "");
    session->identity.key = text_or_null(request->key);
    session->identity.labels_json = text_or_null(request->labels_json);
    session->setup.env_json = text_or_null(request->env_json);
    session->setup.face_json = text_or_null(request->face_json);
    session->setup.mounts_json = text_or_null(request->mounts_json);
    if (request->secrets_json) {
        session->setup.secrets = secrets_new(request->secrets_json);
        secrets_seal(session->setup.secrets, core->vault, session->identity.owner);
    }
    session->setup.backend = text_or_null(request->backend);
    session->flavor.name =
        text_or(request->flavor, config->flavors.count ? config->flavors.items[0].name : "");
    session->flavor.base_name = xstrdup(session->flavor.name);
    session->setup.template_name = text_or(request->template_name, config->sandbox.template_name);
    use_default_source(session, request);
    fill_policy(session, request);
    session->clocks.created = session->clocks.last_activity = stamp_now(core);
    if (session->policy.timeout_ms) {
        session->clocks.expires = session->clocks.created;
        session->clocks.expires.boot_us += session->policy.timeout_ms * 1000;
        session->clocks.expires.wall_us += session->policy.timeout_ms * 1000;
    }
    /* The number of an event was never given before, not even to a session that is forgotten. */
    session->identity.number = MAX(core->last_session_number, events_last(core->events)) + 1;
    session_link(session);
    return session;
}

/* --- the one that exists ------------------------------------------------------------------- */

static bool limit_differs(uint64_t asked, uint64_t is)
{
    return asked && asked != is;
}

/* Whether two objects of texts say the same; NULL is an empty one. */
static bool texts_equal(const char *a, const char *b)
{
    scoped(json_decref) json_t *first = json_read(a ? a : "{}", a ? strlen(a) : 2, NULL);
    scoped(json_decref) json_t *second = json_read(b ? b : "{}", b ? strlen(b) : 2, NULL);

    return str_equal(a, b) || (first && second && json_equal(first, second));
}

/* Only what the caller said can differ. */
static const char *find_difference(const struct session *session,
                                   const struct session_request *request)
{
    const struct sandbox_limits *asked = &request->limits;

    if (!str_is_empty(request->template_name) &&
        !str_equal(request->template_name, session->setup.template_name))
        return "template";
    if (!str_is_empty(request->backend) &&
        !str_equal(request->backend, session_next_backend(session)->ops->name))
        return "backend";
    if (!str_is_empty(request->flavor) && !str_equal(request->flavor, session->flavor.base_name))
        return "flavor";
    if (request->network >= 0 && (enum network_mode)request->network != session->setup.network.mode)
        return "network";
    if (limit_differs(asked->memory_bytes, session->flavor.base_limits.memory_bytes))
        return "memory";
    if (limit_differs(asked->cpu_millis, session->flavor.base_limits.cpu_millis))
        return "cpus";
    if (limit_differs(asked->pids, session->flavor.base_limits.pids))
        return "pids";
    if (limit_differs(asked->disk_bytes, session->flavor.base_limits.disk_bytes))
        return "disk";
    if (request->env_json && !texts_equal(request->env_json, session->setup.env_json))
        return "env";
    if (request->mounts_json && !str_equal(request->mounts_json, session->setup.mounts_json))
        return "mounts";
    return NULL;
}

/* Fields that can be changed take the values of the request; the lease is only ever made longer. */
static int apply_changes(struct session *session, const struct session_request *request,
                         struct error *err)
{
    struct session_patch patch = SESSION_PATCH_INIT;
    const char *secrets = session->setup.secrets ? session->setup.secrets->json : NULL;

    patch.labels_json = request->labels_json;
    if (request->secrets_json && !texts_equal(request->secrets_json, secrets))
        patch.secrets_json = request->secrets_json;
    patch.idle_timeout_ms = request->idle_timeout_ms;
    patch.max_lifetime_ms = request->max_lifetime_ms;
    patch.auto_restart = request->auto_restart;
    patch.auto_resume = request->auto_resume;
    patch.keep_files = request->keep_files;
    patch.on_timeout = request->on_timeout;
    if (session_patch(session, &patch, err) < 0)
        return -1;
    session_touch(session);
    if (request->timeout_ms < 0)
        return 0;
    session->policy.timeout_ms = request->timeout_ms;
    return session_keepalive(session, request->timeout_ms, request->timeout_ms == 0, err);
}

/* Waits with the others until its creation is durable. */
static void join(struct session *session, struct session_op *op, session_done_fn *done)
{
    session_op_join(op, session, &session->record.waiters, done);
    op->session = session;
    if (session->record.state != RECORD_DURABLE)
        return;
    list_remove(&op->node);
    session_op_defer(op, session->core, done);
}

static int check_same(const struct session *session, const struct session_request *request,
                      struct error *err)
{
    const char *difference = find_difference(session, request);

    if (!difference)
        return 0;
    error_named(err, ERR_CONFLICT, "parameters_differ",
                "session %s has this key, but another %s than requested", session->identity.id,
                difference);
    return error_hint(err, "leave %s out, use another key, or delete the session first",
                      difference);
}

static void refuse_reused(struct error *err)
{
    error_named(err, ERR_CONFLICT, "idempotency_key_reused",
                "this Idempotency-Key was used for another request");
}

static struct session *find_made(struct core *core, struct session_op *op)
{
    struct session *session = map_get(&core->sessions_by_id, op->id);

    if (session && (session->state == SESSION_OPEN || session->state == SESSION_PAUSED))
        session_touch(session);
    if (!session)
        error_named(&op->err, ERR_GONE, "session_ended",
                    "the session created with this Idempotency-Key, %s, has ended", op->id);
    return session;
}

static struct session *find_repeated(struct core *core, const struct session_request *request,
                                     struct session_op *op)
{
    switch (idempotency_check(core->idempotency, request, op->id)) {
    case IDEMPOTENCY_NEW:
        return NULL;
    case IDEMPOTENCY_DIFFERENT:
        refuse_reused(&op->err);
        return NULL;
    case IDEMPOTENCY_SAME:
        return find_made(core, op);
    }
    return NULL;
}

/* The session that the store has for this Idempotency-Key, if this node did not know of it. */
static struct session *find_made_elsewhere(struct core *core, const struct session_request *request,
                                           const struct open_answer *answer, struct session_op *op)
{
    if (!answer || !answer->is_known)
        return NULL;
    memcpy(op->id, answer->session_id, ID_SIZE);
    if (idempotency_compare(request, answer->json) != IDEMPOTENCY_SAME) {
        refuse_reused(&op->err);
        return NULL;
    }
    if (!answer->is_elsewhere)
        return find_made(core, op);
    error_named(&op->err, ERR_CONFLICT, "idempotency_key_taken",
                "session %s, on another node, was made for this Idempotency-Key", op->id);
    error_hint(&op->err, "repeat the request: it finds that session");
    op->err.retryable = true;
    return NULL;
}

static struct session *find_by_key(struct core *core, const struct session_request *request,
                                   struct session_op *op)
{
    scoped(free) char *map_key = NULL;
    struct session *session;

    if (str_is_empty(request->key))
        return NULL;
    map_key = xasprintf("%s\n%s", request->owner ? request->owner : "", request->key);
    session = map_get(&core->sessions_by_key, map_key);
    if (!session || check_same(session, request, &op->err) < 0 ||
        apply_changes(session, request, &op->err) < 0)
        return NULL;
    return session;
}

/* --- the new one --------------------------------------------------------------------------- */

void session_refuse(struct session *session, const struct error *err)
{
    if (session->record.state == RECORD_NEW)
        error_keep(&session->record.refusal, err);
    else
        session_end(session, END_FAILED, "its key belongs to another session", NULL, NULL);
}

/* Claims of the creation are answered before. */
static void on_created(struct store_ticket *ticket)
{
    struct session *session = container_of(ticket, struct session, record.ticket);
    const struct error *err = ticket->err->code != ERR_NONE ? ticket->err : session->record.refusal;

    assert(session->record.state == RECORD_NEW);
    if (!err) {
        session->record.state = RECORD_DURABLE;
        session_ops_finish(&session->record.waiters, session, NULL);
        session_end_advance(session);
        return;
    }
    if (ticket->err->code != ERR_NONE)
        log_error("session could not be recorded", kv("session", session->identity.id),
                  kv("error", err->message));
    else
        log_info("session refused", kv("session", session->identity.id), kv("error", err->message));
    session->record.state = RECORD_REFUSED;
    idempotency_forget_session(session->core->idempotency, session->identity.id);
    session_ops_finish(&session->record.waiters, NULL, err);
    session_end(session, END_FAILED, "not recorded", NULL, NULL);
    session_end_advance(session); /* when a clock had ended it before */
}

/* A flavor that has a price or needs an approval is requested once the session exists. */
static int check_flavor(const struct core *core, const char *name, struct error *err)
{
    const struct config_flavor *flavor = flavor_find(core, name ? name : "", err);

    if (!flavor)
        return -1;
    if (budget_judge(NULL, flavor).verdict != BUDGET_REFUSED)
        return 0;
    error_named(
        err, ERR_CONFLICT, "approval_required",
        "a session cannot start with the flavor \"%s\": it has a price or needs an approval",
        flavor->name);
    return error_hint(err,
                      "open the session without it, then POST /sessions/{id}/sandbox "
                      "{\"flavor\": \"%s\"}",
                      flavor->name);
}

static int check_ceiling(const struct core *core, const struct session_request *request,
                         struct error *err)
{
    const char *name = request->flavor ? request->flavor : "";
    const struct config_flavor *flavor = config_flavor_find(core->parts.config, name);
    struct ceiling_ask ask = {
        .owner = request->owner,
        .flavor = flavor,
        .limits = request->limits,
        .network = request->network,
        .max_lifetime_ms = request->max_lifetime_ms,
        .timeout_ms = request->timeout_ms,
        .idle_timeout_ms = request->idle_timeout_ms,
    };

    if (ceiling_check(core->ceiling, &ask, err) < 0)
        return -1;
    if (!*name || flavor == core->parts.config->flavors.items)
        return 0;
    ask.limits = flavor_own_limits(flavor); /* it is asked for by its name */
    return ceiling_check(core->ceiling, &ask, err);
}

/* A feature that the backend lacks is refused, not silently left out. */
static int check_abilities(const struct backend *backend, const struct session_request *request,
                           const char *template_name, struct error *err)
{
    const struct backend_ops *ops = backend->ops;
    const char *field = NULL;

    if (!ops->capabilities.templates && !str_equal(template_name, "host"))
        field = "template";
    else if (!ops->capabilities.network && request->network == NETWORK_NONE)
        field = "network";
    if (ops->capabilities.never_open && request->network == NETWORK_OPEN) {
        error_named(err, ERR_INVALID, "backend_unable",
                    "network: the backend %s has no network for sandboxes", ops->name);
        return error_hint(err, "leave network out, or have docker.network name one");
    }
    if (!field)
        return backend_check_limits(backend, &request->limits, err);
    error_named(err, ERR_INVALID, "backend_unable",
                "%s: not supported by the backend %s, whose sandboxes use the files and the "
                "network of the host",
                field, ops->name);
    if (str_equal(field, "template"))
        return error_hint(err, "give the template \"host\", or use another backend");
    return error_hint(err, "leave %s out, or use another backend", field);
}

static struct backend *choose_backend(const struct core *core,
                                      const struct session_request *request, struct error *err)
{
    const struct config *config = core->parts.config;
    const struct backend_wishes wishes = {
        .owner = request->owner ? request->owner : "",
        .asked = request->backend,
        .flavor = config_flavor_find(config, request->flavor ? request->flavor : ""),
        .template_name = str_is_empty(request->template_name) ? config->sandbox.template_name
                                                              : request->template_name,
    };
    struct backend *backend = backend_check_wishes(core, &wishes, err);

    if (!backend || check_abilities(backend, request, wishes.template_name, err) < 0 ||
        templates_check(core, backend, request->template_name, err) < 0)
        return NULL;
    return backend;
}

static int check_mounts(const struct core *core, const struct backend *backend,
                        const struct session_request *request, struct error *err)
{
    scoped(mounts_fini) struct mounts mounts = { 0 };

    if (!request->mounts_json)
        return 0;
    if (backend_check_mounts(backend, err) < 0 ||
        mounts_parse(&mounts, request->mounts_json, err) < 0)
        return -1;
    return mounts_check(&mounts, core->parts.config, request->owner, err);
}

int session_check_enabled(const struct core *core, struct error *err)
{
    if (core->parts.config->sessions.enabled)
        return 0;
    error_named(err, ERR_FORBIDDEN, "sessions_disabled",
                "sessions are disabled (sessions.enabled is false)");
    return error_hint_known(err, HINT_SESSIONS_DISABLED);
}

static int check_open(struct core *core, const struct session_request *request, struct error *err)
{
    if (core->stopping)
        return error_named(err, ERR_UNAVAILABLE, "shutting_down", "the daemon is shutting down");
    if (!request->is_one_shot && session_check_enabled(core, err) < 0)
        return -1;
    if (request->owner && scopes_check_owner(core->scopes, request->owner, err) < 0)
        return -1;
    return check_flavor(core, request->flavor, err);
}

/* The backend that its first sandbox gets; NULL: the request is refused. */
static struct backend *check_request(struct core *core, const struct session_request *request,
                                     struct error *err)
{
    struct backend *backend =
        check_open(core, request, err) < 0 ? NULL : choose_backend(core, request, err);

    if (!backend || check_ceiling(core, request, err) < 0 ||
        check_mounts(core, backend, request, err) < 0 ||
        (request->secrets_json && vault_open(core->vault, err) < 0))
        return NULL;
    return backend;
}

/* The record of the session, its claims and the intent of its sandbox are one transaction. */
static void create(struct core *core, const struct session_request *request, struct session_op *op,
                   session_done_fn *done)
{
    struct session *session;
    struct share share = { 0 };

    if (share_take(&share, core->shares, request->owner, SHARE_SESSIONS, &op->err) < 0) {
        session_op_defer(op, core, done);
        return;
    }
    session = make(core, request, &share);
    op->created = true;
    op->session = session;
    session_op_join(op, session, &session->record.waiters, done);
    session_key_claim(session);
    idempotency_remember(core->idempotency, request, session->identity.id);
    metrics_add(core->metrics, METRIC_SESSIONS_CREATED, 0, 1);
    session_emit(session, "session.created", NULL);
    session_changed(session);
    if (session->policy.preload)
        session_preload(session);
    clocks_arm(session);
    log_info("session created", kv("session", session->identity.id),
             kv("owner", session->identity.owner));
    store_commit(core->parts.store, &session->record.ticket, on_created);
}

/* The questions that have been answered already. */
enum open_stage { OPEN_UNASKED, OPEN_ANSWERED, OPEN_SOURCE_FOUND };

static void open_session(struct core *core, const struct session_request *request,
                         struct session_op *op, session_done_fn *done, enum open_stage stage,
                         const struct open_answer *answer);

/* Meanwhile anything may have happened: everything is looked at again. */
static void on_answered(struct core *core, const struct session_request *request,
                        struct session_op *op, session_done_fn *done,
                        const struct open_answer *answer)
{
    open_session(core, request, op, done, OPEN_ANSWERED, answer);
}

static void on_source_found(struct core *core, const struct session_request *request,
                            struct session_op *op, session_done_fn *done)
{
    open_session(core, request, op, done, OPEN_SOURCE_FOUND, NULL);
}

static void open_session(struct core *core, const struct session_request *request,
                         struct session_op *op, session_done_fn *done, enum open_stage stage,
                         const struct open_answer *answer)
{
    struct session *session = NULL;
    struct backend *backend;

    *op = (struct session_op){ 0 };
    if (stage == OPEN_UNASKED && open_question_ask(core, request, op, done, on_answered))
        return;
    backend = check_request(core, request, &op->err);
    if (backend)
        session = find_repeated(core, request, op);
    if (!session && op->err.code == ERR_NONE)
        session = find_made_elsewhere(core, request, answer, op);
    if (!session && op->err.code == ERR_NONE)
        session = find_by_key(core, request, op);
    if (op->err.code != ERR_NONE)
        session_op_defer(op, core, done);
    else if (session)
        join(session, op, done);
    else if (stage == OPEN_SOURCE_FOUND ||
             !source_question_ask(core, backend, request, op, done, on_source_found))
        create(core, request, op, done);
}

void session_open(struct core *core, const struct session_request *request, struct session_op *op,
                  session_done_fn *done)
{
    open_session(core, request, op, done, OPEN_UNASKED, NULL);
}
