/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another sandbox for the session: made, refused or asked for as core/session/flavor_change.h has it. The call
 * waits until the new one is there, and for a decision as long as it was told to.
 */

#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "core/money/approvals.h"
#include "core/money/flavor.h"
#include "core/session/flavor_change.h"
#include "tools/memory.h"
#include "tools/work.h"

#include <string.h>

struct creating {
    struct tool_work work;
    struct tool_call *call;
    struct approval_waiter waiter;
    struct timer timer; /* of a decision */
};

static void creating_release(struct tool_work *work)
{
    struct creating *creating = container_of(work, struct creating, work);

    approval_unwait(&creating->waiter);
    timer_stop(&creating->timer);
    free(creating);
}

/* --- it is being made ------------------------------------------------------------------------ */

static void put_session(struct tool_call *call, const struct session *session)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_text(&json, "flavor", session_flavor(session));
    json_put_int(&json, "generation", (int64_t)session_generation(session));
    json_end_object(&json);
    call->result.structured = buffer_steal_text(&text);
}

/* That files are gone was just said: the next call need not say it again. */
static void on_ready(struct session_hold *hold)
{
    struct tool_call *call = container_of(hold, struct tool_call, hold);
    struct session *session = hold->session;
    struct tool_memory *memory;

    if (hold->err.code) {
        call->in_use = false;
        tool_fail(call, "the sandbox could not be made: %s. The next call tries again.",
                  hold->err.message);
        return;
    }
    memory = tool_memory_of(call->tools, session);
    memory->generation = session_generation(session);
    tool_memory_forget_files(memory);
    session_acknowledge_reset(session);
    put_session(call, session);
    tool_say(call, "\nIt is ready: use bash, python, read, write and edit.");
    tool_finish(call);
}

static void on_lost(struct session_hold *hold)
{
    struct tool_call *call = container_of(hold, struct tool_call, hold);

    call->in_use = false;
    tool_fail(call, "the sandbox went away again. The next call makes a new one.");
}

static void wait_until_ready(struct tool_call *call)
{
    struct session *session = tool_session(call);

    if (!session) {
        tool_fail(call, "the session has ended.");
        return;
    }
    call->in_use = true;
    session_hold_begin(&call->hold, session, 0, on_ready, on_lost);
}

/* --- an approver decides --------------------------------------------------------------------- */

static void put_approval(struct tool_call *call, const struct approval *approval)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    approval_write_json(approval, &json, "approval");
    json_end_object(&json);
    free(call->result.structured);
    call->result.structured = buffer_steal_text(&text);
}

static void on_decided(struct approval_waiter *waiter, const struct approval *approval)
{
    struct creating *creating = container_of(waiter, struct creating, waiter);
    struct tool_call *call = creating->call;

    timer_stop(&creating->timer);
    put_approval(call, approval);
    buffer_clear(&call->text);
    if (approval->state == APPROVAL_APPROVED) {
        tool_say(call, "%s", approval->result);
        wait_until_ready(call);
        return;
    }
    tool_fail(call, "%s", *approval->result ? approval->result : "it was not approved.");
}

static void on_patience_over(struct timer *timer)
{
    struct creating *creating = container_of(timer, struct creating, timer);

    tool_finish(creating->call);
}

static void wait_for_decision(struct creating *creating, const struct approval *asked)
{
    struct tool_call *call = creating->call;
    struct approval *approval = approvals_find(call->tools->core->approvals, asked->id);
    int64_t wait_s = tool_integer(call, "wait");

    put_approval(call, asked);
    if (wait_s == 0 || !approval) {
        tool_finish(call);
        return;
    }
    approval_wait(approval, &creating->waiter);
    timer_arm_in(&creating->timer, wait_s * 1000 * 1000);
}

/* --- the question ---------------------------------------------------------------------------- */

static void say_no(struct tool_call *call, const struct session *session, const struct error *err)
{
    if (!str_equal(err->name, "sandbox_chosen")) {
        tool_fail_error(call, err);
        return;
    }
    /* Asking for one after the other would cost turns and never help. */
    tool_say(call,
             "The sandbox of this session was chosen (%s). It cannot be changed to %s by calling "
             "this again: the user has to delete it first, and its files go with it. Go on with "
             "the one there is.",
             session_flavor(session), tool_text(call, "flavor"));
    put_session(call, session);
    tool_finish(call);
}

static void start_create(struct tool_call *call)
{
    struct session *session = tool_session(call);
    struct creating *creating = xnew(struct creating);
    struct flavor_change_request request = { .flavor = tool_text(call, "flavor"),
                                             .principal = call->owner,
                                             .on_behalf_of = call->on_behalf_of };
    struct flavor_change_answer answer;
    struct error err = { 0 };

    creating->work.release = creating_release;
    creating->call = call;
    creating->waiter.done = on_decided;
    timer_init(&creating->timer, call->tools->core->loop, on_patience_over);
    call->work = &creating->work;
    if (!session) {
        tool_fail(call, "the session has ended.");
        return;
    }
    if (flavor_change_make(session, &request, &answer, &err) < 0) {
        say_no(call, session, &err);
        return;
    }
    tool_say(call, "%s", answer.message);
    if (answer.outcome == FLAVOR_CHANGE_MADE) {
        wait_until_ready(call);
    } else if (answer.outcome == FLAVOR_CHANGE_ASKED) {
        wait_for_decision(creating, answer.approval);
    } else {
        put_session(call, session);
        tool_finish(call);
    }
}

static int check_flavor(const struct core *core, const json_t *arguments, struct error *err)
{
    const char *name = json_string_value(json_object_get(arguments, "flavor"));

    return !name || flavor_find(core, name, err) ? 0 : -1;
}

static const struct tool_argument arguments[] = {
    { "flavor", TOOL_TEXT,
      "The kind of sandbox to change to; a wrong one is answered with the list of those there "
      "are. Without it the one there is will do.",
      .max_length = 128 },
    { "wait", TOOL_INTEGER,
      "Seconds to wait for a person when an approval is needed; 0: go on meanwhile.",
      .fallback = "0", .minimum = 0, .maximum = 1200 },
    { 0 },
};

const struct tool tool_sandbox_create = {
    .name = "sandbox_create",
    .title = "Change the kind of sandbox",
    .description =
        "Get a sandbox of another flavor (more memory, CPUs or GPUs) in place of the one there "
        "is, whose files are lost. You do not need it to begin with: the sandbox of the session is "
        "there already. Some flavors cost money or need the approval of a person; until it is "
        "given everything stays as it is.",
    .arguments = arguments,
    .needs_session = true,
    .is_destructive = true,
    .start = start_create,
    .check = check_flavor,
};
