/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A permission for one thing: to tear down the sandbox of one session, for a while. It stands in a
 * URL, because a page that is being closed can send nothing but a URL (navigator.sendBeacon).
 *
 *     SESSION.NUMBER.EXPIRES.GRACE.SIGNATURE     seconds since 1970, milliseconds; decimal digits
 *
 * Of a session only the one that was given out last counts: a page that is reloaded is rendered
 * anew before the old one goes, and what the old one sends then must not take the new one's
 * sandbox. And it counts for one sandbox: that of the generation in which it was used first.
 *
 * Nothing is stored but that number and that generation: the signature is the vault's. A text
 * without a valid signature is not parsed.
 */

#include "base/id.h"
#include "core/vault.h"

#include <stdbool.h>
#include <stdint.h>

enum { TEARDOWN_TOKEN_SIZE = ID_SIZE + 3 * 21 + VAULT_SIGNATURE_SIZE + 4 };

struct teardown_token {
    char session_id[ID_SIZE];
    uint64_t number; /* session->teardown_number when it was given out */
    int64_t expires_wall_s;
    int64_t grace_ms; /* between asking and doing: time for a page that is only reloaded */
};

/* The vault is open, here and below. */
void teardown_token_write(const struct teardown_token *token, struct vault *vault,
                          char out[TEARDOWN_TOKEN_SIZE]);

/* Whether the text is a token of ours that has not expired. */
bool teardown_token_read(struct teardown_token *token, struct vault *vault, const char *text,
                         int64_t now_wall_s);
