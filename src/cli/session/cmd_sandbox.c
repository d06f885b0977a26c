/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass session sandbox: asks for a sandbox of another flavor, which may need an approver. */

#include "base/alloc.h"
#include "base/str.h"
#include "cli/commands.h"
#include "wire/json.h"

#include <stdlib.h>

enum { BODY_MAXIMUM = 4096 };

struct sandbox_args {
    struct common_args common;
    const char *flavor;
    const char *wait;
};

static const struct option sandbox_options[] = {
    { "flavor", 0, OPTION_TEXT, offsetof(struct sandbox_args, flavor), "NAME", NULL,
      "flavor to request; default: the current flavor of the session" },
    { "wait", 0, OPTION_DURATION, offsetof(struct sandbox_args, wait), "T", NULL,
      "time to wait for the decision if the flavor needs an approval" },
    { 0 },
};

static bool is_approval(const json_t *document)
{
    return str_equal(field_text(document, "kind", ""), "approval");
}

/* The decision, or that there is none yet. */
static int wait_for(struct cli *cli, const json_t *approval, const char *wait, struct reply *out,
                    struct error *err)
{
    scoped(free) char *target =
        xasprintf("/api/v1/approvals/%s?wait_seconds=%s", field_text(approval, "id", ""), wait);

    return cli_call(cli, HTTP_GET, target, NULL, out, err);
}

static int tell(struct cli *cli, const json_t *answer, const char *message)
{
    const char *state = field_text(answer, "state", "");
    bool refused = is_approval(answer) && !str_equal(state, "approved");

    if (cli->json)
        (void)cli_print_json(cli, answer);
    else
        cli_note("%s", message);
    return refused ? EXIT_REFUSED : 0;
}

static int sandbox_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct sandbox_args *args = given_args;
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(BODY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&body);
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(reply_fini) struct reply decision = { 0 };
    scoped(free) char *target = NULL;
    struct error err;

    if (given->operands.count != 1)
        return cli_misuse(cli, "sandbox needs exactly one session");
    target = session_target(given->operands.items[0], "/sandbox");
    json_begin_object(&json, NULL);
    if (args->flavor)
        json_put_text(&json, "flavor", args->flavor);
    json_end_object(&json);
    if (cli_call(cli, HTTP_POST, target, &body, &reply, &err) < 0)
        return cli_fail(cli, &err);
    if (!is_approval(reply.json) || !args->wait)
        return tell(cli, reply.json, field_text(reply.json, "message", ""));
    cli_note("%s", field_text(reply.json, "message", ""));
    if (wait_for(cli, reply.json, args->wait, &decision, &err) < 0)
        return cli_fail(cli, &err);
    return tell(cli, decision.json, field_text(decision.json, "result", "no decision yet"));
}

const struct command cmd_sandbox = {
    .name = "sandbox",
    .summary = "Start the sandbox of a session, or request one of another flavor",
    .usage = "[--flavor NAME] [--wait T] SESSION",
    .examples = "sandglass session sandbox --flavor gpu --wait 5m notes\n",
    .details = "Exit code 1 if the approval that it needs is not granted.",
    .sets = { { sandbox_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct sandbox_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_SESSION,
    .run = sandbox_run,
};
