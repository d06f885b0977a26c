/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * ChaCha20-Poly1305 (RFC 8439) for programs that link nothing. It takes no branch and no index from
 * the key or the content, so that its time tells nothing about them.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AEAD_KEY_SIZE = 32, AEAD_NONCE_SIZE = 12, AEAD_TAG_SIZE = 16 };

/* Encrypts `data` in place. The tag covers it and the `head`, which stays as it is. A nonce is used
 * once with a key. */
void aead_encrypt(const uint8_t key[AEAD_KEY_SIZE], const uint8_t nonce[AEAD_NONCE_SIZE],
                  const void *head, size_t head_length, void *data, size_t length,
                  uint8_t out_tag[AEAD_TAG_SIZE]);

/* Decrypts `data` in place. False for a wrong tag; the data is as it was then. */
bool aead_decrypt(const uint8_t key[AEAD_KEY_SIZE], const uint8_t nonce[AEAD_NONCE_SIZE],
                  const void *head, size_t head_length, void *data, size_t length,
                  const uint8_t tag[AEAD_TAG_SIZE]);
