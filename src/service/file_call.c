/* SPDX-License-Identifier: Apache-2.0 */
#include "service/file_call.h"

#include "base/macros.h"

static void on_ready(struct session_hold *hold)
{
    struct file_call *call = container_of(hold, struct file_call, hold);

    if (!hold->err.code && !hold->agent)
        error_named(&hold->err, ERR_BACKEND, "backend", "the sandbox cannot be reached");
    if (hold->err.code)
        call->on_error(call, &hold->err);
    else
        call->next(call);
}

static void on_lost(struct session_hold *hold)
{
    struct file_call *call = container_of(hold, struct file_call, hold);
    struct error err = { 0 };
    char reason[END_TEXT_SIZE];

    call->in_use = false;
    end_reason_text(&hold->lost, reason);
    error_named(&err, ERR_BACKEND, "sandbox_lost", "the sandbox ended during the call: %s", reason);
    err.retryable = true;
    call->on_lost(call, &err);
}

void file_call_begin(struct file_call *call, struct session *session, file_call_fn *start)
{
    call->next = start;
    call->in_use = true;
    session_hold_begin(&call->hold, session, 0, on_ready, on_lost);
}

void file_call_fail(struct file_call *call, int number, const char *path)
{
    struct error err = { 0 };

    file_error(&err, number, path);
    call->on_error(call, &err);
}

static void on_done(struct agent_request *operation)
{
    struct file_call *call = container_of(operation, struct file_call, operation);

    if (!operation->err.code)
        call->next(call);
    else if (operation->sys_errno && call->on_failure &&
             call->on_failure(call, operation->sys_errno))
        return;
    else if (operation->sys_errno)
        file_call_fail(call, operation->sys_errno, call->path);
    else
        call->on_error(call, &operation->err);
}

void file_call_do(struct file_call *call, const struct agent_file *file, file_call_fn *next)
{
    call->next = next;
    agent_file(call->hold.agent, file, &call->operation, on_done);
}

void file_call_release(struct file_call *call)
{
    if (call->in_use)
        session_hold_end(&call->hold);
    call->in_use = false;
}

void file_call_fini(struct file_call *call)
{
    agent_cancel(&call->operation);
    file_call_release(call);
}
