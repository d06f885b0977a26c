/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Messages between init and the bridge. To init the relay is a daemon: it has one connection for
 * each session. A message passes unchanged, except that descriptors, offsets and the order are
 * translated: see wire/relay_frame.h.
 *
 * It remembers which channels belong to which process, for the next session, until the bridge says
 * FORGET.
 */

#include "init/relay_link.h"

#include <stdbool.h>
#include <stdint.h>

/* A new connection to init, over the socket that init takes them from; the old one goes. */
int message_connect(int init_fd, int epoll_fd, uint32_t tag);
void message_disconnect(void);
void message_wake(uint32_t events);

enum link_result message_take(const struct relay_frame *frame, const uint8_t *payload);

/* Takes init's messages while the link has room, and sends init those that had to wait. -1 when the
 * connection to init is lost, 1 when there is more to do at once. */
int message_work(void);
