/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Identifiers: a short prefix by kind and 128 random bits in base32, never guessable. */

#include <stdbool.h>

enum { ID_SIZE = 32 }; /* bytes for any id with its NUL: "ses_" + 26 characters */

#define ID_SESSION "ses_"
#define ID_SANDBOX "sbx_"
#define ID_EXECUTION "exe_"
#define ID_APPROVAL "apr_"
#define ID_REQUEST "req_"

void id_make(char id[ID_SIZE], const char *prefix);

/* The same text gives the same id: for objects that have a unique name and whose id is no
 * secret. */
void id_derive(char id[ID_SIZE], const char *prefix, const char *text);

/* Whether the text has the exact form of an id of that kind; safe for file names if so. */
bool id_is_valid(const char *text, const char *prefix);
