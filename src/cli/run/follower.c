/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/follower.h"

#include "net/http_client.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static void follower_request(struct follower *follower);

static void follower_finish(struct follower *follower)
{
    if (follower->finished)
        return;
    follower->finished = true;
    follower->on_finished(follower);
}

static void follower_fail(struct follower *follower, const struct error *err)
{
    follower->err = *err;
    follower_finish(follower);
}

static void on_retry(struct timer *timer)
{
    follower_request(container_of(timer, struct follower, retry));
}

/* The daemon is away or not ready yet. */
static void follower_wait(struct follower *follower, const struct error *why)
{
    int64_t now_us = loop_now_us(follower->cli->loop);

    if (!follower->lost_since_us)
        follower->lost_since_us = now_us;
    if (now_us - follower->lost_since_us > LOST_LIMIT_US) {
        follower_fail(follower, why);
        return;
    }
    timer_arm_in(&follower->retry, RETRY_DELAY_US);
}

/* X-Sandglass-Gap: START-END */
static void follower_note_gap(struct follower *follower, const struct http_head *head)
{
    const char *gap = http_head_header(head, "x-sandglass-gap");

    follower->gap_start = follower->gap_end = 0;
    if (gap && sscanf(gap, "%" SCNu64 "-%" SCNu64, &follower->gap_start, &follower->gap_end) == 2)
        cli_note("%" PRIu64 " bytes of %s are missing here: the stream outgrew exec.output_spool",
                 follower->gap_end - follower->gap_start, follower->options.stream);
}

/* Takes `length` bytes into account, and the gap when they reach it. */
static void follower_advance(struct follower *follower, uint64_t length)
{
    follower->offset += length;
    if (follower->gap_end > follower->gap_start && follower->offset >= follower->gap_start) {
        follower->offset += follower->gap_end - follower->gap_start;
        follower->gap_start = follower->gap_end = 0;
    }
}

static void on_head(struct http_call *call, const struct http_head *head)
{
    struct follower *follower = http_call_user(call);

    if (head->status != 200)
        return;
    follower->lost_since_us = 0;
    follower_note_gap(follower, head);
    if (follower->offset >= follower->gap_start && follower->offset < follower->gap_end) {
        follower->offset = follower->gap_end;
        follower->gap_start = follower->gap_end = 0;
    }
}

static void on_data(struct http_call *call, const uint8_t *data, size_t length)
{
    struct follower *follower = http_call_user(call);

    if (http_call_status(call) != 200) {
        (void)buffer_append(&follower->refusal, data, length);
        return;
    }
    follower_advance(follower, length);
    if (!outlet_write(&follower->outlet, data, length))
        http_call_pause(call);
}

static void on_end(struct http_call *call, const struct error *err)
{
    struct follower *follower = http_call_user(call);
    int status = http_call_status(call);
    struct error refusal;

    follower->call = NULL;
    if (err) {
        follower_wait(follower, err);
        return;
    }
    if (status == 200) {
        follower->ended = true;
        if (outlet_is_empty(&follower->outlet))
            follower_finish(follower);
        return;
    }
    reply_error(&refusal, status, follower->refusal.data, follower->refusal.length);
    if (refusal.retryable)
        follower_wait(follower, &refusal);
    else
        follower_fail(follower, &refusal);
}

static const struct http_call_handler follower_handler = {
    .on_head = on_head,
    .on_data = on_data,
    .on_end = on_end,
};

static void follower_request(struct follower *follower)
{
    const struct follower_options *options = &follower->options;
    scoped(free) char *target = session_target(
        options->session, "/executions/%s/output?stream=%s&offset=%" PRIu64 "%s",
        options->execution, options->stream, follower->offset, options->follow ? "&follow=1" : "");

    buffer_clear(&follower->refusal);
    follower->call = http_client_request(follower->cli->client, HTTP_GET, target, NULL, NULL, 0,
                                         NULL, &follower_handler, follower);
}

static void on_outlet_drained(struct outlet *outlet)
{
    struct follower *follower = container_of(outlet, struct follower, outlet);

    if (follower->call)
        http_call_resume(follower->call);
    else if (follower->ended)
        follower_finish(follower);
}

static void on_outlet_closed(struct outlet *outlet)
{
    struct follower *follower = container_of(outlet, struct follower, outlet);

    if (follower->on_closed)
        follower->on_closed(follower);
    on_outlet_drained(outlet);
}

void follower_start(struct follower *follower, struct cli *cli,
                    const struct follower_options *options, follower_fn *on_finished,
                    follower_fn *on_closed)
{
    *follower = (struct follower){
        .cli = cli,
        .options = *options,
        .offset = options->offset,
        .refusal = BUFFER_INIT(65536),
        .on_finished = on_finished,
        .on_closed = on_closed,
    };
    outlet_init(&follower->outlet, cli->loop, options->fd, on_outlet_drained, on_outlet_closed);
    timer_init(&follower->retry, cli->loop, on_retry);
    follower_request(follower);
}

void follower_fini(struct follower *follower)
{
    if (!follower->cli)
        return;
    if (follower->call)
        http_call_cancel(follower->call);
    timer_stop(&follower->retry);
    outlet_fini(&follower->outlet);
    buffer_fini(&follower->refusal);
    *follower = (struct follower){ 0 };
}

int follower_check_written(const struct follower *follower, struct error *err)
{
    if (!follower->outlet.closed || follower->outlet.closed_errno == EPIPE)
        return 0;
    errno = follower->outlet.closed_errno;
    return error_sys(err, "write %s", follower->options.stream);
}
