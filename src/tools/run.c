/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/run.h"

#include "base/alloc.h"
#include "base/mask.h"
#include "base/str.h"
#include "config/config.h"
#include "core/run/rules.h"
#include "core/sandbox/sandbox.h"
#include "tools/spill.h"
#include "tools/text.h"

#include <string.h>

struct run {
    struct tool_work work;
    struct tool_call *call;
    const char *language;
    struct context_run *run; /* borrowed; NULL when it is over */
    int64_t timeout_s;
    struct mask_stream mask; /* takes the values of secrets out before anything is told or kept */
    struct text_cut cut;
    struct spill spill;
    bool has_images, has_output, ends_line;

    /* how it ended */
    enum context_run_state state;
    int exit_code;
    bool is_driver_killed;
    char *cause, *replaced; /* owned */
    char *warning;          /* owned; NULL without one */
    struct error err;
    int64_t duration_us;
};

static struct run *run_of(struct tool_work *work)
{
    return container_of(work, struct run, work);
}

static void run_release(struct tool_work *work)
{
    struct run *run = run_of(work);

    if (run->run)
        context_run_leave(run->run, true);
    spill_fini(&run->spill, run->call->in_use ? run->call->hold.agent : NULL);
    text_cut_fini(&run->cut);
    mask_stream_fini(&run->mask);
    free(run->cause);
    free(run->replaced);
    free(run->warning);
    free(run);
}

static void run_cancel(struct tool_work *work)
{
    struct run *run = run_of(work);

    if (run->run)
        context_run_cancel(run->run);
}

/* The run tells it too, with what was written until then; a file that was not complete is gone. */
static void run_on_lost(struct tool_work *work UNUSED)
{
}

/* --- what it tells --------------------------------------------------------------------------- */

static void begin_spill(struct run *run)
{
    const struct config *config = run->call->tools->core->parts.config;

    if (!run->call->in_use || !run->call->hold.agent)
        return;
    if (!spill_start(&run->spill, run->call->hold.agent, run->language,
                     (uint64_t)config->exec.output_spool_bytes))
        return;
    spill_add(&run->spill, run->cut.head.data, run->cut.head.length);
    spill_add(&run->spill, run->cut.tail.data, run->cut.tail.length);
}

/* Takes output in which secrets are masked already. */
static void pass(struct run *run, const void *data, size_t length)
{
    struct tool_call *call = run->call;

    if (length == 0)
        return;
    if (run->spill.path)
        spill_add(&run->spill, data, length);
    if (text_cut_add(&run->cut, data, length))
        begin_spill(run);
    if (call->on_progress)
        call->on_progress(call, data, length);
}

static void add(struct run *run, const void *data, size_t length)
{
    scoped(buffer_fini) struct buffer masked = BUFFER_INIT(SIZE_MAX);

    if (length == 0)
        return;
    run->has_output = true;
    run->ends_line = ((const char *)data)[length - 1] == '\n';
    if (mask_is_empty(run->mask.mask)) {
        pass(run, data, length);
        return;
    }
    mask_feed(&run->mask, data, length, &masked);
    pass(run, masked.data, masked.length);
}

static void end_mask(struct run *run)
{
    scoped(buffer_fini) struct buffer masked = BUFFER_INIT(SIZE_MAX);

    mask_end(&run->mask, &masked);
    pass(run, masked.data, masked.length);
}

/* On lines of its own. */
static void add_lines(struct run *run, const char *text)
{
    size_t length = strlen(text);

    if (run->has_output && !run->ends_line)
        add(run, "\n", 1);
    add(run, text, length);
    if (length && text[length - 1] != '\n')
        add(run, "\n", 1);
}

static bool has_room(const struct context_run *context_run)
{
    const struct run *run = context_run->user;

    return spill_has_room(&run->spill);
}

