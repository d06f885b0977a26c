/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass top: what the sandboxes of one's sessions use, now and again. */

#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/run/terminal.h"
#include "cli/session/sessions.h"
#include "cli/table.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INTERVAL_MS = 2000, INTERVAL_LEAST_MS = 100, LINES_ABOVE = 3, CONTROL_C = 3 };

struct top_args {
    struct common_args common;
    struct text_list labels;
    const char *owner;
    const char *sort;
    const char *interval;
    bool once;
};

static const struct option top_options[] = {
    { "label", 'l', OPTION_PAIRS, offsetof(struct top_args, labels), "K=V", NULL,
      "show sessions with this label only; may be repeated" },
    { "owner", 0, OPTION_TEXT, offsetof(struct top_args, owner), "NAME", NULL,
      "sessions of this owner, '*' for all owners; operators only" },
    { "sort", 's', OPTION_TEXT, offsetof(struct top_args, sort), "BY", "cpu memory disk age",
      "sort, largest first, by cpu (the default), memory, disk or age" },
    { "interval", 'n', OPTION_DURATION, offsetof(struct top_args, interval), "T", NULL,
      "refresh interval; default 2s" },
    { "once", '1', OPTION_FLAG, offsetof(struct top_args, once), NULL, NULL,
      "print once, even on a terminal" },
    { 0 },
};

static const char *const terminal_headings[] = { "SESSION", "KEY",  "SANDBOX", "CPU%",
                                                 "CPU",     "MEM",  "PEAK",    "PIDS",
                                                 "DISK",    "RUNS", "ENDS",    NULL };
static const char optional_headings[] = "PEAK CPU DISK PIDS SANDBOX ENDS";
static const char *const pipe_headings[] = { "id",
                                             "key",
                                             "state",
                                             "sandbox",
                                             "cpu_seconds",
                                             "memory_bytes",
                                             "memory_peak_bytes",
                                             "pids",
                                             "disk_bytes",
                                             "running",
                                             "ends_by",
                                             "ends_in",
                                             NULL };

/* --- one session ----------------------------------------------------------------------------- */

/* The share of a core that was used since the look before; -1 when there is none of the same
 * sandbox. */
static double cpu_share(const json_t *session, const json_t *before)
{
    const json_t *now = json_object_get(session, "usage");
    const json_t *then = json_object_get(before, "usage");
    int64_t now_us, then_us;

    if (field_int(session, "generation", 0) != field_int(before, "generation", -1) ||
        clock_parse(field_text(now, "measured_at", ""), &now_us) < 0 ||
        clock_parse(field_text(then, "measured_at", ""), &then_us) < 0 || now_us <= then_us)
        return -1;
    return (field_number(now, "cpu_seconds", 0) - field_number(then, "cpu_seconds", 0)) * 1e6 /
           (double)(now_us - then_us);
}

static void add_size(struct table *table, const json_t *usage, const char *name)
{
    char text[STR_UNIT_SIZE];

    if (!json_is_object(usage)) {
        table_add(table, NULL);
        return;
    }
    str_format_size((uint64_t)field_int(usage, name, 0), text);
    table_add(table, text);
}

static void add_number(struct table *table, const json_t *usage, const char *name)
{
    if (json_is_object(usage))
        table_addf(table, "%" PRId64, field_int(usage, name, 0));
    else
        table_add(table, NULL);
}

static int64_t runs_of(const json_t *session)
{
    return field_int(json_object_get(session, "executions"), "running", 0);
}

static void add_terminal_row(struct table *table, const json_t *session, const json_t *before)
{
    const json_t *usage = json_object_get(session, "usage");
    struct session_end end = session_next_end_of(session);
    double share = cpu_share(session, before);
    char duration[STR_UNIT_SIZE];

    table_add_id(table, field_text(session, "id", NULL));
    table_add(table, field_text(session, "key", NULL));
    table_add(table, session_sandbox_state(session));
    if (share >= 0)
        table_addf(table, "%.0f%%", share * 100);
    else
        table_add(table, NULL);
    if (json_is_object(usage))
        table_addf(table, "%.2fs", field_number(usage, "cpu_seconds", 0));
    else
        table_add(table, NULL);
    add_size(table, usage, "memory_bytes");
    add_size(table, usage, "memory_peak_bytes");
    add_number(table, usage, "pids");
    add_size(table, usage, "disk_bytes");
    table_addf(table, "%" PRId64, runs_of(session));
    str_format_duration((int64_t)MAX(end.remaining_s, 0) * 1000, duration);
    if (end.remaining_s >= 0)
        table_addf(table, "%s (%s)", duration, end.kind);
    else
        table_add(table, NULL);
}

