/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass sweep: removes what dead instances have left. Needs no daemon. */

#include "base/alloc.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/operator/sweep.h"
#include "config/config.h"
#include "wire/json.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_MAXIMUM = 64 << 20, DEFAULT_AGE_S = 60 };

struct sweep_args {
    struct common_args common;
    const char *config;
    bool dry_run;
    const char *older_than;
    const char *maximum;
    struct text_list states;
    struct text_list instances;
};

static const struct option sweep_options[] = {
    { "dry-run", 'n', OPTION_FLAG, offsetof(struct sweep_args, dry_run), NULL, NULL,
      "list what would be removed, and remove nothing" },
    { "older-than", 0, OPTION_DURATION, offsetof(struct sweep_args, older_than), "T", NULL,
      "only leftovers that no daemon has served for this long; default 1m" },
    { "max", 0, OPTION_COUNT, offsetof(struct sweep_args, maximum), "N", NULL,
      "remove at most this many; default: all" },
    { "state", 0, OPTION_LIST, offsetof(struct sweep_args, states), "DIR", NULL,
      "only this state directory; may be repeated" },
    { "instance", 0, OPTION_LIST, offsetof(struct sweep_args, instances), "NAME", NULL,
      "only control groups and containers of this instance; may be repeated" },
    { "config", 'c', OPTION_TEXT, offsetof(struct sweep_args, config), "FILE", NULL,
      "the settings, which name the state directory and the container engine" },
    { 0 },
};

static const char *const outcome_names[] = {
    [SWEEP_REMOVED] = "removed",
    [SWEEP_WOULD_REMOVE] = "would_remove",
    [SWEEP_SKIPPED] = "skipped",
    [SWEEP_FAILED] = "failed",
};

/* --- the report ------------------------------------------------------------------------------ */

static void report_json(struct sweep *sweep, const struct sweep_item *item,
                        enum sweep_outcome outcome, const char *detail)
{
    struct json_writer json = JSON_WRITER(&sweep->text);

    json_begin_object(&json, NULL);
    json_put_text(&json, "kind", item->kind);
    json_put_text(&json, "id", item->id);
    json_put_text(&json, "instance", *item->instance ? item->instance : NULL);
    json_put_text(&json, "path", item->where);
    json_put_text(&json, "outcome", outcome_names[outcome]);
    json_put_text(&json, "detail", detail);
    json_end_object(&json);
    buffer_append_byte(&sweep->text, '\n');
}

void sweep_report(struct sweep *sweep, const struct sweep_item *item, enum sweep_outcome outcome,
                  const char *detail)
{
    sweep->counts[outcome]++;
    buffer_appendf(&sweep->seen, "\n%s\n", item->id);
    if (sweep->cli->json)
        report_json(sweep, item, outcome, detail);
    else
        buffer_appendf(&sweep->text, "%-12s %-9s %s in %s%s%s\n", outcome_names[outcome],
                       item->kind, item->id, item->where, detail ? ": " : "", detail ? detail : "");
}

bool sweep_has_seen(const struct sweep *sweep, const char *id)
{
    scoped(free) char *line = xasprintf("\n%s\n", id);

    return sweep->seen.length &&
           memmem(sweep->seen.data, sweep->seen.length, line, strlen(line)) != NULL;
}

void sweep_report_result(struct sweep *sweep, const struct sweep_item *item, int result,
                         const struct error *err)
{
    if (result == 0)
        sweep_report(sweep, item, SWEEP_REMOVED, NULL);
    else
        sweep_report(sweep, item, SWEEP_FAILED, err->message);
}

bool sweep_may_remove(struct sweep *sweep, const struct sweep_item *item, int64_t age_s)
{
    if (age_s < sweep->older_than_s)
        sweep_report(sweep, item, SWEEP_SKIPPED, "it may be served again: see --older-than");
    else if (sweep->counts[SWEEP_REMOVED] + sweep->counts[SWEEP_WOULD_REMOVE] >= sweep->maximum)
        sweep_report(sweep, item, SWEEP_SKIPPED, "there are more than --max");
    else if (sweep->dry_run)
        sweep_report(sweep, item, SWEEP_WOULD_REMOVE, NULL);
    else
        return true;
    return false;
}

