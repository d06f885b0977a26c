/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The public keys of an issuer (RFC 7517), of the kinds that tokens are checked with. Keys of other
 * kinds, for encryption, with a secret half or too weak are left out.
 */

#include "base/error.h"
#include "base/scoped.h"

#include <openssl/types.h>
#include <stddef.h>

enum jwk_algorithm {
    JWK_NONE,
    JWK_RS256, /* RSA of 2048 bits or more, PKCS #1 v1.5 */
    JWK_ES256, /* P-256 */
    JWK_EDDSA, /* Ed25519 */
};

struct jwk {
    char *kid; /* owned; NULL without one */
    enum jwk_algorithm algorithm;
    EVP_PKEY *key; /* owned */
};

struct jwk_set {
    struct jwk *items; /* owned */
    size_t count;
};

/* A set without a single usable key is an error. */
struct jwk_set *jwk_set_parse(const void *text, size_t length, struct error *err);
void jwk_set_free(struct jwk_set *set); /* NULL is fine */
SCOPED_DEFINE(jwk_set_free, struct jwk_set);

/* By the name in a token's header; JWK_NONE for every other, "none" and the HS family included. */
enum jwk_algorithm jwk_algorithm_parse(const char *name);

/* The key that a token names. Without a kid it has to be the only one. NULL when there is none. */
const struct jwk *jwk_set_find(const struct jwk_set *set, const char *kid,
                               enum jwk_algorithm algorithm);
