/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "config/config.h"
#include "core/run/context/context.h"
#include "core/run/execution_private.h"
#include "core/sandbox/sandbox.h"
#include "wire/json.h"

#include <signal.h>
#include <string.h>

enum { STRAY_RECORDS = 1000 }; /* among so many newest ones its record is looked for */

static char *copy_text(const char *text)
{
    return str_is_empty(text) ? NULL : xstrdup(text);
}

/* --- a process that no execution in memory is known of ---------------------------------------- */

/*
 * It may belong to an execution that has ended and whose children still hold the pipes: then the
 * output goes on, in the same spool. Any other process has no business to run.
 */
struct stray {
    struct core *core; /* borrowed */
    struct list node;  /* core->strays, while it is being killed */
    struct store_query query;
    struct agent_request request;
    char session_id[ID_SIZE];
    char sandbox_id[ID_SIZE];
    uint64_t number;
    struct agent_pipes pipes;
    struct agent_totals totals; /* with has_ended */
    bool has_ended;
    bool is_known;
};

static void on_stray_killed(struct agent_request *request)
{
    struct stray *stray = container_of(request, struct stray, request);

    if (!request->err.code)
        agent_forget(request->agent, stray->number);
    list_remove(&stray->node);
    free(stray);
}

/* An agent that goes drops its requests without an answer. */
void strays_drop(struct core *core, const char *session_id)
{
    struct stray *stray, *following;

    list_for_each_safe (stray, following, &core->strays, node) {
        if (session_id && !str_equal(stray->session_id, session_id))
            continue;
        agent_cancel(&stray->request);
        list_remove(&stray->node);
        free(stray);
    }
}

/* A process that has ended already left nothing but children that it was allowed to leave. */
static void drop_stray(struct stray *stray)
{
    struct session *session = map_get(&stray->core->sessions_by_id, stray->session_id);
    struct sandbox *sandbox = session ? session_sandbox(session) : NULL;
    struct agent *agent = sandbox && str_equal(sandbox_id(sandbox), stray->sandbox_id)
                              ? sandbox_agent(sandbox)
                              : NULL;

    agent_pipes_close(&stray->pipes);
    if (agent && !stray->has_ended) {
        log_info("killing a process without an execution, such as the last daemon's warm Python",
                 kv("session", stray->session_id), kv("number", stray->number));
        list_append(&stray->core->strays, &stray->node);
        agent_signal(agent, stray->number, SIGKILL, SCOPE_TREE, &stray->request, on_stray_killed);
        return;
    }
    if (agent)
        agent_forget(agent, stray->number);
    free(stray);
}

static struct execution *restore(struct session *session, const struct execution_record *record);

/* Its end is recorded: only the output is left to be completed. */
static void adopt_stray(struct stray *stray, struct session *session,
                        const struct execution_record *record)
{
    struct execution *execution = restore(session, record);
    struct execution_run *run = execution->run;

    execution->facts.state = execution_state_parse(record->state);
    execution->facts.exit_code = record->exit_code;
    execution->facts.signal = record->signal;
    execution->facts.reason = copy_text(record->reason);
    execution->facts.cpu_us = record->cpu_us;
    execution->facts.max_rss_bytes = record->max_rss_bytes;
    execution->facts.ended = record->ended;
    run->end.state = execution->facts.state;
    run->end.record = RECORD_WRITTEN;
    run->end.recorded_bytes = record->stdout_bytes + record->stderr_bytes;
    run->end.exit.totals = stray->totals;
    execution_attach(execution, &stray->pipes, false);
    execution_stdin_detach(run);
    stray->pipes = (struct agent_pipes){ .input = -1, .output = -1, .errors = -1 };
    execution_finish_outputs(execution);
    execution_continue_end(execution);
}

static void on_stray_record(struct store_query *query, const struct execution_record *record)
{
    struct stray *stray = container_of(query, struct stray, query);
    struct session *session = map_get(&stray->core->sessions_by_id, stray->session_id);

    if (stray->is_known || record->number != stray->number || !session || !stray->has_ended ||
        !execution_state_is_final(execution_state_parse(record->state)) ||
        map_get(&stray->core->executions_by_id, record->id))
        return;
    stray->is_known = true;
    adopt_stray(stray, session, record);
}

static void on_strays_searched(struct store_query *query)
{
    struct stray *stray = container_of(query, struct stray, query);

    if (stray->is_known)
        free(stray);
    else
        drop_stray(stray);
}

static void search_stray(struct session *session, uint64_t number, const struct agent_pipes *pipes,
                         const struct agent_exit *end)
{
    struct stray *stray = xnew(struct stray);

    stray->core = session_core(session);
    stray->number = number;
    stray->pipes = *pipes;
    stray->has_ended = end != NULL;
    if (end)
        stray->totals = end->totals;
    memcpy(stray->session_id, session_id(session), sizeof(stray->session_id));
    if (session_sandbox(session))
        memcpy(stray->sandbox_id, sandbox_id(session_sandbox(session)), sizeof(stray->sandbox_id));
    stray->query = (struct store_query){ .on_execution = on_stray_record,
                                         .done = on_strays_searched,
                                         .session_id = stray->session_id,
                                         .newest_first = true,
                                         .limit = STRAY_RECORDS };
    store_query(session_core(session)->parts.store, STORE_EXECUTIONS, &stray->query);
}