static void add_pipe_row(struct table *table, const json_t *session)
{
    const json_t *usage = json_object_get(session, "usage");
    struct session_end end = session_next_end_of(session);

    table_add_id(table, field_text(session, "id", NULL));
    table_add(table, field_text(session, "key", NULL));
    table_add(table, field_text(session, "state", NULL));
    table_add(table, session_sandbox_state(session));
    if (json_is_object(usage))
        table_addf(table, "%.3f", field_number(usage, "cpu_seconds", 0));
    else
        table_add(table, NULL);
    add_number(table, usage, "memory_bytes");
    add_number(table, usage, "memory_peak_bytes");
    add_number(table, usage, "pids");
    add_number(table, usage, "disk_bytes");
    table_addf(table, "%" PRId64, runs_of(session));
    table_add(table, end.remaining_s >= 0 ? end.kind : NULL);
    if (end.remaining_s >= 0)
        table_addf(table, "%.0f", end.remaining_s);
    else
        table_add(table, NULL);
}

/* --- their order ----------------------------------------------------------------------------- */

struct ranked {
    const json_t *session;
    size_t place; /* the oldest first, among equals */
    double rank;
};

static double rank_of(const json_t *session, const json_t *before, const char *sort)
{
    const json_t *usage = json_object_get(session, "usage");
    double share = cpu_share(session, before);

    if (str_equal(sort, "memory"))
        return field_number(usage, "memory_bytes", -1);
    if (str_equal(sort, "disk"))
        return field_number(usage, "disk_bytes", -1);
    if (str_equal(sort, "age"))
        return 0;

    /* Sessions that use processor time now come before those that used it earlier. */
    return share > 0 ? 1e9 + share : field_number(usage, "cpu_seconds", -1);
}

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a;
    const struct ranked *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? 1 : -1;
    return (x->place > y->place) - (x->place < y->place);
}

static struct ranked *rank_sessions(const json_t *sessions, const json_t *before, const char *sort)
{
    size_t count = json_array_size(sessions);
    struct ranked *ranked = xcalloc(count + 1, sizeof(*ranked));

    for (size_t i = 0; i < count; i++) {
        const json_t *session = json_array_get(sessions, i);
        const json_t *then = json_object_get(before, field_text(session, "id", ""));

        ranked[i] = (struct ranked){ session, i, rank_of(session, then, sort) };
    }
    qsort(ranked, count, sizeof(*ranked), by_rank);
    return ranked;
}

static void fill_table(struct table *table, const json_t *sessions, const json_t *before,
                       const char *sort, size_t at_most)
{
    scoped(free) struct ranked *ranked = rank_sessions(sessions, before, sort);

    for (size_t i = 0; i < MIN(json_array_size(sessions), at_most); i++) {
        const json_t *session = ranked[i].session;

        if (table->aligned)
            add_terminal_row(table, session,
                             json_object_get(before, field_text(session, "id", "")));
        else
            add_pipe_row(table, session);
        if (table->last_heading)
            table_add(table, field_text(session, "owner", NULL));
    }
}

/* --- one look -------------------------------------------------------------------------------- */

static void write_summary(const json_t *sessions, const json_t *before, struct buffer *text)
{
    const json_t *session;
    double share = 0, memory = 0;
    char memory_text[STR_UNIT_SIZE];
    int64_t runs = 0;
    size_t index;

    json_array_foreach(sessions, index, session)
    {
        const json_t *usage = json_object_get(session, "usage");

        runs += runs_of(session);
        memory += field_number(usage, "memory_bytes", 0);
        share +=
            MAX(cpu_share(session, json_object_get(before, field_text(session, "id", ""))), 0.0);
    }
    str_format_size((uint64_t)memory, memory_text);
    buffer_appendf(text, "%zu session%s, %" PRId64 " execution%s running, %s", index,
                   index == 1 ? "" : "s", runs, runs == 1 ? "" : "s", memory_text);
    if (before)
        buffer_appendf(text, ", %.0f%% of a core", share * 100);
    buffer_append_text(text, "\n\n");
}

static int show_once(struct cli *cli, const struct top_args *args, const json_t *answer)
{
    scoped(table_fini) struct table table;
    const json_t *sessions = json_object_get(answer, "sessions");

    if (cli->json)
        return cli_print_json(cli, answer);
    table_init(&table, pipe_headings);
    if (table.aligned)
        table_init(&table, terminal_headings);
    table_set_optional(&table, optional_headings);
    if (args->owner)
        table_add_column(&table, "OWNER");
    fill_table(&table, sessions, NULL, args->sort, SIZE_MAX);
    return table_print(&table, cli);
}

/* --- again and again ------------------------------------------------------------------------- */

static volatile sig_atomic_t wanted_to_end;

static void on_end_signal(int number UNUSED)
{
    wanted_to_end = 1;
}

/* The screen of before comes back when we leave. */
static void enter_screen(void)
{
    struct sigaction action = { .sa_handler = on_end_signal };
    struct error ignored;

    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    if (isatty(STDIN_FILENO))
        (void)terminal_make_raw(STDIN_FILENO, &ignored);
    (void)!write(STDOUT_FILENO, "\033[?1049h\033[?25l", 14);
}

static void leave_screen(void)
{
    (void)!write(STDOUT_FILENO, "\033[?25h\033[?1049l", 14);
    terminal_restore();
}

