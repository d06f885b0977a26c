/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/log.h"
#include "base/macros.h"
#include "config/config.h"
#include "core/core.h"
#include "core/output/spool_shares.h"
#include "core/run/execution_private.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

enum {
    LOSS_RETRY_US = 1000 * 1000,
    LOSS_TRIES = 5, /* then the loss is shown to clients that wait, but perhaps not recorded */
};

/* A program may succeed and its output be lost: the record says so. */
void execution_note_lost_output(struct execution *execution)
{
    const struct spool *outputs[] = { execution->output.out, execution->output.err };

    for (size_t i = 0; i < ARRAY_LENGTH(outputs) && !execution->facts.error; i++) {
        const struct error *err = outputs[i] ? spool_error(outputs[i]) : NULL;

        if (err)
            execution->facts.error = xasprintf("output is incomplete: %s", err->message);
    }
}

/* While the program goes on: a later daemon finds only the bytes that were kept, and has to know
 * that there were others. */
struct execution_loss {
    struct execution *execution; /* borrowed */
    struct store_ticket ticket;
    struct timer retry;
    unsigned tries;
};

static void on_loss_recorded(struct store_ticket *ticket)
{
    struct execution_loss *loss = container_of(ticket, struct execution_loss, ticket);
    struct execution *execution = loss->execution;

    if (ticket->err->code && ++loss->tries < LOSS_TRIES) {
        timer_arm_in(&loss->retry, LOSS_RETRY_US);
        return;
    }
    free(steal_ptr(&execution->output.loss));
    spool_accept_loss(execution->output.out);
    if (execution->output.err)
        spool_accept_loss(execution->output.err);
}

static void record_loss(struct timer *timer)
{
    struct execution_loss *loss = container_of(timer, struct execution_loss, retry);

    execution_save(loss->execution);
    store_commit_as(loss->execution->core->parts.store, &loss->ticket, STORE_WRITTEN,
                    on_loss_recorded);
}

static void on_loss(void *context)
{
    struct execution *execution = context;

    execution_note_lost_output(execution);
    if (execution->output.loss)
        return; /* of the other stream: the record has it, or will */
    execution->output.loss = xnew(struct execution_loss);
    execution->output.loss->execution = execution;
    timer_init(&execution->output.loss->retry, execution->core->loop, record_loss);
    record_loss(&execution->output.loss->retry);
}

void execution_end_share(struct execution *execution)
{
    bool is_gone = !execution->session || !session_is_alive(execution->session);

    spool_share_end(steal_ptr(&execution->output.share), is_gone);
}

void execution_close_outputs(struct execution *execution)
{
    struct execution_output *output = &execution->output;

    if (output->loss)
        timer_stop(&output->loss->retry);
    free(output->loss);
    execution_end_share(execution);
    spool_free(output->out);
    spool_free(output->err);
    stream_order_free(output->order);
}

static void finish(struct spool *output, bool is_total_known, uint64_t total)
{
    if (is_total_known)
        spool_finish_at(output, total);
    else
        spool_finish(output);
}

void execution_finish_outputs(struct execution *execution)
{
    const struct agent_totals *totals = &execution->run->end.exit.totals;

    finish(execution->output.out, totals->are_known, totals->output);
    if (execution->output.err)
        finish(execution->output.err, totals->are_known, totals->errors);
}

void execution_end_outputs(struct execution *execution)
{
    spool_end_sources(execution->output.out);
    if (execution->output.err)
        spool_end_sources(execution->output.err);
}

static void on_output(void *context)
{
    struct execution *execution = context;

    if (execution->output.full == SPOOL_STOP &&
        (spool_is_over(execution->output.out) ||
         (execution->output.err && spool_is_over(execution->output.err))))
        execution_stop(execution, EXECUTION_OUTPUT_LIMIT);
    execution_changed(execution);
    execution_continue_end(execution);
}

