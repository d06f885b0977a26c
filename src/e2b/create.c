/* SPDX-License-Identifier: Apache-2.0 */
/* Creating a sandbox: POST /v2/sandboxes, and /sandboxes as clients up to 2.49 do it. */

#include "base/alloc.h"
#include "base/str.h"
#include "core/ceiling.h"
#include "core/core.h"
#include "core/session/session.h"
#include "e2b/private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_S = 300,
    DEFAULT_FIRST_S = 15, /* of the first version */
    METADATA_MAXIMUM = 64,
    METADATA_NAME = 128,
    METADATA_VALUE = 4096,
};

struct wishes {
    bool is_first; /* of the first version */
    const char *template_id;
    int64_t timeout_ms;
    json_t *metadata, *env; /* borrowed; may be NULL */
    bool secure, auto_pause, auto_resume, is_public;
    bool no_internet;
    const char *mask_host; /* NULL: unset */
};

/* --- reading --------------------------------------------------------------------------------- */

static int wrong(struct error *err, const char *field, const char *expected)
{
    return error_named(err, ERR_INVALID, "invalid_field", "%s must be %s", field, expected);
}

/* Clients write null for what their caller did not say. */
static json_t *get(const json_t *body, const char *name)
{
    json_t *value = json_object_get(body, name);

    return json_is_null(value) ? NULL : value;
}

static int read_flag(const json_t *body, const char *name, bool *out_flag, struct error *err)
{
    const json_t *value = get(body, name);

    if (value && !json_is_boolean(value))
        return wrong(err, name, "true or false");
    if (value)
        *out_flag = json_is_true(value);
    return 0;
}

static int read_texts(const json_t *body, const char *name, json_t **out_map, struct error *err)
{
    json_t *map = get(body, name);
    const char *key;
    json_t *value;

    if (map && !json_is_object(map))
        return wrong(err, name, "an object of strings");
    json_object_foreach(map, key, value) if (!json_is_string(value)) return wrong(
        err, name, "an object of strings");
    *out_map = map;
    return 0;
}

static int check_metadata(const json_t *metadata, struct error *err)
{
    const char *name;
    json_t *value;

    if (json_object_size(metadata) > METADATA_MAXIMUM)
        return wrong(err, "metadata", "at most 64 pairs");
    json_object_foreach((json_t *)metadata, name, value)
    {
        if (!*name || strlen(name) > METADATA_NAME || strpbrk(name, "=\n"))
            return error_named(err, ERR_INVALID, "invalid_field",
                               "metadata: \"%.64s\" is not a valid name: 1 to %d bytes without '=' "
                               "and line ends are",
                               name, METADATA_NAME);
        if (json_string_length(value) > METADATA_VALUE)
            return error_named(err, ERR_INVALID, "invalid_field",
                               "metadata: the value of \"%.64s\" is longer than %d bytes", name,
                               METADATA_VALUE);
    }
    return 0;
}

static int check_env(const json_t *env, struct error *err)
{
    const char *name;
    json_t *value;

    size_t bytes = 0;

    json_object_foreach((json_t *)env, name, value)
    {
        bytes += strlen(name) + json_string_length(value) + 2;
        if (!*name || strchr(name, '='))
            return error_named(err, ERR_INVALID, "invalid_field",
                               "envVars: \"%.64s\" is not a valid variable name", name);
    }
    if (bytes > E2B_ENV_MAXIMUM)
        return error_named(err, ERR_INVALID, "env_too_large", "envVars is larger than %d bytes",
                           E2B_ENV_MAXIMUM);
    return 0;
}

static int unsupported(struct error *err, const char *field)
{
    return error_named(err, ERR_INVALID, "unsupported_field", "%s is not supported by this server",
                       field);
}

static bool is_something(const json_t *value)
{
    return json_is_object(value)  ? json_object_size(value) > 0
           : json_is_array(value) ? json_array_size(value) > 0
                                  : value && !json_is_null(value) && !json_is_false(value);
}

/* All addresses, and nothing excepted: that is a sandbox without network. */
static bool denies_all(const json_t *network)
{
    const json_t *denied = get(network, "denyOut");
    const char *only = json_string_value(json_array_get(denied, 0));

    return json_array_size(denied) == 1 && only &&
           (str_equal(only, "0.0.0.0/0") || str_equal(only, "::/0"));
}

