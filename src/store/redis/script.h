/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A script of the server, called by its sum, and by its text when the server does not know it (after
 * a restart, or when it became the master).
 */

#include "store/redis/link.h"

extern const char redis_open_script[], redis_commit_script[], redis_query_script[],
    redis_sweep_script[], redis_renew_script[], redis_rehome_script[];

enum { SCRIPT_SHA_SIZE = 41, SCRIPT_ARGUMENTS = 16 };

struct redis_script {
    const char *text; /* borrowed */
    char sha[SCRIPT_SHA_SIZE];
};

void redis_script_init(struct redis_script *script, const char *text);

/* Calls the script by its text: the server caches it for later calls. */
void redis_script_call(const struct redis_script *script, struct redis_link *link,
                       struct redis_request *request, const struct redis_word *arguments,
                       size_t count, bool by_text);

/* Whether the server does not have the script. */
bool redis_reply_is_noscript(const redisReply *reply);
