/* SPDX-License-Identifier: Apache-2.0 */
#include "config/redis_url.h"

#include "base/alloc.h"
#include "base/macros.h"
#include "base/str.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define REDIS_PORT "6379"
#define SENTINEL_PORT "26379"

static const struct {
    const char *prefix;
    enum redis_scheme scheme;
} schemes[] = {
    { "redis://", REDIS_TCP },
    { "rediss://", REDIS_TLS },
    { "unix://", REDIS_UNIX },
    { "redis+sentinel://", REDIS_SENTINEL },
};

void redis_url_fini(struct redis_url *url)
{
    for (unsigned i = 0; i < url->host_count; i++)
        free(url->hosts[i]);
    free(url->path);
    free(url->user);
    free(url->password);
    free(url->master);
    *url = (struct redis_url){ 0 };
}

static int hex_of(char digit)
{
    if (isdigit((unsigned char)digit))
        return digit - '0';
    return isxdigit((unsigned char)digit) ? tolower((unsigned char)digit) - 'a' + 10 : -1;
}

/* NULL when a %-sequence is not one. */
static char *decode(const char *text, size_t length)
{
    char *decoded = xmalloc(length + 1);
    size_t count = 0;

    for (size_t i = 0; i < length; i++) {
        if (text[i] != '%') {
            decoded[count++] = text[i];
            continue;
        }
        if (i + 2 >= length || hex_of(text[i + 1]) < 0 || hex_of(text[i + 2]) < 0) {
            free(decoded);
            return NULL;
        }
        decoded[count++] = (char)(hex_of(text[i + 1]) * 16 + hex_of(text[i + 2]));
        i += 2;
    }
    decoded[count] = '\0';
    return decoded;
}

/* "user:password@", ":password@" or "password@". */
static int take_credentials(struct redis_url *url, const char **text, struct error *err)
{
    const char *end = memrchr(*text, '@', strcspn(*text, "/"));
    const char *colon;

    if (!end && **text != '/' && strchr(*text, '@'))
        return error_set(err, ERR_INVALID, "a / in its password has to be written as %%2F");
    if (!end)
        return 0;
    colon = memchr(*text, ':', (size_t)(end - *text));
    if (colon && colon > *text)
        url->user = decode(*text, (size_t)(colon - *text));
    url->password = decode(colon ? colon + 1 : *text, (size_t)(end - (colon ? colon + 1 : *text)));
    if (!url->password || (colon && colon > *text && !url->user))
        return error_set(err, ERR_INVALID, "its password or user has a %% without two hex digits");
    *text = end + 1;
    return 0;
}

static int take_db(struct redis_url *url, const char *text, struct error *err)
{
    uint64_t number;

    if (!*text)
        return 0;
    if (str_to_u64(text, &number) < 0 || number > 65535)
        return error_set(err, ERR_INVALID, "\"%s\" is not the number of a database", text);
    url->db = (unsigned)number;
    return 0;
}

static int add_host(struct redis_url *url, const char *text, size_t length, struct error *err)
{
    scoped(free) char *host = xstrndup(text, length);
    const char *colon = host[0] == '[' ? strstr(host, "]:") : strrchr(host, ':');
    uint64_t port;

    if (colon && *colon == ']')
        colon++;
    if (!*host || colon == host || url->host_count == REDIS_HOSTS_MAXIMUM ||
        (colon && (str_to_u64(colon + 1, &port) < 0 || port == 0 || port > 65535)))
        return error_set(err, ERR_INVALID, "\"%s\" is not HOST or HOST:PORT", host);
    url->hosts[url->host_count++] =
        colon
            ? steal_ptr(&host)
            : xasprintf("%s:%s", host, url->scheme == REDIS_SENTINEL ? SENTINEL_PORT : REDIS_PORT);
    return 0;
}

static int take_hosts(struct redis_url *url, const char *text, size_t length, struct error *err)
{
    const char *end = text + length;

    while (url->scheme == REDIS_SENTINEL && memchr(text, ',', (size_t)(end - text))) {
        const char *comma = memchr(text, ',', (size_t)(end - text));

        if (add_host(url, text, (size_t)(comma - text), err) < 0)
            return -1;
        text = comma + 1;
    }
    return add_host(url, text, (size_t)(end - text), err);
}

static int take_unix(struct redis_url *url, const char *text, struct error *err)
{
    const char *question = strchr(text, '?');

    url->path = xstrndup(text, question ? (size_t)(question - text) : strlen(text));
    if (url->path[0] != '/')
        return error_set(err, ERR_INVALID, "\"%s\" is not an absolute path", url->path);
    if (!question)
        return 0;
    if (!str_starts_with(question, "?db="))
        return error_set(err, ERR_INVALID, "\"%s\" is not ?db=N", question);
    return take_db(url, question + strlen("?db="), err);
}

static int take_rest(struct redis_url *url, const char *text, struct error *err)
{
    size_t length = strcspn(text, "/");
    const char *path = text[length] ? text + length + 1 : "";
    size_t name;

    if (url->scheme == REDIS_UNIX)
        return take_unix(url, text, err);
    if (take_hosts(url, text, length, err) < 0)
        return -1;
    if (url->scheme != REDIS_SENTINEL)
        return take_db(url, path, err);
    name = strcspn(path, "/");
    if (!name)
        return error_set(err, ERR_INVALID, "it does not name the master of the sentinels");
    url->master = xstrndup(path, name);
    return take_db(url, path[name] ? path + name + 1 : "", err);
}

int redis_url_parse(struct redis_url *url, const char *text, struct error *err)
{
    for (size_t i = 0; i < ARRAY_LENGTH(schemes); i++) {
        const char *rest = text + strlen(schemes[i].prefix);
        scoped(redis_url_fini) struct redis_url parsed = { .scheme = schemes[i].scheme };

        if (!str_starts_with(text, schemes[i].prefix))
            continue;
        if (take_credentials(&parsed, &rest, err) < 0 || take_rest(&parsed, rest, err) < 0)
            return -1;
        *url = parsed;
        parsed = (struct redis_url){ 0 };
        return 0;
    }
    return error_set(err, ERR_INVALID,
                     "it does not begin with redis://, rediss://, unix:// or redis+sentinel://");
}

char *redis_url_shown(const char *text)
{
    const char *start = strstr(text, "://");
    const char *at = start ? strrchr(start, '@') : NULL;

    return at ? xasprintf("%.*s***%s", (int)(start + 3 - text), text, at) : xstrdup(text);
}
