/* SPDX-License-Identifier: Apache-2.0 */
/* A target that is found names a port and either a session of the right form or none. The first line
 * is the kind of header, the rest its value. */

#include "base/id.h"
#include "e2b/target.h"
#include "wire/http/http.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct e2b_target *target)
{
    switch (target->kind) {
    case E2B_TARGET_NONE:
        return;
    case E2B_TARGET_INVALID:
        assert(target->problem);
        return;
    case E2B_TARGET_HEADERS:
    case E2B_TARGET_HOST:
    case E2B_TARGET_SIGNED:
        assert(target->port > 0 && target->port <= 65535);
        assert(!*target->session_id || id_is_valid(target->session_id, ID_SESSION));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *value = size ? malloc(size) : NULL;
    char path[] = "/files";
    struct http_header headers[2] = { { "host", value }, { "e2b-sandbox-port", "80" } };
    struct http_head head = { .path = path, .headers = headers, .header_count = 1 };
    struct e2b_target target;

    if (!value)
        return 0;
    memcpy(value, data + 1, size - 1);
    value[size - 1] = '\0';
    head.query = value;
    target = e2b_target_read(&head, "http://sbx.example:80");
    check(&target);
    headers[0].name = data[0] & 1 ? "e2b-sandbox-id" : "e2b-sandbox-port";
    headers[1].name = data[0] & 1 ? "e2b-sandbox-port" : "e2b-sandbox-id";
    head.header_count = data[0] & 2 ? 1 : 2;
    target = e2b_target_read(&head, "sbx.example");
    check(&target);
    free(value);
    return 0;
}
