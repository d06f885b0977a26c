/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the launcher: whatever is accepted must be safe to use as it is. */

#include "wire/launch.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _Alignas(8) unsigned char message[sizeof(struct launch_create_bound) + 64];
    unsigned descriptors = size ? data[size - 1] % 3 : 0;
    const struct launch_create *create = (const void *)message;

    if (size == 0 || --size > sizeof(message))
        return 0;
    memcpy(message, data, size);
    if (launch_check(message, size, descriptors))
        return 0;
    if (create->header.type == LAUNCH_CREATE) {
        require(!memchr(create->id, '/', strlen(create->id)));
        require(!strchr(create->template_name, '/') && create->template_name[0] != '.');
        require(create->limits.pids > 0 && create->limits.memory_bytes > 0);
    }
    if (create->header.type == LAUNCH_CREATE_BOUND) {
        const struct launch_create_bound *bound = (const void *)message;

        require(bound->bind_count <= LAUNCH_MAX_BINDS);
        for (uint32_t i = 0; i < bound->bind_count; i++) {
            require(strlen(bound->binds[i].source) < LAUNCH_PATH_SIZE);
            require(bound->binds[i].source[0] != '/' && bound->binds[i].path[0] == '/');
            require(!strstr(bound->binds[i].path, "/../"));
            require(bound->binds[i].allowed < LAUNCH_MAX_ALLOWED);
        }
    }
    return 0;
}
