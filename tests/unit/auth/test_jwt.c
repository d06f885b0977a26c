/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/jwt.h"

#include "auth/caller.h"
#include "auth/jwk.h"
#include "base/alloc.h"
#include "base/macros.h"
#include "base/scoped.h"
#include "issuer.h"

#include <openssl/evp.h>
#include <openssl/rsa.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int64_t now_us = 1700000000LL * 1000 * 1000;
static const struct jwt_policy policy = {
    .issuer = "https://issuer", .audience = "sandglass", .roles_claim = "roles", .skew_us = 60000000
};

/* One key of each kind, made once: RSA keys take a while. */
static EVP_PKEY *rsa, *ec, *okp;

static int make_keys(void **state UNUSED)
{
    rsa = issuer_key("RSA");
    ec = issuer_key("EC");
    okp = issuer_key("OKP");
    return rsa && ec && okp ? 0 : -1;
}

static int free_keys(void **state UNUSED)
{
    EVP_PKEY_free(rsa);
    EVP_PKEY_free(ec);
    EVP_PKEY_free(okp);
    return 0;
}

#define GOOD_CLAIMS \
    "\"iss\":\"https://issuer\",\"aud\":\"sandglass\",\"exp\":1700000100,\"sub\":\"ann\""

/* "valid", "unknown key", or the name of the error. */
static const char *check(const char *jwks, const char *token)
{
    static struct error err;
    struct error parse = { 0 };
    scoped(jwk_set_free) struct jwk_set *keys = jwk_set_parse(jwks, strlen(jwks), &parse);
    struct jwt_claims claims = { 0 };

    if (!keys)
        fail_msg("%s: %s", jwks, parse.message);
    err = (struct error){ 0 };
    switch (jwt_check(token, keys, &policy, now_us, &claims, &err)) {
    case JWT_VALID:
        jwt_claims_fini(&claims);
        return "valid";
    case JWT_UNKNOWN_KEY:
        return "unknown key";
    case JWT_REFUSED:
        break;
    }
    assert_int_equal(err.code, ERR_UNAUTHORIZED);
    return err.name;
}

static const char *check_signed(EVP_PKEY *key, const char *jwk_more, const char *algorithm,
                                const char *header, const char *payload)
{
    scoped(free) char *jwks = issuer_jwks(key, jwk_more);
    scoped(free) char *token = issuer_sign(key, algorithm, header, payload);

    return check(jwks, token);
}

static void assert_claims(const char *payload, const char *expected)
{
    const char *result = check_signed(ec, "", "ES256", "{\"alg\":\"ES256\"}", payload);

    if (strcmp(result, expected) != 0)
        fail_msg("%s: %s, not %s", payload, result, expected);
}

static void all_three_algorithms_are_known(void **state UNUSED)
{
    const char *claims = "{" GOOD_CLAIMS "}";

    assert_string_equal(check_signed(rsa, "", "RS256", "{\"alg\":\"RS256\"}", claims), "valid");
    assert_string_equal(check_signed(ec, "", "ES256", "{\"alg\":\"ES256\"}", claims), "valid");
    assert_string_equal(check_signed(okp, "", "EdDSA", "{\"alg\":\"EdDSA\"}", claims), "valid");
}

#define PUBLISHED_PAYLOAD                                                                          \
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVl" \
    "fQ"

/* The examples of RFC 7515, appendices A.2 and A.3: their signatures are right, so it is only the
 * issuer that we complain about. */
static void published_examples_have_good_signatures(void **state UNUSED)
{
    static const char rsa_jwks[] =
        "{\"keys\":[{\"kty\":\"RSA\",\"e\":\"AQAB\",\"n\":\"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_"
        "wWJcyQo"
        "Tbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG"
        "6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2C"
        "apHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2et"
        "hFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ\"}]}";
    static const char rsa_token[] =
        "eyJhbGciOiJSUzI1NiJ9." PUBLISHED_PAYLOAD
        ".cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W"
        "2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSj"
        "tQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh"
        "6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    static const char ec_jwks[] = "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\","
                                  "\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\","
                                  "\"y\":\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"}]}";
    static const char ec_token[] = "eyJhbGciOiJFUzI1NiJ9." PUBLISHED_PAYLOAD
                                   ".DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8IS"
                                   "lSApmWQxfKTUJqPP3-Kg6NU1Q";

    assert_string_equal(check(rsa_jwks, rsa_token), "token_issuer");
    assert_string_equal(check(ec_jwks, ec_token), "token_issuer");
}

