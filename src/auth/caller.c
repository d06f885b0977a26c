/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/caller.h"

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/macros.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    enum role role;
    const char *name;
} roles[] = {
    { ROLE_USER, "user" },
    { ROLE_APPROVER, "approver" },
    { ROLE_ADMIN, "admin" },
    { ROLE_DELEGATE, "delegate" },
};

void caller_fini(struct caller *caller)
{
    free(caller->owner);
    free(caller->principal);
    free(caller->on_behalf_of);
    *caller = (struct caller){ 0 };
}

/* As the first part of an owner: the only '/' in "principal/value" that counts is the first. */
static char *escape_principal(const char *principal)
{
    struct buffer text = BUFFER_INIT(3 * OWNER_MAXIMUM + 1);

    for (; *principal; principal++) {
        if (*principal == '/' || *principal == '%')
            buffer_appendf(&text, "%%%02X", (unsigned)*principal);
        else
            buffer_append_byte(&text, (uint8_t)*principal);
    }
    return buffer_steal_text(&text);
}

char *caller_owner(const char *principal, const char *on_behalf_of)
{
    scoped(free) char *name = escape_principal(principal);

    return *on_behalf_of ? xasprintf("%s/%s", name, on_behalf_of) : steal_ptr(&name);
}

unsigned role_parse(const char *name)
{
    for (size_t i = 0; i < ARRAY_LENGTH(roles); i++)
        if (strcmp(roles[i].name, name) == 0)
            return roles[i].role;
    return 0;
}

const char *role_name(enum role role)
{
    for (size_t i = 0; i < ARRAY_LENGTH(roles); i++)
        if (roles[i].role == role)
            return roles[i].name;
    return "";
}

/* The second half of the control characters is two bytes long in UTF-8: C2 80 to C2 9F. */
static bool is_control(const unsigned char *text)
{
    return *text < 0x20 || *text == 0x7f || (*text == 0xc2 && text[1] < 0xa0);
}

bool owner_is_valid(const char *text)
{
    size_t length = strlen(text);

    if (length > OWNER_MAXIMUM || !str_is_utf8(text, length))
        return false;
    for (; *text; text++)
        if (is_control((const unsigned char *)text))
            return false;
    return true;
}
