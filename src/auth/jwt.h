/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Signed tokens (RFC 7519), as a pure function of the token, the issuer's keys and the time.
 *
 * Only what the keys are for is taken: the algorithm of the header has to be that of the key, so
 * "none" and a MAC made with a public key are refused. Keys that a header brings along are not
 * looked at, and a header with `crit` is refused. A token needs iss, aud, exp and sub.
 */

#include "base/error.h"

#include <stdint.h>

struct jwk_set;

struct jwt_policy {
    const char *issuer;
    const char *audience;
    const char *roles_claim;
    int64_t skew_us;
};

struct jwt_claims {
    char *subject; /* owned */
    unsigned roles;
    int64_t expires_us; /* wall clock */
};

void jwt_claims_fini(struct jwt_claims *claims);

enum jwt_result {
    JWT_VALID,
    JWT_REFUSED, /* the error says why; it may be shown to the client when the signature is right */
    JWT_UNKNOWN_KEY, /* no such key: perhaps the issuer has a new one */
};

enum jwt_result jwt_check(const char *text, const struct jwk_set *keys,
                          const struct jwt_policy *policy, int64_t now_us, struct jwt_claims *out,
                          struct error *err);
