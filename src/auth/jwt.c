/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/jwt.h"

#include "auth/caller.h"
#include "auth/encoding.h"
#include "auth/jwk.h"
#include "base/alloc.h"
#include "base/str.h"
#include "wire/base64.h"
#include "wire/json.h"

#include <math.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <string.h>
#include <strings.h>

enum { TOKEN_MAXIMUM = 16 * 1024, ES256_BYTES = 64, HALF = ES256_BYTES / 2 };

struct token {
    const char *text;
    size_t signed_length;     /* header and payload with the dot between them */
    json_t *header, *payload; /* owned */
    struct buffer signature;
};

void jwt_claims_fini(struct jwt_claims *claims)
{
    free(claims->subject);
    *claims = (struct jwt_claims){ 0 };
}

/* --- form ------------------------------------------------------------------------------------ */

static json_t *read_part(const char *text, size_t length)
{
    scoped(buffer_fini) struct buffer bytes = BUFFER_INIT(TOKEN_MAXIMUM);

    if (base64url_decode(text, length, &bytes) < 0)
        return NULL;
    return json_read(bytes.data, bytes.length, NULL);
}

static int token_split(struct token *token, const char *text)
{
    const char *first = strchr(text, '.');
    const char *second = first ? strchr(first + 1, '.') : NULL;

    if (strlen(text) > TOKEN_MAXIMUM || !second || strchr(second + 1, '.'))
        return -1;
    token->text = text;
    token->signed_length = (size_t)(second - text);
    token->signature = BUFFER_INIT(TOKEN_MAXIMUM);
    if (base64url_decode(second + 1, strlen(second + 1), &token->signature) < 0)
        return -1;
    token->header = read_part(text, (size_t)(first - text));
    token->payload = read_part(first + 1, (size_t)(second - first - 1));
    return token->header && token->payload ? 0 : -1;
}

static void token_fini(struct token *token)
{
    json_decref(token->header);
    json_decref(token->payload);
    buffer_fini(&token->signature);
}

static void scoped_token_fini(struct token *token)
{
    token_fini(token);
}

static const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

/* --- signature ------------------------------------------------------------------------------- */

/* A token has both halves of an ECDSA signature side by side; OpenSSL wants them in DER. */
static int ecdsa_to_der(const struct buffer *raw, unsigned char **out_der)
{
    ECDSA_SIG *signature = ECDSA_SIG_new();
    BIGNUM *r, *s;
    int length = -1;

    if (!signature || raw->length != ES256_BYTES) {
        ECDSA_SIG_free(signature);
        return -1;
    }
    r = BN_bin2bn(raw->data, HALF, NULL);
    s = BN_bin2bn(raw->data + HALF, HALF, NULL);
    if (r && s && ECDSA_SIG_set0(signature, r, s)) {
        length = i2d_ECDSA_SIG(signature, out_der);
    } else {
        BN_free(r);
        BN_free(s);
    }
    ECDSA_SIG_free(signature);
    return length;
}

static bool verify(const struct jwk *key, const struct token *token, const unsigned char *signature,
                   size_t length)
{
    const EVP_MD *digest = key->algorithm == JWK_EDDSA ? NULL : EVP_sha256();
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool good = context && EVP_DigestVerifyInit(context, NULL, digest, NULL, key->key) == 1 &&
                EVP_DigestVerify(context, signature, length, (const unsigned char *)token->text,
                                 token->signed_length) == 1;

    EVP_MD_CTX_free(context);
    return good;
}

static bool signature_is_good(const struct jwk *key, const struct token *token)
{
    unsigned char *der = NULL;
    int length;
    bool good;

    if (key->algorithm != JWK_ES256)
        return verify(key, token, token->signature.data, token->signature.length);
    length = ecdsa_to_der(&token->signature, &der);
    good = length > 0 && verify(key, token, der, (size_t)length);
    OPENSSL_free(der);
    return good;
}

/* --- claims ---------------------------------------------------------------------------------- */

static int refuse(struct error *err, const char *name, const char *message)
{
    return error_named(err, ERR_UNAUTHORIZED, name, "%s", message);
}

/* Seconds since 1970, whole or not; 0 when absent, -1 when it is no time. */
static int read_time(const json_t *payload, const char *name, int64_t *out_us)
{
    const json_t *value = json_object_get(payload, name);
    double seconds = json_number_value(value);

    if (!value)
        return 0;
    if (!json_is_number(value) || !(seconds >= 0) || seconds > 253402300799.0)
        return -1;
    *out_us = (int64_t)floor(seconds * 1e6);
    return 1;
}