/* More is kept of its output, or less. */
static bool on_kept(void *context, int64_t bytes)
{
    struct execution *execution = context;
    const struct session *session = execution->session;
    bool is_ended = !execution->run;

    if (is_ended && !execution->output.share)
        return false;
    if (!execution->output.share)
        execution->output.share = spool_shares_begin(
            execution->core->spool_shares, execution->facts.id, execution->facts.session_id,
            session && session_owner(session) ? session_owner(session) : "");
    return spool_share_add(execution->output.share, bytes);
}

bool execution_keep_display(struct execution *execution, const char *type, const void *data,
                            size_t length, char out_hash[DISPLAY_HASH_SIZE])
{
    int state_dir = execution->core->parts.state_dir;
    struct error err = { 0 };
    uint64_t grown;

    if (display_keep(state_dir, execution->facts.id, type, data, length, out_hash, &grown, &err) <
        0) {
        log_debug("display not kept", kv("execution", execution->facts.id),
                  kv("error", err.message));
        return false;
    }
    if (grown == 0 || !on_kept(execution, (int64_t)grown))
        return true;
    display_drop(state_dir, execution->facts.id, grown);
    (void)on_kept(execution, -(int64_t)grown);
    return false;
}

static struct spool *open_output(struct core *core, const char *id, bool is_stderr,
                                 uint64_t recorded_bytes, struct execution *watcher)
{
    const struct config *config = core->parts.config;
    struct spool_options options = {
        .loop = core->loop,
        .directory = core->parts.state_dir,
        .cap_bytes = config->exec.output_spool_bytes,
        .stall_timeout_us = config->exec.stall_timeout_ms * 1000,
        .full = watcher ? watcher->output.full : SPOOL_DROP,
        .recorded_bytes = recorded_bytes,
        .is_new = watcher && !watcher->facts.number, /* that of a recorded one is known */
        .flows = watcher ? core->flows : NULL,
        .flow = watcher ? watcher->facts.session_id : NULL,
        .on_change = watcher ? on_output : NULL,
        .on_kept = watcher ? on_kept : NULL,
        .on_loss = watcher ? on_loss : NULL,
        .context = watcher,
    };

    spool_file_name(options.name, id, is_stderr ? SPOOL_STDERR : SPOOL_STDOUT);
    return spool_new(&options);
}

struct spool *execution_open_output(struct core *core, const struct execution_record *record,
                                    bool is_stderr)
{
    uint64_t bytes = is_stderr ? record->stderr_bytes : record->stdout_bytes;
    struct spool *output = open_output(core, record->id, is_stderr, bytes, NULL);

    spool_finish(output);
    return output;
}

struct stream_order *execution_open_stream_order(struct core *core, const char *id,
                                                 const struct spool *out, const struct spool *err)
{
    uint64_t lengths[STREAM_COUNT] = { spool_length(out), spool_length(err) };
    char name[SPOOL_NAME_SIZE];

    spool_file_name(name, id, SPOOL_ORDER);
    return stream_order_new(core->parts.state_dir, name, lengths);
}

void execution_open_outputs(struct execution *execution, const struct execution_record *record)
{
    execution->output.out = open_output(execution->core, execution->facts.id, false,
                                        record ? record->stdout_bytes : 0, execution);
    if (execution->terminal)
        return;
    execution->output.err = open_output(execution->core, execution->facts.id, true,
                                        record ? record->stderr_bytes : 0, execution);
    execution->output.order = execution_open_stream_order(
        execution->core, execution->facts.id, execution->output.out, execution->output.err);
    spool_set_stream_order(execution->output.out, execution->output.order, 0);
    spool_set_stream_order(execution->output.err, execution->output.order, 1);
}

uint64_t execution_output_bytes(const struct execution *execution)
{
    return spool_length(execution->output.out) +
           (execution->output.err ? spool_length(execution->output.err) : 0);
}

bool execution_outputs_are(const struct execution *execution, bool (*what)(const struct spool *))
{
    return what(execution->output.out) && (!execution->output.err || what(execution->output.err));
}
