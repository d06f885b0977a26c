/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Pages of lists that the daemon has in memory as a whole: approvals, contexts, keys, templates and the
 * like. A cursor is the name of the last entry that was shown; lists that grow without bound
 * (sessions, executions, history) page at their source instead.
 */

#include "face/request.h"

/* The parameters of such a list. */
#define API_PAGE_PARAMETERS                                                     \
    { "limit", "integer", "entries per page; 1000 by default, 10000 at most" }, \
    {                                                                           \
        "cursor", "string", "next_cursor of the previous page"                  \
    }

/* Answers 200 with one page of the list `field` in the object that `json` holds, and next_cursor, which
 * is null on the last page. Entries are told apart by their member `key`, a text or a number. */
void api_reply_page(struct request *request, struct buffer *json, const char *field,
                    const char *key);
