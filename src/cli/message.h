/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A short message to an execution, such as a signal or a new size. The daemon refuses a message
 * that comes before the program has started; it is sent again until the daemon takes it.
 */

#include "cli/cli.h"
#include "loop/loop.h"

struct http_call;

struct message {
    struct cli *cli; /* borrowed */
    char *target;    /* owned */
    char body[64];   /* JSON */
    struct http_call *call;
    struct timer again;
    bool changed; /* the body, while another was on its way */
};

void message_init(struct message *message, struct cli *cli, const char *session,
                  const char *execution, const char *verb);
void message_fini(struct message *message); /* safe on a zeroed one */

/* The last body counts when they come faster than they can be sent. */
void message_send(struct message *message, const char *format, ...) PRINTF_LIKE(2, 3);
