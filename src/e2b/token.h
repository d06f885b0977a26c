/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Tokens of sandboxes. Nothing is stored: a token is a signature of the vault about the id of the
 * session, so that it is the same after a pause and after a restart of the daemon.
 */

#include "core/vault.h"

#include <stdbool.h>
#include <stdint.h>

struct core;
struct session;

enum e2b_token_kind {
    E2B_TOKEN_ENVD,    /* X-Access-Token */
    E2B_TOKEN_TRAFFIC, /* E2b-Traffic-Access-Token */
};

enum { E2B_TOKEN_SIZE = VAULT_SIGNATURE_SIZE };

/* The vault is open, here and below. */
void e2b_token_write(struct core *core, const char *session_id, enum e2b_token_kind kind,
                     char out_token[E2B_TOKEN_SIZE]);

/* `given` may be NULL. */
bool e2b_token_is(struct core *core, const char *session_id, enum e2b_token_kind kind,
                  const char *given);

/* The contents of a signed URL. */
struct e2b_signature {
    const char *path;       /* as in the query; "" without one */
    const char *operation;  /* "read" or "write" */
    const char *user;       /* "" without one */
    const char *expiration; /* digits, as in the query; NULL: it never expires */
};

enum { E2B_SIGNATURE_SIZE = 48 };

/* "v1_" and the base64, without padding, of SHA-256 of path:operation:user:token[:expiration]. */
void e2b_signature_write(const struct e2b_signature *facts, const char *token,
                         char out_text[E2B_SIGNATURE_SIZE]);

/* In the same time wherever they differ. */
bool e2b_signature_is(const struct e2b_signature *facts, const char *token, const char *given);
