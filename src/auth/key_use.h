/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * When each key was last used. Kept in memory and put into the store now and then, so that a
 * request costs no write; a crash may lose the last half minute of it.
 */

#include "loop/loop.h"

#include <stdint.h>

struct key_use;
struct store;

/* Both are borrowed; without a store (NULL) it lasts as long as the process. */
struct key_use *key_use_new(struct loop *loop, struct store *store);
void key_use_free(struct key_use *use); /* writes new times of use; NULL is fine */

void key_use_note(struct key_use *use, const char *key_id);

/* Wall clock; 0 when it was never used, as far as is known. */
int64_t key_use_last_us(const struct key_use *use, const char *key_id);
