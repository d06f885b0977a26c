/* SPDX-License-Identifier: Apache-2.0 */
#include "core/run/execution_prepare.h"

#include "agent/scratch.h"
#include "backend/backends.h"
#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "core/run/drivers/drivers.h"
#include "core/run/environment.h"
#include "core/run/execution.h"
#include "core/run/language.h"
#include "core/vault.h"
#include "wire/json.h"

#include <string.h>

enum {
    /* One argument of a program is at most 128 KiB in Linux; longer shell text goes as a script. */
    LONGEST_ARGUMENT = 128 * 1024 - 1,
    LONGEST_START = PROTOCOL_MAX_MESSAGE - 1024,
};

/* --- vectors of texts ------------------------------------------------------------------------- */

struct vector {
    char **items;
    size_t count;
};

/* Takes over the text. */
static void vector_push(struct vector *vector, char *text)
{
    vector->items = xrealloc(vector->items, vector->count + 2, sizeof(*vector->items));
    vector->items[vector->count++] = text;
    vector->items[vector->count] = NULL;
}

static void free_texts(char **texts)
{
    for (char **text = texts; text && *text; text++)
        free(*text);
    free(texts);
}

/* --- arguments and script --------------------------------------------------------------------- */

static const char *interpreter_of(const struct config *config, const struct language *language)
{
    return language == language_python() && *config->python.path ? config->python.path
                                                                 : language->interpreter;
}

static void use_script(struct program *program, struct vector *argv, const struct config *config,
                       const struct language *language, const char *execution_id, const char *text,
                       size_t length)
{
    program->script_name = xasprintf("%s.%s", execution_id, language->suffix);
    vector_push(argv, xstrdup(interpreter_of(config, language)));
    vector_push(argv, xstrdup(program->script_name));
    program->script = xmalloc(length + 1);
    memcpy(program->script, text, length);
    program->script_length = length;
}

static int check_code(const struct execution_request *request, struct error *err)
{
    if (language_check(request->language, err) < 0)
        return -1;
    if (request->code_length == 0)
        return error_named(err, ERR_INVALID, "invalid_field", "code must not be empty");
    return 0;
}

static int use_code(struct program *program, struct vector *argv, struct environment *env,
                    const struct config *config, const struct execution_request *request,
                    const char *execution_id, struct error *err)
{
    const struct language *language =
        language_find(request->language ? request->language : LANGUAGE_DEFAULT);

    if (check_code(request, err) < 0)
        return -1;
    /* The script is not in the working directory, but modules there are expected to be found. */
    program->language = language;
    if (language == language_python() && !environment_has(env, "PYTHONPATH"))
        environment_set(env, "PYTHONPATH", ".");
    use_script(program, argv, config, language, execution_id, request->code, request->code_length);
    return 0;
}

static int use_command(struct program *program, struct vector *argv, const struct config *config,
                       const struct execution_request *request, const char *execution_id,
                       struct error *err)
{
    size_t length = strlen(request->command);

    if (length == 0)
        return error_named(err, ERR_INVALID, "invalid_field", "command must not be empty");
    if (length > LONGEST_ARGUMENT / 2) {
        use_script(program, argv, config, language_find("bash"), execution_id, request->command,
                   length);
        return 0;
    }
    program->may_use_sh = true;
    vector_push(argv, xstrdup("/bin/bash"));
    vector_push(argv, xstrdup("-c"));
    vector_push(argv, xstrdup(request->command));
    return 0;
}

static int use_argv(struct vector *argv, const struct execution_request *request, struct error *err)
{
    if (!request->argv[0])
        return error_named(err, ERR_INVALID, "invalid_field", "argv must not be empty");
    if (!request->argv[0][0])
        return error_named(err, ERR_INVALID, "invalid_field",
                           "argv[0] must name a program, not be empty");
    for (size_t i = 0; request->argv[i]; i++) {
        if (strlen(request->argv[i]) > LONGEST_ARGUMENT)
            return error_named(err, ERR_TOO_LARGE, "argument_too_large",
                               "argv[%zu] exceeds the size limit of an argument (128 KiB)", i);
        vector_push(argv, xstrdup(request->argv[i]));
    }
    return 0;
}

