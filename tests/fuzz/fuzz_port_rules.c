/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that come from clients and from servers inside of sandboxes: what passes is never ours, and
 * no redirect below a path leaves the host. */

#include "face/port_rules.h"

#include "base/str.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_location(const char *text)
{
    char *inside = port_location_rewrite(PORT_DOOR_PATH, "/p", "localhost:80", text);
    char *outside = port_location_rewrite(PORT_DOOR_HOST, "", "localhost:80", text);

    assert(outside);
    if (inside) {
        size_t length = strcspn(inside, "/?#");

        assert(strncmp(inside, "//", 2) != 0 && !strchr(inside, '\\'));
        assert(inside[length] == '\0' || !memchr(inside, ':', length));
        assert(*inside != '/' || strncmp(inside, "/p/", 3) == 0);
    }
    free(inside);
    free(outside);
}

static void check_cookies(const char *text)
{
    char *kept = port_cookies_enter(text);
    char *left = port_cookie_leave(text);
    char *found = port_cookie_find(text, 0);
    char *again = kept ? port_cookie_find(kept, 0) : NULL;
    char *taken = left ? port_cookie_find(left, 0) : NULL;

    assert(!again);
    assert(!taken || strchr(left, ';')); /* an attribute is no cookie */
    free(kept);
    free(left);
    free(found);
    free(again);
    free(taken);
}

static void check_target(const char *text)
{
    char *value = NULL;
    char *rest = port_target_split(text, &value);
    struct port_name name;
    unsigned port;

    assert(rest[0] == '/' && rest[1] != '/');
    free(rest);
    free(value);
    if (port_name_read(text, "example.com", &name))
        assert(name.port > 0 && name.port <= 65535 && id_is_valid(name.session_id, ID_SESSION));
    if (port_number_read(text, strlen(text), &port))
        assert(port > 0 && port <= 65535);
    (void)port_is_own_credential(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    memcpy(text, data, size);
    text[size] = '\0';
    check_location(text);
    check_cookies(text);
    check_target(text);
    free(text);
    return 0;
}
