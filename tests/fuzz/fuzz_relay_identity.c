/* SPDX-License-Identifier: Apache-2.0 */
/* The header between nodes: whatever it says is refused without a signature; what can be read at all
 * reads the same when it is written again. */

#include "cluster/relay_identity.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char target[] = "/api/v1/sessions?node=b";

static void check_equal(const struct relay_identity *a, const struct relay_identity *b)
{
    assert(strcmp(a->from, b->from) == 0 && a->from_epoch == b->from_epoch);
    assert(strcmp(a->to, b->to) == 0 && a->to_epoch == b->to_epoch && a->counter == b->counter);
    assert(strcmp(a->owner, b->owner) == 0 && strcmp(a->principal, b->principal) == 0);
    assert(strcmp(a->on_behalf_of, b->on_behalf_of) == 0 && strcmp(a->peer, b->peer) == 0);
    assert(a->roles == b->roles && a->flags == b->flags);
}

static void check_parse(const char *text, size_t size, const struct relay_secret *secret)
{
    scoped(relay_identity_fini) struct relay_identity identity = { 0 };
    scoped(relay_identity_fini) struct relay_identity again = { 0 };
    scoped(buffer_fini) struct buffer written = BUFFER_INIT(RELAY_TEXT_MAXIMUM);

    if (relay_identity_parse(&identity, text, size) < 0)
        return;
    if (relay_identity_write(&identity, secret, HTTP_GET, target, &written) < 0)
        return; /* with its escapes it is too long */
    if (relay_identity_read(&again, secret, HTTP_GET, target, buffer_text(&written), NULL) < 0)
        abort();
    check_equal(&identity, &again);
}

static void check_window(const uint8_t *data, size_t size)
{
    scoped(free) struct relay_window *window = xnew(struct relay_window);

    for (size_t i = 0; i + 3 <= size; i += 3) {
        uint64_t counter = 1 + (data[i] | (uint64_t)data[i + 1] << 8);
        uint64_t epoch = 1 + data[i + 2] / 128;

        if (relay_window_take(window, epoch, counter) == RELAY_NEW)
            assert(relay_window_take(window, epoch, counter) == RELAY_USED);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct relay_secret secret = { .bytes = "a secret of thirty-two bytes ...", .length = 32 };
    scoped(relay_identity_fini) struct relay_identity identity = { 0 };
    scoped(free) char *text = xstrndup((const char *)data, size);
    struct error err = { 0 };

    if (relay_identity_read(&identity, &secret, HTTP_GET, target, text, &err) == 0)
        abort();
    assert(err.code == ERR_FORBIDDEN && err.message[0]);
    check_parse((const char *)data, size, &secret);
    check_window(data, size);
    return 0;
}
