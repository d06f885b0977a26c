/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "core/run/execution.h"
#include "core/sandbox/sandbox.h"
#include "service/backend_view.h"
#include "tools/work.h"

static const char *state_in_words(const struct session *session)
{
    if (session_state(session) == SESSION_PAUSED)
        return "paused; the next call resumes it";
    if (!session_sandbox(session) && session_start_error(session))
        return "could not be started; the next call tries again";
    if (!session_sandbox(session))
        return "not started yet; the next call starts it, do not create one first";
    switch (sandbox_state(session_sandbox(session))) {
    case SANDBOX_READY:
        return "ready";
    case SANDBOX_CREATING:
        return "starting; calls wait for it";
    case SANDBOX_UNKNOWN:
        return "not answering; calls wait a moment for it, then say so";
    case SANDBOX_FREEZING:
    case SANDBOX_FROZEN:
    case SANDBOX_THAWING:
        return "paused; the next call resumes it";
    case SANDBOX_FROZEN_BY_OTHERS:
        return "frozen by others, outside of Sandglass; calls wait a moment for it, then say so";
    case SANDBOX_CRASHED:
        return "crashed; the next call starts a new one";
    case SANDBOX_DESTROYING:
    case SANDBOX_NONE:
    case SANDBOX_STATES:
        return "being removed; the next call starts a new one";
    }
    return "unknown";
}

static void say_limits(struct tool_call *call, const struct session *session)
{
    const char *network = session_network_name(session);
    const struct sandbox_limits limits = backend_view_limits(session);
    char cpus[STR_UNIT_SIZE] = "unlimited";
    char memory[STR_UNIT_SIZE] = "unlimited";
    char disk[STR_UNIT_SIZE] = "unlimited";

    if (limits.cpu_millis)
        snprintf(cpus, sizeof(cpus), "%g", limits.cpu_millis / 1000.0);
    if (limits.memory_bytes)
        str_format_size(limits.memory_bytes, memory);
    if (limits.disk_bytes)
        str_format_size(limits.disk_bytes, disk);
    tool_say(call, "Flavor: %s (%s CPUs, %s memory, %s disk), network %s\n",
             str_is_empty(session_flavor(session)) ? "default" : session_flavor(session), cpus,
             memory, disk,
             str_equal(network, "none") ? "none: nothing can be downloaded" : network);
}

static void say_end(struct tool_call *call, const struct session *session)
{
    int64_t remaining_ms = -1;
    enum end_kind kind = session_next_end(session, &remaining_ms);
    char text[STR_UNIT_SIZE];

    if (kind == END_NONE)
        return;
    str_format_duration(remaining_ms, text);
    tool_say(call, "Ends in %s (%s)%s\n", text, end_kind_name(kind),
             kind == END_IDLE ? " unless it is used" : "");
}

static void say_running(struct tool_call *call, const struct session *session)
{
    size_t count = executions_count_busy(session);

    tool_say(call, "Running: %zu %s\n", count, count == 1 ? "execution" : "executions");
}

struct status {
    struct tool_work work;
    struct tool_call *call; /* borrowed */
    struct report_wait wait;
};

static void say_status(struct tool_call *call)
{
    const struct session *session = tool_session(call);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(1024 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    if (!session) {
        tool_fail(call, "the session has ended.");
        return;
    }
    tool_say(call, "Sandbox: %s\n", state_in_words(session));
    if (session_start_error(session))
        tool_say(call, "Last failure: %s\n", session_start_error(session)->message);
    tool_say(call, "Session: %s, generation %llu%s\n", session_id(session),
             (unsigned long long)session_generation(session),
             session_generation(session) > 1 ? " (it has been reset before)" : "");
    say_limits(call, session);
    say_end(call, session);
    say_running(call, session);
    session_write_json(session, &json, NULL);
    call->result.structured = buffer_steal_text(&text);
    tool_finish(call);
}

static void status_release(struct tool_work *work)
{
    struct status *status = container_of(work, struct status, work);

    report_wait_cancel(&status->wait);
    free(status);
}

static void on_reported(struct report_wait *wait)
{
    say_status(container_of(wait, struct status, wait)->call);
}

static void start_status(struct tool_call *call)
{
    const struct session *session = tool_session(call);
    struct status *status;

    if (!session || session_read_report(session, NULL, NULL)) {
        say_status(call);
        return;
    }
    status = xnew(struct status);
    status->work.release = status_release;
    status->call = call;
    call->work = &status->work;
    (void)session_read_report(session, &status->wait, on_reported);
}

static const struct tool_argument status_arguments[] = { { 0 } };

const struct tool tool_sandbox_status = {
    .name = "sandbox_status",
    .title = "How the sandbox is",
    .description =
        "Tell how the sandbox is: whether it is ready, its flavor and limits, when it ends and "
        "what runs in it. Asking does not start it and does not count as use.",
    .arguments = status_arguments,
    .needs_session = true,
    .is_read_only = true,
    .is_idempotent = true,
    .start = start_status,
};
