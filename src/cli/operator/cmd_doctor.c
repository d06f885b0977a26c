/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass doctor: what this host allows, and how to get the rest. */

#include "cli/commands.h"
#include "cli/operator/doctor.h"
#include "config/config.h"
#include "wire/json.h"

#include <stdarg.h>
#include <stdio.h>

struct doctor_args {
    struct common_args common;
    const char *config;
    bool store;
    bool fix;
};

static const struct option doctor_options[] = {
    { "store", 0, OPTION_FLAG, offsetof(struct doctor_args, store), NULL, NULL,
      "check the whole database too, with its redo log and stored output" },
    { "fix", 0, OPTION_FLAG, offsetof(struct doctor_args, fix), NULL, NULL,
      "first create Sandglass's user and directories if they are missing and, with sudo, "
      "subordinate ids for the calling user; prints each change" },
    { "config", 'c', OPTION_TEXT, offsetof(struct doctor_args, config), "FILE", NULL,
      "configuration file; default: $SANDGLASS_CONFIG, /etc/sandglass/sandglass.yaml or "
      "~/.config/sandglass/sandglass.yaml, whichever exists" },
    { 0 },
};

static const char *const status_names[] = {
    [FINDING_OK] = "ok",
    [FINDING_INFO] = "info",
    [FINDING_WARN] = "warn",
    [FINDING_FAIL] = "fail",
};

struct report {
    struct buffer text;
    struct json_writer json;
    bool as_json;
    unsigned counts[4];
};

void finding_set(struct finding *finding, enum finding_status status, const char *remedy,
                 const char *format, ...)
{
    va_list args;

    finding->status = status;
    va_start(args, format);
    vsnprintf(finding->detail, sizeof(finding->detail), format, args);
    va_end(args);
    snprintf(finding->remedy, sizeof(finding->remedy), "%s", remedy ? remedy : "");
}

static void report_json(struct report *report, const char *name, const struct finding *finding)
{
    json_begin_object(&report->json, NULL);
    json_put_text(&report->json, "name", name);
    json_put_text(&report->json, "status", status_names[finding->status]);
    json_put_text(&report->json, "detail", finding->detail);
    json_put_text(&report->json, "remedy", *finding->remedy ? finding->remedy : NULL);
    json_end_object(&report->json);
}

static void report_add(struct report *report, const char *name, const struct finding *finding)
{
    report->counts[finding->status]++;
    if (report->as_json) {
        report_json(report, name, finding);
        return;
    }
    buffer_appendf(&report->text, "%-5s %-16s %s\n", status_names[finding->status], name,
                   finding->detail);
    if (*finding->remedy)
        buffer_appendf(&report->text, "%22s → %s\n", "", finding->remedy);
}

static void on_finding(void *user, const char *name, const struct finding *finding)
{
    report_add(user, name, finding);
}

static void run_checks(const struct doctor *doctor, const struct check *checks,
                       struct report *report)
{
    for (; checks->name; checks++) {
        struct finding finding = { 0 };

        checks->run(doctor, &finding);
        report_add(report, checks->name, &finding);
    }
}

/* A repair that fails is a failure of the report; the check behind it says what is still wrong. */
static void run_repairs(const struct doctor *doctor, struct report *report)
{
    for (const struct repair *repair = repairs; repair->name; repair++) {
        char did[256] = "";
        struct error err = { 0 };
        struct finding finding = { 0 };
        int result = repair->run(doctor, did, sizeof(did), &err);

        if (result == 0)
            continue;
        if (result > 0)
            finding_set(&finding, FINDING_INFO, NULL, "fixed: %s", did);
        else
            finding_set(&finding, FINDING_FAIL, *err.hint ? err.hint : NULL, "not fixed: %s",
                        err.message);
        report_add(report, repair->name, &finding);
    }
}

static void report_end(struct report *report)
{
    bool runs = report->counts[FINDING_FAIL] == 0;

    if (report->as_json) {
        json_end_array(&report->json);
        json_put_bool(&report->json, "ok", runs);
        json_end_object(&report->json);
        buffer_append_byte(&report->text, '\n');
    } else {
        buffer_appendf(&report->text, "\n%s: %u ok, %u warnings, %u failures\n",
                       runs ? "Sandglass can run here" : "Sandglass cannot run here",
                       report->counts[FINDING_OK], report->counts[FINDING_WARN],
                       report->counts[FINDING_FAIL]);
    }
}

static int doctor_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct doctor_args *args = given_args;
    scoped(config_fini) struct config config = { 0 };
    struct report report = { .text = BUFFER_INIT(1 << 20), .as_json = cli->json };
    struct error err;
    int loaded = config_load(&config, args->config, &err);
    struct doctor doctor = {
        .cli = cli,
        .config = loaded == 0 ? &config : NULL,
        .config_problem = loaded == 0 ? NULL : err.message,
    };
    int code;

    if (given->operands.count)
        return cli_misuse(cli, "doctor takes no operand: \"%s\"", given->operands.items[0]);
    if (report.as_json) {
        report.json = JSON_WRITER(&report.text);
        json_begin_object(&report.json, NULL);
        json_begin_array(&report.json, "checks");
    }
    if (args->fix && doctor.config)
        run_repairs(&doctor, &report);
    run_checks(&doctor, host_checks, &report);
    run_checks(&doctor, identity_checks, &report);
    doctor_check_engine(&doctor, on_finding, &report);
    doctor_check_kubernetes(&doctor, on_finding, &report);
    run_checks(&doctor, sandglass_checks, &report);
    doctor_check_other_backends(&doctor, on_finding, &report);
    doctor_check_pod(&doctor, on_finding, &report);
    if (args->store)
        run_checks(&doctor, store_checks, &report);
    report_end(&report);
    code = cli_print(cli, report.text.data, report.text.length);
    buffer_fini(&report.text);
    return code ? code : report.counts[FINDING_FAIL] ? EXIT_REFUSED : 0;
}

const struct command cmd_doctor = {
    .name = "doctor",
    .summary = "Check what this host supports and how to enable the rest",
    .usage = "[--fix] [--store] [--config F]",
    .examples = "sandglass doctor\n"
                "sudo sandglass doctor --fix\n",
    .details =
        "Each line is ok, info (about a backend that is not enabled), warn (Sandglass runs with\n"
        "restrictions) or fail (it does not run). One real sandbox is made with each backend that "
        "the\n"
        "settings name, and with each other one that this host could have. Exit code 1 if any "
        "line\nis a fail.",
    .sets = { { doctor_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct doctor_args),
    .plain_after = OPERANDS_MIXED,
    .run = doctor_run,
};
