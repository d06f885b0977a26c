/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * WWW-Authenticate (RFC 9110, 11.6.1): the authentication that a server asks for. One header may
 * hold several challenges; schemes other than Bearer and Basic are skipped.
 */

#include "base/error.h"

enum challenge_scheme { CHALLENGE_NONE, CHALLENGE_BASIC, CHALLENGE_BEARER };

enum { CHALLENGE_TEXT_SIZE = 1024, CHALLENGE_MAXIMUM = 16 * 1024 };

struct challenge {
    enum challenge_scheme scheme;
    /* Of Bearer; "" when absent. */
    char realm[CHALLENGE_TEXT_SIZE];
    char service[CHALLENGE_TEXT_SIZE];
    char scope[CHALLENGE_TEXT_SIZE];
};

/*
 * Reads one header into `challenge`, which begins as { 0 }. A further header of the same answer is
 * read into the same struct: Bearer wins over Basic, and the first of two equal schemes stays.
 * ERR_INVALID when the header is malformed or too long; the struct is then as it was.
 */
int challenge_parse(struct challenge *challenge, const char *value, struct error *err);
