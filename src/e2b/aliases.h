/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Names that callers have given to templates of the product, each with tags, and the builds that
 * made them. A name belongs to its owner. Names are kept in e2b-templates.json of the state
 * directory; builds are forgotten with the daemon, as their clients wait for them.
 */

#include "base/error.h"
#include "base/scoped.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define E2B_DEFAULT_TAG "default"

enum { E2B_BUILD_SIZE = 40, E2B_ALIAS_MAXIMUM = 4096, E2B_ALIAS_PER_OWNER = 256 };

struct core;
struct e2b_aliases;

struct e2b_alias {
    char *owner, *name, *tag, *source; /* owned; source "" is the default template */
    char build_id[E2B_BUILD_SIZE];
    int64_t created_us;
};

enum e2b_build_state { BUILD_WAITING, BUILD_READY, BUILD_FAILED };

struct e2b_build {
    char id[E2B_BUILD_SIZE];
    char *owner, *name, *tag; /* owned */
    json_t *tags;             /* owned; may be NULL */
    enum e2b_build_state state;
    char reason[512];
};

struct e2b_aliases *e2b_aliases_new(struct core *core); /* borrowed */
void e2b_aliases_free(struct e2b_aliases *aliases);     /* NULL is fine */
SCOPED_DEFINE(e2b_aliases_free, struct e2b_aliases);

/* Borrowed until the next change; NULL when there is none. */
const struct e2b_alias *e2b_alias_find(const struct e2b_aliases *aliases, const char *owner,
                                       const char *name, const char *tag);

/* The next of this owner, behind `alias`; the first for NULL. */
const struct e2b_alias *e2b_alias_next(const struct e2b_aliases *aliases, const char *owner,
                                       const struct e2b_alias *alias);

/* The same build under further tags, a JSON array of texts. */
int e2b_alias_tag(struct e2b_aliases *aliases, const struct e2b_alias *alias, const json_t *tags,
                  struct error *err);

/* These tags of a name; all of them for NULL. ERR_NOT_FOUND when none was there. */
int e2b_alias_remove(struct e2b_aliases *aliases, const char *owner, const char *name,
                     const json_t *tags, struct error *err);

/* NULL for an invalid name. The oldest build is forgotten when there are too many. */
const struct e2b_build *e2b_build_begin(struct e2b_aliases *aliases, const char *owner,
                                        const char *name, const char *tag, const json_t *tags,
                                        struct error *err);
struct e2b_build *e2b_build_find(struct e2b_aliases *aliases, const char *owner, const char *id);

/* Its name is a name of `source` from now on. */
int e2b_build_finish(struct e2b_aliases *aliases, struct e2b_build *build, const char *source,
                     struct error *err);
void e2b_build_fail(struct e2b_build *build, const struct error *err);
