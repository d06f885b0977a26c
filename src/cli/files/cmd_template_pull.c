/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass template pull: a template from an image in a registry. Needs no daemon. */

#include "backend/pull/login.h"
#include "backend/pull/pull.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/files/template.h"
#include "config/config.h"
#include "wire/json.h"

#include <string.h>

struct pull_args {
    struct template_args place;
    const char *name;
    const char *platform;
    const char *username;
    const char *password_file;
    bool insecure;
    bool replace;
};

#define PLACE(field) offsetof(struct pull_args, field)

static const struct option pull_options[] = {
    { "name", 0, OPTION_TEXT, PLACE(name), "NAME", NULL,
      "name of the template; default: from the image, python-3.12 for python:3.12" },
    { "platform", 0, OPTION_TEXT, PLACE(platform), "OS/ARCH", NULL,
      "platform of the image, such as linux/arm64; default: that of this machine" },
    { "replace", 0, OPTION_FLAG, PLACE(replace), NULL, NULL,
      "replace a template of that name, unless a sandbox uses it" },
    { "username", 'u', OPTION_TEXT, PLACE(username), "NAME", NULL,
      "user of the registry; default: as 'docker login' has left it, else anonymous" },
    { "password-file", 0, OPTION_TEXT, PLACE(password_file), "FILE", NULL,
      "file with the password or token of that user; - reads it from stdin" },
    { "insecure", 0, OPTION_FLAG, PLACE(insecure), NULL, NULL,
      "plain HTTP: for a registry without TLS in a network that you trust" },
    { 0 },
};

static json_t *result_to_json(const struct pull_result *result)
{
    json_t *document = template_to_json(&result->info);

    json_object_set_new(document, "image", json_string(result->image));
    json_object_set_new(document, "digest", json_string(result->digest));
    json_object_set_new(document, "platform", json_string(result->platform));
    json_object_set_new(document, "layers", json_integer(result->layers));
    json_object_set_new(document, "layer_bytes", json_integer((json_int_t)result->bytes));
    json_object_set_new(document, "downloaded_bytes", json_integer((json_int_t)result->downloaded));
    return document;
}

static int print_result(struct cli *cli, const struct pull_result *result)
{
    scoped(json_decref) json_t *document = NULL;
    char downloaded[STR_UNIT_SIZE];
    char size[STR_UNIT_SIZE];
    char line[TEMPLATE_NAME_SIZE + 2];
    int length;

    if (cli->json) {
        document = result_to_json(result);
        return cli_print_json(cli, document);
    }
    str_format_size(result->bytes, size);
    str_format_size(result->downloaded, downloaded);
    cli_note("pulled %s (%s, %s): %u layer%s, %s, of which %s were downloaded", result->image,
             result->digest, result->platform, result->layers, result->layers == 1 ? "" : "s", size,
             downloaded);
    length = snprintf(line, sizeof(line), "%s\n", result->info.name);
    return cli_print(cli, line, (size_t)length);
}

static int pull_image(struct cli *cli, const struct pull_args *args, const char *image,
                      const struct registry_login *login)
{
    struct pull_request request = {
        .image = image,
        .name = args->name,
        .platform = args->platform,
        .plain = args->insecure,
        .login = login,
        .options = { .replace = args->replace },
    };
    scoped(config_fini) struct config config = { 0 };
    struct pull_result result = { 0 };
    struct template_display display;
    struct error err = { 0 };
    const char *state = template_find_state(&args->place, &config, &err);
    int status;

    if (!state)
        return cli_fail(cli, &err);
    template_display_begin(&display, cli, &request.options);
    status = template_pull(state, &request, &result, &err);
    template_display_end(&display);
    return status < 0 ? cli_fail(cli, &err) : print_result(cli, &result);
}

static int pull_run(struct cli *cli, const void *args, const struct option_result *given)
{
    const struct pull_args *pull = args;
    scoped(registry_login_fini) struct registry_login login = { 0 };
    struct error err = { 0 };

    if (given->operands.count != 1)
        return cli_misuse(cli, "template pull needs the name of one image");
    if (!pull->username != !pull->password_file)
        return cli_misuse(cli, "--username and --password-file need each other");
    if (pull->username &&
        registry_login_read(&login, pull->username, pull->password_file, &err) < 0)
        return cli_fail(cli, &err);
    return pull_image(cli, pull, given->operands.items[0], pull->username ? &login : NULL);
}

const struct command cmd_template_pull = {
    .name = "pull",
    .summary = "Create a template from an image in a registry",
    .usage = "[OPTIONS] IMAGE",
    .examples = "sandglass template pull python:3.12\n"
                "sandglass template pull --name tools registry.example.com/team/tools:latest\n",
    .details = "IMAGE is [HOST[:PORT]/]PATH with a tag or a digest: python:3.12 is an image of "
               "Docker Hub. "
               "Prints\nthe name of the template. Layers that were downloaded before are not "
               "downloaded again, and a\ndownload that broke goes on where it was. " TEMPLATE_USER,
    .sets = { { pull_options, 0, "Options" },
              { template_place_options, 0, "State directory" },
              COMMON_OPTIONS },
    .args_size = sizeof(struct pull_args),
    .plain_after = OPERANDS_MIXED,
    .run = pull_run,
};