/* --- the command ----------------------------------------------------------------------------- */

static void sweep_all(struct sweep *sweep, const struct config *config)
{
    const char *temporary = getenv("TMPDIR");

    sweep_state(sweep, config->state_dir);
    sweep_leased(sweep);
    sweep_private(sweep, str_is_empty(temporary) ? "/tmp" : temporary);
    sweep_cgroups(sweep);
    sweep_containers(sweep, config);
}

static void sweep_named(struct sweep *sweep, const struct config *config)
{
    for (size_t i = 0; i < sweep->states.count; i++)
        sweep_named_state(sweep, sweep->states.items[i]);
    if (sweep->instances.count)
        sweep_cgroups(sweep);
    sweep_containers(sweep, config);
}

static void scoped_sweep_fini(struct sweep *sweep)
{
    buffer_fini(&sweep->text);
    buffer_fini(&sweep->seen);
}

static int finish(struct sweep *sweep)
{
    const unsigned *counts = sweep->counts;
    int code;

    if (!sweep->cli->json)
        buffer_appendf(&sweep->text, "%u %s, %u skipped, %u failed\n",
                       counts[sweep->dry_run ? SWEEP_WOULD_REMOVE : SWEEP_REMOVED],
                       sweep->dry_run ? "would be removed" : "removed", counts[SWEEP_SKIPPED],
                       counts[SWEEP_FAILED]);
    code = cli_print(sweep->cli, sweep->text.data, sweep->text.length);
    return code ? code : counts[SWEEP_FAILED] ? EXIT_REFUSED : 0;
}

static int sweep_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct sweep_args *args = given_args;
    scoped(config_fini) struct config config = { 0 };
    scoped(sweep_fini) struct sweep sweep = { .cli = cli,
                                              .dry_run = args->dry_run,
                                              .older_than_s = DEFAULT_AGE_S,
                                              .maximum = UINT64_MAX,
                                              .instances = args->instances,
                                              .states = args->states,
                                              .text = BUFFER_INIT(TEXT_MAXIMUM),
                                              .seen = BUFFER_INIT(TEXT_MAXIMUM) };
    int64_t age_ms;
    struct error err;

    if (given->operands.count)
        return cli_misuse(cli, "sweep takes no operand: \"%s\"", given->operands.items[0]);
    if (config_load(&config, args->config, &err) < 0)
        return cli_fail(cli, &err);
    if (args->older_than && str_to_duration_ms(args->older_than, &age_ms, &err) == 0)
        sweep.older_than_s = age_ms / 1000;
    if (args->maximum)
        (void)str_to_u64(args->maximum, &sweep.maximum);
    if (args->states.count || args->instances.count)
        sweep_named(&sweep, &config);
    else
        sweep_all(&sweep, &config);
    return finish(&sweep);
}

const struct command cmd_sweep = {
    .name = "sweep",
    .summary = "Remove the leftovers of dead instances",
    .usage = "[--dry-run] [--older-than T] [--max N] [--state DIR]... [--instance NAME]...",
    .examples = "sandglass sweep --dry-run\n",
    .details = "Looks at the state directory of the settings, at those that have leased user ids "
               "on this host,\nat directories of private daemons, at control groups and at "
               "containers of the engine of\ndocker.host. Sandboxes of running daemons, of other "
               "hosts and without the mark of\nSandglass are left alone. A stopped daemon counts "
               "as dead, too: start it first if it is to\nkeep its sandboxes. With --json each "
               "line of the output is one document. Exit code 1:\nsomething could not be "
               "removed.",
    .sets = { { sweep_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct sweep_args),
    .plain_after = OPERANDS_MIXED,
    .run = sweep_run,
};
