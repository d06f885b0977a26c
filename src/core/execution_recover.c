#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "core/execution_internal.h"
#include "wire/json.h"

#include <signal.h>
#include <string.h>

static struct execution *find_number(const struct session *session, uint64_t number)
{
    struct execution *execution;

    list_for_each (execution, &session->executions, node) {
        if (execution->number == number)
            return execution;
    }
    return NULL;
}

void executions_on_exited(struct session *session, uint64_t number, const struct agent_exit *end)
{
    struct execution *execution = find_number(session, number);

    if (execution)
        execution_on_exit(execution, end);
}

static void close_pipes(const struct agent_pipes *pipes)
{
    fd_close(pipes->input);
    fd_close(pipes->output);
    fd_close(pipes->errors);
}

/* --- a process that no execution is known of ------------------------------------------------- */

struct stray {
    struct agent_request request;
    uint64_t number;
};

static void on_stray_killed(struct agent_request *request)
{
    struct stray *stray = container_of(request, struct stray, request);

    if (!request->err.code)
        agent_forget(request->agent, stray->number);
    free(stray);
}

/* One that has ended already left nothing but children that it was allowed to leave. */
static void drop_stray(struct agent *agent, uint64_t number, const struct agent_exit *end)
{
    struct stray *stray;

    if (end) {
        agent_forget(agent, number);
        return;
    }
    log_warn("a process without an execution is killed", kv("number", number));
    stray = xnew(struct stray);
    stray->number = number;
    agent_signal(agent, number, SIGKILL, SCOPE_TREE, &stray->request, on_stray_killed);
}

/* --- records meet what init remembers -------------------------------------------------------- */

void executions_on_process(struct session *session, struct agent *agent, uint64_t number,
                           const struct agent_pipes *pipes, const struct agent_exit *end)
{
    struct execution *execution = find_number(session, number);
    struct execution_run *run = execution ? execution->run : NULL;

    if (!run) {
        close_pipes(pipes);
        drop_stray(agent, number, end);
        return;
    }
    run->is_listed = true;
    if (run->attached || run->ending)
        close_pipes(pipes);
    else
        execution_attach(execution, pipes);
    if (end)
        execution_on_exit(execution, end);
    else if (!timer_is_armed(&run->clock) && !run->ending)
        execution_arm_timeout(execution);
    execution_send_signals(execution);
}

void executions_on_listed(struct session *session)
{
    struct execution *execution, *following;

    list_for_each_safe (execution, following, &session->executions, node) {
        struct execution_run *run = execution->run;

        if (!run || run->starting || execution->state != EXECUTION_RUNNING)
            continue;
        if (!run->is_listed)
            execution_begin_end(execution, EXECUTION_CRASHED, "lost: its sandbox does not know it");
        run->is_listed = false;
    }
}

static bool request_has(const struct execution_record *record, const char *name)
{
    const char *text = record->request_json ? record->request_json : "{}";
    scoped(json_decref) json_t *request = json_read(text, strlen(text), NULL);

    return request && json_object_get(request, name);
}

static char *copy_text(const char *text)
{
    return str_is_empty(text) ? NULL : xstrdup(text);
}

struct execution *execution_restore(struct session *session, const struct execution_record *record)
{
    struct execution *execution = execution_new(session, record->id);
    struct execution_run *run = execution->run;

    memcpy(execution->sandbox_id, record->sandbox_id, sizeof(execution->sandbox_id));
    execution->key = copy_text(record->key);
    execution->request_json = copy_text(record->request_json);
    execution->generation = record->generation;
    execution->number = record->number;
    execution->background = record->background;
    execution->terminal = request_has(record, "tty");
    execution->timeout_ms = record->timeout_ms;
    execution->created = record->created;
    execution->started = record->started;
    execution_open_outputs(execution);

    session->next_execution_number = MAX(session->next_execution_number, record->number);
    run->wants_stdin = execution->terminal || request_has(record, "stdin");
    if (!record->number) {
        execution_begin_end(execution, EXECUTION_CRASHED,
                            "lost: the daemon ended before it was started");
        return execution;
    }
    /* Input that came with the request and was not written yet went with the daemon. */
    run->stdin_ends = request_has(record, "stdin_bytes");
    run->wants_stdin = run->wants_stdin || run->stdin_ends;
    execution->state = EXECUTION_RUNNING;
    run->in_use = true;
    session_use_restore(&run->use, session, execution_use_lost);
    return execution;
}
