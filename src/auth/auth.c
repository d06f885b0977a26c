/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/auth.h"

#include "auth/credentials.h"
#include "auth/encoding.h"
#include "auth/file_watch.h"
#include "auth/jwk.h"
#include "auth/jwks.h"
#include "auth/jwt.h"
#include "auth/key_use.h"
#include "auth/keys.h"
#include "auth/local_token.h"
#include "auth/login.h"
#include "auth/rate_limit.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/map.h"
#include "base/str.h"
#include "config/config.h"
#include "net/http_server.h"
#include "wire/json.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KNOWN_MAXIMUM = 4096, ENDED_MAXIMUM = 4096, BUCKETS_MAXIMUM = 65536, SEED_BYTES = 32 };

/* A caller whose credentials were checked. */
struct known {
    char digest[SHA256_TEXT_SIZE]; /* of the token, with our seed */
    char *principal;               /* owned */
    unsigned roles;
    int64_t expires_us;   /* wall clock; 0: never */
    char key_id[ID_SIZE]; /* "" for a token */
};

/* A login that was ended before its time. */
struct ended_login {
    char id[ID_SIZE];
    int64_t expires_us;
};

struct auth {
    struct auth_parts parts;
    struct key_set keys;
    struct file_watch key_file;
    struct key_use *key_use; /* owned; NULL unless keys are used */
    struct jwks *jwks;       /* owned; NULL unless tokens are used */
    struct map known;        /* by digest; owned */
    uint8_t seed[SEED_BYTES];
    struct map ended;         /* logins: struct ended_login; owned */
    int64_t logins_since_us;  /* earlier ones are refused: too many were ended to remember each */
    struct local_token local; /* for TCP where authentication is off */
    struct rate_limit *failures; /* owned; by address */
    struct rate_limit *requests; /* owned; by principal */
    int64_t retry_after_ms;
    struct list waiters;
    struct deferred wake;
};

/* --- who is known ---------------------------------------------------------------------------- */

static void known_free(struct known *known)
{
    free(known->principal);
    free(known);
}

static void forget_all(struct auth *auth)
{
    struct map_slot *slot;

    map_for_each (slot, &auth->known)
        known_free(slot->value);
    map_fini(&auth->known);
    auth->known = (struct map){ 0 };
}

static void digest_of(const struct auth *auth, const char *token, char text[SHA256_TEXT_SIZE])
{
    uint8_t digest[SHA256_BYTES];

    sha256_of(auth->seed, sizeof(auth->seed), token, strlen(token), digest);
    hex_encode(digest, sizeof(digest), text);
}

static const struct known *known_find(struct auth *auth, const char *digest, int64_t now_us)
{
    struct known *known = map_get(&auth->known, digest);

    if (!known || !known->expires_us || now_us < known->expires_us)
        return known;
    map_remove(&auth->known, digest);
    known_free(known);
    return NULL;
}

static const struct known *remember(struct auth *auth, const char *digest, const struct known *who)
{
    struct known *known = xnew(struct known);

    if (auth->known.count >= KNOWN_MAXIMUM)
        forget_all(auth);
    *known = *who;
    known->principal = xstrdup(who->principal);
    memcpy(known->digest, digest, sizeof(known->digest));
    map_put(&auth->known, known->digest, known);
    return known;
}

/* --- keys ------------------------------------------------------------------------------------ */

static int load_keys(struct auth *auth, struct error *err)
{
    struct key_set fresh;

    if (key_set_load(&fresh, auth->parts.config->auth.keys_file, err) < 0)
        return -1;
    key_set_fini(&auth->keys);
    auth->keys = fresh;
    forget_all(auth);
    if (fresh.damaged_count)
        log_warn("lines of the key file are invalid", kv("count", fresh.damaged_count));
    log_info("keys", kv("count", fresh.count));
    return 0;
}

/* A file that was never there has no keys; one that is gone may be about to come back. */
static int reload_keys(struct auth *auth, struct error *err)
{
    bool was_there = auth->keys.count > 0 || auth->key_file.state != FILE_CURRENT;

    if (was_there && file_watch_is_gone(&auth->key_file))
        return error_set(err, ERR_NOT_FOUND, "%s is gone", auth->parts.config->auth.keys_file);
    return load_keys(auth, err);
}

/* Keys that were revoked since would stay valid, so none is. */
static void lose_keys(struct auth *auth, const struct error *err)
{
    key_set_fini(&auth->keys);
    forget_all(auth);
    log_error("no key is valid until the key file can be read", kv("error", err->message));
}

