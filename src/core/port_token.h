/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A permission to use one port of one session for a while. It stands in a URL or in a cookie.
 *
 *     SESSION.PORT.EXPIRES.GENERATION.SIGNATURE     seconds since 1970; decimal digits
 *
 * Nothing is stored: the signature is the vault's, whose key survives restarts of the daemon. A
 * text without a valid signature is not parsed.
 */

#include "base/id.h"
#include "core/vault.h"

#include <stdbool.h>
#include <stdint.h>

enum { PORT_TOKEN_SIZE = ID_SIZE + 3 * 21 + VAULT_SIGNATURE_SIZE + 4 };

struct port_token {
    char session_id[ID_SIZE];
    unsigned port;
    int64_t expires_wall_s;
    uint64_t generation; /* of the sandbox; 0: any */
};

/* The vault is open, here and below. */
void port_token_write(const struct port_token *token, struct vault *vault,
                      char out[PORT_TOKEN_SIZE]);

enum port_token_state {
    PORT_TOKEN_VALID,
    PORT_TOKEN_EXPIRED, /* it was ours */
    PORT_TOKEN_FOREIGN,
};

enum port_token_state port_token_read(struct port_token *token, struct vault *vault,
                                      const char *text, int64_t now_wall_s);
