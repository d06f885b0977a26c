/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/credentials.h"

#include "auth/caller.h"
#include "base/alloc.h"
#include "base/macros.h"
#include "base/str.h"
#include "net/http_server.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char blanks[] = " \t";

static char *trimmed(const char *text)
{
    size_t length;

    text += strspn(text, blanks);
    length = strlen(text);
    while (length && strchr(blanks, text[length - 1]))
        length--;
    return xstrndup(text, length);
}

/* The value of a header that may be there once; NULL in *out_value without it. */
static int single_header(const struct http_head *head, const char *name, const char **out_value,
                         struct error *err)
{
    const char *value = NULL;

    for (size_t i = 0; i < head->header_count; i++) {
        if (strcmp(head->headers[i].name, name) != 0)
            continue;
        if (value)
            return error_named(err, ERR_INVALID, "invalid_header", "duplicate header %s", name);
        value = head->headers[i].value;
    }
    *out_value = value;
    return 0;
}

/* "Bearer TOKEN"; another scheme is no credential of ours. */
static char *bearer_token(const char *value)
{
    static const char scheme[] = "bearer";
    size_t length = sizeof(scheme) - 1;

    if (!value || strncasecmp(value, scheme, length) != 0 || value[length] != ' ')
        return NULL;
    return trimmed(value + length);
}

static int read_token(struct credentials *credentials, const struct http_head *head,
                      struct error *err)
{
    const char *authorization = NULL, *api_key = NULL;
    scoped(free) char *other = NULL;

    if (single_header(head, "authorization", &authorization, err) < 0 ||
        single_header(head, "x-api-key", &api_key, err) < 0)
        return -1;
    credentials->token = bearer_token(authorization);
    other = api_key ? trimmed(api_key) : NULL;
    if (credentials->token && other && strcmp(credentials->token, other) != 0)
        return error_named(err, ERR_INVALID, "invalid_header",
                           "Authorization and X-API-Key differ");
    if (!credentials->token)
        credentials->token = steal_ptr(&other);
    return 0;
}

static int read_attribution(struct credentials *credentials, const struct http_head *head,
                            struct error *err)
{
    const char *value;

    if (single_header(head, "x-sandglass-on-behalf-of", &value, err) < 0)
        return -1;
    credentials->on_behalf_of = trimmed(value ? value : "");
    if (!owner_is_valid(credentials->on_behalf_of))
        return error_named(err, ERR_INVALID, "invalid_header",
                           "X-Sandglass-On-Behalf-Of must be UTF-8 of at most %d bytes, without "
                           "control characters",
                           OWNER_MAXIMUM);
    return 0;
}

int credentials_read(struct credentials *credentials, const struct http_head *head,
                     struct error *err)
{
    if (read_token(credentials, head, err) == 0 && read_attribution(credentials, head, err) == 0)
        return 0;
    credentials_fini(credentials);
    return -1;
}

void credentials_fini(struct credentials *credentials)
{
    if (credentials->token)
        explicit_bzero(credentials->token, strlen(credentials->token));
    free(credentials->token);
    free(credentials->on_behalf_of);
    *credentials = (struct credentials){ 0 };
}

static void mask_ipv6(char *name)
{
    struct in6_addr address;

    if (inet_pton(AF_INET6, name, &address) != 1)
        return;
    memset(address.s6_addr + 8, 0, 8);
    inet_ntop(AF_INET6, &address, name, PEER_NAME_SIZE);
}

void peer_name(const struct http_peer *peer, char name[PEER_NAME_SIZE])
{
    const char *host = peer->address;
    const char *end = strrchr(host, ':');

    if (peer->is_unix) {
        snprintf(name, PEER_NAME_SIZE, "uid %lu", (unsigned long)peer->uid);
        return;
    }
    if (!end)
        end = host + strlen(host);
    if (*host == '[' && end[-1] == ']') {
        host++;
        end--;
    }
    snprintf(name, PEER_NAME_SIZE, "%.*s", (int)(end - host), host);
    mask_ipv6(name);
}
