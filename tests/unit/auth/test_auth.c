/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/auth.h"

#include "auth/credentials.h"
#include "auth/keys.h"
#include "auth/login.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/scoped.h"
#include "config/config.h"
#include "issuer.h"
#include "net/http_server.h"

#include <openssl/evp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

enum { HEADERS = 4, SECOND_US = 1000 * 1000 };

struct scene {
    char directory[64], path[96];
    struct simulated_clock clock;
    struct loop *loop;
    struct config config;
    struct auth *auth;
    struct http_header headers[HEADERS];
    struct http_head head;
    struct http_peer peer;
    struct caller caller;
    struct error err;
};

static struct scene scene;

static int scene_open(void **state UNUSED)
{
    scene = (struct scene){ .directory = "/tmp/sandglass-auth-XXXXXX" };
    log_setup(LOG_ERROR, LOG_TEXT, STDERR_FILENO);
    if (!mkdtemp(scene.directory))
        return -1;
    snprintf(scene.path, sizeof(scene.path), "%s/file", scene.directory);
    simulated_clock_init(&scene.clock, 100LL * SECOND_US, 1700000000LL * SECOND_US);
    scene.loop = loop_new(&scene.clock.clock);
    scene.head.headers = scene.headers;
    snprintf(scene.peer.address, sizeof(scene.peer.address), "10.0.0.1:4242");
    return 0;
}

static int scene_close(void **state UNUSED)
{
    caller_fini(&scene.caller);
    auth_free(scene.auth);
    loop_free(scene.loop);
    config_fini(&scene.config);
    (void)unlink(scene.path);
    return rmdir(scene.directory);
}

static void start(const char *format)
{
    scoped(free) char *text = xasprintf("%s", format);
    struct error err = { 0 };

    if (config_load_text(&scene.config, text, strlen(text), "test", &err) < 0)
        fail_msg("%s", err.message);
    scene.auth = auth_new(
        &(struct auth_parts){ .loop = scene.loop, .config = &scene.config, .store = NULL }, &err);
    if (!scene.auth)
        fail_msg("%s", err.message);
}

static void start_with_keys(const char *more)
{
    scoped(free) char *text = xasprintf("{auth: {mode: keys, keys_file: %s%s}}", scene.path, more);

    start(text);
}

static void save_keys(const struct key_set *set)
{
    struct error err = { 0 };

    if (key_set_save(set, scene.path, geteuid(), getegid(), &err) < 0)
        fail_msg("%s", err.message);
}

static enum auth_result ask(const char *name, const char *value)
{
    caller_fini(&scene.caller);
    scene.err = (struct error){ 0 };
    scene.head.header_count = name ? 1 : 0;
    scene.headers[0] = (struct http_header){ name, value };
    return auth_resolve(scene.auth, &scene.head, &scene.peer, &scene.caller, &scene.err);
}

static enum auth_result ask_two(const char *name, const char *value, const char *other_name,
                                const char *other_value)
{
    caller_fini(&scene.caller);
    scene.err = (struct error){ 0 };
    scene.head.header_count = 2;
    scene.headers[0] = (struct http_header){ name, value };
    scene.headers[1] = (struct http_header){ other_name, other_value };
    return auth_resolve(scene.auth, &scene.head, &scene.peer, &scene.caller, &scene.err);
}

static enum auth_result ask_key(const char *key)
{
    return ask("x-api-key", key);
}

static const char attribution[] = "x-sandglass-on-behalf-of";

static void without_authentication_the_header_is_the_owner(void **state UNUSED)
{
    start("");
    scene.peer = (struct http_peer){ .is_unix = true, .uid = geteuid() };
    assert_int_equal(ask(NULL, NULL), AUTH_KNOWN);
    assert_true(scene.caller.is_operator);
    assert_string_equal(scene.caller.owner, "");
    assert_string_equal(scene.caller.principal, "");
    assert_int_equal(ask(attribution, " \t ann lee "), AUTH_KNOWN);
    assert_string_equal(scene.caller.owner, "ann lee");
    assert_string_equal(scene.caller.on_behalf_of, "ann lee");
    assert_false(caller_is(&scene.caller, ROLE_ADMIN));
}

