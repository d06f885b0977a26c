#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "core/run/drivers/drivers.h"
#include "core/run/execution_private.h"
#include "core/session/secrets.h"
#include "core/vault.h"
#include "wire/json.h"

#include <string.h>
#include <sys/mman.h>

enum {
    /* One argument of a program is at most 128 KiB in Linux; longer shell text goes as a script. */
    LONGEST_ARGUMENT = 128 * 1024 - 1,
    LONGEST_START = PROTOCOL_MAX_MESSAGE - 1024,
};

struct language {
    const char *name;
    const char *interpreter;
    const char *suffix;
};

static const struct language languages[] = {
    { "python", "python3", "py" },
    { "bash", "bash", "sh" },
    { "javascript", "node", "js" },
};

static const struct language *language_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LENGTH(languages); i++) {
        if (str_equal(languages[i].name, name))
            return &languages[i];
    }
    return NULL;
}

int execution_check_language(const char *language, struct error *err)
{
    if (!language || language_find(language))
        return 0;
    error_named(err, ERR_INVALID, "unsupported_language",
                "language \"%.32s\" is not supported; known are python, bash and javascript",
                language);
    return error_hint(err, "use argv to run any other interpreter that the template has");
}

/* --- vectors of texts ------------------------------------------------------------------------ */

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

/* Sets NAME=value; the later one wins. */
static void vector_set(struct vector *env, const char *name, const char *value)
{
    size_t length = strlen(name);
    char *text = xasprintf("%s=%s", name, value);

    for (size_t i = 0; i < env->count; i++) {
        if (strncmp(env->items[i], name, length) == 0 && env->items[i][length] == '=') {
            free(env->items[i]);
            env->items[i] = text;
            return;
        }
    }
    vector_push(env, text);
}

static bool vector_has(const struct vector *env, const char *name)
{
    size_t length = strlen(name);

    for (size_t i = 0; i < env->count; i++) {
        if (strncmp(env->items[i], name, length) == 0 && env->items[i][length] == '=')
            return true;
    }
    return false;
}

/* --- environment ----------------------------------------------------------------------------- */

static int add_json(struct vector *env, const char *field, const char *json, struct error *err)
{
    scoped(json_decref) json_t *object = NULL;
    const char *name;
    json_t *value;

    if (!json)
        return 0;
    object = json_read(json, strlen(json), err);
    if (!object)
        return error_wrap(err, "%s", field);
    if (json_object_size(object) > PROTOCOL_MAX_STRINGS) /* each is compared with all before */
        return error_named(err, ERR_TOO_LARGE, "env_too_large", "%s has more than %d variables",
                           field, PROTOCOL_MAX_STRINGS);
    json_object_foreach(object, name, value)
    {
        if (!*name || strchr(name, '='))
            return error_named(err, ERR_INVALID, "invalid_env",
                               "%s: \"%.64s\" is not a name for a variable", field, name);
        if (!json_is_string(value))
            return error_named(err, ERR_INVALID, "invalid_env", "%s.%.64s must be a text", field,
                               name);
        vector_set(env, name, json_string_value(value));
    }
    return 0;
}

/* What all have in common. */
static void make_common_env(struct vector *env, const struct config *config)
{
    for (size_t i = 0; i < config->sandbox.env_pass.count; i++) {
        const char *name = config->sandbox.env_pass.items[i];
        const char *value = getenv(name);

        if (value)
            vector_set(env, name, value);
    }
    for (size_t i = 0; i < config->sandbox.env_set.count; i++)
        vector_set(env, config->sandbox.env_set.items[i].name,
                   config->sandbox.env_set.items[i].value);
}

static int add_request_env(struct vector *env, const struct execution_request *request,
                           struct error *err)
{
    if (add_json(env, "env", request->env_json, err) < 0 ||
        add_json(env, "secrets", request->secrets_json, err) < 0)
        return -1;
    return 0;
}

