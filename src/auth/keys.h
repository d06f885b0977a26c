/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * API keys. A key is 256 random bits, shown once when it is made: sg_ and 64 digits, and the same
 * digits behind e2b_ are the same key. The file of keys holds a salted SHA-256 of each, one JSON
 * object a line; with that many random bits a slow hash would protect nothing more.
 *
 *     {"id","principal","roles":[…],"salt","hash","created","expires","revoked"}
 *
 * The file is replaced as a whole, so a reader sees all of it or none. A line that cannot be read
 * is a key that does not exist; it is counted, and kept when the file is written again.
 */

#include "auth/caller.h"
#include "auth/encoding.h"
#include "base/error.h"
#include "base/id.h"
#include "base/scoped.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define ID_KEY "key_"

enum { KEY_SALT_BYTES = 16, KEY_SECRET_BYTES = 32, KEY_TEXT_SIZE = 4 + 2 * KEY_SECRET_BYTES + 1 };

struct api_key {
    char id[ID_SIZE];
    char *principal; /* owned */
    unsigned roles;
    uint8_t salt[KEY_SALT_BYTES];
    uint8_t hash[SHA256_BYTES];
    int64_t created_us; /* wall clock, as those below */
    int64_t expires_us; /* 0: never */
    int64_t revoked_us; /* 0: it is not */
};

struct key_set {
    struct api_key *items; /* owned */
    size_t count;
    char **damaged; /* owned: lines that are no key */
    size_t damaged_count;
};

void key_set_fini(struct key_set *set);

static inline void scoped_key_set_fini(struct key_set *set)
{
    key_set_fini(set);
}

/* A file that is missing has no keys. A file that others may write to is refused. */
int key_set_load(struct key_set *set, const char *path, struct error *err);

/* Replaces the file, which is given to `owner` when we may (-1: left to the writing user). */
int key_set_save(const struct key_set *set, const char *path, uid_t owner, gid_t group,
                 struct error *err);

/* Locks the keys of a directory against other processes that change them, until the descriptor is
 * closed; -1 on error. */
int key_file_lock(const char *path, struct error *err);

/* Adds a key and gives its text, the only time that it is known. */
struct api_key *key_set_add(struct key_set *set, const char *principal, unsigned roles,
                            int64_t now_us, int64_t expires_us, char out_text[KEY_TEXT_SIZE]);

/* The text of a key, in place, behind the prefix that the clients of E2B want. */
void key_text_for_e2b(char text[KEY_TEXT_SIZE]);

struct api_key *key_set_by_id(const struct key_set *set, const char *id); /* NULL if unknown */

/* It has neither expired nor been revoked. */
bool key_is_usable(const struct api_key *key, int64_t now_us);

/* The key that the text is; NULL for any other, for an expired one and for a revoked one. It takes
 * the same time for every text. */
const struct api_key *key_set_find(const struct key_set *set, const char *text, int64_t now_us);