static bool is_host(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  ".-_:[]${}";

    return *text && strlen(text) < 256 && strspn(text, letters) == strlen(text);
}

/* A rule that is not enforced is refused, not ignored. */
static int read_network(const json_t *body, struct wishes *wishes, struct error *err)
{
    static const char *const others[] = { "allowOut", "rules", "egressProxy", "httpsPorts" };
    const json_t *network = get(body, "network");
    bool internet = true;

    if (network && !json_is_object(network))
        return wrong(err, "network", "an object");
    for (size_t i = 0; i < ARRAY_LENGTH(others); i++)
        if (is_something(get(network, others[i])))
            return unsupported(err, others[i]);
    if (is_something(get(network, "denyOut")) && !denies_all(network))
        return unsupported(err, "denyOut with parts of the network");
    wishes->mask_host = json_string_value(get(network, "maskRequestHost"));
    if (wishes->mask_host && !is_host(wishes->mask_host))
        return wrong(err, "maskRequestHost", "a host name, maybe with a port");
    wishes->is_public = true;
    if (read_flag(network, "allowPublicTraffic", &wishes->is_public, err) < 0 ||
        read_flag(body, "allow_internet_access", &internet, err) < 0)
        return -1;
    wishes->no_internet = !internet || denies_all(network);
    return 0;
}

static int read_lifecycle(const json_t *body, struct wishes *wishes, struct error *err)
{
    const json_t *resume = get(body, "autoResume");
    bool memory = true;

    if (resume && !json_is_object(resume))
        return wrong(err, "autoResume", "an object with \"enabled\"");
    if (read_flag(body, "autoPause", &wishes->auto_pause, err) < 0 ||
        read_flag(body, "autoPauseMemory", &memory, err) < 0 ||
        read_flag(resume, "enabled", &wishes->auto_resume, err) < 0 ||
        read_flag(body, "secure", &wishes->secure, err) < 0)
        return -1;
    return memory ? 0 : unsupported(err, "autoPauseMemory: false");
}

static int read_wishes(const struct request *request, struct wishes *wishes, struct error *err)
{
    static const char *const missing[] = { "volumeMounts", "iam" };
    const json_t *body = request->body;

    wishes->template_id = json_string_value(get(body, "templateID"));
    if (str_is_empty(wishes->template_id))
        return wrong(err, "templateID", "the name of a template");
    for (size_t i = 0; i < ARRAY_LENGTH(missing); i++)
        if (is_something(get(body, missing[i])))
            return unsupported(err, missing[i]);
    wishes->secure = !wishes->is_first;
    if (e2b_read_timeout(request, "timeout", wishes->is_first ? DEFAULT_FIRST_S : DEFAULT_S,
                         &wishes->timeout_ms, err) < 0 ||
        read_texts(body, "metadata", &wishes->metadata, err) < 0 ||
        read_texts(body, "envVars", &wishes->env, err) < 0 ||
        check_metadata(wishes->metadata, err) < 0 || check_env(wishes->env, err) < 0 ||
        read_lifecycle(body, wishes, err) < 0)
        return -1;
    return read_network(body, wishes, err);
}

/* --- making ---------------------------------------------------------------------------------- */

struct creation {
    struct request *request;
    struct session_op op;
    struct session_hold hold;
    char session_id[ID_SIZE];
};

static void creation_fail(struct creation *creation, const struct error *err)
{
    if (!request_finish(creation->request))
        request_fail(creation->request, err);
    free(creation);
}

/* The client does not know the id of this session, so nothing of it may stay. */
static void creation_undo(const struct creation *creation)
{
    struct session *session = session_find(creation->request->core, "", true, creation->session_id);

    if (session)
        session_end(session, END_FAILED, "not created", NULL, NULL);
}

static void on_ready(struct session_hold *hold)
{
    struct creation *creation = container_of(hold, struct creation, hold);
    struct request *request = creation->request;
    struct session *session = hold->session;
    struct error err = hold->err;

    if (err.code) {
        creation_undo(creation);
        creation_fail(creation, &err);
        return;
    }
    session_hold_end(hold);
    if (request_finish(request))
        session_end(session, END_DELETED, "the client left", NULL, NULL);
    else
        e2b_reply_sandbox(request, 201, session);
    free(creation);
}

