/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/attach.h"

#include "base/alloc.h"
#include "base/str.h"
#include "cli/message.h"
#include "cli/run/feeder.h"
#include "cli/run/follower.h"
#include "cli/run/terminal.h"
#include "net/http_client.h"
#include "wire/json.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_SECONDS = 30 };

static const struct {
    int number;
    const char *name;
} forwarded[] = { { SIGINT, "INT" }, { SIGTERM, "TERM" }, { SIGHUP, "HUP" }, { SIGQUIT, "QUIT" } };

struct attach {
    struct cli *cli;                      /* borrowed */
    const struct attach_options *options; /* borrowed */
    struct follower out;
    struct follower err_stream;
    struct feeder feeder;
    struct message signal;
    struct message size;
    struct signal_watch signals[ARRAY_LENGTH(forwarded)];
    struct signal_watch resized;
    struct signal_watch continued;
    unsigned interrupts;
    int last_signal;

    struct http_call *final_call;
    struct buffer final_body;
    struct timer retry;
    int64_t lost_since_us;
    json_t *final; /* owned until handed over */
    struct error err;
};

/* --- telling the execution ------------------------------------------------------------------- */

static void ignore_data(struct http_call *call UNUSED, const uint8_t *data UNUSED,
                        size_t length UNUSED)
{
}

/* It may have ended meanwhile: the final document tells what became of it. */
static void ignore_end(struct http_call *call UNUSED, const struct error *err UNUSED)
{
}

static void attach_cancel(struct attach *attach)
{
    static const struct http_call_handler handler = {
        .on_data = ignore_data,
        .on_end = ignore_end,
    };
    scoped(free) char *target =
        session_target(attach->options->session, "/executions/%s", attach->options->execution);

    http_client_request(attach->cli->client, HTTP_DELETE, target, NULL, NULL, 0, NULL, &handler,
                        NULL);
}

static void attach_send_size(struct attach *attach)
{
    unsigned columns, rows;

    if (terminal_size(STDIN_FILENO, &columns, &rows) == 0)
        message_send(&attach->size, "{\"cols\":%u,\"rows\":%u}", columns, rows);
}

/* --- signals --------------------------------------------------------------------------------- */

static void attach_forward(struct attach *attach, int signal_number)
{
    for (size_t i = 0; i < ARRAY_LENGTH(forwarded); i++)
        if (forwarded[i].number == signal_number)
            message_send(&attach->signal, "{\"signal\":\"%s\"}", forwarded[i].name);
}

static void attach_interrupt(struct attach *attach, int signal_number)
{
    switch (++attach->interrupts) {
    case 1:
        attach_forward(attach, signal_number);
        break;
    case 2:
        attach->last_signal = signal_number;
        attach_cancel(attach);
        break;
    default:
        attach->last_signal = signal_number;
        loop_stop(attach->cli->loop);
    }
}

static void on_signal(struct signal_watch *watch, int signal_number)
{
    for (size_t i = 0; i < ARRAY_LENGTH(forwarded); i++)
        if (forwarded[i].number == signal_number)
            attach_interrupt(container_of(watch - i, struct attach, signals[0]), signal_number);
}

static void on_resized(struct signal_watch *watch, int signal_number UNUSED)
{
    attach_send_size(container_of(watch, struct attach, resized));
}

static void on_continued(struct signal_watch *watch, int signal_number UNUSED)
{
    terminal_make_raw_again();
    attach_send_size(container_of(watch, struct attach, continued));
}

static void signals_start(struct attach *attach)
{
    struct loop *loop = attach->cli->loop;

    for (size_t i = 0; i < ARRAY_LENGTH(forwarded); i++)
        signal_watch_start(&attach->signals[i], loop, forwarded[i].number, on_signal);
    if (attach->options->terminal && isatty(STDIN_FILENO)) {
        signal_watch_start(&attach->resized, loop, SIGWINCH, on_resized);
        signal_watch_start(&attach->continued, loop, SIGCONT, on_continued);
    }
}

static void signals_stop(struct attach *attach)
{
    for (size_t i = 0; i < ARRAY_LENGTH(forwarded); i++)
        signal_watch_stop(&attach->signals[i]);
    signal_watch_stop(&attach->resized);
    signal_watch_stop(&attach->continued);
}

/* --- the end --------------------------------------------------------------------------------- */

static void attach_ask_final(struct attach *attach);

static void attach_fail(struct attach *attach, const struct error *err)
{
    attach->err = *err;
    loop_stop(attach->cli->loop);
}

static void on_retry(struct timer *timer)
{
    attach_ask_final(container_of(timer, struct attach, retry));
}

static void attach_wait(struct attach *attach, const struct error *why)
{
    int64_t now_us = loop_now_us(attach->cli->loop);

    if (!attach->lost_since_us)
        attach->lost_since_us = now_us;
    if (now_us - attach->lost_since_us > LOST_LIMIT_US)
        attach_fail(attach, why);
    else
        timer_arm_in(&attach->retry, RETRY_DELAY_US);
}

static bool is_final(const json_t *execution)
{
    const char *state = field_text(execution, "state", "");

    return strcmp(state, "queued") != 0 && strcmp(state, "running") != 0;
}

