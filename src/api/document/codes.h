/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Codes of errors: every `code` that an answer can have, with its usual status. The OpenAPI document
 * lists them and docs/reference/errors.md is made of them; tests/e2e/test_errors.py compares them with the source.
 */

#include "wire/json.h"

struct error_row {
    const char *code;
    int status; /* the usual one; 0: in documents of executions and files, not of a request */
    const char *meaning;
};

/* Ends with a row without a code. By status, then by code. */
extern const struct error_row error_rows[];

/* Schema of the member `code` of an error. */
void codes_put_schema(struct json_writer *json, const char *key, const char *help);
