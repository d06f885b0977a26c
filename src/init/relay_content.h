#pragma once

/*
 * Scripts on their way from the bridge: their bytes come before the START that they belong to, and
 * become a memory file, which init gets with it.
 */

#include "init/relay_link.h"

struct content {
    uint16_t channel; /* 0: free */
    int fd;           /* owned */
    int error;
    uint64_t length;
};

enum link_result content_take(const struct relay_frame *frame, const uint8_t *payload);

/* The content of this channel, all of it; NULL when it is not of this length. */
struct content *content_find(uint16_t channel, uint64_t length);
void content_finish(struct content *content); /* init has it */
void content_drop_all(void);                  /* the session is over */