static void on_final_data(struct http_call *call, const uint8_t *data, size_t length)
{
    struct attach *attach = http_call_user(call);

    (void)buffer_append(&attach->final_body, data, length);
}

static void attach_take_final(struct attach *attach)
{
    struct error err;

    attach->final = reply_parse(attach->final_body.data, attach->final_body.length, &err);
    if (!attach->final) {
        attach_fail(attach, &err);
    } else if (is_final(attach->final)) {
        loop_stop(attach->cli->loop);
    } else {
        json_decref(attach->final);
        attach->final = NULL;
        attach_ask_final(attach);
    }
}

static void on_final_end(struct http_call *call, const struct error *err)
{
    struct attach *attach = http_call_user(call);
    int status = http_call_status(call);
    struct error refusal;

    attach->final_call = NULL;
    if (err) {
        attach_wait(attach, err);
        return;
    }
    if (status < 400) {
        attach->lost_since_us = 0;
        attach_take_final(attach);
        return;
    }
    reply_error(&refusal, status, attach->final_body.data, attach->final_body.length);
    if (refusal.retryable)
        attach_wait(attach, &refusal);
    else
        attach_fail(attach, &refusal);
}

static const struct http_call_handler final_handler = {
    .on_data = on_final_data,
    .on_end = on_final_end,
};

static void attach_ask_final(struct attach *attach)
{
    scoped(free) char *target = session_target(attach->options->session,
                                               "/executions/%s?wait_seconds=%d",
                                               attach->options->execution, WAIT_SECONDS);

    buffer_clear(&attach->final_body);
    attach->final_call = http_client_request(attach->cli->client, HTTP_GET, target, NULL, NULL, 0,
                                             NULL, &final_handler, attach);
}

/* --- output ---------------------------------------------------------------------------------- */

static void on_stream_finished(struct attach *attach, const struct follower *follower)
{
    bool both = attach->out.finished && (attach->options->terminal || attach->err_stream.finished);

    if (follower->err.code != ERR_NONE)
        attach_fail(attach, &follower->err);
    else if (both && !attach->final_call)
        attach_ask_final(attach);
}

static void on_out_finished(struct follower *follower)
{
    on_stream_finished(container_of(follower, struct attach, out), follower);
}

static void on_err_finished(struct follower *follower)
{
    on_stream_finished(container_of(follower, struct attach, err_stream), follower);
}

/* As the program would be killed by SIGPIPE if it wrote to the pipe itself. */
static void on_out_closed(struct follower *follower)
{
    struct attach *attach = container_of(follower, struct attach, out);

    attach->last_signal = SIGPIPE;
    attach_cancel(attach);
}

static void followers_start(struct attach *attach)
{
    struct follower_options follow = {
        .session = attach->options->session,
        .execution = attach->options->execution,
        .stream = "stdout",
        .follow = true,
        .fd = STDOUT_FILENO,
    };

    follower_start(&attach->out, attach->cli, &follow, on_out_finished, on_out_closed);
    if (attach->options->terminal)
        return;
    follow.stream = "stderr";
    follow.fd = STDERR_FILENO;
    follower_start(&attach->err_stream, attach->cli, &follow, on_err_finished, NULL);
}

/* --- all of it ------------------------------------------------------------------------------- */

static int attach_start(struct attach *attach, struct error *err)
{
    const struct attach_options *options = attach->options;

    signal(SIGPIPE, SIG_IGN);
    signals_start(attach); /* first: one that kills us in between would leave the terminal raw */
    if (options->terminal && options->input && isatty(STDIN_FILENO) &&
        terminal_make_raw(STDIN_FILENO, err) < 0)
        return -1;
    if (options->silent)
        attach_ask_final(attach);
    else
        followers_start(attach);
    if (options->input)
        feeder_start(&attach->feeder, attach->cli, options->session, options->execution,
                     STDIN_FILENO, options->terminal);
    return 0;
}

static void attach_fini(struct attach *attach)
{
    terminal_restore();
    signals_stop(attach);
    feeder_stop(&attach->feeder);
    message_fini(&attach->signal);
    message_fini(&attach->size);
    follower_fini(&attach->out);
    follower_fini(&attach->err_stream);
    timer_stop(&attach->retry);
    if (attach->final_call)
        http_call_cancel(attach->final_call);
    buffer_fini(&attach->final_body);
    json_decref(attach->final);
}

int attach_run(struct cli *cli, const struct attach_options *options, json_t **out_final,
               int *out_signal, struct error *err)
{
    struct attach attach = {
        .cli = cli,
        .options = options,
        .final_body = BUFFER_INIT(REPLY_MAXIMUM),
    };
    int result = -1;

    timer_init(&attach.retry, cli->loop, on_retry);
    message_init(&attach.signal, cli, options->session, options->execution, "signal");
    message_init(&attach.size, cli, options->session, options->execution, "resize");
    if (attach_start(&attach, err) == 0) {
        loop_run(cli->loop);
        (void)follower_check_written(&attach.out, &attach.err);
        *out_signal = attach.last_signal;
        *out_final = steal_ptr(&attach.final);
        result = attach.err.code == ERR_NONE ? 0 : -1;
        if (result < 0)
            *err = attach.err;
    }
    attach_fini(&attach);
    return result;
}
