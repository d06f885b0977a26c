#pragma once

/*
 * Variables that were given as secrets. Their names are shown; their values are in the memory of
 * the daemon, in the environment of the programs that they are for, and sealed (vault.h) in the
 * session's record: nowhere else. What is shown or kept of a session goes through `mask`.
 */

#include "base/error.h"
#include "base/scoped.h"

struct json_writer;
struct mask;
struct vault;

struct secrets {
    char *json;   /* owned; object of texts, in clear: for the environment alone */
    char *sealed; /* owned; as the record has it; NULL where it is never recorded */
    struct mask *mask;
};

/* Of an object of texts; NULL when that is NULL or empty. */
struct secrets *secrets_new(const char *json);
void secrets_free(struct secrets *secrets); /* NULL is fine */
SCOPED_DEFINE(secrets_free, struct secrets);

/* For a session of this owner; the vault is open. */
void secrets_seal(struct secrets *secrets, struct vault *vault, const char *owner);
struct secrets *secrets_unseal(struct vault *vault, const char *owner, const char *sealed,
                               struct error *err);

/* The values of these and, where not NULL, of `more`, in one mask; NULL when there are none. */
struct mask *secrets_join(const struct secrets *secrets, const char *more_json);

/* An array of names; nothing when there are none. */
void secrets_write_names(const char *json, struct json_writer *writer, const char *key);
