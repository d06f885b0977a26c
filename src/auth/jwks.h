/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where the keys of the issuer come from: a file that is read again when it changes, or an address
 * that they are fetched from on a thread of their own, when they have become old and when a token
 * names a key that is not among them, but never more often than the cooldown allows. Keys that
 * cannot be fetched again go on being used for a day.
 */

#include "base/error.h"
#include "loop/loop.h"

struct config;
struct jwk_set;
struct jwks;

typedef void jwks_changed_fn(void *context);

/* The loop and the config are borrowed. `on_change` comes from the loop when a fetch has ended,
 * well or not, and inside of jwks_keys() when the file has changed. A file has to be there. */
struct jwks *jwks_new(struct loop *loop, const struct config *config, jwks_changed_fn *on_change,
                      void *context, struct error *err);
void jwks_free(struct jwks *jwks); /* NULL is fine; a fetch that runs is given up */

/* The keys that are known now; NULL without any. Valid until the next call or the next turn. */
const struct jwk_set *jwks_keys(struct jwks *jwks);

/* The file of keys has not been readable for a while, so there are none. */
bool jwks_is_lost(const struct jwks *jwks);

/* A token names an unknown key. Whether a fetch runs now, of which on_change will tell. */
bool jwks_refresh(struct jwks *jwks);

/* Reads or fetches again, also during the cooldown. */
void jwks_reload(struct jwks *jwks);
