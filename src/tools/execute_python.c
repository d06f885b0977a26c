/* SPDX-License-Identifier: Apache-2.0 */
/*
 * execute_python, code in one call: a new process for each call, files that stay in the
 * session, and one text with a part for each thing.
 */

#include "base/alloc.h"
#include "base/mask.h"
#include "base/str.h"
#include "core/core.h"
#include "core/output/spool.h"
#include "core/run/execute.h"
#include "service/find.h"
#include "tools/file.h"
#include "tools/text.h"

#include <string.h>
#include <unistd.h>

enum { STEP_BYTES = 1024 * 1024 /* in one turn of the loop */, FILES_TOLD = 50, LINKS = 16 };

struct execution_stream {
    const char *name;
    struct spool *spool; /* borrowed from the execution; NULL without one */
    uint64_t offset;
    struct mask_stream mask;
    struct text_cut cut;
};

struct python {
    struct tool_work work;
    struct tool_call *call;
    struct execute execute;
    bool is_over;
    struct execution_stream streams[2];
    size_t stream;     /* the one that is being read */
    struct timer next; /* and not deferred: others have their turn between two steps */
};

static void python_release(struct tool_work *work)
{
    struct python *python = container_of(work, struct python, work);

    if (python->execute.execution && !python->is_over)
        execution_cancel(python->execute.execution);
    execute_fini(&python->execute);
    timer_stop(&python->next);
    for (size_t i = 0; i < ARRAY_LENGTH(python->streams); i++) {
        text_cut_fini(&python->streams[i].cut);
        mask_stream_fini(&python->streams[i].mask);
    }
    free(python);
}

static void python_cancel(struct tool_work *work)
{
    struct python *python = container_of(work, struct python, work);

    if (python->execute.execution && !python->is_over)
        execution_cancel(python->execute.execution);
    else
        tool_fail(python->call, "interrupted by the user before it was done.");
}

/* --- the text -------------------------------------------------------------------------------- */

/* A part on lines of its own. */
static void begin_part(struct tool_call *call)
{
    if (call->text.length && call->text.data[call->text.length - 1] != '\n')
        tool_say(call, "\n");
}

static void say_stream(struct tool_call *call, struct execution_stream *stream)
{
    if (stream->cut.bytes == 0)
        return;
    begin_part(call);
    tool_say(call, "[%s]\n", stream->name);
    text_cut_write(&stream->cut, NULL, &call->text);
}

static void say_files(struct python *python)
{
    struct tool_call *call = python->call;
    struct protocol_entry_view entry;
    unsigned count = 0;
    size_t at = 0;

    while (count < FILES_TOLD && execute_next_file(&python->execute, true, &at, &entry)) {
        scoped(free) char *path = xstrndup(entry.path, entry.fixed.path_length);

        if (count == 0)
            begin_part(call);
        tool_say(call, "%s%s", count ? ", " : "[files] ", path);
        if (count++ < LINKS)
            tool_add_file(call, path, tool_mime(NULL, 0, path), entry.fixed.stat.size, NULL);
    }
}

static void say_workspace(struct python *python)
{
    struct tool_call *call = python->call;
    struct protocol_entry_view entry;
    unsigned count = 0;
    size_t at = 0;
    char size[STR_UNIT_SIZE];

    while (count < FILES_TOLD && execute_next_file(&python->execute, false, &at, &entry)) {
        str_format_size(entry.fixed.stat.size, size);
        tool_say(call, "%s%.*s(%s)", count++ ? ", " : " workspace=[", (int)entry.fixed.path_length,
                 entry.path, size);
    }
    if (count)
        tool_say(call, count == FILES_TOLD ? ", …]" : "]");
}

static void say_session(struct python *python)
{
    const struct session *session = execute_session(&python->execute);
    int64_t remaining_ms = -1;
    char ttl[STR_UNIT_SIZE] = "unlimited";

    begin_part(python->call);
    if (!session) {
        tool_say(python->call, "[session] it has ended: the next call begins a new one");
        return;
    }
    if (session_next_end(session, &remaining_ms) != END_NONE)
        str_format_duration(remaining_ms, ttl);
    tool_say(python->call, "[session] id=%s ttl=%s → REUSE THIS session_id IN ALL SUBSEQUENT CALLS",
             session_id(session), ttl);
    say_workspace(python);
}