static void on_output(struct context_run *context_run, bool is_stderr UNUSED, const void *data,
                      size_t length)
{
    add(context_run->user, data, length);
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static void show_error(struct run *run, const json_t *message)
{
    const char *traceback = text_of(message, "traceback");
    const char *name = text_of(message, "name");
    const char *value = text_of(message, "value");
    scoped(free) char *line = NULL;

    if (str_equal(run->language, "bash"))
        return; /* only that it was interrupted, and that is told anyway */
    if (!traceback)
        line = xasprintf("%s: %s", name ? name : "Error", value ? value : "");
    add_lines(run, traceback ? traceback : line);
}

static void show_result(struct run *run, const json_t *message)
{
    static const char *const images[] = { "image/png", "image/jpeg" };
    const json_t *data = json_object_get(message, "data");
    const char *text = text_of(data, "text/plain");

    for (size_t i = 0; i < ARRAY_LENGTH(images); i++) {
        const char *image = text_of(data, images[i]);

        if (!image)
            continue;
        tool_add_image(run->call, images[i], xstrdup(image));
        run->has_images = true;
        return;
    }
    if (text)
        add_lines(run, text);
}

static void on_message(struct context_run *context_run, const char *type, const json_t *message)
{
    struct run *run = context_run->user;

    if (str_equal(type, "error"))
        show_error(run, message);
    else
        show_result(run, message);
}

/* Only the file in the sandbox can hold it back, and that has a bound of its own. */
static void on_stalled(struct context_run *context_run UNUSED)
{
}

/* --- how it ended ---------------------------------------------------------------------------- */

static bool is_shell(const struct run *run)
{
    return str_equal(run->language, "bash");
}

static const char *interpreter(const struct run *run)
{
    return is_shell(run) ? "shell" : "interpreter";
}

static const char *state_lost(const struct run *run)
{
    return is_shell(run) ? "its directory, variables and functions are gone"
                         : "its variables and imports are gone";
}

static void say_timeout(struct run *run)
{
    tool_fail(run->call,
              "timeout: it did not end within %lld seconds and was %s; what it wrote until then is "
              "above. "
              "%s",
              (long long)run->timeout_s, run->is_driver_killed ? "killed" : "interrupted",
              is_shell(run)
                  ? "For a long job give a larger timeout (1200 at most), or start it in the "
                    "background, `nohup COMMAND > job.log 2>&1 &`, and look at job.log later."
                  : "For a long job give a larger timeout (1200 at most), or write it to a file "
                    "and start that with bash in the background.");
    if (run->is_driver_killed)
        tool_say(run->call, " The %s had to be killed too: %s, and the next call starts a new one.",
                 interpreter(run), state_lost(run));
}

static void say_crash(struct run *run)
{
    if (is_shell(run) && run->exit_code >= 0)
        tool_fail(run->call,
                  "the shell has ended with exit code %d (`exit`, or a failure under `set -e`): "
                  "%s, and the next call starts a new one.",
                  run->exit_code, state_lost(run));
    else
        tool_fail(run->call, "the %s has crashed (%s): %s, and the next call starts a new one.",
                  interpreter(run), run->cause ? run->cause : "unknown", state_lost(run));
}

static void say_interrupted(struct run *run)
{
    tool_fail(run->call, "interrupted by the user. The sandbox and its files are kept%s.",
              run->is_driver_killed ? ", but what ran did not heed it and was killed with its "
                                      "interpreter"
                                    : "");
}

static void say_end(struct run *run)
{
    switch (run->state) {
    case RUN_OK:
        if (run->exit_code > 0)
            tool_fail(run->call, "exit code %d.", run->exit_code);
        else
            tool_finish(run->call);
        return;
    case RUN_ERROR:
        run->call->result.is_error = true;
        tool_finish(run->call);
        return;
    case RUN_TIMEOUT:
        say_timeout(run);
        return;
    case RUN_CRASHED:
        say_crash(run);
        return;
    case RUN_FAILED:
        tool_fail_error(run->call, &run->err);
        return;
    case RUN_INTERRUPTED:
    case RUN_CANCELLED:
    case RUN_WAITING:
    case RUN_ACTIVE:
    case RUN_STATES:
        say_interrupted(run);
        return;
    }
}

static void put_structured(struct run *run)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);
    bool is_kept = run->spill.path && !run->spill.is_failed;

    json_begin_object(&json, NULL);
    json_put_text(&json, "state", context_run_state_name(run->state));
    if (run->exit_code >= 0)
        json_put_int(&json, "exit_code", run->exit_code);
    else
        json_put_null(&json, "exit_code");
    json_put_double(&json, "duration_seconds", (double)run->duration_us / 1e6);
    json_put_int(&json, "output_bytes", (int64_t)run->cut.bytes);
    json_put_bool(&json, "truncated", run->cut.is_cut);
    json_put_text(&json, "output_path", is_kept ? run->spill.path : NULL);
    json_put_bool(&json, "interpreter_lost", run->is_driver_killed || run->state == RUN_CRASHED);
    json_end_object(&json);
    run->call->result.structured = buffer_steal_text(&text);
}