static void claims_are_read(void **state UNUSED)
{
    scoped(free) char *jwks = issuer_jwks(ec, "");
    scoped(jwk_set_free) struct jwk_set *keys = jwk_set_parse(jwks, strlen(jwks), NULL);
    scoped(free) char *token = issuer_sign(ec, "ES256", "{\"alg\":\"ES256\",\"typ\":\"at+JWT\"}",
                                           "{" GOOD_CLAIMS
                                           ",\"roles\":[\"admin\",\"delegate\",\"painter\"]}");
    struct jwt_claims claims = { 0 };
    struct error err;

    assert_int_equal(jwt_check(token, keys, &policy, now_us, &claims, &err), JWT_VALID);
    assert_string_equal(claims.subject, "ann");
    assert_int_equal(claims.roles, ROLE_USER | ROLE_ADMIN | ROLE_DELEGATE);
    assert_int_equal(claims.expires_us, 1700000100LL * 1000 * 1000);
    jwt_claims_fini(&claims);
}

static void wrong_claims_are_refused(void **state UNUSED)
{
    assert_claims("{" GOOD_CLAIMS "}", "valid");
    assert_claims(
        "{\"iss\":\"https://other\",\"aud\":\"sandglass\",\"exp\":1700000100,\"sub\":\"a\"}",
        "token_issuer");
    assert_claims("{\"aud\":\"sandglass\",\"exp\":1700000100,\"sub\":\"a\"}", "token_issuer");
    assert_claims("{\"iss\":\"https://issuer\",\"aud\":\"x\",\"exp\":1700000100,\"sub\":\"a\"}",
                  "token_audience");
    assert_claims("{\"iss\":\"https://issuer\",\"aud\":[\"x\"],\"exp\":1700000100,\"sub\":\"a\"}",
                  "token_audience");
    assert_claims("{\"iss\":\"https://issuer\",\"exp\":1700000100,\"sub\":\"a\"}",
                  "token_audience");
    assert_claims("{\"iss\":\"https://"
                  "issuer\",\"aud\":[\"x\",\"sandglass\"],\"exp\":1700000100,\"sub\":\"a\"}",
                  "valid");
    assert_claims("{\"iss\":\"https://issuer\",\"aud\":\"sandglass\",\"exp\":1700000100}",
                  "token_invalid");
    assert_claims(
        "{\"iss\":\"https://issuer\",\"aud\":\"sandglass\",\"exp\":1700000100,\"sub\":\"\"}",
        "token_invalid");
    assert_claims(
        "{\"iss\":\"https://issuer\",\"aud\":\"sandglass\",\"exp\":1700000100,\"sub\":\"a\\nb\"}",
        "token_invalid");
}

#define NO_EXPIRY "\"iss\":\"https://issuer\",\"aud\":\"sandglass\",\"sub\":\"ann\""

static void times_are_checked_with_the_skew(void **state UNUSED)
{
    assert_claims("{" NO_EXPIRY "}", "token_invalid");
    assert_claims("{" NO_EXPIRY ",\"exp\":\"1700000100\"}", "token_invalid");
    assert_claims("{" NO_EXPIRY ",\"exp\":1e300}", "token_invalid");
    assert_claims("{" NO_EXPIRY ",\"exp\":-5}", "token_invalid");
    assert_claims("{" NO_EXPIRY ",\"exp\":1699999941}", "valid");
    assert_claims("{" NO_EXPIRY ",\"exp\":1699999940}", "token_expired");
    assert_claims("{" GOOD_CLAIMS ",\"nbf\":1700000060}", "valid");
    assert_claims("{" GOOD_CLAIMS ",\"nbf\":1700000061}", "token_not_yet_valid");
    assert_claims("{" GOOD_CLAIMS ",\"nbf\":\"soon\"}", "token_not_yet_valid");
}

