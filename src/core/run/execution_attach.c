/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The third of the three steps of a start, prepare, spawn, attach: init has the process, and its
 * streams are followed.
 */

#include "core/core.h"
#include "core/metrics.h"
#include "core/run/execution_private.h"
#include "core/run/language.h"
#include "core/run/python_zygote.h"
#include "core/stamp.h"

#include <stdio.h>
#include <string.h>

static void attach_output(struct spool *output, int fd, bool is_terminal, bool has_ended)
{
    if (has_ended)
        spool_take(output, fd, is_terminal);
    else
        spool_attach(output, fd);
}

/* A process that was started before, and whose pipes are new. A loss that shows now is recorded
 * now. */
static void resume_outputs(struct execution *execution, const struct agent_pipes *pipes)
{
    struct execution_output *output = &execution->output;
    bool is_failed = execution->facts.error;

    if (pipes->output >= 0)
        spool_attach_at(output->out, pipes->output, pipes->bases.output);
    if (pipes->errors >= 0 && output->err)
        spool_attach_at(output->err, pipes->errors, pipes->bases.errors);
    else
        fd_close(pipes->errors);
    execution_note_lost_output(execution);
    if (execution->facts.error && !is_failed)
        execution_save(execution);
}

void execution_attach(struct execution *execution, const struct agent_pipes *pipes, bool has_ended)
{
    struct execution_run *run = execution->run;

    run_set_phase(run, PHASE_ATTACHED);
    execution_stdin_attach(run, pipes);
    if (pipes->bases.are_known) {
        resume_outputs(execution, pipes);
        return;
    }
    if (pipes->output >= 0)
        attach_output(execution->output.out, pipes->output, pipes->terminal, has_ended);
    if (pipes->errors >= 0 && execution->output.err)
        attach_output(execution->output.err, pipes->errors, false, has_ended);
    else
        fd_close(pipes->errors);
}

void execution_reattach(struct execution *execution, const struct agent_pipes *pipes)
{
    execution_stdin_reattach(execution->run, pipes);
    if (pipes->bases.are_known) {
        resume_outputs(execution, pipes);
        return;
    }
    fd_close(pipes->output);
    fd_close(pipes->errors);
}

void execution_note_start(struct execution *execution)
{
    char text[128];

    execution->facts.started = stamp_now(execution->core);
    metrics_add(execution->core->metrics, METRIC_EXECUTIONS_STARTED, 0, 1);
    session_count_execution(execution->session);
    snprintf(text, sizeof(text), "{\"execution_id\":\"%s\",\"generation\":%llu}",
             execution->facts.id, (unsigned long long)execution->facts.generation);
    session_emit(execution->session, "execution.started", text);
}

/* The record of one that has ended already is written with its end. */
void execution_begin_running(struct execution *execution, const struct agent_pipes *pipes,
                             bool has_ended)
{
    struct execution_run *run = execution->run;

    run->language = run->spawn.program.language;
    execution_attach(execution, pipes, has_ended);
    program_fini(&run->spawn.program);
    execution->facts.state = EXECUTION_RUNNING;
    execution_note_start(execution);
    if (!has_ended)
        execution_save(execution);
    execution_arm_timeout(execution);
    execution_send_size(execution);
    execution_send_signals(execution);
    execution_changed(execution);
    if (execution->facts.kind != EXECUTION_DRIVER)
        return;
    if (run->language == language_python())
        python_zygote_prepare_soon(run->hold.sandbox);
    session_hold_weaken(&run->hold);
}