static void look_at_keys(struct auth *auth)
{
    struct error err = { 0 };
    int64_t now_us = loop_now_us(auth->parts.loop);
    enum file_state before = auth->key_file.state;
    enum file_state after;

    if (!file_watch_changed(&auth->key_file, auth->parts.config->auth.keys_file, now_us))
        return;
    after = file_watch_settle(&auth->key_file, reload_keys(auth, &err) == 0, now_us);
    if (after == before)
        return;
    if (after == FILE_STALE)
        log_error("the keys were not reloaded; trying again", kv("error", err.message));
    else if (after == FILE_LOST)
        lose_keys(auth, &err);
}

static int refuse_lost(struct auth *auth, struct error *err)
{
    auth->retry_after_ms = 1000;
    return error_named(err, ERR_UNAVAILABLE, "keys_unreadable",
                       "the file of API keys cannot be read, so no key is valid");
}

static int refuse_wrong(struct error *err)
{
    return error_named(err, ERR_UNAUTHORIZED, "credentials_invalid",
                       "the credentials are not valid");
}

static enum auth_result check_key(struct auth *auth, const char *token, const char *digest,
                                  int64_t now_us, const struct known **out, struct error *err)
{
    const struct api_key *key = key_set_find(&auth->keys, token, now_us);
    struct known who = { 0 };

    if (auth->key_file.state == FILE_LOST)
        return refuse_lost(auth, err);
    if (!key)
        return refuse_wrong(err);
    who.principal = key->principal;
    who.roles = key->roles;
    who.expires_us = key->expires_us;
    memcpy(who.key_id, key->id, sizeof(who.key_id));
    *out = remember(auth, digest, &who);
    return AUTH_KNOWN;
}

/* --- tokens ---------------------------------------------------------------------------------- */

static enum auth_result no_issuer(struct auth *auth, struct error *err)
{
    if (jwks_refresh(auth->jwks))
        return AUTH_WAIT;
    auth->retry_after_ms = auth->parts.config->auth.jwt.cooldown_ms;
    return error_named(err, ERR_UNAVAILABLE, "issuer_unavailable",
                       "the keys of the token issuer are not available");
}

static enum auth_result check_token(struct auth *auth, const char *token, const char *digest,
                                    int64_t now_us, const struct known **out, struct error *err)
{
    const struct config *config = auth->parts.config;
    const struct jwt_policy policy = { .issuer = config->auth.jwt.issuer,
                                       .audience = config->auth.jwt.audience,
                                       .roles_claim = config->auth.jwt.roles_claim,
                                       .skew_us = config->auth.jwt.skew_ms * 1000 };
    const struct jwk_set *keys = jwks_keys(auth->jwks);
    struct jwt_claims claims = { 0 };

    if (!keys)
        return no_issuer(auth, err);
    switch (jwt_check(token, keys, &policy, now_us, &claims, err)) {
    case JWT_VALID:
        break;
    case JWT_UNKNOWN_KEY:
        return jwks_refresh(auth->jwks) ? AUTH_WAIT : AUTH_REFUSED;
    case JWT_REFUSED:
        return AUTH_REFUSED;
    }
    *out = remember(auth, digest,
                    &(struct known){ .principal = claims.subject,
                                     .roles = claims.roles,
                                     .expires_us = claims.expires_us + policy.skew_us });
    jwt_claims_fini(&claims);
    return AUTH_KNOWN;
}

/* Reads changed files of keys. Callers that were checked with the old keys are forgotten then. */
static void look_at_files(struct auth *auth)
{
    if (auth->jwks)
        (void)jwks_keys(auth->jwks);
    else
        look_at_keys(auth);
}

/* --- owners ---------------------------------------------------------------------------------- */

static void fill_caller(struct caller *out, const struct known *known, const char *on_behalf_of)
{
    bool delegates = known->roles & ROLE_DELEGATE;

    *out = (struct caller){
        .owner = caller_owner(known->principal, delegates ? on_behalf_of : ""),
        .principal = xstrdup(known->principal),
        .on_behalf_of = xstrdup(on_behalf_of),
        .roles = known->roles,
        .expires_us = known->expires_us,
    };
    memcpy(out->key_id, known->key_id, sizeof(out->key_id));
}

/* The sender of the token can read a file that only root and the daemon's user can read. */
static bool peer_is_operator(const struct http_peer *peer)
{
    return !peer->is_unix || peer->uid == 0 || peer->uid == geteuid();
}

