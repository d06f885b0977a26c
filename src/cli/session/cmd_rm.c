/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass rm, sandglass session rm: ends sessions and everything in them. */

#include "base/alloc.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/session/resolve.h"
#include "cli/session/sessions.h"

#include <stdlib.h>
#include <string.h>

struct rm_args {
    struct common_args common;
    bool all;
    bool force;
    const char *owner;
    struct text_list labels;
};

#define PLACE(field) offsetof(struct rm_args, field)

static const struct option rm_options[] = {
    { "all", 'a', OPTION_FLAG, PLACE(all), NULL, NULL, "all your sessions" },
    { "label", 'l', OPTION_PAIRS, PLACE(labels), "K=V", NULL,
      "all sessions with this label; may be repeated" },
    { "owner", 0, OPTION_TEXT, offsetof(struct rm_args, owner), "NAME", NULL,
      "sessions of this owner, '*' for all owners; operators only" },
    { "force", 'f', OPTION_FLAG, PLACE(force), NULL, NULL,
      "ignore sessions that do not exist any more" },
    { 0 },
};

/* The same document for both ways: {"destroyed":[], "failed":[], "skipped":[]}. */
static json_t *removal_new(void)
{
    return json_pack("{s:[],s:[],s:[]}", "destroyed", "failed", "skipped");
}

static void removal_failed(json_t *removal, const char *id, const struct error *err)
{
    json_array_append_new(json_object_get(removal, "failed"),
                          json_pack("{s:s, s:{s:s, s:s}}", "id", id, "error", "code", err->name,
                                    "message", err->message));
}

static bool is_gone(const struct error *err)
{
    return err->code == ERR_NOT_FOUND || err->code == ERR_GONE;
}

/* -1 when the daemon was not asked or did not answer; other failures are in `removal`. */
static int remove_one(struct cli *cli, const char *session, bool force, json_t *removal,
                      struct error *out_err)
{
    scoped(free) char *target = session_own_target(session);
    scoped(reply_fini) struct reply reply = { 0 };
    struct error err;

    if (!str_is_utf8(session, strlen(session)))
        return error_set(out_err, ERR_INVALID, "the name of a session must be UTF-8 text");
    if (cli_call(cli, HTTP_DELETE, target, NULL, &reply, &err) == 0)
        json_array_append_new(json_object_get(removal, "destroyed"),
                              json_string(field_text(reply.json, "id", session)));
    else if (force && is_gone(&err))
        json_array_append_new(json_object_get(removal, "skipped"),
                              json_pack("{s:s, s:s}", "id", session, "reason", err.message));
    else
        removal_failed(removal, session, &err);
    if (reply.status >= 0)
        return 0;
    *out_err = err;
    return -1;
}

static json_t *remove_many(struct cli *cli, const struct rm_args *args, struct error *err)
{
    const struct sessions_filter filter = { .labels = &args->labels, .owner = args->owner };
    scoped(free) char *query = sessions_query(&filter);
    scoped(free) char *target = xasprintf("/api/v1/sessions%s", query);
    scoped(reply_fini) struct reply reply = { 0 };

    if (cli_call(cli, HTTP_DELETE, target, NULL, &reply, err) < 0)
        return NULL;
    return json_incref(reply.json);
}

static const char *failure_message(const json_t *failure)
{
    const json_t *error = json_object_get(failure, "error");

    return json_is_string(error) ? json_string_value(error)
                                 : field_text(error, "message", "unknown reason");
}

static int report(struct cli *cli, const json_t *removal)
{
    scoped(buffer_fini) struct buffer ids = BUFFER_INIT(REPLY_MAXIMUM);
    const json_t *failed = json_object_get(removal, "failed");
    const json_t *item;
    size_t index;
    int code;

    json_array_foreach(json_object_get(removal, "destroyed"), index, item)
        buffer_appendf(&ids, "%s\n", json_string_value(item));
    code = cli->json ? cli_print_json(cli, removal) : cli_print(cli, ids.data, ids.length);
    if (!cli->json)
        json_array_foreach(failed, index, item)
            cli_note("%s: %s", field_text(item, "id", "?"), failure_message(item));
    return code ? code : json_array_size(failed) ? EXIT_REFUSED : 0;
}

static int rm_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct rm_args *args = given_args;
    const struct text_list *operands = &given->operands;
    bool many = args->all || args->labels.count > 0;
    scoped(json_decref) json_t *removal = NULL;
    struct error err;

    if (many == (operands->count > 0))
        return cli_misuse(cli, many ? "sessions and --all or --label exclude each other"
                                    : "rm needs sessions, --all or --label");
    if (many) {
        removal = remove_many(cli, args, &err);
        return removal ? report(cli, removal) : cli_fail(cli, &err);
    }
    if (args->owner && str_equal(args->owner, "*"))
        return cli_misuse(
            cli, "--owner '*' needs --all or --label; for a single session, name its owner");
    if (args->owner)
        setenv("SANDGLASS_ON_BEHALF_OF", args->owner, 1);
    removal = removal_new();
    for (size_t i = 0; i < operands->count; i++) {
        scoped(free) char *session = session_resolve(cli, operands->items[i], &err);

        if (!session || remove_one(cli, session, args->force, removal, &err) < 0)
            return cli_fail(cli, &err);
    }
    return report(cli, removal);
}

const struct command cmd_rm = {
    .name = "rm",
    .summary = "End sessions and remove everything in them",
    .usage = "[-f] [--owner NAME] SESSION... | --all | --label K=V",
    .examples = "sandglass rm notes ses_4k7q9x2m\n"
                "sandglass rm --label project=eval\n"
                "sandglass rm --all\n",
    .details = "Prints the id of each session as soon as it is removed.",
    .sets = { { rm_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct rm_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_SESSIONS,
    .run = rm_run,
};
