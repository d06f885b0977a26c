/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An issuer of tokens for tests: makes keys and signs with them, well or badly. */

#include "base/buffer.h"

#include <openssl/types.h>

/* "RSA", "EC" or "OKP"; the caller frees it with EVP_PKEY_free(). */
EVP_PKEY *issuer_key(const char *type);

/* Appends the key as a JWK; `more` is further members, such as "\"kid\":\"a\"", or "". */
void issuer_jwk(EVP_PKEY *key, const char *more, struct buffer *out);

/* {"keys":[…]} of one key; allocated. */
char *issuer_jwks(EVP_PKEY *key, const char *more);

/* A token with this header and payload; allocated. `algorithm` says how it is signed: "RS256",
 * "ES256", "EdDSA", "HS256" (with the public key in PEM as the secret) or "none". */
char *issuer_sign(EVP_PKEY *key, const char *algorithm, const char *header, const char *payload);