static void tcp_without_authentication_needs_the_token(void **state UNUSED)
{
    start("");
    assert_int_equal(ask(NULL, NULL), AUTH_REFUSED);
    assert_string_equal(scene.err.name, "credentials_missing");
    assert_int_equal(ask_key("sgt_0000"), AUTH_REFUSED);
    assert_string_equal(scene.err.name, "credentials_invalid");
}

static void only_root_and_the_daemons_user_are_operators(void **state UNUSED)
{
    start("");
    scene.peer = (struct http_peer){ .is_unix = true, .uid = geteuid() + 4711 };
    assert_int_equal(ask(NULL, NULL), AUTH_KNOWN);
    assert_false(scene.caller.is_operator);
    scene.peer.uid = 0;
    assert_int_equal(ask(NULL, NULL), AUTH_KNOWN);
    assert_true(scene.caller.is_operator);
}

static void a_bad_attribution_is_refused(void **state UNUSED)
{
    scoped(free) char *longer = xcalloc(1, OWNER_MAXIMUM + 2);

    start("");
    memset(longer, 'a', OWNER_MAXIMUM + 1);
    assert_int_equal(ask(attribution, longer), AUTH_REFUSED);
    assert_int_equal(scene.err.code, ERR_INVALID);
    assert_int_equal(ask(attribution, "a\x01"), AUTH_REFUSED);
    assert_int_equal(ask(attribution, "a\xff"), AUTH_REFUSED);
    assert_int_equal(ask_two(attribution, "a", attribution, "a"), AUTH_REFUSED);
    assert_int_equal(scene.err.code, ERR_INVALID);
}

static void a_key_says_who_asks_and_no_header_changes_it(void **state UNUSED)
{
    scoped(key_set_fini) struct key_set set = { 0 };
    scoped(free) char *bearer = NULL;
    char key[KEY_TEXT_SIZE];

    key_set_add(&set, "ann", ROLE_USER, 1, 0, key);
    save_keys(&set);
    start_with_keys("");
    bearer = xasprintf("bearer  %s", key);
    assert_int_equal(ask_key(key), AUTH_KNOWN);
    assert_int_equal(ask("authorization", bearer), AUTH_KNOWN);
    assert_string_equal(scene.caller.owner, "ann");
    assert_int_equal(ask_two("x-api-key", key, attribution, "bob"), AUTH_KNOWN);
    assert_string_equal(scene.caller.owner, "ann");
    assert_string_equal(scene.caller.on_behalf_of, "bob");
    assert_int_equal(ask_two("x-api-key", key, "authorization", bearer), AUTH_KNOWN);
}

static void contradicting_credentials_are_refused(void **state UNUSED)
{
    scoped(key_set_fini) struct key_set set = { 0 };
    char key[KEY_TEXT_SIZE];

    key_set_add(&set, "ann", ROLE_USER, 1, 0, key);
    save_keys(&set);
    start_with_keys("");
    assert_int_equal(ask_two("x-api-key", key, "authorization", "Bearer sg_other"), AUTH_REFUSED);
    assert_int_equal(scene.err.code, ERR_INVALID);
    assert_int_equal(ask_two("x-api-key", key, "x-api-key", key), AUTH_REFUSED);
    assert_int_equal(scene.err.code, ERR_INVALID);
}

static void missing_and_wrong_credentials_are_told_apart_but_not_how_wrong(void **state UNUSED)
{
    scoped(key_set_fini) struct key_set set = { 0 };
    char key[KEY_TEXT_SIZE], revoked[KEY_TEXT_SIZE];
    struct error wrong;

    key_set_add(&set, "ann", ROLE_USER, 1, 0, key);
    key_set_add(&set, "bob", ROLE_USER, 1, 0, revoked)->revoked_us = 1700000000LL * SECOND_US;
    save_keys(&set);
    start_with_keys("");
    assert_int_equal(ask(NULL, NULL), AUTH_REFUSED);
    assert_string_equal(scene.err.name, "credentials_missing");
    assert_int_equal(ask("authorization", "Basic YTpi"), AUTH_REFUSED);
    assert_string_equal(scene.err.name, "credentials_missing");
    assert_int_equal(ask_key("nonsense"), AUTH_REFUSED);
    wrong = scene.err;
    assert_int_equal(wrong.code, ERR_UNAUTHORIZED);
    assert_int_equal(ask_key(revoked), AUTH_REFUSED);
    assert_memory_equal(&scene.err, &wrong, sizeof(wrong));
    key[5] = key[5] == '0' ? '1' : '0';
    assert_int_equal(ask_key(key), AUTH_REFUSED);
    assert_memory_equal(&scene.err, &wrong, sizeof(wrong));
}