static void only_the_algorithm_of_the_key_is_taken(void **state UNUSED)
{
    const char *claims = "{" GOOD_CLAIMS "}";

    assert_string_equal(check_signed(rsa, "", "none", "{\"alg\":\"none\"}", claims),
                        "token_invalid");
    assert_string_equal(check_signed(rsa, "", "none", "{\"alg\":\"NONE\"}", claims),
                        "token_invalid");
    assert_string_equal(check_signed(rsa, "", "none", "{\"alg\":\"RS256\"}", claims),
                        "token_invalid");
    assert_string_equal(check_signed(rsa, "", "HS256", "{\"alg\":\"HS256\"}", claims),
                        "token_invalid");
    assert_string_equal(check_signed(rsa, "", "HS256", "{\"alg\":\"RS256\"}", claims),
                        "token_invalid");
    assert_string_equal(check_signed(ec, "", "ES256", "{\"alg\":\"RS256\"}", claims),
                        "token_invalid");
    assert_string_equal(check_signed(rsa, "", "RS256", "{\"alg\":\"RS512\"}", claims),
                        "token_invalid");
    assert_string_equal(check_signed(rsa, "", "RS256", "{\"typ\":\"JWT\"}", claims),
                        "token_invalid");
}

static void headers_that_ask_for_more_are_refused(void **state UNUSED)
{
    const char *claims = "{" GOOD_CLAIMS "}";

    assert_string_equal(check_signed(ec, "", "ES256",
                                     "{\"alg\":\"ES256\",\"crit\":[\"b64\"],\"b64\":false}",
                                     claims),
                        "token_invalid");
    assert_string_equal(
        check_signed(ec, "", "ES256", "{\"alg\":\"ES256\",\"typ\":\"dpop+jwt\"}", claims),
        "token_invalid");
    assert_string_equal(check_signed(ec, "", "ES256", "{\"alg\":\"ES256\",\"kid\":7}", claims),
                        "token_invalid");
}

static void a_key_in_the_header_is_not_looked_at(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer header = BUFFER_INIT(4096);
    scoped(free) char *jwks = issuer_jwks(ec, "");
    EVP_PKEY *stranger = issuer_key("EC");
    scoped(free) char *token = NULL;

    buffer_append_text(&header, "{\"alg\":\"ES256\",\"jwk\":");
    issuer_jwk(stranger, "", &header);
    buffer_append_text(&header, "}");
    token = issuer_sign(stranger, "ES256", buffer_text(&header), "{" GOOD_CLAIMS "}");
    EVP_PKEY_free(stranger);
    assert_string_equal(check(jwks, token), "token_invalid");
}

static void the_kid_says_which_key(void **state UNUSED)
{
    const char *claims = "{" GOOD_CLAIMS "}";
    scoped(buffer_fini) struct buffer two = BUFFER_INIT(8192);
    scoped(free) char *named =
        issuer_sign(ec, "ES256", "{\"alg\":\"ES256\",\"kid\":\"b\"}", claims);
    scoped(free) char *unnamed = issuer_sign(ec, "ES256", "{\"alg\":\"ES256\"}", claims);
    scoped(free) char *other =
        issuer_sign(ec, "ES256", "{\"alg\":\"ES256\",\"kid\":\"c\"}", claims);

    buffer_append_text(&two, "{\"keys\":[");
    issuer_jwk(rsa, "\"kid\":\"a\"", &two);
    buffer_append_text(&two, ",");
    issuer_jwk(ec, "\"kid\":\"b\"", &two);
    buffer_append_text(&two, "]}");
    assert_string_equal(check(buffer_text(&two), named), "valid");
    assert_string_equal(check(buffer_text(&two), unnamed), "token_invalid");
    assert_string_equal(check(buffer_text(&two), other), "unknown key");
}

