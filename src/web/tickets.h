/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One-time tokens: each stands for a login, is exchanged for it once, and only for two minutes. They are
 * kept in memory as hashes; a restart of the daemon ends all of them.
 */

#include "auth/login.h"
#include "loop/loop.h"

#include <stdbool.h>

enum { TICKET_TEXT_SIZE = 4 + 64 + 1, TICKETS_MAXIMUM = 1000 };

struct tickets;

struct tickets *tickets_new(struct loop *loop); /* borrowed */
void tickets_free(struct tickets *tickets);     /* NULL is fine */

/* ERR_LIMIT while TICKETS_MAXIMUM wait. */
int tickets_issue(struct tickets *tickets, const struct login *login, char out[TICKET_TEXT_SIZE],
                  int64_t *out_expires_us, struct error *err);

/* Whether it is one; then it is used up. */
bool tickets_take(struct tickets *tickets, const char *text, struct login *out);