static void a_delegate_acts_for_owners_of_its_own(void **state UNUSED)
{
    scoped(key_set_fini) struct key_set set = { 0 };
    char key[KEY_TEXT_SIZE], slashed[KEY_TEXT_SIZE];

    key_set_add(&set, "hub", ROLE_USER | ROLE_DELEGATE, 1, 0, key);
    key_set_add(&set, "hub/ann", ROLE_USER, 1, 0, slashed);
    save_keys(&set);
    start_with_keys("");
    assert_int_equal(ask_key(key), AUTH_KNOWN);
    assert_string_equal(scene.caller.owner, "hub");
    assert_int_equal(ask_two("x-api-key", key, attribution, "ann"), AUTH_KNOWN);
    assert_string_equal(scene.caller.owner, "hub/ann");
    assert_int_equal(ask_key(slashed), AUTH_KNOWN);
    assert_string_equal(scene.caller.owner, "hub%2Fann");
    assert_string_equal(scene.caller.principal, "hub/ann");
}

static void keys_that_change_are_read_again_within_a_second(void **state UNUSED)
{
    scoped(key_set_fini) struct key_set set = { 0 };
    char first[KEY_TEXT_SIZE], second[KEY_TEXT_SIZE];

    key_set_add(&set, "ann", ROLE_USER, 1, 0, first);
    save_keys(&set);
    start_with_keys("");
    assert_int_equal(ask_key(first), AUTH_KNOWN);
    set.items[0].revoked_us = 1700000000LL * SECOND_US;
    key_set_add(&set, "bob", ROLE_USER, 1, 0, second);
    save_keys(&set);
    simulated_clock_advance(&scene.clock, SECOND_US);
    assert_int_equal(ask_key(first), AUTH_REFUSED);
    assert_int_equal(ask_key(second), AUTH_KNOWN);
}

static void reloading_reads_keys_at_once(void **state UNUSED)
{
    scoped(key_set_fini) struct key_set set = { 0 };
    char key[KEY_TEXT_SIZE];

    start_with_keys("");
    key_set_add(&set, "ann", ROLE_USER, 1, 0, key);
    save_keys(&set);
    assert_int_equal(ask_key(key), AUTH_REFUSED);
    auth_reload(scene.auth);
    assert_int_equal(ask_key(key), AUTH_KNOWN);
}

/* Asked each second, as by a client that polls. */
static enum auth_result ask_for_seconds(const char *key, int seconds)
{
    enum auth_result result = AUTH_KNOWN;

    for (int i = 0; i < seconds; i++) {
        simulated_clock_advance(&scene.clock, SECOND_US);
        result = ask_key(key);
    }
    return result;
}

static void assert_keys_are_lost(const char *key)
{
    assert_int_equal(ask_for_seconds(key, 5), AUTH_KNOWN);
    assert_int_equal(auth_check(scene.auth, &scene.err), 0);
    assert_int_equal(ask_for_seconds(key, 7), AUTH_REFUSED);
    assert_string_equal(scene.err.name, "keys_unreadable");
    assert_int_equal(scene.err.code, ERR_UNAVAILABLE);
    assert_int_equal(auth_check(scene.auth, &scene.err), -1);
    assert_int_equal(ask_for_seconds(key, 20), AUTH_REFUSED);
    assert_string_equal(scene.err.name, "keys_unreadable");
}

static void keys_of_a_file_that_stays_unreadable_are_valid_no_more(void **state UNUSED)
{
    scoped(key_set_fini) struct key_set set = { 0 };
    char key[KEY_TEXT_SIZE];

    key_set_add(&set, "ann", ROLE_USER, 1, 0, key);
    save_keys(&set);
    start_with_keys("");
    assert_int_equal(ask_key(key), AUTH_KNOWN);
    assert_int_equal(chmod(scene.path, 0666), 0);
    assert_keys_are_lost(key);
    assert_int_equal(chmod(scene.path, 0600), 0);
    assert_int_equal(ask_for_seconds(key, 1), AUTH_KNOWN);
    assert_int_equal(auth_check(scene.auth, &scene.err), 0);
    assert_int_equal(unlink(scene.path), 0);
    assert_keys_are_lost(key);
    save_keys(&set);
    assert_int_equal(ask_for_seconds(key, 1), AUTH_KNOWN);
}

