/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/login.h"

#include "auth/encoding.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- texts of any bytes ----------------------------------------------------------------------- */

static void write_text(const char *text, char out[2 * OWNER_MAXIMUM + 1])
{
    if (*text)
        hex_encode((const uint8_t *)text, strnlen(text, OWNER_MAXIMUM), out);
    else
        memcpy(out, "-", 2);
}

static int read_text(const char *digits, char out[OWNER_MAXIMUM + 1])
{
    size_t length = strlen(digits);

    memset(out, 0, OWNER_MAXIMUM + 1);
    if (str_equal(digits, "-"))
        return 0;
    if (length == 0 || length % 2 || length / 2 > OWNER_MAXIMUM ||
        hex_decode(digits, (uint8_t *)out, length / 2) < 0)
        return -1;
    return strlen(out) == length / 2 ? 0 : -1;
}

/* --- all of it -------------------------------------------------------------------------------- */

void login_write(const struct login *login, char out[LOGIN_TEXT_SIZE])
{
    char principal[2 * OWNER_MAXIMUM + 1];
    char on_behalf_of[2 * OWNER_MAXIMUM + 1];

    write_text(login->principal, principal);
    write_text(login->on_behalf_of, on_behalf_of);
    snprintf(out, LOGIN_TEXT_SIZE, "1.%d.%s.%" PRId64 ".%" PRId64 ".%u.%d.%s.%s.%s", login->mode,
             login->id, login->issued_us, login->expires_us, login->roles, login->is_operator,
             *login->key_id ? login->key_id : "-", principal, on_behalf_of);
}

int login_read(struct login *login, const char *text)
{
    char principal[2 * OWNER_MAXIMUM + 1] = "";
    char on_behalf_of[2 * OWNER_MAXIMUM + 1] = "";
    struct login read = { 0 };
    int is_operator, end = 0;

    _Static_assert(ID_SIZE == 32 && OWNER_MAXIMUM == 256, "the widths below");
    if (strlen(text) >= LOGIN_TEXT_SIZE ||
        sscanf(text,
               "1.%d.%31[a-z0-9_].%" SCNd64 ".%" SCNd64 ".%u.%d.%31[a-z0-9_-].%512[0-9a-f-]."
               "%512[0-9a-f-]%n",
               &read.mode, read.id, &read.issued_us, &read.expires_us, &read.roles, &is_operator,
               read.key_id, principal, on_behalf_of, &end) != 9 ||
        text[end] != '\0' || !id_is_valid(read.id, ID_LOGIN))
        return -1;
    if (read_text(principal, read.principal) < 0 || read_text(on_behalf_of, read.on_behalf_of) < 0)
        return -1;
    read.is_operator = is_operator == 1;
    if (str_equal(read.key_id, "-"))
        read.key_id[0] = '\0';
    *login = read;
    return 0;
}

/* --- where it stands --------------------------------------------------------------------------- */

const char *login_find_cookie(const char *header, const char *name, size_t *out_length)
{
    size_t length = strlen(name);

    while (*header) {
        const char *end;

        header += strspn(header, "; \t");
        end = header + strcspn(header, ";");
        if (strncmp(header, name, length) == 0 && header[length] == '=') {
            *out_length = (size_t)(end - header) - length - 1;
            return header + length + 1;
        }
        header = end;
    }
    return NULL;
}
