/* SPDX-License-Identifier: Apache-2.0 */
/* Names of earlier versions, accepted for one more release: docs/reference/http-api.md has the same table. */

#include "api/private.h"

const struct rename api_renames[] = {
    { "timeout", "timeout_seconds" }, /* of a program or of waiting */
    { "timeout", "lease_seconds" },   /* of a session */
    { "idle_timeout", "idle_timeout_seconds" },
    { "max_lifetime", "max_lifetime_seconds" },
    { "idle_longer_than", "idle_longer_than_seconds" },
    { "wait", "wait_seconds" },
    { "grace", "grace_seconds" },
    { "valid_for", "valid_seconds" },
    { "expires", "valid_seconds", "/ports/" },
    { "memory", "memory_bytes" },
    { "disk", "disk_bytes" },
    { "session", "session_id", "/approvals" },
    { "fixed", "literal" },
    { 0 },
};
