/* SPDX-License-Identifier: Apache-2.0 */
#include "net/address.h"

#include "base/alloc.h"
#include "base/scoped.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

static int address_parse_unix(struct address *address, const char *path, struct error *err)
{
    struct sockaddr_un *name = (struct sockaddr_un *)&address->storage;

    if (str_starts_with(path, "//"))
        path += 2;
    if (!*path || strlen(path) >= sizeof(name->sun_path))
        return error_set(err, ERR_INVALID, "\"%s\" is empty or too long for a socket", path);
    *address = (struct address){ .length = sizeof(*name), .is_unix = true };
    name->sun_family = AF_UNIX;
    memcpy(name->sun_path, path, strlen(path) + 1);
    return 0;
}

static int address_look_up(struct address *address, const char *host, const char *port,
                           struct error *err)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
    struct addrinfo *found = NULL;
    int result = getaddrinfo(host, port, &hints, &found);

    if (result != 0)
        return error_set(err, ERR_INVALID, "look up %s: %s", host, gai_strerror(result));
    *address = (struct address){ .length = found->ai_addrlen };
    memcpy(&address->storage, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return 0;
}

/* Cuts "HOST:PORT" in two; *out_port is NULL when there is none. */
static int address_split(char *text, char **out_host, char **out_port)
{
    char *end = text[0] == '[' ? strchr(text, ']') : strrchr(text, ':');

    *out_host = text;
    *out_port = NULL;
    if (text[0] == '[') {
        if (!end || (end[1] && end[1] != ':'))
            return -1;
        *out_host = text + 1;
        *end++ = '\0';
    }
    if (end && *end == ':') {
        *end = '\0';
        *out_port = end + 1;
    }
    return **out_host ? 0 : -1;
}

int address_parse(struct address *address, const char *text, struct error *err)
{
    bool is_secure = str_starts_with(text, "https://");
    bool is_url = is_secure || str_starts_with(text, "http://");
    scoped(free) char *copy = NULL;
    uint64_t number = 80;
    size_t length;
    char *host;
    char *port;

    if (str_starts_with(text, "unix:"))
        return address_parse_unix(address, text + strlen("unix:"), err);
    copy = xstrdup(is_url ? strstr(text, "://") + 3 : text);
    length = strlen(copy);
    if (is_url && length && copy[length - 1] == '/')
        copy[length - 1] = '\0';
    if (address_split(copy, &host, &port) < 0 || (!port && !is_url) ||
        (port && str_to_u64(port, &number) < 0) || number > 65535)
        return error_set(err, ERR_INVALID, "\"%s\" is not unix:PATH or HOST:PORT", text);
    return address_look_up(address, host, port ? port : is_secure ? "443" : "80", err);
}

void address_format(const struct address *address, char text[ADDRESS_TEXT_SIZE])
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address->storage;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address->storage;
    char host[INET6_ADDRSTRLEN] = "";

    switch (address->storage.ss_family) {
    case AF_INET:
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
        snprintf(text, ADDRESS_TEXT_SIZE, "%s:%u", host, ntohs(v4->sin_port));
        break;
    case AF_INET6:
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
        snprintf(text, ADDRESS_TEXT_SIZE, "[%s]:%u", host, ntohs(v6->sin6_port));
        break;
    default:
        snprintf(text, ADDRESS_TEXT_SIZE, "unix");
    }
}
