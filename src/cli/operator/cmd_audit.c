/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass audit: the audit log. Needs no daemon. */

#include "audit/audit.h"
#include "base/buffer.h"
#include "base/str.h"
#include "cli/commands.h"
#include "config/config.h"
#include "wire/json.h"

enum { TEXT_MAXIMUM = 1 << 20 };

struct audit_args {
    struct common_args common;
    const char *config;
};

static const struct option verify_options[] = {
    { "config", 'c', OPTION_TEXT, offsetof(struct audit_args, config), "FILE", NULL,
      "configuration file that names the audit log" },
    { 0 },
};

struct report {
    struct cli *cli;
    struct buffer text;
    struct json_writer json;
};

static void scoped_report_fini(struct report *report)
{
    buffer_fini(&report->text);
}

static void on_finding(void *context, const char *path, const struct audit_finding *finding)
{
    struct report *report = context;

    if (!report->cli->json) {
        if (finding->line)
            buffer_appendf(&report->text, "%s:%llu: the line %s\n", path,
                           (unsigned long long)finding->line, finding->message);
        else
            buffer_appendf(&report->text, "%s: %s\n", path, finding->message);
        return;
    }
    json_begin_object(&report->json, NULL);
    json_put_text(&report->json, "file", path);
    json_put_int(&report->json, "line", (int64_t)finding->line);
    json_put_int(&report->json, "seq", (int64_t)finding->sequence);
    json_put_text(&report->json, "message", finding->message);
    json_end_object(&report->json);
}

/* Unchanged is not the same as complete. */
static void tell_state(struct report *report, const struct audit_summary *summary)
{
    bool is_whole = !summary->interruptions && !summary->is_open;

    buffer_appendf(&report->text, "%llu lines, numbers %llu to %llu, %s\n",
                   (unsigned long long)summary->lines, (unsigned long long)summary->first,
                   (unsigned long long)summary->last,
                   is_whole ? "complete and unchanged" : "unchanged");
    if (summary->interruptions)
        buffer_appendf(&report->text,
                       "the daemon was killed %llu times: %llu lines were added from the store "
                       "afterwards; requests made just before may be missing\n",
                       (unsigned long long)summary->interruptions,
                       (unsigned long long)summary->recovered);
    if (summary->is_open)
        buffer_append_text(&report->text,
                           "the log has no end mark: a daemon is writing it, or was killed; in "
                           "that case its next start adds the missing lines\n");
}

static int verify(struct report *report, const char *const *paths, size_t count,
                  struct audit_summary *summary, struct error *err)
{
    struct json_writer *json = &report->json;

    if (!report->cli->json) {
        if (audit_verify(paths, count, on_finding, report, summary, err) < 0)
            return -1;
        if (!summary->findings)
            tell_state(report, summary);
        return 0;
    }
    json_begin_object(json, NULL);
    json_begin_array(json, "findings");
    if (audit_verify(paths, count, on_finding, report, summary, err) < 0)
        return -1;
    json_end_array(json);
    json_put_bool(json, "ok", summary->findings == 0);
    json_put_int(json, "lines", (int64_t)summary->lines);
    json_put_int(json, "first", (int64_t)summary->first);
    json_put_int(json, "last", (int64_t)summary->last);
    json_put_int(json, "interruptions", (int64_t)summary->interruptions);
    json_put_int(json, "recovered", (int64_t)summary->recovered);
    json_put_bool(json, "open", summary->is_open);
    json_end_object(json);
    buffer_append_byte(&report->text, '\n');
    return 0;
}

static int verify_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct audit_args *args = given_args;
    scoped(config_fini) struct config config = { 0 };
    scoped(report_fini) struct report report = { .cli = cli, .text = BUFFER_INIT(TEXT_MAXIMUM) };
    const char *const *paths = given->operands.items;
    const char *configured[1];
    struct audit_summary summary = { 0 };
    struct error err = { 0 };
    int code;

    report.json = JSON_WRITER(&report.text);
    if (!given->operands.count && config_load(&config, args->config, &err) < 0)
        return cli_fail(cli, &err);
    if (!given->operands.count) {
        configured[0] = config.audit.file;
        paths = configured;
    }
    code =
        verify(&report, paths, given->operands.count ? given->operands.count : 1, &summary, &err);
    if (code == 0)
        code = cli_print(cli, report.text.data, report.text.length);
    else
        code = cli_fail(cli, &err);
    return summary.findings && code == 0 ? EXIT_REFUSED : code;
}

static const struct command verify_command = {
    .name = "verify",
    .summary = "Verify that no line of the audit log was changed",
    .usage = "[FILE...]",
    .examples = "sandglass audit verify\n",
    .details = "Give rotated logs oldest first. Exit code 1: a line was changed or is missing.",
    .sets = { { verify_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct audit_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_FILE,
    .run = verify_run,
};

static const struct command *const audit_commands[] = { &verify_command, NULL };

const struct command cmd_audit = {
    .name = "audit",
    .summary = "Verify the audit log",
    .usage = "COMMAND",
    .examples = "sandglass audit verify\n",
    .subcommands = audit_commands,
};