static int check_size(const struct vector *argv, const struct environment *env, struct error *err)
{
    size_t bytes = 0;

    for (size_t i = 0; i < argv->count; i++)
        bytes += strlen(argv->items[i]) + 1;
    for (size_t i = 0; i < env->count; i++)
        bytes += strlen(env->items[i]) + 1;
    if (bytes <= LONGEST_START && argv->count + env->count <= PROTOCOL_MAX_STRINGS)
        return 0;
    error_named(err, ERR_TOO_LARGE, "arguments_too_large",
                "arguments and environment together are too large (%zu strings, %zu bytes)",
                argv->count + env->count, bytes);
    return error_hint(err, "at most %d strings and %d bytes; pass more through a file or stdin",
                      PROTOCOL_MAX_STRINGS, LONGEST_START);
}

static int check_kind(const struct execution_request *request, struct error *err)
{
    int kinds = !!request->argv + !!request->command + !!request->code;

    if (kinds == 1)
        return 0;
    error_named(err, ERR_INVALID, "invalid_field", "%s of argv, command and code",
                kinds ? "give only one" : "give one");
    return error_hint(
        err,
        "argv is a list of strings, command is a shell command, code is a program in `language`");
}

int execution_check_code(const struct core *core, const struct execution_request *request,
                         struct error *err)
{
    struct vector argv = { 0 };
    struct environment env = { 0 };
    int result = check_code(request, err);

    environment_add_common(&env, core->parts.config, backends_default(core->parts.backends));
    if (result == 0)
        result = environment_add_request(&env, request, err);
    if (result == 0)
        result = check_size(&argv, &env, err);
    if (result == 0 && request->secrets_json)
        result = vault_open(core->vault, err);
    environment_fini(&env);
    return result;
}

int program_prepare(struct program *program, const struct session *session,
                    const struct execution_request *request, const char *execution_id,
                    struct error *err)
{
    struct vector argv = { 0 };
    struct environment env = { 0 };
    int result = check_kind(request, err);

    *program = (struct program){ 0 };
    if (result == 0)
        result = environment_make(&env, session, request, execution_id, err);
    if (result == 0 && request->argv)
        result = use_argv(&argv, request, err);
    else if (result == 0 && request->command)
        result = use_command(program, &argv, session_core(session)->parts.config, request,
                             execution_id, err);
    else if (result == 0)
        result = use_code(program, &argv, &env, session_core(session)->parts.config, request,
                          execution_id, err);
    if (result == 0)
        result = check_size(&argv, &env, err);
    program->argv = argv.items;
    program->env = env.items;
    program->cwd = xstrdup(request->cwd ? request->cwd : "");
    program->user = xstrdup(request->user ? request->user : "");
    if (result < 0)
        program_fini(program);
    return result;
}

void program_use_sh(struct program *program)
{
    free(program->argv[0]);
    program->argv[0] = xstrdup("/bin/sh");
    program->may_use_sh = false;
}

void program_prepare_zygote(struct program *program, const struct config *config,
                            const struct backend *backend, const char *name)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(PROTOCOL_MAX_SCRIPT_BYTES);
    struct vector argv = { 0 };
    struct environment env = { 0 };

    *program = (struct program){ .language = language_python() };
    environment_add_common(&env, config, backend);
    environment_add_locale(&env, config);
    if (!environment_has(&env, "PYTHONPATH"))
        environment_set(&env, "PYTHONPATH", ".");
    buffer_append_text(&text, "_sandglass_preload = \"");
    for (size_t i = 0; i < config->python.preload.count; i++) {
        const char *module = config->python.preload.items[i];

        if (!strpbrk(module, "\"\\\n")) /* it goes between quotes */
            buffer_appendf(&text, "%s ", module);
    }
    buffer_appendf(&text, "\"\n%s", driver_zygote);
    use_script(program, &argv, config, language_python(), name, buffer_text(&text), text.length);
    program->argv = argv.items;
    program->env = env.items;
    program->cwd = xstrdup("");
    program->user = xstrdup("");
}

int program_place_script(struct program *program, const struct agent *agent, struct error *err)
{
    char *path;

    if (!program->script_name)
        return 0;
    path = agent_scratch_path(agent, program->script_name, err);
    if (!path)
        return -1;
    free(program->argv[1]);
    program->argv[1] = path;
    return 0;
}

void program_drop_script(struct program *program)
{
    free(steal_ptr(&program->script));
    program->script_length = 0;
}

void program_fini(struct program *program)
{
    free_texts(program->argv);
    free_texts(program->env);
    free(program->cwd);
    free(program->user);
    free(program->script_name);
    free(program->script);
    *program = (struct program){ 0 };
}