/* From nothing: the allowlist, the settings, the session, the request, and who it is. */
static int make_env(struct vector *env, const struct session *session,
                    const struct execution_request *request, const char *execution_id,
                    struct error *err)
{
    if (session->secrets_lost) {
        error_named(err, ERR_CONFLICT, "secrets_lost",
                    "the secrets of session %s are lost: the daemon has another key", session->id);
        return error_hint(err, "give them again with PATCH, or open a new session");
    }
    make_common_env(env, session->core->parts.config);
    if (add_json(env, "env", session->env_json, err) < 0 ||
        (session->secrets && add_json(env, "secrets", session->secrets->json, err) < 0) ||
        add_request_env(env, request, err) < 0)
        return -1;
    if (request->terminal && !vector_has(env, "TERM"))
        vector_set(env, "TERM", "xterm-256color");
    vector_set(env, "SANDGLASS_SESSION_ID", session->id);
    vector_set(env, "SANDGLASS_EXECUTION_ID", execution_id);
    return 0;
}

/* --- arguments and script -------------------------------------------------------------------- */

static int make_script(struct launch *launch, const char *text, size_t length, struct error *err)
{
    launch->script_fd = memfd_create("script", MFD_CLOEXEC);
    if (launch->script_fd < 0)
        return error_sys(err, "create the script");
    if (fd_write_all(launch->script_fd, text, length) < 0)
        return error_sys(err, "write the script");
    if (lseek(launch->script_fd, 0, SEEK_SET) < 0)
        return error_sys(err, "rewind the script");
    return 0;
}

static const char *interpreter_of(const struct config *config, const struct language *language)
{
    return language == &languages[0] && *config->python.path ? config->python.path
                                                             : language->interpreter;
}

static int use_script(struct launch *launch, struct vector *argv, const struct config *config,
                      const struct language *language, const char *execution_id, const char *text,
                      size_t length, struct error *err)
{
    launch->script_name = xasprintf("%s.%s", execution_id, language->suffix);
    vector_push(argv, xstrdup(interpreter_of(config, language)));
    vector_push(argv, xstrdup(launch->script_name));
    return make_script(launch, text, length, err);
}

static int check_code(const struct execution_request *request, struct error *err)
{
    if (execution_check_language(request->language, err) < 0)
        return -1;
    if (request->code_length == 0)
        return error_named(err, ERR_INVALID, "invalid_field", "code must not be empty");
    return 0;
}

static int use_code(struct launch *launch, struct vector *argv, struct vector *env,
                    const struct config *config, const struct execution_request *request,
                    const char *execution_id, struct error *err)
{
    const struct language *language =
        language_find(request->language ? request->language : "python");

    if (check_code(request, err) < 0)
        return -1;
    /* The script is not in the working directory, but modules there are expected to be found. */
    launch->is_python = language == &languages[0];
    if (launch->is_python && !vector_has(env, "PYTHONPATH"))
        vector_set(env, "PYTHONPATH", ".");
    return use_script(launch, argv, config, language, execution_id, request->code,
                      request->code_length, err);
}

static int use_command(struct launch *launch, struct vector *argv, const struct config *config,
                       const struct execution_request *request, const char *execution_id,
                       struct error *err)
{
    size_t length = strlen(request->command);

    if (length == 0)
        return error_named(err, ERR_INVALID, "invalid_field", "command must not be empty");
    if (length > LONGEST_ARGUMENT / 2)
        return use_script(launch, argv, config, language_find("bash"), execution_id,
                          request->command, length, err);
    launch->may_use_sh = true;
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
                               "argv[%zu] is larger than an argument can be (128 KiB)", i);
        vector_push(argv, xstrdup(request->argv[i]));
    }
    return 0;
}

static int check_size(const struct vector *argv, const struct vector *env, struct error *err)
{
    size_t bytes = 0;

    for (size_t i = 0; i < argv->count; i++)
        bytes += strlen(argv->items[i]) + 1;
    for (size_t i = 0; i < env->count; i++)
        bytes += strlen(env->items[i]) + 1;
    if (bytes <= LONGEST_START && argv->count + env->count <= PROTOCOL_MAX_STRINGS)
        return 0;
    error_named(err, ERR_TOO_LARGE, "arguments_too_large",
                "arguments and environment are too large together (%zu texts, %zu bytes)",
                argv->count + env->count, bytes);
    return error_hint(err, "at most %d texts and %d bytes; pass more through a file or stdin",
                      PROTOCOL_MAX_STRINGS, LONGEST_START);
}