/* A program may succeed and its output be lost. */
static bool say_lost_output(struct python *python)
{
    const struct execution *execution = python->execute.execution;
    const struct error *err = spool_error(execution_stdout(execution));

    if (!err && execution_stderr(execution))
        err = spool_error(execution_stderr(execution));
    if (err)
        tool_say(python->call, "\n[notice] The output is incomplete: %s.", err->message);
    return err != NULL;
}

static void say_end(struct python *python)
{
    const struct execution *execution = python->execute.execution;
    const struct execution_facts *facts = execution_facts(execution);
    int64_t wall_us = facts->started.boot_us ? facts->ended.boot_us - facts->started.boot_us : 0;
    char timeout[STR_UNIT_SIZE];
    bool is_lost;

    begin_part(python->call);
    tool_say(python->call, "[exit=%d duration=%.2fs]",
             facts->signal ? 128 + facts->signal : facts->exit_code, (double)wall_us / 1e6);
    is_lost = say_lost_output(python);
    if (facts->state == EXECUTION_EXITED) {
        python->call->result.is_error = facts->exit_code != 0 || is_lost;
        tool_finish(python->call);
    } else if (facts->state == EXECUTION_TIMEOUT) {
        str_format_duration(facts->timeout_ms, timeout);
        tool_fail(python->call,
                  "timeout: execution timed out after %s; what it wrote until then is above. Give "
                  "a larger "
                  "timeout (600 at most), or do less in one call.",
                  timeout);
    } else if (facts->state == EXECUTION_CANCELLED) {
        tool_fail(python->call, "interrupted by the user. The sandbox and its files are kept.");
    } else if (facts->error) {
        tool_fail(python->call, "execution error: %s.", facts->error);
    } else {
        tool_fail(python->call, "execution error: the sandbox has ended meanwhile (%s).",
                  facts->reason ? facts->reason : "unknown");
    }
}

static void say_tip(struct python *python)
{
    const struct session *session = execute_session(&python->execute);
    struct tool_memory *memory = session ? tool_memory_of(python->call->tools, session) : NULL;

    if (!memory || memory->has_tip)
        return;
    memory->has_tip = true;
    tool_say(python->call, "\nTIP: files stay for the next call with this session_id; variables do "
                           "not, every call is a new process.");
}

static void put_structured(struct python *python)
{
    const struct execution *execution = python->execute.execution;
    const struct execution_facts *facts = execution_facts(execution);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_text(&json, "session_id", python->execute.session_id);
    json_put_text(&json, "execution_id", facts->id);
    json_put_text(&json, "state", execution_state_name(facts->state));
    json_put_int(&json, "exit_code", facts->exit_code);
    json_end_object(&json);
    python->call->result.structured = buffer_steal_text(&text);
}

static void answer(struct python *python)
{
    scoped(free) char *warning = execution_warning(python->execute.execution);

    put_structured(python);
    if (execution_facts(python->execute.execution)->files_were_reset)
        tool_say_reset(python->call, &execution_facts(python->execute.execution)->reset_reason);
    if (warning)
        tool_say(python->call, "[warning] %s\n", warning);
    for (size_t i = 0; i < ARRAY_LENGTH(python->streams); i++)
        say_stream(python->call, &python->streams[i]);
    say_files(python);
    say_session(python);
    say_end(python);
    say_tip(python);
}

/* --- what it wrote --------------------------------------------------------------------------- */

/* False when there is no more. */
static bool read_step(struct execution_stream *stream)
{
    static uint8_t bytes[STEP_BYTES];
    scoped(buffer_fini) struct buffer masked = BUFFER_INIT(SIZE_MAX);
    uint64_t start, end;
    ssize_t count = 0;

    if (stream->spool && spool_extent(stream->spool, stream->offset, &start, &end))
        count = spool_read(stream->spool, start, bytes,
                           (size_t)MIN(end - start, (uint64_t)sizeof(bytes)));
    if (count <= 0) {
        mask_end(&stream->mask, &masked);
    } else {
        mask_feed(&stream->mask, bytes, (size_t)count, &masked);
        stream->offset = start + (uint64_t)count;
    }
    (void)text_cut_add(&stream->cut, masked.data, masked.length);
    return count > 0;
}