/* The sandbox went before it could be used. */
static void on_lost(struct session_hold *hold)
{
    struct creation *creation = container_of(hold, struct creation, hold);
    struct error err = { 0 };

    error_set(&err, ERR_BACKEND, "the sandbox ended while it was created");
    creation_fail(creation, &err);
}

/* A backend without templates refuses all but one. */
static bool is_about_template(const struct error *err)
{
    return str_equal(err->name, "backend_unable") && str_starts_with(err->message, "template:");
}

static void on_opened(struct session_op *op)
{
    struct creation *creation = container_of(op, struct creation, op);

    if (op->err.code) {
        if (is_about_template(&op->err))
            snprintf(op->err.name, sizeof(op->err.name), "template_unknown");
        creation_fail(creation, &op->err);
        return;
    }
    memcpy(creation->session_id, op->id, ID_SIZE);
    memcpy(creation->request->session_id, op->id, ID_SIZE);
    session_hold_begin(&creation->hold, op->session, 0, on_ready, on_lost);
}

static char *notes_of(const struct wishes *wishes)
{
    scoped(json_decref) json_t *notes = json_pack(
        "{s:{s:s, s:b, s:b, s:b, s:b, s:s*}}", "e2b", "template", wishes->template_id, "secure",
        wishes->secure, "public", wishes->is_public, "auto_resume", wishes->auto_resume,
        "auto_pause", wishes->auto_pause, "mask_host", wishes->mask_host);

    return json_dumps(notes, JSON_COMPACT);
}

static char *env_of(const struct wishes *wishes)
{
    scoped(json_decref) json_t *env = wishes->env ? json_copy(wishes->env) : json_object();

    json_object_set_new(env, "E2B_SANDBOX", json_string("true"));
    return json_dumps(env, JSON_COMPACT);
}

/* A sandbox of E2B has one clock, unless the operator demands an idle timeout of every session. */
static int64_t idle_timeout_of(const struct request *request)
{
    const struct core *core = request->core;

    return ceiling_cut_ms(core->ceiling, request->owner, config_flavor_find(core->parts.config, ""),
                          LIMIT_IDLE_TIMEOUT, 0);
}

static void open_session(struct request *request, const struct wishes *wishes,
                         const char *template_name)
{
    struct session_request wanted = SESSION_REQUEST_INIT;
    scoped(free) char *notes = notes_of(wishes);
    scoped(free) char *env = env_of(wishes);
    scoped(free) char *labels = wishes->metadata ? json_dumps(wishes->metadata, JSON_COMPACT)
                                                 : NULL;
    struct creation *creation = xnew(struct creation);

    wanted.owner = request->owner;
    wanted.on_behalf_of = request->on_behalf_of;
    wanted.template_name = template_name;
    wanted.labels_json = labels;
    wanted.env_json = env;
    wanted.face_json = notes;
    wanted.timeout_ms = wishes->timeout_ms;
    wanted.idle_timeout_ms = idle_timeout_of(request);
    wanted.on_timeout = wishes->auto_pause ? TIMEOUT_PAUSE : TIMEOUT_KILL;
    wanted.auto_resume = wishes->auto_resume;
    wanted.auto_restart = false; /* another one without its files would not be the same sandbox */
    wanted.preload = true;
    if (wishes->no_internet)
        wanted.network = NETWORK_NONE;
    creation->request = request;
    request_begin(request);
    session_open(request->core, &wanted, &creation->op, on_opened);
}

static void create(struct request *request, bool is_first)
{
    struct wishes wishes = { .is_first = is_first };
    const char *template_name;
    struct error err = { 0 };

    if (read_wishes(request, &wishes, &err) < 0 || vault_open(request->core->vault, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    /* Names that only a backend knows, images say, are for the core to refuse. */
    if (e2b_template_find(request, wishes.template_id, &template_name, NULL) < 0)
        template_name = wishes.template_id;
    open_session(request, &wishes, template_name);
}

static void post_first(struct request *request)
{
    create(request, true);
}

static void post_second(struct request *request)
{
    create(request, false);
}

const struct route e2b_create_routes[] = {
    { HTTP_POST, "/sandboxes", post_first, "Create a sandbox", .body = ROUTE_JSON_BODY,
      .answers = e2b_any_answers, .home = ROUTE_PLACED },
    { HTTP_POST, "/v2/sandboxes", post_second, "Create a sandbox", .body = ROUTE_JSON_BODY,
      .answers = e2b_any_answers, .home = ROUTE_PLACED },
    { 0 },
};
