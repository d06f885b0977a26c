/* SPDX-License-Identifier: Apache-2.0 */
#include "store/redis/script.h"

#include "base/macros.h"
#include "base/str.h"

#include <assert.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

void redis_script_init(struct redis_script *script, const char *text)
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned length = 0;

    script->text = text;
    if (!EVP_Digest(text, strlen(text), sum, &length, EVP_sha1(), NULL))
        length = 0; /* then it is always called by its text */
    for (unsigned i = 0; i < length && i < SCRIPT_SHA_SIZE / 2; i++)
        snprintf(script->sha + (size_t)2 * i, 3, "%02x", sum[i]);
}

void redis_script_call(const struct redis_script *script, struct redis_link *link,
                       struct redis_request *request, const struct redis_word *arguments,
                       size_t count, bool by_text)
{
    struct redis_word words[3 + SCRIPT_ARGUMENTS] = {
        REDIS_WORD(by_text ? "EVAL" : "EVALSHA"),
        REDIS_WORD(by_text ? script->text : script->sha),
        REDIS_WORD("0"),
    };

    assert(count <= SCRIPT_ARGUMENTS);
    memcpy(words + 3, arguments, count * sizeof(words[0]));
    redis_link_send(link, request, words, 3 + count);
}

bool redis_reply_is_noscript(const redisReply *reply)
{
    return reply && reply->type == REDIS_REPLY_ERROR && str_starts_with(reply->str, "NOSCRIPT");
}
