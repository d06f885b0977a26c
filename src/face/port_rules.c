/* SPDX-License-Identifier: Apache-2.0 */
#include "face/port_rules.h"

#include "base/alloc.h"
#include "base/macros.h"
#include "base/str.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

enum { COOKIES_MAXIMUM = 64 * 1024, TARGET_MAXIMUM = 64 * 1024, PORT_DIGITS = 5 };

/* --- headers --------------------------------------------------------------------------------- */

/* A name that ends with '*' stands for all that begin so. */
static bool is_among(const char *const *names, const char *name)
{
    for (; *names; names++) {
        size_t length = strlen(*names);

        if ((*names)[length - 1] == '*' ? strncmp(name, *names, length - 1) == 0
                                        : strcmp(name, *names) == 0)
            return true;
    }
    return false;
}

static const char *const of_connection[] = {
    "connection", "keep-alive",        "proxy-*",        "te", "trailer", "trailers",
    "upgrade",    "transfer-encoding", "http2-settings", NULL,
};

static bool is_named_in_connection(const struct http_head *head, const char *name)
{
    size_t length = strlen(name);

    for (size_t i = 0; i < head->header_count; i++) {
        const char *value = head->headers[i].value;

        if (strcmp(head->headers[i].name, "connection") != 0)
            continue;
        while (*value) {
            size_t word = strcspn(value, ", \t");

            if (word == length && strncasecmp(value, name, length) == 0)
                return true;
            value += word + strspn(value + word, ", \t");
        }
    }
    return false;
}

bool port_header_enters(enum port_door door, const struct http_head *head, const char *name)
{
    static const char *const never[] = {
        "host",          "content-length",
        "expect",        "authorization",
        "x-api-key",     "cookie",
        "x-sandglass-*", "x-forwarded-*",
        "forwarded",     "x-real-ip",
        "origin",        "e2b-*",
        "x-request-id",  NULL,
    };

    /* The address of the page may hold a permission. */
    if (door == PORT_DOOR_PATH && strcmp(name, "referer") == 0)
        return false;
    return !is_among(never, name) && !is_among(of_connection, name) &&
           !is_named_in_connection(head, name);
}

bool port_header_leaves(enum port_door door, const struct http_head *head, const char *name)
{
    static const char *const never[] = {
        "content-length",
        "location",
        "set-cookie",
        "set-cookie2",
        "x-request-id",
        "alt-svc",
        "public-key-*",
        "expect-ct",
        "strict-transport-security",
        "x-sandglass-*",
        "nel",
        "cross-origin-resource-policy",
        NULL,
    };
    static const char *const of_host[] = {
        "clear-site-data",
        "refresh",
        "service-worker-allowed",
        "www-authenticate",
        "report-to",
        "accept-ch",
        "access-control-*",
        "referrer-policy",
        "critical-ch",
        "reporting-endpoints",
        "origin-agent-cluster",
        NULL,
    };

    return !is_among(never, name) && !is_among(of_connection, name) &&
           !(door == PORT_DOOR_PATH && is_among(of_host, name)) &&
           !is_named_in_connection(head, name);
}

bool port_is_own_credential(const char *authorization)
{
    static const char *const own[] = { "sg_", "sgt_", "e2b_" };
    const char *token = authorization + strcspn(authorization, " \t");

    token += strspn(token, " \t");
    for (size_t i = 0; i < ARRAY_LENGTH(own); i++)
        if (strncasecmp(token, own[i], strlen(own[i])) == 0)
            return true;
    return false;
}

/* --- redirects ------------------------------------------------------------------------------- */

static bool is_local(const char *authority, size_t length, const char *host)
{
    return strlen(host) == length && strncasecmp(authority, host, length) == 0;
}

/* Names by which a server calls itself: the one that it was given, and loopback with that port. */
static bool names_server(const char *authority, size_t length, const char *host)
{
    static const char *const loopback[] = { "localhost", "127.0.0.1", "[::1]", "0.0.0.0" };
    const char *port = strrchr(host, ':');

    if (is_local(authority, length, host))
        return true;
    for (size_t i = 0; i < ARRAY_LENGTH(loopback); i++) {
        scoped(free) char *name = xasprintf("%s%s", loopback[i], port ? port : "");

        if (is_local(authority, length, name))
            return true;
    }
    return false;
}

