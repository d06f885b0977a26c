/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Variables that were given as secrets. Their names are shown; their values are in the memory of
 * the daemon, in the environment of the programs that they are for, and sealed (vault.h) in the
 * session's record: nowhere else. All that is shown or kept of a session goes through `mask`.
 *
 * A session also knows the values that it had before and those of single executions, to mask them.
 */

#include "base/error.h"
#include "base/scoped.h"

struct json_writer;
struct mask;
struct vault;

struct secrets {
    char *json;        /* owned; object of texts, in clear: for the environment alone */
    char *known;       /* owned; array of other values, for the mask alone; NULL without any */
    char *sealed;      /* owned; both, as the record has it; NULL before secrets_seal() */
    struct mask *mask; /* a reference; another one after each change */
};

/* Of an object of texts; NULL stands for an empty one. */
struct secrets *secrets_new(const char *json);
void secrets_free(struct secrets *secrets); /* NULL is fine */
SCOPED_DEFINE(secrets_free, struct secrets);

/* Replaces all secrets; the old values are still masked. */
void secrets_replace(struct secrets *secrets, const char *json);

/* The values of this object are to be masked too. */
void secrets_learn(struct secrets *secrets, const char *json);

/* After each change, for a session of this owner; the vault is open. */
void secrets_seal(struct secrets *secrets, struct vault *vault, const char *owner);
struct secrets *secrets_unseal(struct vault *vault, const char *owner, const char *sealed,
                               struct error *err);

/* The values of these (NULL is fine) and of an object of texts, in one mask; NULL when there are
 * none. */
struct mask *secrets_join(const struct secrets *secrets, const char *more_json);

/* The names of an object, as items of an array; NULL is fine. */
void secrets_write_names(const char *json, struct json_writer *writer);