static int check_times(const json_t *payload, const struct jwt_policy *policy, int64_t now_us,
                       int64_t *out_expires_us, struct error *err)
{
    int64_t not_before_us = 0;

    if (read_time(payload, "exp", out_expires_us) != 1)
        return refuse(err, "token_invalid", "the token has no expiry time");
    if (now_us >= *out_expires_us + policy->skew_us)
        return refuse(err, "token_expired", "the token has expired");
    if (read_time(payload, "nbf", &not_before_us) < 0 || now_us + policy->skew_us < not_before_us)
        return refuse(err, "token_not_yet_valid", "the token is not valid yet");
    return 0;
}

static bool is_for_audience(const json_t *audience, const char *wanted)
{
    json_t *item;
    size_t index;

    if (json_is_string(audience))
        return str_equal(json_string_value(audience), wanted);
    json_array_foreach(audience, index,
                       item) if (str_equal(json_string_value(item), wanted)) return true;
    return false;
}

static unsigned roles_in_text(const char *text)
{
    unsigned roles = 0;

    while (*text) {
        size_t length = strcspn(text, " ");
        scoped(free) char *name = xstrndup(text, length);

        roles |= role_parse(name);
        text += length + strspn(text + length, " ");
    }
    return roles;
}

/* A list, or names with spaces between; unknown roles are ignored. */
static unsigned read_roles(const json_t *claim)
{
    unsigned roles = 0;
    json_t *item;
    size_t index;

    if (json_is_string(claim))
        return roles_in_text(json_string_value(claim));
    json_array_foreach(claim, index, item) if (json_is_string(item))
        roles |= role_parse(json_string_value(item));
    return roles;
}

static int check_claims(const json_t *payload, const struct jwt_policy *policy, int64_t now_us,
                        struct jwt_claims *out, struct error *err)
{
    const char *subject = text_of(payload, "sub");
    int64_t expires_us = 0;

    if (!str_equal(text_of(payload, "iss"), policy->issuer))
        return refuse(err, "token_issuer", "the token is from another issuer");
    if (!is_for_audience(json_object_get(payload, "aud"), policy->audience))
        return refuse(err, "token_audience", "the token is for another audience");
    if (check_times(payload, policy, now_us, &expires_us, err) < 0)
        return -1;
    if (str_is_empty(subject) || !owner_is_valid(subject))
        return refuse(err, "token_invalid", "the token has no subject");
    *out = (struct jwt_claims){
        .subject = xstrdup(subject),
        .roles = ROLE_USER | read_roles(json_object_get(payload, policy->roles_claim)),
        .expires_us = expires_us,
    };
    return 0;
}

/* --- all of it ------------------------------------------------------------------------------- */

static enum jwk_algorithm read_algorithm(const json_t *header)
{
    const char *name = text_of(header, "alg");
    const char *type = text_of(header, "typ");

    if (!name || json_object_get(header, "crit") ||
        (type && strcasecmp(type, "JWT") != 0 && strcasecmp(type, "at+jwt") != 0))
        return JWK_NONE;
    return jwk_algorithm_parse(name);
}

enum jwt_result jwt_check(const char *text, const struct jwk_set *keys,
                          const struct jwt_policy *policy, int64_t now_us, struct jwt_claims *out,
                          struct error *err)
{
    scoped(token_fini) struct token token = { 0 };
    enum jwk_algorithm algorithm;
    const struct jwk *key;

    refuse(err, "token_invalid", "the token is not valid");
    if (token_split(&token, text) < 0)
        return JWT_REFUSED;
    algorithm = read_algorithm(token.header);
    if (algorithm == JWK_NONE)
        return JWT_REFUSED;
    if (json_object_get(token.header, "kid") && !text_of(token.header, "kid"))
        return JWT_REFUSED;
    key = jwk_set_find(keys, text_of(token.header, "kid"), algorithm);
    if (!key)
        return text_of(token.header, "kid") ? JWT_UNKNOWN_KEY : JWT_REFUSED;
    if (!signature_is_good(key, &token) ||
        check_claims(token.payload, policy, now_us, out, err) < 0)
        return JWT_REFUSED;
    return JWT_VALID;
}
