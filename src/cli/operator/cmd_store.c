/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass store: check, copy, put back and repair the database. Needs no daemon. */

#include "base/alloc.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/operator/store_report.h"
#include "config/config.h"
#include "loop/loop.h"
#include "store/lock.h"
#include "store/store.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

enum { TEXT_MAXIMUM = 1 << 20 };

struct store_args {
    struct common_args common;
    const char *config;
    const char *state;
    bool accept_loss;
};

#define STORE_OPTIONS                                                             \
    { "config",                                                                   \
      'c',                                                                        \
      OPTION_TEXT,                                                                \
      offsetof(struct store_args, config),                                        \
      "FILE",                                                                     \
      NULL,                                                                       \
      "configuration file that names the state directory" },                      \
    {                                                                             \
        "state", 0, OPTION_TEXT, offsetof(struct store_args, state), "DIR", NULL, \
            "the state directory"                                                 \
    }

static const struct option store_options[] = { STORE_OPTIONS, { 0 } };

static const struct option repair_options[] = {
    { "accept-loss", 0, OPTION_FLAG, offsetof(struct store_args, accept_loss), NULL, NULL,
      "continue without the commits that a damaged redo log has lost" },
    STORE_OPTIONS,
    { 0 },
};

/* Where the database is; both are to be freed. */
struct place {
    char *state_dir;
    char *path;
};

static void scoped_place_fini(struct place *place)
{
    free(place->state_dir);
    free(place->path);
}

static int find_place(const struct store_args *args, struct place *out_place, struct error *err)
{
    scoped(config_fini) struct config config = { 0 };

    if (!args->state && config_load(&config, args->config, err) < 0)
        return -1;
    out_place->state_dir = xstrdup(args->state ? args->state : config.state_dir);
    out_place->path = path_join(out_place->state_dir, "sandglass.db");
    return 0;
}

/* --- check ----------------------------------------------------------------------------------- */

static int print_text(struct cli *cli, const struct store_report *report, const char *path)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(TEXT_MAXIMUM);
    const json_t *finding;
    size_t i;

    json_array_foreach(report->findings, i, finding)
        buffer_appendf(&text, "%s: %s\n", path, json_string_value(finding));
    if (!report->check.findings)
        buffer_appendf(&text, "%s: %llu sessions, %llu executions, %llu events, no damage found\n",
                       path, (unsigned long long)report->check.sessions,
                       (unsigned long long)report->check.executions,
                       (unsigned long long)report->check.events);
    return cli_print(cli, text.data, text.length);
}

static int print_json(struct cli *cli, const struct store_report *report, const char *path)
{
    scoped(json_decref) json_t *document = json_pack(
        "{s:s, s:b, s:O, s:I, s:I, s:I}", "file", path, "ok", report->check.findings == 0,
        "findings", report->findings, "sessions", (json_int_t)report->check.sessions, "executions",
        (json_int_t)report->check.executions, "events", (json_int_t)report->check.events);

    return cli_print_json(cli, document);
}

static int check_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    scoped(place_fini) struct place place = { 0 };
    struct store_report report;
    const char *path;
    struct error err = { 0 };
    int code;

    if (given->operands.count > 1)
        return cli_misuse(cli, "store check takes at most one file");
    if (!given->operands.count && find_place(given_args, &place, &err) < 0)
        return cli_fail(cli, &err);
    path = given->operands.count ? given->operands.items[0] : place.path;
    if (store_report_run(&report, path, place.state_dir, &err) < 0)
        code = cli_fail(cli, &err);
    else
        code = cli->json ? print_json(cli, &report, path) : print_text(cli, &report, path);
    if (code == 0 && report.check.findings)
        code = EXIT_REFUSED;
    store_report_fini(&report);
    return code;
}

/* --- backup and restore ---------------------------------------------------------------------- */

static int say(struct cli *cli, const char *verb, const char *file)
{
    scoped(json_decref) json_t *document = json_pack("{s:s}", verb, file);
    scoped(free) char *line = xasprintf("%s %s\n", verb, file);

    return cli->json ? cli_print_json(cli, document) : cli_print(cli, line, strlen(line));
}

static int backup_run(struct cli *cli, const void *args, const struct option_result *given)
{
    scoped(place_fini) struct place place = { 0 };
    struct error err = { 0 };

    if (given->operands.count != 1)
        return cli_misuse(cli, "store backup needs the name of a new file");
    if (find_place(args, &place, &err) < 0 ||
        store_backup(place.path, given->operands.items[0], &err) < 0)
        return cli_fail(cli, &err);
    return say(cli, "backed_up", given->operands.items[0]);
}

