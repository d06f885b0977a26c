/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass bench: how fast this machine is at it, in half a minute, beside plain processes. */

#include "base/alloc.h"
#include "base/str.h"
#include "bench/flight.h"
#include "bench/trial.h"
#include "cli/commands.h"
#include "cli/table.h"
#include "daemon/daemon.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SECONDS_MS = 10 * 1000, BURST = 20, WIDTH = 8 };

struct bench_args {
    struct common_args common;
    const char *duration;
    bool private;
};

static const struct option bench_options[] = {
    { "duration", 'd', OPTION_DURATION, offsetof(struct bench_args, duration), "T", NULL,
      "total time of the measurements; default 10s" },
    { "private", 'p', OPTION_FLAG, offsetof(struct bench_args, private), NULL, NULL,
      "start a private daemon with a pool, even if a daemon is running" },
    { 0 },
};

/* --- what is measured ------------------------------------------------------------------------ */

static const char *const true_argv[] = { "/bin/true", NULL };
static const char *const python_argv[] = { "/usr/bin/python3", "-c", "pass", NULL };

/* Rows of one caller, one thing after the other. */
enum { FLOOR, FIRST, RUN, PYTHON_PLAIN, PYTHON, DESTROY, ROWS };

static const char *const titles[ROWS] = {
    [FLOOR] = "a plain process: posix_spawn + wait of /bin/true (F0)",
    [FIRST] = "a new session and its first /bin/true",
    [RUN] = "/bin/true in a live session",
    [PYTHON_PLAIN] = "a plain python3 -c pass",
    [PYTHON] = "python3 -c pass in a live session",
    [DESTROY] = "removing a session, until all of it is gone",
};

static const char *const names[ROWS] = {
    [FLOOR] = "floor",        [FIRST] = "first",
    [RUN] = "exec_true",      [PYTHON_PLAIN] = "python_plain",
    [PYTHON] = "exec_python", [DESTROY] = "destroy",
};

struct bench {
    struct cli *cli;
    struct subject plain, sandglass;
    struct worker plain_worker, worker;
    struct trial trials[ROWS];
    struct samples burst;
    double plain_rate, rate;
    bool has_session;
};

static void bench_init(struct bench *bench, struct cli *cli)
{
    *bench = (struct bench){
        .cli = cli,
        .plain = { .name = "plain", .ops = &plain_ops },
        .sandglass = { .name = "sandglass", .place = cli->url, .ops = &sandglass_ops },
    };
    worker_init(&bench->plain_worker, &bench->plain, 0);
    worker_init(&bench->worker, &bench->sandglass, 1);
    bench->trials[FLOOR] = (struct trial){ .run = trial_cycle, .worker = &bench->plain_worker };
    bench->trials[FIRST] = (struct trial){ .run = trial_first, .worker = &bench->worker };
    bench->trials[RUN] =
        (struct trial){ .run = trial_run, .worker = &bench->worker, .argv = true_argv };
    bench->trials[PYTHON_PLAIN] =
        (struct trial){ .run = trial_run, .worker = &bench->plain_worker, .argv = python_argv };
    bench->trials[PYTHON] =
        (struct trial){ .run = trial_run, .worker = &bench->worker, .argv = python_argv };
    bench->trials[DESTROY] = (struct trial){ .run = trial_destroy, .worker = &bench->worker };
    for (size_t i = 0; i < ROWS; i++) {
        assert(bench->trials[i].worker->subject);
        bench->trials[i].row = names[i];
        bench->trials[i].subject = bench->trials[i].worker->subject->name;
    }
}

static void bench_fini(struct bench *bench)
{
    if (bench->has_session)
        (void)sandglass_ops.destroy(&bench->worker, &bench->trials[RUN].box, NULL);
    trials_fini(bench->trials, ROWS);
    samples_fini(&bench->burst);
    worker_fini(&bench->plain_worker);
    worker_fini(&bench->worker);
}

/* The first failure of what has to work; Python need not be there. */
static int check_trials(const struct bench *bench, struct error *err)
{
    for (size_t i = 0; i < ROWS; i++) {
        const struct trial *trial = &bench->trials[i];

        if (trial->failed && i != PYTHON && i != PYTHON_PLAIN) {
            *err = trial->err;
            return error_wrap(err, "%s", titles[i]);
        }
    }
    return 0;
}

static int bench_measure(struct bench *bench, double seconds, struct error *err)
{
    struct trial_limits limits = { .seconds = seconds, .at_least = 5, .at_most = 100000 };
    struct bench_box *box = &bench->trials[RUN].box;

    if (sandglass_ops.make(&bench->worker, box, err) < 0)
        return -1;
    bench->has_session = true;
    bench->trials[PYTHON].box = *box;
    trials_run(bench->trials, ROWS, &limits);
    if (check_trials(bench, err) < 0)
        return -1;
    bench->plain_rate = flight_rate(&bench->plain, WIDTH, seconds / 10, err);
    bench->rate = flight_rate(&bench->sandglass, WIDTH, seconds / 5, err);
    if (bench->plain_rate < 0 || bench->rate < 0)
        return -1;
    return flight_burst(&bench->sandglass, BURST, &bench->burst, err);
}

/* --- the report ------------------------------------------------------------------------------ */

static void add_time(struct table *table, double us)
{
    table_addf(table, us < 10000 ? "%.2f ms" : "%.1f ms", us / 1000);
}