static void on_next(struct timer *timer)
{
    struct python *python = container_of(timer, struct python, next);

    if (!read_step(&python->streams[python->stream]))
        python->stream++;
    if (python->stream == ARRAY_LENGTH(python->streams))
        answer(python);
    else
        timer_arm_in(&python->next, 0);
}

static void on_done(struct execute *execute)
{
    struct python *python = container_of(execute, struct python, execute);
    const struct execution *execution = execute->execution;

    python->is_over = true;
    memcpy(python->call->session_id, execute->session_id, sizeof(execute->session_id));
    if (execute->err.code) {
        tool_fail(python->call, "execution error: %s%s%s", execute->err.message,
                  *execute->err.hint ? ". " : "", execute->err.hint);
        return;
    }
    for (size_t i = 0; i < ARRAY_LENGTH(python->streams); i++) {
        python->streams[i].spool = i == 0 ? execution_stdout(execution)
                                          : execution_stderr(execution);
        python->streams[i].mask = MASK_STREAM(execution_mask(execution));
    }
    timer_arm_in(&python->next, 0);
}

/* --- the beginning --------------------------------------------------------------------------- */

static struct python *python_new(struct tool_call *call)
{
    static const char *const names[] = { "stdout", "stderr" };
    struct python *python = xnew(struct python);

    python->work = (struct tool_work){ .release = python_release, .cancel = python_cancel };
    python->call = call;
    timer_init(&python->next, call->tools->core->loop, on_next);
    for (size_t i = 0; i < ARRAY_LENGTH(python->streams); i++) {
        python->streams[i].name = names[i];
        python->streams[i].mask = MASK_STREAM(NULL);
        text_cut_init(&python->streams[i].cut, TOOL_OUTPUT_CHARACTERS);
    }
    call->work = &python->work;
    return python;
}

/* The session that the arguments name, else that of the call, else none. */
static int find_session(struct tool_call *call, struct session **out_session, struct error *err)
{
    const char *named = tool_text(call, "session_id");
    struct caller_identity identity = tool_identity(call);

    if (!str_is_empty(named) && session_check_enabled(call->tools->core, err) < 0)
        return -1;
    if (!str_is_empty(named))
        *out_session = find_live_session(call->tools->core, &identity, named, err);
    else if (*call->session_id)
        *out_session = tool_session(call);
    if (*out_session)
        memcpy(call->session_id, session_id((*out_session)), sizeof(call->session_id));
    return err->code ? -1 : 0;
}

static void start_execute_python(struct tool_call *call)
{
    struct python *python = python_new(call);
    struct core *core = call->tools->core;
    int64_t timeout_s = tool_integer(call, "timeout");
    struct error err = { 0 };
    struct execute_request request = {
        .owner = call->owner,
        .on_behalf_of = call->on_behalf_of,
        .code = tool_text(call, "code"),
        .language = "python",
        .timeout_ms = timeout_s ? timeout_s * 1000 : execute_default_timeout_ms(core),
    };

    if (find_session(call, &request.session, &err) < 0 ||
        execute_start(&python->execute, core, &request, on_done, &err) < 0)
        tool_fail(call, "execution error: %s%s%s", err.message, *err.hint ? ". " : "", err.hint);
}

static const struct tool_argument arguments[] = {
    { "code", TOOL_TEXT, "The Python code to run.", .required = true,
      .max_length = PROTOCOL_MAX_SCRIPT_BYTES },
    { "timeout", TOOL_INTEGER, "Seconds after which it is stopped; a minute when not given.",
      .minimum = 1, .maximum = 600 },
    { "session_id", TOOL_TEXT,
      "The session to run in, from an earlier result. ALWAYS pass it when you have one: without "
      "it a new session is made and files of before are not there.",
      .max_length = 300 },
    { 0 },
};

const struct tool tool_execute_python = {
    .name = "execute_python",
    .title = "Run a Python program",
    .description =
        "Run Python code as a program of its own, in a sandbox that is made on demand. The result "
        "has [stdout], [stderr], the [files] it has made, the [session] with its id and the time "
        "it has left, and [exit=…]. Files stay for the next call with the same session_id; "
        "variables do not: for those use python.",
    .arguments = arguments,
    .takes_session = true,
    .is_destructive = true,
    .is_open_world = true,
    .start = start_execute_python,
};
