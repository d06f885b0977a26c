/* SPDX-License-Identifier: Apache-2.0 */
/* The cookie of a browser: a name is found in any header, and a login that can be read reads the same when
 * it is written again. */

#include "auth/login.h"
#include "base/alloc.h"
#include "base/scoped.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_login(const char *text)
{
    char written[LOGIN_TEXT_SIZE];
    struct login login, again;

    if (login_read(&login, text) < 0)
        return;
    login_write(&login, written);
    assert(login_read(&again, written) == 0);
    assert(memcmp(&login, &again, sizeof(login)) == 0 || strcmp(login.id, again.id) == 0);
    assert(strcmp(login.principal, again.principal) == 0);
    assert(strcmp(login.on_behalf_of, again.on_behalf_of) == 0);
    assert(strcmp(login.key_id, again.key_id) == 0);
    assert(login.expires_us == again.expires_us && login.roles == again.roles);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    scoped(free) char *text = xstrndup((const char *)data, size);
    size_t length = 0;
    const char *value = login_find_cookie(text, "sandglass_1", &length);

    if (value) {
        scoped(free) char *copy = NULL;

        assert(value >= text && value + length <= text + strlen(text));
        copy = xstrndup(value, length);
        check_login(copy);
    }
    check_login(text);
    return 0;
}
