/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Schemas of the JSON documents that routes answer with: a row for each object and each field.
 *
 * A type is a text:
 *
 *     text int number bool time any     a value; time is RFC 3339
 *     code                              a code of an error: codes.h
 *     Session                           another object
 *     [Session] {text}                  an array of them; an object with values of them
 *     =open|paused                      one of these texts
 *     Session|Approval                  one of these objects
 *     ?text                             that, or null
 *
 * Objects may get more fields, and sets of texts more members, within one version of the API.
 */

#include "wire/json.h"

#include <stdbool.h>
#include <stddef.h>

struct schema_field {
    const char *name;
    const char *type;
    const char *help; /* may be NULL */
    bool optional; /* left out in some answers; others are always there, though they may be null */
    bool deprecated; /* the name of an earlier version, beside the new one */
};

struct schema_object {
    const char *name;
    const char *help;
    const char *base;                  /* an object whose fields this one has too; may be NULL */
    const struct schema_field *fields; /* ends with a row without a name */
    const char *example;               /* JSON; may be NULL */
};

/* Ends with a row without a name. */
extern const struct schema_object schema_objects[];

const struct schema_object *schema_find(const char *name); /* NULL: unknown */

/* Schema of a type: {"type": …} or a reference; `help` may be NULL. */
void schema_put_type(struct json_writer *json, const char *key, const char *type, const char *help);

/* All objects, as "schemas" of the document's components. */
void schema_put_objects(struct json_writer *json);
