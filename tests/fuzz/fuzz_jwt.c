/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever is sent as a token, or served as a set of keys, is taken or refused with a reason; and
 * nobody signs for a key that he does not have. */

#include "auth/caller.h"
#include "auth/encoding.h"
#include "auth/jwk.h"
#include "auth/jwt.h"
#include "base/alloc.h"
#include "base/scoped.h"
#include "wire/base64.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The public keys of RFC 7515 and RFC 8037, whose examples are for other issuers. */
static const char known_keys[] = "{\"keys\":[{\"kty\":\"EC\",\"kid\":\"e\",\"crv\":\"P-256\","
                                 "\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\","
                                 "\"y\":\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"},"
                                 "{\"kty\":\"OKP\",\"kid\":\"o\",\"crv\":\"Ed25519\","
                                 "\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}]}";

static const struct jwt_policy policy = {
    .issuer = "i", .audience = "a", .roles_claim = "roles", .skew_us = 0
};

static void check_token(const char *token, const struct jwk_set *keys)
{
    struct jwt_claims claims = { 0 };
    struct error err = { 0 };

    if (jwt_check(token, keys, &policy, 1, &claims, &err) == JWT_VALID)
        abort();
    assert(err.code == ERR_UNAUTHORIZED && err.message[0] && !claims.subject);
}

static void check_keys(const uint8_t *data, size_t size, const char *token)
{
    struct error err = { 0 };
    scoped(jwk_set_free) struct jwk_set *keys = jwk_set_parse(data, size, &err);

    if (!keys) {
        assert(err.code == ERR_INVALID);
        return;
    }
    assert(keys->count > 0);
    check_token(token, keys);
}

static void check_encoding(const char *text)
{
    scoped(buffer_fini) struct buffer bytes = BUFFER_INIT(1 << 20);

    if (base64url_decode(text, strlen(text), &bytes) == 0)
        assert(bytes.length == strlen(text) * 6 / 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct jwk_set *keys;
    scoped(free) char *text = xstrndup((const char *)data, size);

    if (!keys)
        keys = jwk_set_parse(known_keys, strlen(known_keys), NULL);
    check_token(text, keys);
    check_keys(data, size, text);
    check_encoding(text);
    (void)owner_is_valid(text);
    return 0;
}