static int check_kind(const struct execution_request *request, struct error *err)
{
    int kinds = !!request->argv + !!request->command + !!request->code;

    if (kinds == 1)
        return 0;
    error_named(err, ERR_INVALID, "invalid_field", "%s of argv, command and code",
                kinds ? "give only one" : "give one");
    return error_hint(err, "argv is a list of texts, command is shell text, code is a program in "
                           "`language`");
}

int execution_check_code(const struct core *core, const struct execution_request *request,
                         struct error *err)
{
    struct vector argv = { 0 }, env = { 0 };
    int result = check_code(request, err);

    make_common_env(&env, core->parts.config);
    if (result == 0)
        result = add_request_env(&env, request, err);
    if (result == 0)
        result = check_size(&argv, &env, err);
    if (result == 0 && request->secrets_json)
        result = vault_open(core->vault, err);
    free_texts(env.items);
    return result;
}

int launch_prepare(struct launch *launch, const struct session *session,
                   const struct execution_request *request, const char *execution_id,
                   struct error *err)
{
    struct vector argv = { 0 }, env = { 0 };
    int result = check_kind(request, err);

    *launch = (struct launch){ .script_fd = -1 };
    if (result == 0)
        result = make_env(&env, session, request, execution_id, err);
    if (result == 0 && request->argv)
        result = use_argv(&argv, request, err);
    else if (result == 0 && request->command)
        result =
            use_command(launch, &argv, session->core->parts.config, request, execution_id, err);
    else if (result == 0)
        result =
            use_code(launch, &argv, &env, session->core->parts.config, request, execution_id, err);
    if (result == 0)
        result = check_size(&argv, &env, err);
    launch->argv = argv.items;
    launch->env = env.items;
    launch->cwd = xstrdup(request->cwd ? request->cwd : "");
    launch->user = xstrdup(request->user ? request->user : "");
    if (result < 0)
        launch_fini(launch);
    return result;
}

void launch_use_sh(struct launch *launch)
{
    free(launch->argv[0]);
    launch->argv[0] = xstrdup("/bin/sh");
    launch->may_use_sh = false;
}

int launch_prepare_warm(struct launch *launch, const struct config *config, const char *name,
                        struct error *err)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(PROTOCOL_MAX_SCRIPT_BYTES);
    struct vector argv = { 0 }, env = { 0 };
    int result;

    *launch = (struct launch){ .script_fd = -1, .is_python = true };
    make_common_env(&env, config);
    if (!vector_has(&env, "PYTHONPATH"))
        vector_set(&env, "PYTHONPATH", ".");
    buffer_append_text(&text, "_sandglass_preload = \"");
    for (size_t i = 0; i < config->python.preload.count; i++) {
        const char *module = config->python.preload.items[i];

        if (!strpbrk(module, "\"\\\n")) /* it goes between quotes */
            buffer_appendf(&text, "%s ", module);
    }
    buffer_appendf(&text, "\"\n%s", driver_warm);
    result = use_script(launch, &argv, config, &languages[0], name, buffer_text(&text), text.length,
                        err);
    launch->argv = argv.items;
    launch->env = env.items;
    launch->cwd = xstrdup("");
    launch->user = xstrdup("");
    if (result < 0)
        launch_fini(launch);
    return result;
}

/* Without a namespace /tmp is the host's, and only the workspace may be written to. */
void launch_place_script(struct launch *launch, const struct sandbox *sandbox)
{
    const struct protocol_hello *hello = agent_hello(sandbox_agent(sandbox));
    scoped(free) char *folder = NULL;

    if (!launch->script_name)
        return;
    if (hello && !(hello->features & FEATURE_NAMESPACE))
        folder = xasprintf("%s/sandboxes/%s/workspace/.sandglass",
                           sandbox_core(sandbox)->parts.state_path, sandbox_id(sandbox));
    free(launch->argv[1]);
    launch->argv[1] = path_join(folder ? folder : "/tmp/.sandglass", launch->script_name);
}

void launch_fini(struct launch *launch)
{
    free_texts(launch->argv);
    free_texts(launch->env);
    free(launch->cwd);
    free(launch->user);
    free(launch->script_name);
    fd_close(launch->script_fd);
    *launch = (struct launch){ .script_fd = -1 };
}
