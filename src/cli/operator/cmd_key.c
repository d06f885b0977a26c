/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass key: the file of API keys. Needs no daemon; one that runs notices within a second. */

#include "auth/keys.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/table.h"
#include "config/config.h"
#include "daemon/privileges.h"
#include "wire/json.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { TEXT_MAXIMUM = 64 << 20 };

struct key_args {
    struct common_args common;
    const char *config;
    const char *file;
    const char *principal;
    struct text_list roles;
    const char *expires;
    bool e2b;
};

#define PLACE(field) offsetof(struct key_args, field)

static const struct option place_options[] = {
    { "config", 'c', OPTION_TEXT, PLACE(config), "FILE", NULL,
      "configuration file; default: $SANDGLASS_CONFIG, else the usual paths" },
    { "keys-file", 0, OPTION_TEXT, PLACE(file), "FILE", NULL,
      "key file; default: the setting auth.keys_file" },
    { 0 },
};

static const struct option create_options[] = {
    { "principal", 'p', OPTION_TEXT, PLACE(principal), "NAME", NULL,
      "principal of the key and owner of the sessions created with it" },
    { "role", 'r', OPTION_LIST, PLACE(roles), "ROLE", "user approver admin delegate",
      "role of the key: user, approver, admin or delegate; may be repeated; default: user" },
    { "expires", 0, OPTION_DURATION, PLACE(expires), "TIME", NULL,
      "time from now until the key expires; default: never" },
    { "e2b", 0, OPTION_FLAG, PLACE(e2b), NULL, NULL,
      "print the key in the form that the clients of E2B accept" },
    { 0 },
};

struct key_place {
    char *path; /* owned */
    struct identity reader;
};

/* Which file, and who has to be able to read it. */
static int find_place(const struct key_args *args, struct key_place *place, struct error *err)
{
    scoped(config_fini) struct config config = { 0 };
    struct stat status;

    if (config_load(&config, args->config, err) < 0)
        return -1;
    if (!args->file && !*config.auth.keys_file) {
        error_set(err, ERR_INVALID, "the path of the key file is not known");
        return error_hint(err, "give --keys-file, or set auth.keys_file in the configuration");
    }
    if (identity_find(config.user, &place->reader, err) < 0)
        return -1;
    place->reader.name = NULL; /* goes with the settings */
    place->path = xstrdup(args->file ? args->file : config.auth.keys_file);
    if (stat(place->path, &status) == 0)
        place->reader = (struct identity){ .uid = status.st_uid, .gid = status.st_gid };
    return 0;
}

/* --- create ---------------------------------------------------------------------------------- */

static int read_roles(const struct text_list *names, unsigned *out_roles, struct error *err)
{
    *out_roles = ROLE_USER;
    for (size_t i = 0; i < names->count; i++) {
        unsigned role = role_parse(names->items[i]);

        if (!role)
            return error_set(err, ERR_INVALID,
                             "unknown role \"%s\" (expected user, approver, admin or delegate)",
                             names->items[i]);
        *out_roles |= role;
    }
    return 0;
}

static int add_key(const struct key_args *args, const struct key_place *place, char id[ID_SIZE],
                   char text[KEY_TEXT_SIZE], struct error *err)
{
    scoped(key_set_fini) struct key_set set = { 0 };
    scoped(fd_close) int lock = key_file_lock(place->path, err);
    int64_t now_us = clock_wall_us(&clock_system);
    int64_t expires_ms = 0;
    unsigned roles;

    if (lock < 0 || read_roles(&args->roles, &roles, err) < 0 ||
        (args->expires && str_to_duration_ms(args->expires, &expires_ms, err) < 0) ||
        key_set_load(&set, place->path, err) < 0)
        return -1;
    memcpy(id,
           key_set_add(&set, args->principal, roles, now_us,
                       expires_ms ? now_us + expires_ms * 1000 : 0, text)
               ->id,
           ID_SIZE);
    return key_set_save(&set, place->path, place->reader.uid, place->reader.gid, err);
}

static int print_key(struct cli *cli, const struct key_args *args, const char *id, const char *text)
{
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(4096);
    struct json_writer json = JSON_WRITER(&out);
    int code;

    if (!cli->json) {
        buffer_appendf(&out, "%s\n", text);
        code = cli_print(cli, out.data, out.length);
        cli_note("%s of %s; this is the only time the key is shown", id, args->principal);
        return code;
    }
    json_begin_object(&json, NULL);
    json_put_text(&json, "id", id);
    json_put_text(&json, "principal", args->principal);
    json_put_text(&json, "key", text);
    json_end_object(&json);
    buffer_append_byte(&out, '\n');
    return cli_print(cli, out.data, out.length);
}

