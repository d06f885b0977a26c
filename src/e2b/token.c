/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/token.h"

#include "core/core.h"
#include "wire/base64.h"
#include "wire/sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const about[] = {
    [E2B_TOKEN_ENVD] = "e2b envd",
    [E2B_TOKEN_TRAFFIC] = "e2b traffic",
};

void e2b_token_write(struct core *core, const char *session_id, enum e2b_token_kind kind,
                     char out_token[E2B_TOKEN_SIZE])
{
    vault_sign(core->vault, about[kind], session_id, out_token);
}

bool e2b_token_is(struct core *core, const char *session_id, enum e2b_token_kind kind,
                  const char *given)
{
    return given && vault_is_signed(core->vault, about[kind], session_id, given);
}

static void add_text(struct sha256 *hash, const char *text)
{
    sha256_add(hash, text, strlen(text));
}

static void add_part(struct sha256 *hash, const char *text)
{
    add_text(hash, ":");
    add_text(hash, text);
}

void e2b_signature_write(const struct e2b_signature *facts, const char *token,
                         char out_text[E2B_SIGNATURE_SIZE])
{
    uint8_t digest[SHA256_SIZE];
    struct sha256 hash;
    char *encoded;

    sha256_init(&hash);
    add_text(&hash, facts->path);
    add_part(&hash, facts->operation);
    add_part(&hash, facts->user);
    add_part(&hash, token);
    if (facts->expiration)
        add_part(&hash, facts->expiration);
    sha256_finish(&hash, digest);
    encoded = base64_encode(digest, sizeof(digest));
    snprintf(out_text, E2B_SIGNATURE_SIZE, "v1_%.*s", (int)strcspn(encoded, "="), encoded);
    free(encoded);
}

bool e2b_signature_is(const struct e2b_signature *facts, const char *token, const char *given)
{
    char expected[E2B_SIGNATURE_SIZE] = "";
    unsigned char difference = 0;

    e2b_signature_write(facts, token, expected);
    if (strlen(given) != strlen(expected))
        return false;
    for (size_t i = 0; expected[i]; i++)
        difference |= (unsigned char)(expected[i] ^ given[i]);
    return difference == 0;
}
