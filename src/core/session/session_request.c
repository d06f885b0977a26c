/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "core/session/session_private.h"

#include <stdlib.h>
#include <string.h>

#define TEXT(name) offsetof(struct session_request, name)

static const size_t texts[] = {
    TEXT(owner),       TEXT(on_behalf_of), TEXT(key),          TEXT(idempotency_key),
    TEXT(labels_json), TEXT(env_json),     TEXT(secrets_json), TEXT(template_name),
    TEXT(flavor),      TEXT(backend),      TEXT(face_json),    TEXT(mounts_json),
};

static char **text_at(struct session_request *request, size_t i)
{
    return (char **)((char *)request + texts[i]);
}

void session_request_copy(struct session_request *copy, const struct session_request *request)
{
    *copy = *request;
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++)
        if (*text_at(copy, i))
            *text_at(copy, i) = xstrdup(*text_at(copy, i));
}

void session_request_fini(struct session_request *request)
{
    char *secrets = (char *)request->secrets_json;

    if (secrets)
        explicit_bzero(secrets, strlen(secrets));
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++)
        free(*text_at(request, i));
}