/* No other process has it open as long as the lock is held. */
static int lock_place(const struct place *place, struct stat *out_info, struct error *err)
{
    scoped(fd_close) int dir = open(place->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int lock;

    if (dir < 0 || fstat(dir, out_info) < 0)
        return error_sys(err, "open %s", place->state_dir);
    lock = store_lock(dir, err);
    if (lock < 0)
        error_hint(err, "stop the daemon first");
    return lock;
}

static int check_copy(const char *path, struct error *err)
{
    struct store_report report;
    int result = store_report_run(&report, path, NULL, err);

    if (result == 0 && report.check.findings)
        result = error_named(err, ERR_INVALID, "store_damaged", "%s is damaged: %s", path,
                             json_string_value(json_array_get(report.findings, 0)));
    store_report_fini(&report);
    return result;
}

static int restore_run(struct cli *cli, const void *args, const struct option_result *given)
{
    scoped(place_fini) struct place place = { 0 };
    struct stat info = { 0 };
    struct error err = { 0 };
    int lock;
    int result;

    if (given->operands.count != 1)
        return cli_misuse(cli, "store restore needs a backup file");
    if (find_place(args, &place, &err) < 0 || check_copy(given->operands.items[0], &err) < 0)
        return cli_fail(cli, &err);
    lock = lock_place(&place, &info, &err);
    if (lock < 0)
        return cli_fail(cli, &err);
    result = store_restore(given->operands.items[0], place.path, info.st_uid, info.st_gid, &err);
    store_unlock(lock);
    if (result < 0)
        return cli_fail(cli, &err);
    cli_note("the replaced files were renamed to *.replaced; sandboxes that the backup does not "
             "know are leftovers: run 'sandglass sweep'");
    return say(cli, "restored", place.path);
}

/* --- repair ---------------------------------------------------------------------------------- */

/* Opening it applies what the log has, and closing leaves no log. */
static int repair(const struct place *place, struct error *err)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct store *store = store_open_sqlite(
        &(struct store_options){
            .loop = loop, .path = place->path, .sync = "full", .accept_loss = true },
        err);

    store_close(store);
    return store ? 0 : -1;
}

static int repair_run(struct cli *cli, const void *given_args,
                      const struct option_result *given UNUSED)
{
    const struct store_args *args = given_args;
    scoped(place_fini) struct place place = { 0 };
    struct stat info;
    struct error err = { 0 };
    int lock;
    int result;

    if (!args->accept_loss)
        return cli_misuse(cli, "store repair needs --accept-loss: lost commits stay lost; "
                               "'sandglass store check' lists them");
    if (find_place(args, &place, &err) < 0)
        return cli_fail(cli, &err);
    lock = lock_place(&place, &info, &err);
    if (lock < 0)
        return cli_fail(cli, &err);
    result = repair(&place, &err);
    store_unlock(lock);
    return result < 0 ? cli_fail(cli, &err) : say(cli, "repaired", place.path);
}

/* --- the commands ---------------------------------------------------------------------------- */

static const struct command check_command = {
    .name = "check",
    .summary = "Check the database, its redo log and stored output for damage",
    .usage = "[FILE]",
    .examples = "sandglass store check\n",
    .details = "Reads everything and changes nothing; a daemon may be running. FILE is a backup. "
               "Exit code 1:\ndamage was found.",
    .sets = { { store_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct store_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_FILE,
    .run = check_run,
};

static const struct command backup_command = {
    .name = "backup",
    .summary = "Copy the database to a new file, even while a daemon runs",
    .usage = "FILE",
    .examples = "sandglass store backup /var/backups/sandglass.db\n",
    .details = "The copy includes every change acknowledged before the command started. It does "
               "not include\nthe output of programs.",
    .sets = { { store_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct store_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_FILE,
    .run = backup_run,
};

static const struct command restore_command = {
    .name = "restore",
    .summary = "Replace the database by a backup; the daemon must be stopped",
    .usage = "FILE",
    .examples = "sandglass store restore /var/backups/sandglass.db\n",
    .sets = { { store_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct store_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_FILE,
    .run = restore_run,
};

static const struct command repair_command = {
    .name = "repair",
    .summary =
        "Continue without the commits lost in a damaged redo log; the daemon must be stopped",
    .usage = "--accept-loss",
    .examples = "sandglass store repair --accept-loss\n",
    .details = "The damaged files are renamed to *.damaged.",
    .sets = { { repair_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct store_args),
    .run = repair_run,
};

static const struct command *const store_commands[] = { &check_command, &backup_command,
                                                        &restore_command, &repair_command, NULL };

const struct command cmd_store = {
    .name = "store",
    .summary = "Check, back up and restore the database",
    .usage = "COMMAND",
    .examples = "sandglass store check\n",
    .subcommands = store_commands,
};
