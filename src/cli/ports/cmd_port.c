/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass port: which ports are served in a sandbox, a tunnel to one, and signed URLs. */

#include "base/str.h"
#include "cli/commands.h"
#include "cli/ports/tunnel.h"
#include "cli/table.h"

#include <stdlib.h>
#include <string.h>

static const char *const headings[] = { "PORT", "PATH", NULL };

struct port_args {
    struct common_args common;
    bool url;
    const char *expires;
};

static const struct option port_options[] = {
    { "sign", 's', OPTION_FLAG, offsetof(struct port_args, url), NULL, NULL,
      "print a signed URL instead, which gives access to the port" },
    { "expires", 'e', OPTION_DURATION, offsetof(struct port_args, expires), "T", NULL,
      "with --sign: how long the URL is valid (default 1h)" },
    { 0 },
};

/* --- what listens ---------------------------------------------------------------------------- */

static int list_ports(struct cli *cli, const char *session)
{
    scoped(table_fini) struct table table;
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(free) char *target = session_target(session, "/ports");
    const json_t *row;
    struct error err;
    size_t index;

    table_init(&table, headings);
    if (cli_call(cli, HTTP_GET, target, NULL, &reply, &err) < 0)
        return cli_fail(cli, &err);
    if (cli->json)
        return cli_print_json(cli, reply.json);
    json_array_foreach(json_object_get(reply.json, "ports"), index, row)
    {
        table_addf(&table, "%lld", (long long)field_int(row, "port", 0));
        table_add(&table, field_text(row, "path", NULL));
    }
    return table_print(&table, cli);
}

/* --- signed URLs ----------------------------------------------------------------------------- */

static int sign(struct cli *cli, const char *session, unsigned port, const char *expires)
{
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(256);
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(free) char *target = session_target(session, "/ports/%u/url", port);
    scoped(buffer_fini) struct buffer line = BUFFER_INIT(16 * 1024);
    struct error err = { 0 };
    int64_t expires_ms = 0;

    if (expires && str_to_duration_ms(expires, &expires_ms, &err) < 0)
        return cli_fail(cli, &err);
    if (expires)
        buffer_appendf(&body, "{\"valid_seconds\":%.3f}", (double)expires_ms / 1000);
    else
        buffer_append_text(&body, "{}");
    if (cli_call(cli, HTTP_POST, target, &body, &reply, &err) < 0)
        return cli_fail(cli, &err);
    if (cli->json)
        return cli_print_json(cli, reply.json);
    buffer_appendf(&line, "%s\n", field_text(reply.json, "url", ""));
    return cli_print(cli, line.data, line.length);
}

/* --- all of it ------------------------------------------------------------------------------- */

static int port_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct port_args *args = given_args;
    struct tunnel_wish wish = { 0 };

    if (given->operands.count < 1 || given->operands.count > 2)
        return cli_misuse(cli, "port needs a session, and at most one port");
    wish.session = given->operands.items[0];
    if (args->expires && !args->url)
        return cli_misuse(cli, "--expires is for --sign");
    if (given->operands.count == 1 && args->url)
        return cli_misuse(cli, "--sign needs a port");
    if (given->operands.count == 1)
        return list_ports(cli, wish.session);
    if (!tunnel_read_ports(given->operands.items[1], &wish))
        return cli_misuse(cli,
                          "\"%s\" is not [LOCAL:]REMOTE, numbers from 1 to 65535 (LOCAL may "
                          "be 0: any free port)",
                          given->operands.items[1]);
    if (args->url)
        return sign(cli, wish.session, wish.remote, args->expires);
    return tunnel_run(cli, &wish);
}

const struct command cmd_port = {
    .name = "port",
    .summary = "Reach a port inside a sandbox, or list the ports that are served",
    .usage = "[--sign [--expires T]] SESSION [[LOCAL:]REMOTE]",
    .examples = "sandglass port notes\n"
                "sandglass port notes 8080:8000\n"
                "sandglass port --sign --expires 1h notes 8000\n",
    .details =
        "Listens on 127.0.0.1:LOCAL (by default the same number as REMOTE; 0 takes any free "
        "port),\nprints that address, and carries every connection to the port inside, until it "
        "is\ninterrupted. It needs no network in the sandbox. While the daemon is restarted new\n"
        "connections wait for it. An open connection that is idle does not keep the session.\n"
        "Without a port: one line for each TCP port that programs listen on, and its path in the "
        "API.",
    .sets = { { port_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct port_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_SESSION,
    .run = port_run,
};