static void fill_anybody(struct caller *out, const char *on_behalf_of, bool is_operator)
{
    *out = (struct caller){
        .owner = xstrdup(on_behalf_of),
        .principal = xstrdup(""),
        .on_behalf_of = xstrdup(on_behalf_of),
        .roles = ROLE_USER | ROLE_APPROVER,
        .is_operator = is_operator,
    };
}

/* --- resolving ------------------------------------------------------------------------------- */

static int refuse_missing(const struct auth *auth, struct error *err)
{
    error_named(err, ERR_UNAUTHORIZED, "credentials_missing", "credentials are needed");
    if (auth->parts.config->auth.mode == AUTH_MODE_NONE)
        return error_hint_known(err, HINT_LOCAL_TOKEN);
    if (auth->parts.config->auth.mode == AUTH_MODE_KEYS)
        return error_hint_known(err, HINT_API_KEY);
    error_hint(err, "send a token of %.120s as Authorization: Bearer",
               auth->parts.config->auth.jwt.issuer);
    if (err)
        err->hint_kind = HINT_TOKEN;
    return -1;
}

/* An unknown caller: checked unless the address has failed too often lately. */
static enum auth_result check_stranger(struct auth *auth, const char *token, const char *digest,
                                       const char *peer, int64_t now_us, const struct known **out,
                                       struct error *err)
{
    bool by_key = auth->parts.config->auth.mode == AUTH_MODE_KEYS;
    enum auth_result result;

    if (!rate_limit_allows(auth->failures, peer, &auth->retry_after_ms))
        return error_named(err, ERR_LIMIT, "too_many_failures",
                           "too many failed authentications from this address");
    result = (by_key ? check_key : check_token)(auth, token, digest, now_us, out, err);
    if (result == AUTH_REFUSED && err->code == ERR_UNAUTHORIZED) {
        (void)rate_limit_take(auth->failures, peer, &auth->retry_after_ms);
        log_info("wrong credentials", kv("peer", peer), kv("reason", err->name));
    }
    return result;
}

static enum auth_result resolve_token(struct auth *auth, const struct credentials *given,
                                      const struct http_peer *peer, struct caller *out,
                                      struct error *err)
{
    int64_t now_us = clock_wall_us(loop_clock(auth->parts.loop));
    char digest[SHA256_TEXT_SIZE];
    char name[PEER_NAME_SIZE];
    const struct known *known;
    enum auth_result result = AUTH_KNOWN;

    if (!given->token)
        return refuse_missing(auth, err);
    look_at_files(auth);
    digest_of(auth, given->token, digest);
    known = known_find(auth, digest, now_us);
    if (!known) {
        peer_name(peer, name);
        result = check_stranger(auth, given->token, digest, name, now_us, &known, err);
    }
    if (result != AUTH_KNOWN)
        return result;
    if (*known->key_id)
        key_use_note(auth->key_use, known->key_id);
    fill_caller(out, known, given->on_behalf_of);
    return AUTH_KNOWN;
}

/* TCP where authentication is off: every user of this host can connect, so a token is required. */
static enum auth_result check_local(struct auth *auth, const struct credentials *given,
                                    const struct http_peer *peer, struct error *err)
{
    char name[PEER_NAME_SIZE];

    if (local_token_is(&auth->local, given->token))
        return AUTH_KNOWN;
    if (!given->token)
        return refuse_missing(auth, err);
    peer_name(peer, name);
    if (!rate_limit_take(auth->failures, name, &auth->retry_after_ms))
        return error_named(err, ERR_LIMIT, "too_many_failures",
                           "too many failed authentications from this address");
    return refuse_wrong(err);
}

enum auth_result auth_resolve(struct auth *auth, const struct http_head *head,
                              const struct http_peer *peer, struct caller *out, struct error *err)
{
    scoped(credentials_fini) struct credentials given = { 0 };

    if (credentials_read(&given, head, err) < 0)
        return AUTH_REFUSED;
    if (auth && auth->parts.config->auth.mode != AUTH_MODE_NONE)
        return resolve_token(auth, &given, peer, out, err);
    if (auth && !peer->is_unix && check_local(auth, &given, peer, err) != AUTH_KNOWN)
        return AUTH_REFUSED;
    fill_anybody(out, given.on_behalf_of, peer_is_operator(peer));
    return AUTH_KNOWN;
}

/* --- logins ---------------------------------------------------------------------------------- */