static void add_trial(struct table *table, struct trial *trial, const char *title, double floor)
{
    if (trial->failed || trial->samples.count == 0)
        return;
    table_add(table, title);
    add_time(table, samples_at(&trial->samples, 0.5));
    add_time(table, samples_at(&trial->samples, 0.99));
    table_addf(table, "%.2f F0", samples_at(&trial->samples, 0.5) / floor);
    table_addf(table, "%zu", trial->samples.count);
}

static int show_table(struct bench *bench)
{
    static const char *const headings[] = { "", "MEDIAN", "P99", "RATIO", "ROUNDS", NULL };
    double floor = samples_at(&bench->trials[FLOOR].samples, 0.5);
    scoped(table_fini) struct table table;

    table_init(&table, headings);
    for (size_t i = 0; i < ROWS; i++)
        add_trial(&table, &bench->trials[i], titles[i], floor);
    table_addf(&table, "%d new sessions at once, each with a first result", BURST);
    add_time(&table, samples_at(&bench->burst, 0.5));
    add_time(&table, samples_at(&bench->burst, 0.99));
    table_addf(&table, "%.2f F0", samples_at(&bench->burst, 0.5) / floor);
    table_addf(&table, "%zu", bench->burst.count);
    table_addf(&table, "create, /bin/true, remove; %d at a time", WIDTH);
    table_addf(&table, "%.0f/s", bench->rate);
    table_add(&table, NULL);
    table_addf(&table, "%.2f of plain", bench->rate / bench->plain_rate);
    table_add(&table, NULL);
    return table_print(&table, bench->cli);
}

static void write_rate(struct json_writer *json, const char *subject, double rate)
{
    json_begin_object(json, NULL);
    json_put_text(json, "row", "rate");
    json_put_text(json, "subject", subject);
    json_put_text(json, "unit", "per second");
    json_put_double(json, "p50", rate);
    json_end_object(json);
}

static int show_json(struct bench *bench)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(1 << 20);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_begin_array(&json, "rows");
    for (size_t i = 0; i < ROWS; i++)
        trial_write_json(&bench->trials[i], "us", &json);
    json_begin_object(&json, NULL);
    json_put_text(&json, "row", "burst");
    json_put_text(&json, "subject", "sandglass");
    json_put_text(&json, "unit", "us");
    samples_write_json(&bench->burst, &json);
    json_end_object(&json);
    write_rate(&json, "plain", bench->plain_rate);
    write_rate(&json, "sandglass", bench->rate);
    json_end_array(&json);
    json_end_object(&json);
    buffer_append_byte(&text, '\n');
    return cli_print(bench->cli, text.data, text.length);
}

/* --- the command ----------------------------------------------------------------------------- */

static int measure_and_show(struct cli *cli, double seconds)
{
    struct error err = { 0 };
    struct bench bench;
    int code;

    bench_init(&bench, cli);
    if (bench_measure(&bench, seconds, &err) < 0)
        code = cli_fail(cli, &err);
    else
        code = cli->json ? show_json(&bench) : show_table(&bench);
    bench_fini(&bench);
    return code;
}

/* As `serve` would be, but for where its records are: what is measured is what one gets. */
static int measure_privately(struct cli *cli, double seconds)
{
    const struct daemon_setting settings[] = {
        { "store.sync", "full" }, { "pool.size", "4" }, { "audit.enabled", "true" }, { 0 }
    };
    struct private_daemon daemon = { .leash_fd = -1 };
    struct error err;
    int code;

    if (daemon_start_private(&daemon, settings, &err) < 0)
        return cli_fail(cli, &err);
    free(cli->url);
    cli->url = xstrdup(daemon.url);
    code = measure_and_show(cli, seconds);
    daemon_stop_private(&daemon);
    return code;
}

static int bench_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct bench_args *args = given_args;
    int64_t duration_ms = SECONDS_MS;
    struct error err;

    if (given->operands.count)
        return cli_misuse(cli, "bench takes no operand: \"%s\"", given->operands.items[0]);
    if (args->duration && str_to_duration_ms(args->duration, &duration_ms, &err) < 0)
        return cli_fail(cli, &err);
    if (duration_ms < 100 || duration_ms > 600 * 1000)
        return cli_misuse(cli, "--duration must be between 100ms and 10m, not %s", args->duration);
    if (args->private && cli->url_was_given)
        return cli_misuse(cli, "--private and --url exclude each other (--url is %s)", cli->url);
    if (args->private || (!cli->url_was_given && cli_nobody_listens(cli)))
        return measure_privately(cli, (double)duration_ms / 1000);
    return measure_and_show(cli, (double)duration_ms / 1000);
}

const struct command cmd_bench = {
    .name = "bench",
    .summary = "Measure how fast sandboxes are on this machine",
    .usage = "[--duration T] [--private]",
    .examples = "sandglass bench --private --duration 5s\n",
    .details = "Measures the running daemon, or a private one with the default settings if none is "
               "running,\nalternating with plain processes: F0 is posix_spawn and wait of "
               "/bin/true. Ratios to F0 can be\ncompared between machines, times cannot. The "
               "command removes the sessions that it creates.\nscripts/bench in the source tree "
               "measures more, and other tools for comparison.",
    .sets = { { bench_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct bench_args),
    .plain_after = OPERANDS_MIXED,
    .run = bench_run,
};