static int create_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    struct key_args named = *(const struct key_args *)given_args;
    const struct key_args *args = &named;
    struct key_place place = { 0 };
    char id[ID_SIZE], text[KEY_TEXT_SIZE];
    struct error err = { 0 };
    int result;

    if (given->operands.count > (named.principal ? 0 : 1))
        return cli_misuse(cli, "create takes one principal");
    if (given->operands.count)
        named.principal = given->operands.items[0];
    if (str_is_empty(args->principal) || !owner_is_valid(args->principal))
        return cli_misuse(cli, "name the principal that the key is for");
    if (find_place(args, &place, &err) < 0)
        return cli_fail(cli, &err);
    result = add_key(args, &place, id, text, &err);
    free(place.path);
    if (result < 0)
        return cli_fail(cli, &err);
    if (args->e2b)
        key_text_for_e2b(text);
    result = print_key(cli, args, id, text);
    explicit_bzero(text, sizeof(text));
    return result;
}

static const struct command create_command = {
    .name = "create",
    .summary = "Create a key and print it, once",
    .usage = "PRINCIPAL [--role ROLE]... [--expires TIME] [--e2b]",
    .examples = "sandglass key create ann --expires 90d\n"
                "sandglass key create ops --role admin\n",
    .sets = { { create_options, 0, "Options" }, { place_options, 0, "Where" }, COMMON_OPTIONS },
    .args_size = sizeof(struct key_args),
    .plain_after = OPERANDS_MIXED,
    .run = create_run,
};

/* --- ls -------------------------------------------------------------------------------------- */

/* When keys were last used, by id, as far as a daemon tells us; the caller owns it. */
static json_t *ask_last_uses(struct cli *cli)
{
    scoped(reply_fini) struct reply reply = { 0 };
    json_t *uses = json_object();
    struct error err = { 0 };
    json_t *key;
    size_t index;

    if (cli_nobody_listens(cli) || cli_connect(cli, &err) < 0 ||
        cli_call(cli, HTTP_GET, "/api/v1/keys", NULL, &reply, &err) < 0)
        return uses;
    json_array_foreach(json_object_get(reply.json, "keys"), index, key)
        json_object_set(uses, field_text(key, "id", ""), json_object_get(key, "last_used_at"));
    return uses;
}

static void format_time(int64_t wall_us, char text[CLOCK_TEXT_SIZE])
{
    *text = '\0';
    if (wall_us)
        clock_format(wall_us, text);
}

static const char *key_state(const struct api_key *key)
{
    if (key->revoked_us)
        return "revoked";
    return key->expires_us && key->expires_us <= clock_wall_us(&clock_system) ? "expired" : "valid";
}

static void add_row(struct table *table, const struct api_key *key, const json_t *uses)
{
    scoped(buffer_fini) struct buffer roles = BUFFER_INIT(256);
    char created[CLOCK_TEXT_SIZE], expires[CLOCK_TEXT_SIZE];

    role_for_each(role, key->roles)
        buffer_appendf(&roles, "%s%s", roles.length ? "," : "", role_name(role));
    format_time(key->created_us, created);
    format_time(key->expires_us, expires);
    table_add(table, key->id);
    table_add(table, key->principal);
    table_add(table, buffer_text(&roles));
    table_add(table, key_state(key));
    table_add(table, created);
    table_add(table, expires);
    table_add(table, field_text(uses, key->id, ""));
}

static int print_table(struct cli *cli, const struct key_set *set, const json_t *uses)
{
    static const char *const headings[] = { "KEY",     "PRINCIPAL", "ROLES",     "STATE",
                                            "CREATED", "EXPIRES",   "LAST USED", NULL };
    scoped(table_fini) struct table table = { 0 };

    table_init(&table, headings);
    table_set_optional(&table, "CREATED EXPIRES ROLES");
    for (size_t i = 0; i < set->count; i++)
        add_row(&table, &set->items[i], uses);
    return table_print(&table, cli);
}