/* Browsers take a backslash for a slash, and drop tabs and line ends. */
static bool is_plain(const char *location)
{
    for (; *location; location++)
        if (*location == '\\' || (unsigned char)*location <= ' ' || *location == 0x7f)
            return false;
    return true;
}

/* Where the authority begins: behind "http://" or "//". NULL when there is none. */
static const char *find_authority(const char *location)
{
    static const char *const schemes[] = { "http://", "https://", "ws://", "wss://", "//" };

    for (size_t i = 0; i < ARRAY_LENGTH(schemes); i++)
        if (strncasecmp(location, schemes[i], strlen(schemes[i])) == 0)
            return location + strlen(schemes[i]);
    return NULL;
}

static bool has_scheme(const char *location)
{
    size_t length = strcspn(location, ":/?#");

    return location[length] == ':';
}

/* A path of the server, which begins with one slash or has none at all, behind the prefix. */
static char *join_path(const char *prefix, const char *path)
{
    path += strspn(path, "/");
    return xasprintf("%s/%s", prefix, path);
}

char *port_location_rewrite(enum port_door door, const char *prefix, const char *host,
                            const char *location)
{
    const char *authority = find_authority(location);
    size_t length = authority ? strcspn(authority, "/?#") : 0;

    if (is_plain(location) && authority && names_server(authority, length, host))
        return join_path(prefix, authority + length);
    if (door == PORT_DOOR_HOST)
        return xstrdup(location);
    if (!is_plain(location) || authority || has_scheme(location))
        return NULL;
    return *location == '/' ? join_path(prefix, location) : xstrdup(location);
}

/* --- cookies --------------------------------------------------------------------------------- */

/* The next part of a list that ';' separates, without spaces around it; false at the end. */
static bool next_part(const char **list, const char **out_start, size_t *out_length)
{
    const char *start;
    size_t length;

    *list += strspn(*list, "; \t");
    if (!**list)
        return false;
    start = *list;
    length = strcspn(start, ";");
    *list = start + length;
    while (length && (start[length - 1] == ' ' || start[length - 1] == '\t'))
        length--;
    *out_start = start;
    *out_length = length;
    return true;
}

static bool is_named(const char *part, size_t length, const char *name)
{
    size_t own = strlen(name);

    return length >= own && strncasecmp(part, name, own) == 0 &&
           (length == own || part[own] == '=' || part[own] == ' ' || part[own] == '\t');
}

static bool is_own_cookie(const char *part, size_t length)
{
    return is_named(part, length, PORT_COOKIE) || is_named(part, length, "__Host-" PORT_COOKIE);
}

static char *finish_text(struct buffer *text)
{
    if (text->length && !text->overflowed)
        return buffer_steal_text(text);
    buffer_fini(text);
    return NULL;
}

char *port_cookies_enter(const char *cookies)
{
    struct buffer kept = BUFFER_INIT(COOKIES_MAXIMUM);
    const char *part;
    size_t length;

    while (next_part(&cookies, &part, &length)) {
        if (is_own_cookie(part, length))
            continue;
        (void)buffer_append(&kept, "; ", kept.length ? 2 : 0);
        (void)buffer_append(&kept, part, length);
    }
    return finish_text(&kept);
}

char *port_cookie_leave(const char *cookie)
{
    struct buffer kept = BUFFER_INIT(COOKIES_MAXIMUM);
    const char *part;
    size_t length;
    bool is_first = true;

    while (next_part(&cookie, &part, &length)) {
        if (is_first && is_own_cookie(part, length)) {
            buffer_fini(&kept);
            return NULL;
        }
        if (is_first || !is_named(part, length, "domain")) {
            (void)buffer_append(&kept, "; ", kept.length ? 2 : 0);
            (void)buffer_append(&kept, part, length);
        }
        is_first = false;
    }
    return finish_text(&kept);
}