static void an_altered_token_is_refused(void **state UNUSED)
{
    scoped(free) char *jwks = issuer_jwks(okp, "");
    scoped(free) char *token =
        issuer_sign(okp, "EdDSA", "{\"alg\":\"EdDSA\"}", "{" GOOD_CLAIMS "}");
    size_t length = strlen(token);

    for (size_t i = 0; i < length; i++) {
        char kept = token[i];

        token[i] = kept == 'A' ? 'B' : 'A';
        if (strcmp(check(jwks, token), "valid") == 0)
            fail_msg("altered at %zu and taken", i);
        token[i] = kept;
    }
    assert_string_equal(check(jwks, token), "valid");
}

static void what_is_no_token_is_refused(void **state UNUSED)
{
    static const char *const texts[] = { "",         ".",        "..",      "a.b",  "a.b.c.d",
                                         "e30.e30.", "e30..e30", "sg_1234", "....." };
    scoped(free) char *jwks = issuer_jwks(okp, "");

    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++)
        assert_string_equal(check(jwks, texts[i]), "token_invalid");
}

static void assert_no_usable_key(const char *jwks)
{
    struct error err = { 0 };
    struct jwk_set *keys = jwk_set_parse(jwks, strlen(jwks), &err);

    if (keys)
        fail_msg("taken: %s", jwks);
}

static void unusable_keys_are_left_out(void **state UNUSED)
{
    scoped(free) char *secret = issuer_jwks(ec, "\"d\":\"AAAA\"");
    scoped(free) char *encrypts = issuer_jwks(ec, "\"use\":\"enc\"");
    scoped(free) char *contradicts = issuer_jwks(ec, "\"alg\":\"RS256\"");
    scoped(free) char *signs = issuer_jwks(ec, "\"use\":\"sig\",\"alg\":\"ES256\"");
    EVP_PKEY *weak = EVP_RSA_gen(1024);
    scoped(free) char *short_rsa = issuer_jwks(weak, "");

    EVP_PKEY_free(weak);
    assert_no_usable_key(secret);
    assert_no_usable_key(encrypts);
    assert_no_usable_key(contradicts);
    assert_no_usable_key(short_rsa);
    assert_no_usable_key("{\"keys\":[{\"kty\":\"oct\",\"k\":\"AAAA\",\"alg\":\"HS256\"}]}");
    assert_no_usable_key(
        "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AA\",\"y\":\"AA\"}]}");
    assert_no_usable_key("{\"keys\":[{\"kty\":\"RSA\",\"n\":\"\",\"e\":\"AQAB\"}]}");
    assert_no_usable_key("{\"keys\":[1,\"a\",null,[]]}");
    assert_no_usable_key("{\"keys\":[]}");
    assert_no_usable_key("{\"keys\":{}}");
    assert_no_usable_key("[]");
    assert_string_equal(
        check_signed(ec, "\"use\":\"sig\"", "ES256", "{\"alg\":\"ES256\"}", "{" GOOD_CLAIMS "}"),
        "valid");
    assert_non_null(signs);
}

/* A point that is not on the curve would let an attacker choose what a signature means. */
static void a_point_off_the_curve_is_no_key(void **state UNUSED)
{
    assert_no_usable_key("{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\","
                         "\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\","
                         "\"y\":\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a4\"}]}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_three_algorithms_are_known),
        cmocka_unit_test(published_examples_have_good_signatures),
        cmocka_unit_test(claims_are_read),
        cmocka_unit_test(wrong_claims_are_refused),
        cmocka_unit_test(times_are_checked_with_the_skew),
        cmocka_unit_test(only_the_algorithm_of_the_key_is_taken),
        cmocka_unit_test(headers_that_ask_for_more_are_refused),
        cmocka_unit_test(a_key_in_the_header_is_not_looked_at),
        cmocka_unit_test(the_kid_says_which_key),
        cmocka_unit_test(an_altered_token_is_refused),
        cmocka_unit_test(what_is_no_token_is_refused),
        cmocka_unit_test(unusable_keys_are_left_out),
        cmocka_unit_test(a_point_off_the_curve_is_no_key),
    };

    return cmocka_run_group_tests(tests, make_keys, free_keys);
}
