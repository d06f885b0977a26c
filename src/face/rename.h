/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Old names of fields and parameters. A face has one table of them; requests that use an old name are
 * read as if they had used the new one, and answered with a `Deprecation` header. Routes, handlers and
 * the SDKs know the new names only.
 *
 * A row holds for every route that takes the new name and not the old one: `timeout` is
 * `timeout_seconds` of an execution and `lease_seconds` of a session. Where a route takes several of
 * the new names, the first row decides.
 */

#include "base/error.h"

struct request;
struct route;

struct rename {
    const char *old_name, *new_name; /* the table ends with a row without names */
    const char *where;               /* only for routes with this in their path; NULL: for all */
};

/* The row that says what `old_name` means for a route; NULL: nothing. `in_body`: of its body's fields,
 * otherwise of its parameters. */
const struct rename *rename_find(const struct rename *table, const struct route *route,
                                 const char *old_name, bool in_body);

/* Renames what the request uses; an error when it uses both names of one thing. */
int request_rename_parameters(struct request *request, struct error *err);
int request_rename_fields(struct request *request, struct error *err);

/* Names a field of the body in an error as the request does. */
void request_restore_names(const struct request *request, struct error *err);

/* The headers of an answer to a request that has used old names. */
void request_put_deprecation(const struct request *request);