static void forget_ended(struct auth *auth)
{
    struct map_slot *slot;

    map_for_each (slot, &auth->ended)
        free(slot->value);
    map_fini(&auth->ended);
    auth->ended = (struct map){ 0 };
}

void auth_end_login(struct auth *auth, const struct login *login)
{
    struct ended_login *ended;

    if (!auth || map_get(&auth->ended, login->id))
        return;
    if (auth->ended.count >= ENDED_MAXIMUM) {
        forget_ended(auth);
        auth->logins_since_us = clock_wall_us(loop_clock(auth->parts.loop));
    }
    ended = xnew(struct ended_login);
    memcpy(ended->id, login->id, sizeof(ended->id));
    ended->expires_us = login->expires_us;
    map_put(&auth->ended, ended->id, ended);
}

static int refuse_login(struct error *err)
{
    error_named(err, ERR_UNAUTHORIZED, "login_expired", "the login of this browser has ended");
    return error_hint(err, "log in again, with an API key or with 'sandglass dashboard'");
}

static bool login_is_over(const struct auth *auth, const struct login *login, int64_t now_us)
{
    return now_us >= login->expires_us || map_get(&auth->ended, login->id) ||
           login->issued_us <= auth->logins_since_us;
}

/* With the roles that the key has now. */
static int resume_key(struct auth *auth, const struct login *login, int64_t now_us,
                      const char *on_behalf_of, struct caller *out, struct error *err)
{
    const struct api_key *key;
    struct known who = { 0 };

    look_at_keys(auth);
    if (auth->key_file.state == FILE_LOST)
        return refuse_lost(auth, err);
    key = key_set_by_id(&auth->keys, login->key_id);
    if (!key || !key_is_usable(key, now_us))
        return refuse_login(err);
    who = (struct known){ .principal = key->principal,
                          .roles = key->roles,
                          .expires_us = key->expires_us };
    memcpy(who.key_id, key->id, sizeof(who.key_id));
    key_use_note(auth->key_use, who.key_id);
    fill_caller(out, &who, on_behalf_of);
    return 0;
}

int auth_resume(struct auth *auth, const struct login *login, const char *on_behalf_of,
                struct caller *out, struct error *err)
{
    int mode = auth ? auth->parts.config->auth.mode : AUTH_MODE_NONE;
    int64_t now_us = auth ? clock_wall_us(loop_clock(auth->parts.loop)) : 0;
    const char *for_whom = *on_behalf_of ? on_behalf_of : login->on_behalf_of;
    char principal[OWNER_MAXIMUM + 1];

    if (!auth || login->mode != mode || login_is_over(auth, login, now_us))
        return refuse_login(err);
    switch ((enum config_auth)mode) {
    case AUTH_MODE_NONE:
        fill_anybody(out, for_whom, login->is_operator);
        return 0;
    case AUTH_MODE_KEYS:
        return resume_key(auth, login, now_us, for_whom, out, err);
    case AUTH_MODE_JWT:
        break;
    }
    memcpy(principal, login->principal, sizeof(principal));
    fill_caller(out,
                &(struct known){ .principal = principal,
                                 .roles = login->roles,
                                 .expires_us = login->expires_us },
                for_whom);
    return 0;
}

/* --- whether callers can be known -------------------------------------------------------------- */

int auth_check(struct auth *auth, struct error *err)
{
    if (!auth || auth->parts.config->auth.mode == AUTH_MODE_NONE)
        return 0;
    look_at_files(auth);
    if (auth->key_file.state == FILE_LOST)
        return refuse_lost(auth, err);
    if (auth->jwks && jwks_is_lost(auth->jwks))
        return no_issuer(auth, err);
    return 0;
}

int auth_admit(struct auth *auth, const struct caller *caller, struct error *err)
{
    if (!auth || !*caller->principal ||
        rate_limit_take(auth->requests, caller->principal, &auth->retry_after_ms))
        return 0;
    return error_named(err, ERR_LIMIT, "rate_limited", "more than %lld requests per second",
                       (long long)auth->parts.config->http.rate_limit);
}

int64_t auth_retry_after_s(const struct auth *auth)
{
    return MAX((auth->retry_after_ms + 999) / 1000, (int64_t)1);
}

/* --- showing --------------------------------------------------------------------------------- */