/* Lines end where the screen would be wider, and with a carriage return: the terminal is raw. */
static int draw(struct cli *cli, const struct top_args *args, const json_t *sessions,
                const json_t *before)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REPLY_MAXIMUM);
    scoped(buffer_fini) struct buffer screen = BUFFER_INIT(REPLY_MAXIMUM);
    scoped(buffer_fini) struct buffer rows_text = BUFFER_INIT(REPLY_MAXIMUM);
    scoped(table_fini) struct table table;
    unsigned columns = 80, rows = 24;

    (void)terminal_size(STDOUT_FILENO, &columns, &rows);
    table_init(&table, terminal_headings);
    table_set_optional(&table, optional_headings);
    if (args->owner)
        table_add_column(&table, "OWNER");
    fill_table(&table, sessions, before, args->sort, rows > LINES_ABOVE ? rows - LINES_ABOVE : 1);
    write_summary(sessions, before, &text);
    table_write(&table, columns, &rows_text);
    buffer_append(&text, rows_text.data, rows_text.length);
    buffer_append_text(&screen, "\033[H");
    for (size_t i = 0; i < text.length; i++) {
        bool last = i + 1 == text.length;

        if (text.data[i] == '\n')
            buffer_append_text(&screen, last ? "\033[K" : "\033[K\r\n");
        else
            buffer_append_byte(&screen, text.data[i]);
    }
    buffer_append_text(&screen, "\033[J");
    return cli_print(cli, screen.data, screen.length);
}

/* Until the next look; true when the user wants to leave. */
static bool pause_for(int64_t interval_ms)
{
    struct pollfd keys = { .fd = isatty(STDIN_FILENO) ? STDIN_FILENO : -1, .events = POLLIN };
    char key = 0;

    if (wanted_to_end || poll(&keys, 1, (int)interval_ms) < 0)
        return wanted_to_end;
    if (keys.revents && read(STDIN_FILENO, &key, 1) <= 0)
        return true;
    return key == 'q' || key == 'Q' || key == CONTROL_C;
}

/* By id, for the next look. */
static json_t *index_sessions(const json_t *sessions)
{
    json_t *index = json_object();
    json_t *session;
    size_t at;

    json_array_foreach(sessions, at, session)
        json_object_set(index, field_text(session, "id", ""), session);
    return index;
}

static json_t *list_sessions(struct cli *cli, const struct top_args *args, struct error *err)
{
    const struct sessions_filter filter = { .labels = &args->labels, .owner = args->owner };

    return sessions_list(cli, &filter, true, err);
}

static int show_again(struct cli *cli, const struct top_args *args, int64_t interval_ms)
{
    scoped(json_decref) json_t *before = NULL;
    struct error err = { 0 };
    int code = 0;

    enter_screen();
    do {
        scoped(json_decref) json_t *answer = list_sessions(cli, args, &err);
        const json_t *sessions = json_object_get(answer, "sessions");

        if (!answer)
            break;
        code = draw(cli, args, sessions, before);
        json_decref(before);
        before = index_sessions(sessions);
    } while (code == 0 && !pause_for(interval_ms));
    leave_screen();
    return err.code ? cli_fail(cli, &err) : code;
}

static int top_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct top_args *args = given_args;
    int64_t interval_ms = INTERVAL_MS;
    scoped(json_decref) json_t *answer = NULL;
    struct error err;

    if (given->operands.count)
        return cli_misuse(cli, "top takes no operand: \"%s\"", given->operands.items[0]);
    if (args->interval && str_to_duration_ms(args->interval, &interval_ms, &err) < 0)
        return cli_fail(cli, &err);
    if (interval_ms < INTERVAL_LEAST_MS || interval_ms > INT32_MAX)
        return cli_misuse(cli, "--interval must be between 100ms and 24d, not %s", args->interval);
    if (!args->once && !cli->json && isatty(STDOUT_FILENO))
        return show_again(cli, args, interval_ms);
    answer = list_sessions(cli, args, &err);
    return answer ? show_once(cli, args, answer) : cli_fail(cli, &err);
}

const struct command cmd_top = {
    .name = "top",
    .summary = "Show the resource usage of your sessions",
    .usage = "[--label K=V]... [--owner NAME] [--sort BY] [--interval T] [--once]",
    .examples = "sandglass top\n"
                "sandglass top --sort memory --interval 5s\n"
                "sandglass top --once --owner '*'\n",
    .details = "On a terminal the display refreshes every two seconds, until q or Ctrl-C. CPU% is "
               "the share of\na core since the last refresh, CPU the total CPU time of the "
               "sandbox.\nIn a pipe, with --once and with --json it prints once. In a pipe each "
               "line has these columns,\nseparated by tabs, '-' for an empty one:\n  id key state "
               "sandbox cpu_seconds memory_bytes memory_peak_bytes pids disk_bytes running\n  "
               "ends_by ends_in, and with --owner the owner",
    .sets = { { top_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct top_args),
    .plain_after = OPERANDS_MIXED,
    .run = top_run,
};