/* --- records meet what init remembers --------------------------------------------------------- */

void executions_on_process(struct session *session, uint64_t number, int pid,
                           const struct agent_pipes *pipes, const struct agent_exit *end)
{
    struct execution *execution = executions_find_number(session, number);
    struct execution_run *run = execution ? execution->run : NULL;

    /* A process without an execution, or whose execution ended before it was attached, is a
     * stray. */
    if (!run || (run_is_ending(run) && !run_is_attached(run))) {
        search_stray(session, number, pipes, end);
        return;
    }
    execution->facts.pid = pid;
    if (!execution->facts.started.wall_us) {
        execution_note_start(execution); /* its start was not recorded any more */
        execution_save(execution);
    }
    if (run_is_attached(run))
        execution_reattach(execution, pipes);
    else
        execution_attach(execution, pipes, false);
    run_set_phase(run, PHASE_LISTED);
    if (end)
        execution_on_exit(execution, end);
    else if (!run_is_ending(run) &&
             (run->stop.stage == STOP_SPAWN || !timer_is_armed(&run->stop.clock)))
        execution_arm_timeout(execution);
    execution_send_size(execution);
    execution_send_signals(execution);
}

static const char never_started[] = "lost: the daemon ended before it was started";

void executions_on_listed(struct session *session)
{
    struct execution *execution, *following;

    list_for_each_safe (execution, following, session_executions(session), node) {
        struct execution_run *run = execution->run;

        if (!run || run->phase == PHASE_SPAWNING || execution->facts.state != EXECUTION_RUNNING)
            continue;
        if (run->phase == PHASE_LISTED) {
            run_set_phase(run, PHASE_ATTACHED);
            continue;
        }
        execution_begin_end(execution, EXECUTION_CRASHED,
                            execution->facts.started.wall_us ? "lost: its sandbox does not know it"
                                                             : never_started);
        execution_end_outputs(execution);
    }
}

static json_t *read_request(const struct execution_record *record)
{
    const char *text = record->request_json ? record->request_json : "{}";

    return json_read(text, strlen(text), NULL);
}

static bool request_has(const struct execution_record *record, const char *name)
{
    scoped(json_decref) json_t *request = read_request(record);

    return request && json_object_get(request, name);
}

static enum spool_full read_output_full(const struct core *core,
                                        const struct execution_record *record)
{
    scoped(json_decref) json_t *request = read_request(record);
    const char *name = json_string_value(json_object_get(request, "output_full"));
    int full = name ? spool_full_parse(name) : -1;

    return (enum spool_full)(full < 0 ? core->parts.config->exec.output_full : full);
}

/* Sets the facts that every execution has from its record. */
static struct execution *restore(struct session *session, const struct execution_record *record)
{
    struct execution *execution = execution_new(session, record->id);

    memcpy(execution->facts.sandbox_id, record->sandbox_id, sizeof(execution->facts.sandbox_id));
    execution->facts.key = copy_text(record->key);
    execution->facts.request_json = copy_text(record->request_json);
    execution->facts.generation = record->generation;
    execution->facts.number = record->number;
    execution->facts.kind = record->background ? EXECUTION_BACKGROUND : EXECUTION_FOREGROUND;
    execution->terminal = request_has(record, "tty");
    execution->facts.timeout_ms = record->timeout_ms;
    execution->output.full = read_output_full(session_core(session), record);
    execution->facts.created = record->created;
    execution->facts.started = record->started;
    execution->facts.error = copy_text(record->error);
    execution_open_outputs(execution, record);
    session_restore_execution_number(session, record->number);
    return execution;
}

/* A record of it says ready before anything is started in it. */
static bool sandbox_was_made(const struct sandbox *sandbox)
{
    return sandbox && sandbox_is_up(sandbox);
}

struct execution *execution_restore(struct session *session, const struct execution_record *record)
{
    struct execution *execution = restore(session, record);
    struct execution_run *run = execution->run;
    bool is_driver;

    if (!record->number ||
        (!record->started.wall_us && !sandbox_was_made(session_sandbox(session)))) {
        execution_begin_end(execution, EXECUTION_CRASHED, never_started);
        return execution;
    }
    share_hold(&execution->share, session_core(session)->shares, session_owner(session),
               SHARE_EXECUTIONS);
    if (execution->terminal)
        share_hold(&execution->terminal_share, session_core(session)->shares,
                   session_owner(session), SHARE_TERMINALS);
    /* Input that came with the request and was not written yet went with the daemon. */
    if (request_has(record, "stdin_bytes"))
        run->input.state = INPUT_ENDING;
    else if (execution->terminal || request_has(record, "stdin"))
        run->input.state = INPUT_OPEN;
    run->input.is_uncounted = true;
    execution->facts.state = EXECUTION_RUNNING;
    execution_restore_stop(execution, record->reason);
    execution->needs_client = request_has(record, "cancel_on_disconnect");
    execution_expect_client(execution, CLIENT_RESTART_PATIENCE_US);
    is_driver = request_has(record, "context");
    session_hold_restore(&run->hold, session, is_driver ? HOLD_WEAK : HOLD_STRONG,
                         execution_hold_lost);
    if (is_driver) {
        execution->facts.kind = EXECUTION_DRIVER;
        context_restore(session, execution);
    }
    return execution;
}
