/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/envd/process.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "e2b/envd/path.h"
#include "e2b/envd/recent.h"
#include "service/executions.h"

#include <signal.h>
#include <string.h>

enum { KILL_PATIENCE_MS = 5000 };

/* --- which ----------------------------------------------------------------------------------- */

static json_t *request_of(const struct execution *execution)
{
    const char *text = execution_facts(execution)->request_json;

    return text ? json_read(text, strlen(text), NULL) : NULL;
}

bool process_has_terminal(const struct execution *execution)
{
    scoped(json_decref) json_t *request = request_of(execution);

    return json_is_true(json_object_get(request, "tty"));
}

static bool has_tag(const struct execution *execution, const char *tag)
{
    scoped(json_decref) json_t *request = request_of(execution);

    return str_equal(json_string_value(json_object_get(request, "tag")), tag);
}

/* Programs that callers have started, and that run. */
static bool is_process(const struct execution *execution)
{
    const struct execution_facts *facts = execution_facts(execution);

    return facts->state == EXECUTION_RUNNING && facts->pid > 0 && facts->kind != EXECUTION_DRIVER;
}

static bool is_selected(const struct execution *execution, const void *selector)
{
    json_int_t pid = json_integer_value(json_object_get(selector, "pid"));
    const char *tag = json_string_value(json_object_get(selector, "tag"));

    return tag ? has_tag(execution, tag) : execution_facts(execution)->pid == pid;
}

static struct execution *find(const struct session *session, const json_t *selector)
{
    struct execution *execution = NULL;

    while ((execution = executions_next(session, execution)))
        if (is_process(execution) && is_selected(execution, selector))
            return execution;
    return NULL;
}

/* A process that has ended a moment ago counts, too. */
static struct execution *find_recent(const struct rpc *rpc, const struct session *session,
                                     const json_t *selector)
{
    const struct e2b *e2b = rpc->request->context;
    struct execution *execution = find(session, selector);

    return execution ? execution
                     : recents_find(e2b->recents, session_id(session), is_selected, selector);
}

static void fail_unknown(struct rpc *rpc, const json_t *selector)
{
    const json_t *tag = json_object_get(selector, "tag");

    if (tag)
        rpc_fail(rpc, CONNECT_NOT_FOUND, "process with tag %.200s not found",
                 json_string_value(tag));
    else if (json_object_get(selector, "pid"))
        rpc_fail(rpc, CONNECT_NOT_FOUND, "process with pid %lld not found",
                 (long long)json_integer_value(json_object_get(selector, "pid")));
    else
        rpc_fail(rpc, CONNECT_INVALID_ARGUMENT, "field \"process\" must have a pid or a tag");
}

struct execution *process_select(struct rpc *rpc, const json_t *selector)
{
    struct session *session = rpc_session(rpc);
    struct execution *execution = session ? find(session, selector) : NULL;

    if (session && !execution)
        fail_unknown(rpc, selector);
    return execution;
}

static struct execution *select_process(struct rpc *rpc)
{
    return process_select(rpc, json_object_get(rpc->input, "process"));
}

/* --- start ----------------------------------------------------------------------------------- */

static const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

/* The command and its arguments, ended by NULL; the caller frees the list, not the texts. */
static const char **argv_of(const json_t *config)
{
    const json_t *args = json_object_get(config, "args");
    const char **argv = xcalloc(json_array_size(args) + 2, sizeof(*argv));

    argv[0] = text_of(config, "cmd");
    for (size_t i = 0; i < json_array_size(args); i++)
        argv[i + 1] = json_string_value(json_array_get(args, i));
    return argv;
}

static void read_size(const json_t *pty, struct execution_request *request)
{
    const json_t *size = json_object_get(pty, "size");

    request->terminal = pty != NULL;
    request->columns = (unsigned)json_integer_value(json_object_get(size, "cols"));
    request->rows = (unsigned)json_integer_value(json_object_get(size, "rows"));
}

static void start_in(struct rpc *rpc, const char *cwd)
{
    const json_t *config = json_object_get(rpc->input, "process");
    scoped(free) const char **argv = argv_of(config);
    const json_t *envs = json_object_get(config, "envs");
    scoped(free) char *env_json = envs ? json_dumps(envs, JSON_COMPACT) : NULL;
    struct execution_request request = {
        .argv = argv,
        .env_json = env_json,
        .cwd = cwd,
        .user = *rpc->user ? rpc->user : NULL,
        .tag = text_of(rpc->input, "tag"),
        .wants_stdin = !json_is_false(json_object_get(rpc->input, "stdin")),
        .background = true,
        .timeout_ms = rpc->timeout_ms ? rpc->timeout_ms : -1,
    };
    struct execution *execution;
    struct error err = { 0 };
    bool is_repeated;

    read_size(json_object_get(rpc->input, "pty"), &request);
    execution =
        start_execution(rpc->request->core, rpc->request->session_id, &request, &is_repeated, &err);
    if (!execution) {
        rpc_fail_error(rpc, &err);
        return;
    }
    recents_add(((struct e2b *)rpc->request->context)->recents, execution);
    process_follow(rpc, execution, FOLLOW_NEW);
}

