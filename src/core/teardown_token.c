/* SPDX-License-Identifier: Apache-2.0 */
#include "core/teardown_token.h"

#include "base/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char about[] = "teardown";

void teardown_token_write(const struct teardown_token *token, struct vault *vault,
                          char out[TEARDOWN_TOKEN_SIZE])
{
    char signature[VAULT_SIGNATURE_SIZE];
    int length = snprintf(out, TEARDOWN_TOKEN_SIZE, "%s.%" PRIu64 ".%" PRId64 ".%" PRId64,
                          token->session_id, token->number, token->expires_wall_s, token->grace_ms);

    vault_sign(vault, about, out, signature);
    snprintf(out + length, TEARDOWN_TOKEN_SIZE - (size_t)length, ".%s", signature);
}

bool teardown_token_read(struct teardown_token *token, struct vault *vault, const char *text,
                         int64_t now_wall_s)
{
    const char *dot = strrchr(text, '.');
    scoped(free) char *content = NULL;

    if (!dot || strlen(text) >= TEARDOWN_TOKEN_SIZE)
        return false;
    content = xstrndup(text, (size_t)(dot - text));
    if (!vault_is_signed(vault, about, content, dot + 1))
        return false;

    /* From here on it is our own text. */
    return sscanf(content, "%31[^.].%" SCNu64 ".%" SCNd64 ".%" SCNd64, token->session_id,
                  &token->number, &token->expires_wall_s, &token->grace_ms) == 4 &&
           now_wall_s < token->expires_wall_s;
}
