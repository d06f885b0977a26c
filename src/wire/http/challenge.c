/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http/challenge.h"

#include "base/macros.h"
#include "wire/http/http_parser.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char *skip_spaces(const char *at)
{
    return at + strspn(at, " \t");
}

static size_t token_length(const char *at)
{
    size_t length = 0;

    while (http_char_is(at[length], HTTP_CHAR_TOKEN))
        length++;
    return length;
}

static bool token_is(const char *token, size_t length, const char *name)
{
    return strlen(name) == length && strncasecmp(token, name, length) == 0;
}

static enum challenge_scheme scheme_of(const char *token, size_t length)
{
    if (token_is(token, length, "Bearer"))
        return CHALLENGE_BEARER;
    return token_is(token, length, "Basic") ? CHALLENGE_BASIC : CHALLENGE_NONE;
}

/* Reads a quoted string or a token into `value`; returns the position behind it, or NULL. */
static const char *read_value(const char *at, char value[CHALLENGE_TEXT_SIZE])
{
    bool quoted = *at == '"';
    size_t used = 0;

    if (quoted)
        at++;
    while (quoted ? *at && *at != '"' : http_char_is(*at, HTTP_CHAR_TOKEN)) {
        if (quoted && *at == '\\' && *++at == '\0')
            return NULL;
        if (used == CHALLENGE_TEXT_SIZE - 1)
            return NULL;
        value[used++] = *at++;
    }
    value[used] = '\0';
    if (quoted && *at++ != '"')
        return NULL;
    return used || quoted ? at : NULL;
}

static void take_parameter(struct challenge *challenge, const char *name, size_t length,
                           const char value[CHALLENGE_TEXT_SIZE])
{
    static const struct {
        const char *name;
        size_t offset;
    } known[] = {
        { "realm", offsetof(struct challenge, realm) },
        { "service", offsetof(struct challenge, service) },
        { "scope", offsetof(struct challenge, scope) },
    };

    for (size_t i = 0; i < ARRAY_LENGTH(known); i++)
        if (token_is(name, length, known[i].name))
            memcpy((char *)challenge + known[i].offset, value, CHALLENGE_TEXT_SIZE);
}

/* The parameters of one challenge. They end at a token without '=', which is the scheme of the next
 * challenge. Returns its position, or NULL. */
static const char *read_parameters(struct challenge *challenge, const char *at)
{
    char value[CHALLENGE_TEXT_SIZE];

    for (;;) {
        size_t length;
        const char *equals;

        at += strspn(at, " \t,");
        length = token_length(at);
        if (!*at)
            return at;
        if (!length)
            return NULL;
        equals = skip_spaces(at + length);
        if (*equals != '=')
            return at;
        equals = read_value(skip_spaces(equals + 1), value);
        if (!equals)
            return NULL;
        take_parameter(challenge, at, length, value);
        at = skip_spaces(equals);
        if (*at && *at != ',')
            return NULL;
    }
}

int challenge_parse(struct challenge *challenge, const char *value, struct error *err)
{
    struct challenge best = *challenge;
    const char *at = value;

    if (strlen(value) > CHALLENGE_MAXIMUM)
        return error_set(err, ERR_INVALID, "the header WWW-Authenticate is too long");
    while (at && *(at += strspn(at, " \t,"))) {
        size_t length = token_length(at);
        struct challenge next = { .scheme = scheme_of(at, length) };

        if (!length)
            at = NULL;
        else if (at[length] && !strchr(" \t,", at[length]))
            at = NULL;
        else
            at = read_parameters(&next, at + length);
        if (at && next.scheme > best.scheme)
            best = next;
    }
    if (!at)
        return error_set(err, ERR_INVALID, "the header WWW-Authenticate is malformed");
    *challenge = best;
    return 0;
}
