/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The handle of a sandbox that the launcher made: "PID:START:SLOT", with ":relay" behind it where
 * its init has a relay. The start time distinguishes init from a later process with the same pid;
 * the slot is the sandbox's range of user ids.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct launched_handle {
    pid_t pid;           /* of init, as the daemon sees it; never 0 or 1 */
    uint64_t start_time; /* of that pid, from /proc */
    uint32_t slot;
    bool has_relay;
};

void launched_handle_write(const struct launched_handle *handle, char *out_text, size_t size);

/* False for any text that is not exactly such a handle. */
bool launched_handle_parse(const char *text, struct launched_handle *out_handle);
