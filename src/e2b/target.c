/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/target.h"

#include "base/str.h"
#include "face/port_rules.h"
#include "wire/http/http.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* --- names ----------------------------------------------------------------------------------- */

enum { DIGITS = 26, PREFIX = sizeof(ID_SESSION) - 1 };

/* "ses_", which our own clients write, or "i". */
static size_t skip_prefix(const char *text, size_t length)
{
    if (length >= PREFIX && memcmp(text, ID_SESSION, PREFIX) == 0)
        return PREFIX;
    return length > 0 && tolower((unsigned char)*text) == 'i';
}

bool e2b_id_read(const char *text, size_t length, char out_session_id[ID_SIZE])
{
    size_t skipped = skip_prefix(text, length);
    char id[ID_SIZE] = ID_SESSION;

    if (skipped == 0 || length < skipped + DIGITS ||
        (length > skipped + DIGITS && text[skipped + DIGITS] != '-'))
        return false;
    memcpy(id + PREFIX, text + skipped, DIGITS);
    id[PREFIX + DIGITS] = '\0';
    for (char *letter = id; *letter; letter++)
        *letter = (char)tolower((unsigned char)*letter);
    if (!id_is_valid(id, ID_SESSION))
        return false;
    memcpy(out_session_id, id, ID_SIZE);
    return true;
}

void e2b_id_write(const char *session_id, char out_sandbox_id[ID_SIZE])
{
    snprintf(out_sandbox_id, ID_SIZE, "i%s", session_id + PREFIX);
}

/* --- targets --------------------------------------------------------------------------------- */

static void name_sandbox(struct e2b_target *target, const char *text, size_t length)
{
    if (!e2b_id_read(text, length, target->session_id))
        target->session_id[0] = '\0';
    snprintf(target->shown_id, sizeof(target->shown_id), "%.*s", (int)MIN(length, 63UL), text);
}

static struct e2b_target invalid(const char *problem)
{
    return (struct e2b_target){ .kind = E2B_TARGET_INVALID, .problem = problem };
}

static struct e2b_target from_headers(const char *id, const char *port)
{
    struct e2b_target target = { .kind = E2B_TARGET_HEADERS };

    if (!id)
        return invalid("missing header E2b-Sandbox-Id");
    if (!port)
        return invalid("missing header E2b-Sandbox-Port");
    if (!port_number_read(port, strlen(port), &target.port))
        return invalid("invalid header E2b-Sandbox-Port: a number from 1 to 65535 is expected");
    name_sandbox(&target, id, strlen(id));
    return target;
}

/* {port}-i{id}.DOMAIN, maybe with the port of the listener behind it. Names with the id of a session
 * are not E2B's: see face/port_access.h. */
static struct e2b_target from_host(const char *host, const char *setting)
{
    struct e2b_target target = { .kind = E2B_TARGET_HOST };
    const char *dash = strchr(host, '-');
    const char *dot = strchr(host, '.');
    size_t length;
    const char *domain = port_domain_find(setting, &length);

    if (!dash || !dot || dot < dash || tolower((unsigned char)dash[1]) != 'i' ||
        strncasecmp(dot + 1, domain, length) != 0 ||
        (dot[1 + length] != '\0' && dot[1 + length] != ':') ||
        !port_number_read(host, (size_t)(dash - host), &target.port))
        return (struct e2b_target){ 0 };
    name_sandbox(&target, dash + 1, (size_t)(dot - dash) - 1);
    return target;
}

static bool is_signed_file(const struct http_head *head)
{
    return strcmp(head->path, "/files") == 0 &&
           (str_starts_with(head->query, "signature=") || strstr(head->query, "&signature="));
}

struct e2b_target e2b_target_read(const struct http_head *head, const char *domain)
{
    const char *id = http_head_header(head, "e2b-sandbox-id");
    const char *port = http_head_header(head, "e2b-sandbox-port");
    const char *host = http_head_header(head, "host");
    struct e2b_target target = { 0 };

    if (id || port)
        return from_headers(id, port);
    if (host && !str_is_empty(domain))
        target = from_host(host, domain);
    if (target.kind == E2B_TARGET_NONE && is_signed_file(head))
        target = (struct e2b_target){ .kind = E2B_TARGET_SIGNED, .port = E2B_PORT_ENVD };
    return target;
}