static int print_json(struct cli *cli, const struct key_set *set, const json_t *uses)
{
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(TEXT_MAXIMUM);
    struct json_writer json = JSON_WRITER(&out);

    json_begin_object(&json, NULL);
    json_begin_array(&json, "keys");
    for (size_t i = 0; i < set->count; i++) {
        const struct api_key *key = &set->items[i];

        json_begin_object(&json, NULL);
        json_put_text(&json, "id", key->id);
        json_put_text(&json, "principal", key->principal);
        json_begin_array(&json, "roles");
        role_for_each(role, key->roles) json_put_text(&json, NULL, role_name(role));
        json_end_array(&json);
        json_put_text(&json, "state", key_state(key));
        json_put_time(&json, "created_at", key->created_us);
        json_put_time(&json, "expires_at", key->expires_us);
        json_put_time(&json, "revoked_at", key->revoked_us);
        json_put_text(&json, "last_used_at", field_text(uses, key->id, NULL));
        json_end_object(&json);
    }
    json_end_array(&json);
    json_end_object(&json);
    buffer_append_byte(&out, '\n');
    return cli_print(cli, out.data, out.length);
}

static int ls_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    scoped(key_set_fini) struct key_set set = { 0 };
    scoped(json_decref) json_t *uses = NULL;
    struct key_place place = { 0 };
    struct error err = { 0 };
    int result;

    if (given->operands.count)
        return cli_misuse(cli, "ls takes no operand: \"%s\"", given->operands.items[0]);
    if (find_place(given_args, &place, &err) < 0)
        return cli_fail(cli, &err);
    result = key_set_load(&set, place.path, &err);
    free(place.path);
    if (result < 0)
        return cli_fail(cli, &err);
    if (set.damaged_count)
        cli_note("%zu lines of the key file are invalid", set.damaged_count);
    uses = ask_last_uses(cli);
    return cli->json ? print_json(cli, &set, uses) : print_table(cli, &set, uses);
}

static const struct command ls_command = {
    .name = "ls",
    .summary = "List the keys, without their secrets",
    .usage = "",
    .examples = "sandglass key ls\n",
    .sets = { { place_options, 0, "Where" }, COMMON_OPTIONS },
    .args_size = sizeof(struct key_args),
    .plain_after = OPERANDS_MIXED,
    .run = ls_run,
};

/* --- revoke ---------------------------------------------------------------------------------- */

static int revoke_keys(const struct key_place *place, const struct text_list *ids,
                       struct error *err)
{
    scoped(key_set_fini) struct key_set set = { 0 };
    scoped(fd_close) int lock = key_file_lock(place->path, err);

    if (lock < 0 || key_set_load(&set, place->path, err) < 0)
        return -1;
    for (size_t i = 0; i < ids->count; i++) {
        struct api_key *key = key_set_by_id(&set, ids->items[i]);

        if (!key)
            return error_set(err, ERR_NOT_FOUND, "unknown key %.80s", ids->items[i]);
        if (!key->revoked_us)
            key->revoked_us = clock_wall_us(&clock_system);
    }
    return key_set_save(&set, place->path, place->reader.uid, place->reader.gid, err);
}

static int revoke_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    struct key_place place = { 0 };
    struct error err = { 0 };
    int result;

    if (!given->operands.count)
        return cli_misuse(cli, "revoke needs a key id");
    if (find_place(given_args, &place, &err) < 0)
        return cli_fail(cli, &err);
    result = revoke_keys(&place, &given->operands, &err);
    free(place.path);
    if (result < 0)
        return cli_fail(cli, &err);
    return cli->json ? cli_print(cli, "{\"ok\":true}\n", 12) : 0;
}

static const struct command revoke_command = {
    .name = "revoke",
    .summary = "Revoke keys permanently",
    .usage = "KEY-ID...",
    .examples = "sandglass key revoke key_3f9a\n",
    .details =
        "New requests with a revoked key are refused within a second; running streams continue.",
    .sets = { { place_options, 0, "Where" }, COMMON_OPTIONS },
    .args_size = sizeof(struct key_args),
    .plain_after = OPERANDS_MIXED,
    .run = revoke_run,
};

static const struct command *const key_commands[] = {
    &create_command,
    &ls_command,
    &revoke_command,
    NULL,
};

const struct command cmd_key = {
    .name = "key",
    .summary = "Create, list and revoke API keys",
    .usage = "COMMAND",
    .examples = "sandglass key create ann\n",
    .subcommands = key_commands,
};
