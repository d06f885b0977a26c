/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/launched_handle.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char relay_suffix[] = ":relay";

void launched_handle_write(const struct launched_handle *handle, char *out_text, size_t size)
{
    int length = snprintf(out_text, size, "%d:%" PRIu64 ":%" PRIu32 "%s", (int)handle->pid,
                          handle->start_time, handle->slot, handle->has_relay ? relay_suffix : "");

    assert(length > 0 && (size_t)length < size);
}

/* Digits alone, up to `maximum`. */
static bool parse_number(const char **text, uint64_t maximum, uint64_t *out_number)
{
    uint64_t number = 0;
    const char *at = *text;

    for (; *at >= '0' && *at <= '9'; at++) {
        unsigned digit = (unsigned)(*at - '0');

        if (number > (maximum - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    if (at == *text)
        return false;
    *text = at;
    *out_number = number;
    return true;
}

bool launched_handle_parse(const char *text, struct launched_handle *out_handle)
{
    uint64_t pid;
    uint64_t start_time;
    uint64_t slot;

    if (!parse_number(&text, INT32_MAX, &pid) || *text++ != ':' ||
        !parse_number(&text, UINT64_MAX, &start_time) || *text++ != ':' ||
        !parse_number(&text, UINT32_MAX, &slot) || pid <= 1)
        return false;
    if (*text && strcmp(text, relay_suffix) != 0)
        return false;
    *out_handle = (struct launched_handle){
        .pid = (pid_t)pid, .start_time = start_time, .slot = (uint32_t)slot, .has_relay = *text
    };
    return true;
}
