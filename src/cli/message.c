/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/message.h"

#include "net/http_client.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AGAIN_US = 20 * 1000, CONFLICT_STATUS = 409 };

static void message_post(struct message *message);

static void on_again(struct timer *timer)
{
    message_post(container_of(timer, struct message, again));
}

static void on_data(struct http_call *call UNUSED, const uint8_t *data UNUSED, size_t length UNUSED)
{
}

/* The conflict lasts once the execution has ended; the sender stops when it learns of that end. */
static void on_end(struct http_call *call, const struct error *err)
{
    struct message *message = http_call_user(call);

    message->call = NULL;
    if (message->changed)
        message_post(message);
    else if (!err && http_call_status(call) == CONFLICT_STATUS)
        timer_arm_in(&message->again, AGAIN_US);
}

static const struct http_call_handler handler = { .on_data = on_data, .on_end = on_end };

static void message_post(struct message *message)
{
    message->changed = false;
    message->call = http_client_request(message->cli->client, HTTP_POST, message->target,
                                        "application/json", message->body,
                                        (int64_t)strlen(message->body), NULL, &handler, message);
}

void message_init(struct message *message, struct cli *cli, const char *session,
                  const char *execution, const char *verb)
{
    *message = (struct message){
        .cli = cli,
        .target = session_target(session, "/executions/%s/%s", execution, verb),
    };
    timer_init(&message->again, cli->loop, on_again);
}

void message_fini(struct message *message)
{
    if (!message->cli)
        return;
    timer_stop(&message->again);
    if (message->call)
        http_call_cancel(message->call);
    free(message->target);
    *message = (struct message){ 0 };
}

void message_send(struct message *message, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(message->body, sizeof(message->body), format, args);
    va_end(args);
    timer_stop(&message->again);
    if (message->call)
        message->changed = true;
    else
        message_post(message);
}
