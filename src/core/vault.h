/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The key of this instance, and its two uses: secrets are sealed before they go into the
 * store, and short-lived permissions are signed.
 *
 * The key is 32 random bytes in `secret.key` of the state directory, readable by the daemon alone,
 * and is made when it is first needed. A copy of the store without that file reveals no
 * secret; a loss of the file loses the sealed secrets and nothing else.
 */

#include "base/error.h"
#include "base/scoped.h"

#include <stdbool.h>
#include <stdint.h>

enum { VAULT_SIGNATURE_SIZE = 2 * 32 + 1 };

struct vault;

/* The directory is borrowed. With a key, one that the nodes of a cluster share, no file is used. */
struct vault *vault_new(int state_dir, const uint8_t *key);
void vault_free(struct vault *vault); /* NULL is fine */
SCOPED_DEFINE(vault_free, struct vault);

/* Reads the key, or makes it. The functions below need it and do not fail for it any more. */
int vault_open(struct vault *vault, struct error *err);

/* As allocated text; only vault_unseal() with the same `about` gives it back. */
char *vault_seal(struct vault *vault, const char *about, const char *text);

/* NULL when it was sealed with another key, about something else, or was changed. */
char *vault_unseal(struct vault *vault, const char *about, const char *sealed, struct error *err);

/* A signature that only this instance can make, in lower-case hexadecimal digits. */
void vault_sign(struct vault *vault, const char *about, const char *text,
                char out[VAULT_SIGNATURE_SIZE]);

/* Compares in constant time. */
bool vault_is_signed(struct vault *vault, const char *about, const char *text,
                     const char *signature);
