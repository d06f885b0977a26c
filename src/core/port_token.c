/* SPDX-License-Identifier: Apache-2.0 */
#include "core/port_token.h"

#include "base/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char about[] = "port";

void port_token_write(const struct port_token *token, struct vault *vault,
                      char out[PORT_TOKEN_SIZE])
{
    char signature[VAULT_SIGNATURE_SIZE];
    int length = snprintf(out, PORT_TOKEN_SIZE, "%s.%u.%" PRId64 ".%" PRIu64, token->session_id,
                          token->port, token->expires_wall_s, token->generation);

    vault_sign(vault, about, out, signature);
    snprintf(out + length, PORT_TOKEN_SIZE - (size_t)length, ".%s", signature);
}

enum port_token_state port_token_read(struct port_token *token, struct vault *vault,
                                      const char *text, int64_t now_wall_s)
{
    const char *dot = strrchr(text, '.');
    scoped(free) char *content = NULL;

    if (!dot || strlen(text) >= PORT_TOKEN_SIZE)
        return PORT_TOKEN_FOREIGN;
    content = xstrndup(text, (size_t)(dot - text));
    if (!vault_is_signed(vault, about, content, dot + 1))
        return PORT_TOKEN_FOREIGN;

    /* From here on it is our own text. */
    if (sscanf(content, "%31[^.].%u.%" SCNd64 ".%" SCNu64, token->session_id, &token->port,
               &token->expires_wall_s, &token->generation) != 4)
        return PORT_TOKEN_FOREIGN;
    return now_wall_s < token->expires_wall_s ? PORT_TOKEN_VALID : PORT_TOKEN_EXPIRED;
}
