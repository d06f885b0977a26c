/* SPDX-License-Identifier: Apache-2.0 */
#include "issuer.h"

#include "base/alloc.h"
#include "base/str.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <stdlib.h>
#include <string.h>

EVP_PKEY *issuer_key(const char *type)
{
    if (strcmp(type, "RSA") == 0)
        return EVP_RSA_gen(2048);
    return strcmp(type, "EC") == 0 ? EVP_EC_gen("P-256") : EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
}

static void put_base64url(struct buffer *out, const void *data, size_t length)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const uint8_t *bytes = data;
    unsigned bits = 0, held = 0;

    for (size_t i = 0; i < length; i++) {
        bits = bits << 8 | bytes[i];
        for (held += 8; held >= 6; held -= 6)
            buffer_append_byte(out, (uint8_t)digits[bits >> (held - 6) & 63]);
    }
    if (held)
        buffer_append_byte(out, (uint8_t)digits[bits << (6 - held) & 63]);
}

static void put_number(struct buffer *out, const char *name, const BIGNUM *number, int length)
{
    uint8_t bytes[1024];

    BN_bn2binpad(number, bytes, length);
    buffer_appendf(out, ",\"%s\":\"", name);
    put_base64url(out, bytes, (size_t)length);
    buffer_append_text(out, "\"");
}

static void put_parameter(struct buffer *out, EVP_PKEY *key, const char *name, const char *what,
                          int length)
{
    BIGNUM *number = NULL;

    EVP_PKEY_get_bn_param(key, what, &number);
    put_number(out, name, number, length ? length : BN_num_bytes(number));
    BN_free(number);
}

void issuer_jwk(EVP_PKEY *key, const char *more, struct buffer *out)
{
    uint8_t raw[64];
    size_t length = sizeof(raw);

    if (EVP_PKEY_get_base_id(key) == EVP_PKEY_RSA) {
        buffer_append_text(out, "{\"kty\":\"RSA\"");
        put_parameter(out, key, "n", OSSL_PKEY_PARAM_RSA_N, 0);
        put_parameter(out, key, "e", OSSL_PKEY_PARAM_RSA_E, 0);
    } else if (EVP_PKEY_get_base_id(key) == EVP_PKEY_EC) {
        buffer_append_text(out, "{\"kty\":\"EC\",\"crv\":\"P-256\"");
        put_parameter(out, key, "x", OSSL_PKEY_PARAM_EC_PUB_X, 32);
        put_parameter(out, key, "y", OSSL_PKEY_PARAM_EC_PUB_Y, 32);
    } else {
        EVP_PKEY_get_raw_public_key(key, raw, &length);
        buffer_append_text(out, "{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"");
        put_base64url(out, raw, length);
        buffer_append_text(out, "\"");
    }
    buffer_appendf(out, "%s%s}", *more ? "," : "", more);
}

char *issuer_jwks(EVP_PKEY *key, const char *more)
{
    struct buffer text = BUFFER_INIT(8192);

    buffer_append_text(&text, "{\"keys\":[");
    issuer_jwk(key, more, &text);
    buffer_append_text(&text, "]}");
    return buffer_steal_text(&text);
}

static size_t sign_hmac(EVP_PKEY *key, const struct buffer *text, uint8_t *out)
{
    BIO *pem = BIO_new(BIO_s_mem());
    unsigned length = 0;
    char *secret;
    long secret_length;

    PEM_write_bio_PUBKEY(pem, key);
    secret_length = BIO_get_mem_data(pem, &secret);
    HMAC(EVP_sha256(), secret, (int)secret_length, text->data, text->length, out, &length);
    BIO_free(pem);
    return length;
}

/* From DER to both halves side by side. */
static size_t flatten(uint8_t *signature, size_t length)
{
    const uint8_t *at = signature;
    ECDSA_SIG *parsed = d2i_ECDSA_SIG(NULL, &at, (long)length);

    BN_bn2binpad(ECDSA_SIG_get0_r(parsed), signature, 32);
    BN_bn2binpad(ECDSA_SIG_get0_s(parsed), signature + 32, 32);
    ECDSA_SIG_free(parsed);
    return 64;
}

static size_t sign(EVP_PKEY *key, const char *algorithm, const struct buffer *text, uint8_t *out,
                   size_t size)
{
    EVP_MD_CTX *context;
    size_t length = size;

    if (strcmp(algorithm, "none") == 0)
        return 0;
    if (strcmp(algorithm, "HS256") == 0)
        return sign_hmac(key, text, out);
    context = EVP_MD_CTX_new();
    if (EVP_DigestSignInit(context, NULL, strcmp(algorithm, "EdDSA") == 0 ? NULL : EVP_sha256(),
                           NULL, key) != 1 ||
        EVP_DigestSign(context, out, &length, text->data, text->length) != 1)
        abort();
    EVP_MD_CTX_free(context);
    return strcmp(algorithm, "ES256") == 0 ? flatten(out, length) : length;
}

char *issuer_sign(EVP_PKEY *key, const char *algorithm, const char *header, const char *payload)
{
    struct buffer text = BUFFER_INIT(65536);
    uint8_t signature[1024];
    size_t length;

    put_base64url(&text, header, strlen(header));
    buffer_append_text(&text, ".");
    put_base64url(&text, payload, strlen(payload));
    length = sign(key, algorithm, &text, signature, sizeof(signature));
    buffer_append_text(&text, ".");
    put_base64url(&text, signature, length);
    return buffer_steal_text(&text);
}