static void a_file_that_was_never_there_has_no_keys(void **state UNUSED)
{
    start_with_keys("");
    for (int i = 0; i < 20; i++) {
        auth_reload(scene.auth);
        assert_int_equal(ask_for_seconds("sg_0", 1), AUTH_REFUSED);
    }
    assert_int_equal(scene.err.code, ERR_UNAUTHORIZED);
    assert_int_equal(auth_check(scene.auth, &scene.err), 0);
}

static void an_expired_key_ends_although_it_is_known(void **state UNUSED)
{
    scoped(key_set_fini) struct key_set set = { 0 };
    char key[KEY_TEXT_SIZE];

    key_set_add(&set, "ann", ROLE_USER, 1, 1700000010LL * SECOND_US, key);
    save_keys(&set);
    start_with_keys("");
    assert_int_equal(ask_key(key), AUTH_KNOWN);
    simulated_clock_advance(&scene.clock, 10 * SECOND_US);
    assert_int_equal(ask_key(key), AUTH_REFUSED);
}

static void an_address_that_fails_too_often_has_to_wait(void **state UNUSED)
{
    scoped(key_set_fini) struct key_set set = { 0 };
    char known[KEY_TEXT_SIZE], fresh[KEY_TEXT_SIZE];

    key_set_add(&set, "ann", ROLE_USER, 1, 0, known);
    key_set_add(&set, "bob", ROLE_USER, 1, 0, fresh);
    save_keys(&set);
    start_with_keys(", failure_limit: 3");
    assert_int_equal(ask_key(known), AUTH_KNOWN);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ask_key("wrong"), AUTH_REFUSED);
        assert_int_equal(scene.err.code, ERR_UNAUTHORIZED);
    }
    assert_int_equal(ask_key("wrong"), AUTH_REFUSED);
    assert_int_equal(scene.err.code, ERR_LIMIT);
    assert_int_equal(auth_retry_after_s(scene.auth), 20);

    /* Who is not known yet waits as well; who is known does not, nor another address. */
    assert_int_equal(ask_key(fresh), AUTH_REFUSED);
    assert_int_equal(ask_key(known), AUTH_KNOWN);
    snprintf(scene.peer.address, sizeof(scene.peer.address), "10.0.0.2:4242");
    assert_int_equal(ask_key(fresh), AUTH_KNOWN);
    snprintf(scene.peer.address, sizeof(scene.peer.address), "10.0.0.1:5555");
    simulated_clock_advance(&scene.clock, 20 * SECOND_US);
    assert_int_equal(ask_key("wrong"), AUTH_REFUSED);
    assert_int_equal(scene.err.code, ERR_UNAUTHORIZED);
}

static void a_principal_may_not_ask_more_often_than_the_rate(void **state UNUSED)
{
    struct caller ann = { .principal = (char *)"ann" };
    struct caller nobody = { .principal = (char *)"" };

    start("{http: {rate_limit: 2, rate_burst: 2}}");
    for (int i = 0; i < 2; i++)
        assert_int_equal(auth_admit(scene.auth, &ann, &scene.err), 0);
    assert_int_equal(auth_admit(scene.auth, &ann, &scene.err), -1);
    assert_int_equal(scene.err.code, ERR_LIMIT);
    for (int i = 0; i < 100; i++)
        assert_int_equal(auth_admit(scene.auth, &nobody, &scene.err), 0);
}

static void assert_peer(const char *address, const char *expected)
{
    struct http_peer peer = { 0 };
    char name[PEER_NAME_SIZE];

    snprintf(peer.address, sizeof(peer.address), "%s", address);
    peer_name(&peer, name);
    assert_string_equal(name, expected);
}