static void on_cwd(struct rpc *rpc, const struct envd_path *path)
{
    if (path->err.code == ERR_NOT_FOUND)
        rpc_fail(rpc, CONNECT_INVALID_ARGUMENT, "cwd '%s' does not exist", path->asked);
    else if (path->err.code)
        rpc_fail_error(rpc, &path->err);
    else
        start_in(rpc, path->absolute);
}

void process_start(struct rpc *rpc)
{
    const json_t *config = json_object_get(rpc->input, "process");
    const char *cwd = text_of(config, "cwd");

    if (str_is_empty(text_of(config, "cmd")))
        rpc_fail(rpc, CONNECT_INVALID_ARGUMENT, "field \"cmd\" of the process is missing");
    else if (str_is_empty(cwd) || *cwd == '/')
        start_in(rpc, str_is_empty(cwd) ? NULL : cwd);
    else
        envd_path_resolve(rpc, cwd, on_cwd);
}

void process_connect(struct rpc *rpc)
{
    const json_t *selector = json_object_get(rpc->input, "process");
    struct session *session = rpc_session(rpc);
    struct execution *execution = session ? find_recent(rpc, session, selector) : NULL;

    if (execution)
        process_follow(rpc, execution, FOLLOW_LATER);
    else if (session)
        fail_unknown(rpc, selector);
}

/* --- list ------------------------------------------------------------------------------------ */

static void put_process(struct json_writer *json, const struct execution *execution)
{
    scoped(json_decref) json_t *request = request_of(execution);
    const json_t *argv = json_object_get(request, "argv");
    const char *command = text_of(request, "command");

    json_begin_object(json, NULL);
    json_begin_object(json, "config");
    json_put_text(json, "cmd",
                  argv      ? json_string_value(json_array_get(argv, 0))
                  : command ? command
                            : text_of(request, "language"));
    json_begin_array(json, "args");
    for (size_t i = 1; i < json_array_size(argv); i++)
        json_put_text(json, NULL, json_string_value(json_array_get(argv, i)));
    json_end_array(json);
    json_begin_object(json, "envs");
    json_end_object(json);
    if (text_of(request, "cwd"))
        json_put_text(json, "cwd", text_of(request, "cwd"));
    json_end_object(json);
    json_put_int(json, "pid", execution_facts(execution)->pid);
    if (text_of(request, "tag"))
        json_put_text(json, "tag", text_of(request, "tag"));
    json_end_object(json);
}

void process_list(struct rpc *rpc)
{
    struct session *session = rpc_session(rpc);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    struct execution *execution = NULL;

    if (!session)
        return;
    json_begin_object(&json, NULL);
    json_begin_array(&json, "processes");
    while ((execution = executions_next(session, execution)))
        if (is_process(execution))
            put_process(&json, execution);
    json_end_array(&json);
    json_end_object(&json);
    rpc_reply(rpc, &text);
}

/* --- control --------------------------------------------------------------------------------- */

void process_update(struct rpc *rpc)
{
    struct execution *execution = select_process(rpc);
    const json_t *size = json_object_get(json_object_get(rpc->input, "pty"), "size");
    struct error err = { 0 };

    if (!execution)
        return;
    if (size && !process_has_terminal(execution))
        rpc_fail(rpc, CONNECT_INTERNAL, "the process has no terminal");
    else if (size && execution_resize(
                         execution, (unsigned)json_integer_value(json_object_get(size, "cols")),
                         (unsigned)json_integer_value(json_object_get(size, "rows")), &err) < 0)
        rpc_fail_error(rpc, &err);
    else
        rpc_reply_empty(rpc);
}

struct killing {
    struct rpc *rpc;
    struct execution_wait wait;
};

static void killing_release(struct rpc *rpc)
{
    struct killing *killing = rpc->state;

    execution_wait_stop(&killing->wait);
    free(killing);
}

static void on_killed(struct execution_wait *wait)
{
    struct killing *killing = container_of(wait, struct killing, wait);

    rpc_reply_empty(killing->rpc);
}

/* A process that is killed is gone when that is answered. */
static void wait_for_end(struct rpc *rpc, struct execution *execution)
{
    struct killing *killing = xnew(struct killing);

    killing->rpc = rpc;
    rpc->state = killing;
    rpc->release = killing_release;
    execution_wait_start(&killing->wait, rpc->request->core, execution, KILL_PATIENCE_MS,
                         on_killed);
}

void process_send_signal(struct rpc *rpc)
{
    const char *name = text_of(rpc->input, "signal");
    int number = str_equal(name, "SIGNAL_SIGKILL")   ? SIGKILL
                 : str_equal(name, "SIGNAL_SIGTERM") ? SIGTERM
                                                     : 0;
    struct execution *execution = select_process(rpc);
    struct error err = { 0 };

    if (!execution)
        return;
    if (!number)
        rpc_fail(rpc, CONNECT_UNIMPLEMENTED, "the signal must be SIGNAL_SIGKILL or SIGNAL_SIGTERM");
    else if (execution_signal(execution, number, false, &err) < 0)
        rpc_fail_error(rpc, &err);
    else if (number == SIGKILL)
        wait_for_end(rpc, execution);
    else
        rpc_reply_empty(rpc);
}
