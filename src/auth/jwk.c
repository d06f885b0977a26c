/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/jwk.h"

#include "auth/encoding.h"
#include "base/alloc.h"
#include "base/macros.h"
#include "base/str.h"
#include "wire/base64.h"
#include "wire/json.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <string.h>

enum { COMPONENT_MAXIMUM = 2048, COORDINATE_BYTES = 32, RSA_LEAST_BITS = 2048, SET_MAXIMUM = 256 };

static const struct {
    const char *name;
    enum jwk_algorithm algorithm;
} algorithms[] = {
    { "RS256", JWK_RS256 },
    { "ES256", JWK_ES256 },
    { "EdDSA", JWK_EDDSA },
};

enum jwk_algorithm jwk_algorithm_parse(const char *name)
{
    for (size_t i = 0; i < ARRAY_LENGTH(algorithms); i++)
        if (strcmp(algorithms[i].name, name) == 0)
            return algorithms[i].algorithm;
    return JWK_NONE;
}

static const char *member(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

/* A component of a key; `out` is empty when it is missing or malformed. */
static void read_component(const json_t *object, const char *name, struct buffer *out)
{
    const char *text = member(object, name);

    if (text && base64url_decode(text, strlen(text), out) < 0)
        buffer_clear(out);
}

static EVP_PKEY *make_key(const char *type, OSSL_PARAM_BLD *builder)
{
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    OSSL_PARAM *parameters = OSSL_PARAM_BLD_to_param(builder);
    EVP_PKEY *key = NULL;

    if (!context || !parameters || EVP_PKEY_fromdata_init(context) <= 0 ||
        EVP_PKEY_fromdata(context, &key, EVP_PKEY_PUBLIC_KEY, parameters) <= 0)
        key = NULL;
    OSSL_PARAM_free(parameters);
    EVP_PKEY_CTX_free(context);
    return key;
}

static EVP_PKEY *read_rsa(const json_t *object)
{
    scoped(buffer_fini) struct buffer n = BUFFER_INIT(COMPONENT_MAXIMUM);
    scoped(buffer_fini) struct buffer e = BUFFER_INIT(COMPONENT_MAXIMUM);
    OSSL_PARAM_BLD *builder = OSSL_PARAM_BLD_new();
    BIGNUM *modulus, *exponent;
    EVP_PKEY *key = NULL;

    read_component(object, "n", &n);
    read_component(object, "e", &e);
    modulus = BN_bin2bn(n.data, (int)n.length, NULL);
    exponent = BN_bin2bn(e.data, (int)e.length, NULL);
    if (builder && modulus && exponent && BN_num_bits(modulus) >= RSA_LEAST_BITS &&
        BN_is_odd(exponent) && !BN_is_one(exponent) &&
        OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_N, modulus) &&
        OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_E, exponent))
        key = make_key("RSA", builder);
    BN_free(modulus);
    BN_free(exponent);
    OSSL_PARAM_BLD_free(builder);
    return key;
}

/* The point is checked to be on the curve, which fromdata does. */
static EVP_PKEY *read_ec(const json_t *object)
{
    scoped(buffer_fini) struct buffer point = BUFFER_INIT(COMPONENT_MAXIMUM);
    OSSL_PARAM_BLD *builder;
    EVP_PKEY *key = NULL;

    if (!str_equal(member(object, "crv"), "P-256"))
        return NULL;
    buffer_append_byte(&point, 4);
    read_component(object, "x", &point);
    if (point.length != 1 + COORDINATE_BYTES)
        return NULL;
    read_component(object, "y", &point);
    if (point.length != 1 + 2 * COORDINATE_BYTES)
        return NULL;
    builder = OSSL_PARAM_BLD_new();
    if (builder &&
        OSSL_PARAM_BLD_push_utf8_string(builder, OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) &&
        OSSL_PARAM_BLD_push_octet_string(builder, OSSL_PKEY_PARAM_PUB_KEY, point.data,
                                         point.length))
        key = make_key("EC", builder);
    OSSL_PARAM_BLD_free(builder);
    return key;
}

static EVP_PKEY *read_okp(const json_t *object)
{
    scoped(buffer_fini) struct buffer x = BUFFER_INIT(COMPONENT_MAXIMUM);

    if (!str_equal(member(object, "crv"), "Ed25519"))
        return NULL;
    read_component(object, "x", &x);
    if (x.length != COORDINATE_BYTES)
        return NULL;
    return EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, x.data, x.length);
}

static const struct {
    const char *type;
    enum jwk_algorithm algorithm;
    EVP_PKEY *(*read)(const json_t *object);
} kinds[] = {
    { "RSA", JWK_RS256, read_rsa },
    { "EC", JWK_ES256, read_ec },
    { "OKP", JWK_EDDSA, read_okp },
};

static bool is_for_checking(const json_t *object, enum jwk_algorithm algorithm)
{
    const char *use = member(object, "use");
    const char *name = member(object, "alg");

    return !json_object_get(object, "d") && (!use || strcmp(use, "sig") == 0) &&
           (!name || jwk_algorithm_parse(name) == algorithm);
}

static void jwk_add(struct jwk_set *set, const json_t *object)
{
    const char *type = member(object, "kty");

    for (size_t i = 0; type && i < ARRAY_LENGTH(kinds); i++) {
        EVP_PKEY *key;

        if (strcmp(kinds[i].type, type) != 0 || !is_for_checking(object, kinds[i].algorithm))
            continue;
        key = kinds[i].read(object);
        if (!key)
            return;
        set->items = xrealloc(set->items, set->count + 1, sizeof(set->items[0]));
        set->items[set->count++] = (struct jwk){
            .kid = member(object, "kid") ? xstrdup(member(object, "kid")) : NULL,
            .algorithm = kinds[i].algorithm,
            .key = key,
        };
    }
}

struct jwk_set *jwk_set_parse(const void *text, size_t length, struct error *err)
{
    scoped(json_decref) json_t *document = json_read(text, length, err);
    scoped(jwk_set_free) struct jwk_set *set = NULL;
    json_t *keys, *object;
    size_t index;

    if (!document)
        return NULL;
    keys = json_object_get(document, "keys");
    if (!json_is_array(keys) || json_array_size(keys) > SET_MAXIMUM) {
        error_set(err, ERR_INVALID, "it has no list of keys");
        return NULL;
    }
    set = xnew(struct jwk_set);
    json_array_foreach(keys, index, object) jwk_add(set, object);
    if (set->count == 0) {
        error_set(err, ERR_INVALID, "it has no key for RS256, ES256 or EdDSA");
        return NULL;
    }
    return steal_ptr(&set);
}

void jwk_set_free(struct jwk_set *set)
{
    if (!set)
        return;
    for (size_t i = 0; i < set->count; i++) {
        free(set->items[i].kid);
        EVP_PKEY_free(set->items[i].key);
    }
    free(set->items);
    free(set);
}

const struct jwk *jwk_set_find(const struct jwk_set *set, const char *kid,
                               enum jwk_algorithm algorithm)
{
    if (!kid)
        return set->count == 1 && set->items[0].algorithm == algorithm ? &set->items[0] : NULL;
    for (size_t i = 0; i < set->count; i++)
        if (str_equal(set->items[i].kid, kid) && set->items[i].algorithm == algorithm)
            return &set->items[i];
    return NULL;
}