static void an_address_is_known_whatever_its_port(void **state UNUSED)
{
    struct http_peer peer = { .is_unix = true, .uid = 1000 };
    char name[PEER_NAME_SIZE];

    assert_peer("10.0.0.1:4242", "10.0.0.1");
    assert_peer("[2001:db8:1:2:3:4:5:6]:80", "2001:db8:1:2::");
    assert_peer("[2001:db8:1:2:ffff::1]:81", "2001:db8:1:2::");
    assert_peer("[::1]:80", "::");
    peer_name(&peer, name);
    assert_string_equal(name, "uid 1000");
}

/* --- tokens ---------------------------------------------------------------------------------- */

static void write_jwks(EVP_PKEY *key, const char *more)
{
    scoped(free) char *text = issuer_jwks(key, more);
    FILE *file = fopen(scene.path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static char *bearer_of(EVP_PKEY *key, const char *kid)
{
    scoped(free) char *header = xasprintf("{\"alg\":\"EdDSA\",\"kid\":\"%s\"}", kid);
    scoped(free) char *token = issuer_sign(
        key, "EdDSA", header, "{\"iss\":\"i\",\"aud\":\"a\",\"exp\":1700000100,\"sub\":\"x|y/z\"}");

    return xasprintf("Bearer %s", token);
}

static void start_with_tokens(void)
{
    scoped(free) char *text =
        xasprintf("{auth: {mode: jwt, jwt: {jwks_file: %s, issuer: i, audience: a}}}", scene.path);

    start(text);
}

static void the_owner_is_the_subject_of_the_token(void **state UNUSED)
{
    EVP_PKEY *key = issuer_key("OKP");
    scoped(free) char *bearer = bearer_of(key, "k");

    write_jwks(key, "\"kid\":\"k\"");
    EVP_PKEY_free(key);
    start_with_tokens();
    assert_int_equal(ask("authorization", bearer), AUTH_KNOWN);
    assert_string_equal(scene.caller.principal, "x|y/z");
    assert_string_equal(scene.caller.owner, "x|y%2Fz");
    simulated_clock_advance(&scene.clock, 159LL * SECOND_US);
    assert_int_equal(ask("authorization", bearer), AUTH_KNOWN);
    simulated_clock_advance(&scene.clock, SECOND_US);
    assert_int_equal(ask("authorization", bearer), AUTH_REFUSED);
    assert_string_equal(scene.err.name, "token_expired");
}

static void no_token_is_valid_when_the_keys_of_the_issuer_stay_unreadable(void **state UNUSED)
{
    EVP_PKEY *key = issuer_key("OKP");
    scoped(free) char *bearer = bearer_of(key, "k");

    write_jwks(key, "\"kid\":\"k\"");
    start_with_tokens();
    assert_int_equal(ask("authorization", bearer), AUTH_KNOWN);
    assert_int_equal(unlink(scene.path), 0);
    simulated_clock_advance(&scene.clock, SECOND_US);
    assert_int_equal(ask("authorization", bearer), AUTH_KNOWN);
    simulated_clock_advance(&scene.clock, 10 * SECOND_US);
    assert_int_equal(ask("authorization", bearer), AUTH_REFUSED);
    assert_string_equal(scene.err.name, "issuer_unavailable");
    assert_int_equal(auth_check(scene.auth, &scene.err), -1);
    write_jwks(key, "\"kid\":\"k\"");
    EVP_PKEY_free(key);
    simulated_clock_advance(&scene.clock, SECOND_US);
    assert_int_equal(ask("authorization", bearer), AUTH_KNOWN);
    assert_int_equal(auth_check(scene.auth, &scene.err), 0);
}

static void a_token_of_a_key_that_was_rotated_away_is_refused(void **state UNUSED)
{
    EVP_PKEY *old = issuer_key("OKP");
    EVP_PKEY *fresh = issuer_key("OKP");
    scoped(free) char *old_bearer = bearer_of(old, "old");
    scoped(free) char *fresh_bearer = bearer_of(fresh, "fresh");

    write_jwks(old, "\"kid\":\"old\"");
    start_with_tokens();
    assert_int_equal(ask("authorization", old_bearer), AUTH_KNOWN);
    assert_int_equal(ask("authorization", fresh_bearer), AUTH_REFUSED);
    write_jwks(fresh, "\"kid\":\"fresh\"");
    simulated_clock_advance(&scene.clock, SECOND_US);
    assert_int_equal(ask("authorization", fresh_bearer), AUTH_KNOWN);
    assert_int_equal(ask("authorization", old_bearer), AUTH_REFUSED);
    EVP_PKEY_free(old);
    EVP_PKEY_free(fresh);
}

/* --- logins ---------------------------------------------------------------------------------- */

static struct login login_for(int mode, int64_t seconds)
{
    struct login login = { .mode = mode,
                           .issued_us = clock_wall_us(loop_clock(scene.loop)),
                           .roles = ROLE_USER | ROLE_DELEGATE,
                           .principal = "hub" };

    login.expires_us = login.issued_us + seconds * SECOND_US;
    id_make(login.id, ID_LOGIN);
    return login;
}

static int resume(const struct login *login, const char *on_behalf_of)
{
    caller_fini(&scene.caller);
    scene.err = (struct error){ 0 };
    return auth_resume(scene.auth, login, on_behalf_of, &scene.caller, &scene.err);
}

static void a_login_with_a_token_counts_until_it_expires(void **state UNUSED)
{
    EVP_PKEY *key = issuer_key("OKP");
    struct login login, other;

    write_jwks(key, "\"kid\":\"one\"");
    start_with_tokens();
    login = login_for(AUTH_MODE_JWT, 60);
    other = login_for(AUTH_MODE_KEYS, 60);
    assert_int_equal(resume(&login, ""), 0);
    assert_string_equal(scene.caller.principal, "hub");
    assert_int_equal(resume(&login, "ann"), 0);
    assert_string_equal(scene.caller.owner, "hub/ann");
    assert_int_equal(resume(&other, ""), -1); /* of another mode */
    simulated_clock_advance(&scene.clock, 61 * SECOND_US);
    assert_int_equal(resume(&login, ""), -1);
    assert_int_equal(scene.err.code, ERR_UNAUTHORIZED);
    EVP_PKEY_free(key);
}

static void logins_that_were_ended_stay_ended_however_many_there_are(void **state UNUSED)
{
    struct login first, last;

    start("{}");
    first = login_for(AUTH_MODE_NONE, 3600);
    auth_end_login(scene.auth, &first);
    assert_int_equal(resume(&first, ""), -1);
    for (int i = 0; i < 5000; i++) {
        struct login more = login_for(AUTH_MODE_NONE, 3600);

        auth_end_login(scene.auth, &more);
    }
    assert_int_equal(resume(&first, ""), -1);
    simulated_clock_advance(&scene.clock, SECOND_US);
    last = login_for(AUTH_MODE_NONE, 3600);
    assert_int_equal(resume(&last, ""), 0);
}

#define SCENE(name) cmocka_unit_test_setup_teardown(name, scene_open, scene_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE(without_authentication_the_header_is_the_owner),
        SCENE(tcp_without_authentication_needs_the_token),
        SCENE(only_root_and_the_daemons_user_are_operators),
        SCENE(a_bad_attribution_is_refused),
        SCENE(a_key_says_who_asks_and_no_header_changes_it),
        SCENE(contradicting_credentials_are_refused),
        SCENE(missing_and_wrong_credentials_are_told_apart_but_not_how_wrong),
        SCENE(a_delegate_acts_for_owners_of_its_own),
        SCENE(keys_that_change_are_read_again_within_a_second),
        SCENE(reloading_reads_keys_at_once),
        SCENE(keys_of_a_file_that_stays_unreadable_are_valid_no_more),
        SCENE(a_file_that_was_never_there_has_no_keys),
        SCENE(an_expired_key_ends_although_it_is_known),
        SCENE(an_address_that_fails_too_often_has_to_wait),
        SCENE(a_principal_may_not_ask_more_often_than_the_rate),
        cmocka_unit_test(an_address_is_known_whatever_its_port),
        SCENE(the_owner_is_the_subject_of_the_token),
        SCENE(no_token_is_valid_when_the_keys_of_the_issuer_stay_unreadable),
        SCENE(a_token_of_a_key_that_was_rotated_away_is_refused),
        SCENE(a_login_with_a_token_counts_until_it_expires),
        SCENE(logins_that_were_ended_stay_ended_however_many_there_are),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
