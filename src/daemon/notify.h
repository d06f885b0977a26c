/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reports the state of the daemon to the service manager that started it, over the datagram socket
 * that NOTIFY_SOCKET names (the protocol of sd_notify(3), which systemd reads for Type=notify).
 * Without NOTIFY_SOCKET every call does nothing.
 */

#include <stdint.h>

struct notify {
    int fd; /* owned; -1: no service manager asked */
};

/* Reads NOTIFY_SOCKET and removes it from the environment, so that no child reports in our name.
 * Called before the daemon gives up its power and confines itself. A socket that cannot be reached
 * is logged, and the daemon goes on without it. */
void notify_open(struct notify *notify);
void notify_close(struct notify *notify);

void notify_ready(struct notify *notify, const char *status);
void notify_reloading(struct notify *notify);

/* The service manager waits at least that long before it kills. */
void notify_stopping(struct notify *notify, int64_t timeout_ms);
