/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Scripts from the bridge: the bytes of a script come before its START and become a memory file,
 * which init gets with the START.
 */

#include "init/relay_link.h"

struct content {
    uint16_t channel; /* 0: free */
    int fd;           /* owned */
    int error;
    uint64_t length;
};

enum link_result content_take(const struct relay_frame *frame, const uint8_t *payload);

/* The complete content of this channel; NULL when its length differs. */
struct content *content_find(uint16_t channel, uint64_t length);
void content_finish(struct content *content); /* init has it */
void content_drop_all(void);                  /* the session is over */
