/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The keys by which a sandbox's relay and the daemon know each other. None is stored: each is
 * HMAC-SHA-256 of the sandbox's id with a secret of the instance, which is one file, `relay.key`,
 * in the state directory.
 */

#include "base/error.h"
#include "wire/relay_frame.h"

#include <stdint.h>

enum { RELAY_SECRET_SIZE = 32 };

/* Reads the secret, or makes it on first use. */
int relay_secret_open(int state_dir, uint8_t out_secret[RELAY_SECRET_SIZE], struct error *err);

void relay_key_derive(const uint8_t secret[RELAY_SECRET_SIZE], const char *sandbox_id,
                      uint8_t out_key[RELAY_KEY_SIZE]);
