#pragma once

/*
 * A short message to an execution, such as a signal or a new size. One that comes before the
 * program has started is refused by the daemon and sent again until it is taken.
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
