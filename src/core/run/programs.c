/* SPDX-License-Identifier: Apache-2.0 */
#include "core/run/programs.h"

#include "agent/agent.h"
#include "core/core.h"
#include "core/run/context/context.h"
#include "core/run/execution.h"
#include "core/run/python_zygote.h"
#include "core/sandbox/sandbox.h"
#include "core/session/session.h"

static void on_exited(struct sandbox *sandbox, uint64_t number, const struct agent_exit *end)
{
    if (!python_zygote_on_exited(sandbox_python_zygote(sandbox), number) &&
        sandbox_session(sandbox))
        executions_on_exited(sandbox_session(sandbox), number, end);
}

static void on_process(struct sandbox *sandbox, uint64_t number, int pid,
                       const struct agent_pipes *pipes, const struct agent_exit *end)
{
    struct session *session = sandbox_session(sandbox);

    if (session && !python_zygote_has(sandbox_python_zygote(sandbox), number)) {
        executions_on_process(session, number, pid, pipes, end);
        return;
    }
    agent_pipes_close(pipes);
}

static void on_taken(struct sandbox *sandbox, uint64_t number, uint64_t total)
{
    if (sandbox_session(sandbox))
        executions_on_taken(sandbox_session(sandbox), number, total);
}

static void on_storage(struct session *session, uint64_t number, int fd)
{
    const struct core_parts *parts = &session_core(session)->parts;
    const struct execution *execution = executions_find_number(session, number);

    if (execution && parts->on_storage)
        parts->on_storage(parts->storage_context, execution_facts(execution)->session_id,
                          execution_facts(execution)->id, fd);
    else
        fd_close(fd);
}

const struct sandbox_programs run_sandbox_programs = {
    .on_exited = on_exited,
    .on_process = on_process,
    .on_taken = on_taken,
    .on_listed = executions_on_listed,
    .on_storage = on_storage,
    .prepare_python = python_zygote_prepare,
    .free_python = python_zygote_free,
};

static void end_all(struct session *session, const struct end_reason *reason)
{
    contexts_end_all(session, reason);
    executions_end_all(session, reason);
}

static bool find_oldest(const struct session *session, struct session_program *out_program)
{
    const struct execution *execution = executions_first_busy(session);

    if (!execution)
        return false;
    *out_program = (struct session_program){
        .id = execution_facts(execution)->id,
        .created_wall_us = execution_facts(execution)->created.wall_us,
    };
    return true;
}

const struct session_programs run_session_programs = {
    .end_all = end_all,
    .count = executions_count,
    .find_oldest = find_oldest,
};