static void answer(struct run *run)
{
    struct tool_call *call = run->call;
    bool is_kept = run->spill.path && !run->spill.is_failed;

    put_structured(run);
    if (run->warning)
        tool_say(call, "[warning] %s\n\n", run->warning);
    if (run->replaced)
        tool_say(call, "[notice] The %s of before is gone (%s): %s.\n\n", interpreter(run),
                 run->replaced, state_lost(run));
    text_cut_write(&run->cut, is_kept ? run->spill.path : NULL, &call->text);
    if (is_kept && run->spill.is_partial)
        tool_say(call, "\n[notice] %s has only the first %llu bytes of it.\n", run->spill.path,
                 (unsigned long long)run->spill.bytes);
    if (run->cut.bytes == 0 && run->state == RUN_OK)
        tool_say(call, run->has_images ? "(no output but the image)" : "(no output)");
    say_end(run);
}

static void on_closed(struct spill *spill)
{
    answer(container_of(spill, struct run, spill));
}

static void on_room(struct spill *spill)
{
    struct run *run = container_of(spill, struct run, spill);

    if (run->run)
        context_run_resume(run->run);
}

static void on_done(struct context_run *context_run)
{
    struct run *run = context_run->user;
    char text[RULE_TEXT_SIZE];
    const char *warning = context_run_warning(context_run, text);

    run->run = NULL;
    run->state = context_run->state;
    run->exit_code = context_run->exit_code;
    run->is_driver_killed = context_run->is_driver_killed;
    run->cause = context_run->cause ? xstrdup(context_run->cause) : NULL;
    run->replaced = context_run->replaced ? xstrdup(context_run->replaced) : NULL;
    run->warning = warning ? xstrdup(warning) : NULL;
    run->err = context_run->err;
    run->duration_us = context_run->duration_us;
    end_mask(run);
    if (run->spill.path && run->call->in_use && run->call->hold.agent)
        spill_close(&run->spill, run->call->hold.agent);
    else
        answer(run);
}

static const struct context_handler handler = {
    .has_room = has_room,
    .on_output = on_output,
    .on_message = on_message,
    .on_stalled = on_stalled,
    .on_done = on_done,
};

/* --- the beginning --------------------------------------------------------------------------- */

static struct run *run_new(struct tool_call *call, const char *language, int64_t timeout_s)
{
    struct run *run = xnew(struct run);

    run->work = (struct tool_work){ run_release, run_cancel, run_on_lost };
    run->call = call;
    run->language = language;
    run->timeout_s = timeout_s;
    run->spill.on_room = on_room;
    run->spill.on_closed = on_closed;
    run->exit_code = -1;
    run->mask = MASK_STREAM(session_mask(call->hold.session));
    text_cut_init(&run->cut, TOOL_OUTPUT_CHARACTERS);
    call->work = &run->work;
    return run;
}

void tool_run(struct tool_call *call, const char *language, const char *code, size_t length,
              int64_t timeout_s)
{
    struct run *run = run_new(call, language, timeout_s);
    scoped(free) char *name = xasprintf("tool %s", call->client);
    struct context *context;

    context = context_open(call->hold.session, language, name, &run->err);
    if (context)
        run->run =
            context_run_start(context, code, length, timeout_s * 1000, &handler, run, &run->err);
    if (!run->run)
        tool_fail_error(call, &run->err);
}