static void write_key(const struct auth *auth, const struct api_key *key, struct json_writer *json)
{
    json_begin_object(json, NULL);
    json_put_text(json, "id", key->id);
    json_put_text(json, "principal", key->principal);
    json_begin_array(json, "roles");
    role_for_each(role, key->roles) json_put_text(json, NULL, role_name(role));
    json_end_array(json);
    json_put_time(json, "created_at", key->created_us);
    json_put_time(json, "expires_at", key->expires_us);
    json_put_time(json, "revoked_at", key->revoked_us);
    json_put_time(json, "last_used_at", key_use_last_us(auth->key_use, key->id));
    json_end_object(json);
}

void auth_write_keys(struct auth *auth, struct json_writer *json)
{
    json_begin_object(json, NULL);
    json_begin_array(json, "keys");
    if (auth && auth->key_use)
        look_at_keys(auth);
    for (size_t i = 0; auth && auth->key_use && i < auth->keys.count; i++)
        write_key(auth, &auth->keys.items[i], json);
    json_end_array(json);
    json_end_object(json);
}

/* --- waiting --------------------------------------------------------------------------------- */

static void wake_all(struct auth *auth)
{
    struct list woken;

    list_init(&woken);
    while (!list_is_empty(&auth->waiters)) {
        struct list *node = auth->waiters.next;

        list_remove(node);
        list_append(&woken, node);
    }
    while (!list_is_empty(&woken)) {
        struct auth_waiter *waiter = list_first(&woken, struct auth_waiter, node);

        list_remove(&waiter->node);
        waiter->on_ready(waiter);
    }
}

static void on_wake(struct deferred *deferred)
{
    wake_all(container_of(deferred, struct auth, wake));
}

void auth_wait(struct auth *auth, struct auth_waiter *waiter, auth_ready_fn *on_ready)
{
    waiter->on_ready = on_ready;
    list_append(&auth->waiters, &waiter->node);
}

static void on_issuer_keys(void *context)
{
    struct auth *auth = context;

    forget_all(auth);
    loop_defer(auth->parts.loop, &auth->wake, on_wake);
}

/* --- life ------------------------------------------------------------------------------------ */

static int auth_load(struct auth *auth, struct error *err)
{
    const struct auth_parts *parts = &auth->parts;

    switch ((enum config_auth)parts->config->auth.mode) {
    case AUTH_MODE_NONE:
        return 0;
    case AUTH_MODE_KEYS:
        auth->key_use = key_use_new(parts->loop, parts->store);
        (void)file_watch_changed(&auth->key_file, parts->config->auth.keys_file,
                                 loop_now_us(parts->loop));
        return load_keys(auth, err);
    case AUTH_MODE_JWT:
        auth->jwks = jwks_new(parts->loop, parts->config, on_issuer_keys, auth, err);
        return auth->jwks ? 0 : -1;
    }
    return 0;
}

struct auth *auth_new(const struct auth_parts *parts, struct error *err)
{
    const struct config *config = parts->config;
    const struct clock *clock = loop_clock(parts->loop);
    struct auth *auth = xnew(struct auth);

    auth->parts = *parts;
    list_init(&auth->waiters);
    random_fill(auth->seed, sizeof(auth->seed));
    local_token_make(&auth->local);
    auth->failures = rate_limit_new(clock, (double)config->auth.failure_limit / 60,
                                    (double)config->auth.failure_limit, BUCKETS_MAXIMUM);
    auth->requests = rate_limit_new(clock, (double)config->http.rate_limit,
                                    (double)config->http.rate_burst, BUCKETS_MAXIMUM);
    if (auth_load(auth, err) < 0) {
        auth_free(auth);
        return NULL;
    }
    return auth;
}

void auth_free(struct auth *auth)
{
    if (!auth)
        return;
    jwks_free(auth->jwks);
    loop_undefer(auth->parts.loop, &auth->wake);
    wake_all(auth);
    key_use_free(auth->key_use);
    key_set_fini(&auth->keys);
    forget_all(auth);
    forget_ended(auth);
    rate_limit_free(auth->failures);
    rate_limit_free(auth->requests);
    explicit_bzero(auth->seed, sizeof(auth->seed));
    explicit_bzero(&auth->local, sizeof(auth->local));
    free(auth);
}

int auth_serve_port(struct auth *auth, int state_dir, unsigned port, struct error *err)
{
    if (auth->parts.config->auth.mode != AUTH_MODE_NONE || !port)
        return 0;
    return local_token_save(&auth->local, state_dir, port, err);
}

void auth_reload(struct auth *auth)
{
    if (auth->jwks)
        jwks_reload(auth->jwks);
    file_watch_reset(&auth->key_file);
}