char *port_cookie_find(const char *cookies, unsigned number)
{
    const char *part;
    size_t length;

    while (cookies && next_part(&cookies, &part, &length)) {
        const char *sign = memchr(part, '=', length);

        if (sign && is_own_cookie(part, length) && number-- == 0)
            return xstrndup(sign + 1, length - (size_t)(sign + 1 - part));
    }
    return NULL;
}

/* --- targets --------------------------------------------------------------------------------- */

char *port_target_split(const char *target, char **out_value)
{
    static const char name[] = PORT_PARAMETER "=";
    struct buffer kept = BUFFER_INIT(TARGET_MAXIMUM);
    size_t path = strcspn(target, "?");
    const char *query = target + path;
    const char *start = target + strspn(target, "/");
    char separator = '?';

    *out_value = NULL;
    (void)buffer_append(&kept, "/", 1);
    if (start < query)
        (void)buffer_append(&kept, start, (size_t)(query - start));
    while (*query) {
        size_t length = strcspn(++query, "&");

        if (!*out_value && strncmp(query, name, sizeof(name) - 1) == 0) {
            *out_value = xstrndup(query + sizeof(name) - 1, length - (sizeof(name) - 1));
        } else {
            (void)buffer_append(&kept, &separator, 1);
            (void)buffer_append(&kept, query, length);
            separator = '&';
        }
        query += length;
    }
    return buffer_steal_text(&kept);
}

bool port_number_read(const char *text, size_t length, unsigned *out_port)
{
    unsigned port = 0;

    if (length == 0 || length > PORT_DIGITS || *text == '0')
        return false;
    for (size_t i = 0; i < length; i++) {
        if (!isdigit((unsigned char)text[i]))
            return false;
        port = port * 10 + (unsigned)(text[i] - '0');
    }
    if (port > 65535)
        return false;
    *out_port = port;
    return true;
}

/* --- host names ------------------------------------------------------------------------------ */

const char *port_domain_find(const char *setting, size_t *out_length)
{
    const char *scheme = strstr(setting, "://");
    const char *domain = scheme ? scheme + 3 : setting;

    *out_length = strcspn(domain, ":/");
    return domain;
}

static bool ends_host(char character)
{
    return character == '\0' || character == ':';
}

bool port_name_read(const char *host, const char *setting, struct port_name *out)
{
    size_t domain_length;
    const char *domain = port_domain_find(setting, &domain_length);
    const char *dash = strchr(host, '-');
    const char *dot = strchr(host, '.');
    struct port_name name = { 0 };
    size_t length = dash && dot > dash ? (size_t)(dot - dash) - 1 : 0;

    if (!domain_length || length != ID_SIZE - 2 ||
        strncasecmp(dot + 1, domain, domain_length) != 0 || !ends_host(dot[1 + domain_length]) ||
        !port_number_read(host, (size_t)(dash - host), &name.port))
        return false;
    for (size_t i = 0; i < length; i++)
        name.session_id[i] = (char)tolower((unsigned char)dash[1 + i]);
    if (name.session_id[sizeof(ID_SESSION) - 2] == '-')
        name.session_id[sizeof(ID_SESSION) - 2] = '_';
    if (!id_is_valid(name.session_id, ID_SESSION))
        return false;
    *out = name;
    return true;
}

/* --- origins --------------------------------------------------------------------------------- */

static bool is_value(const char *value, const char *wanted)
{
    return value && strcasecmp(value, wanted) == 0;
}

/* A link to the page, from wherever: it shows the page in a tab of its own. */
static bool opens_page(const struct http_head *head)
{
    return (head->method == HTTP_GET || head->method == HTTP_HEAD) &&
           is_value(http_head_header(head, "sec-fetch-mode"), "navigate") &&
           is_value(http_head_header(head, "sec-fetch-dest"), "document");
}

bool port_is_same_origin(const struct http_head *head, const char *origin)
{
    const char *from = http_head_header(head, "origin");
    const char *site = http_head_header(head, "sec-fetch-site");

    if (from && strcasecmp(from, origin) != 0)
        return false;
    return !site || is_value(site, "same-origin") || is_value(site, "none") || opens_page(head);
}
