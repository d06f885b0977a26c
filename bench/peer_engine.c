/* SPDX-License-Identifier: Apache-2.0 */
/* Docker Engine, and podman which speaks the same, through their HTTP API. */

#include "peers.h"

#include "wire/json.h"

#include <stdio.h>
#include <string.h>

enum { TARGET_SIZE = 200, BODY_MAXIMUM = 64 << 10 };

static void put_argv(struct json_writer *json, const char *const *argv)
{
    json_begin_array(json, "Cmd");
    for (; *argv; argv++)
        json_put_text(json, NULL, *argv);
    json_end_array(json);
}

static void write_container(struct buffer *body, const char *tools, const char *program)
{
    struct json_writer json = JSON_WRITER(body);
    const char *const argv[] = { program, NULL };
    char tools_bind[TARGET_SIZE];

    snprintf(tools_bind, sizeof(tools_bind), "%s:/bench:ro", tools);
    json_begin_object(&json, NULL);
    json_put_text(&json, "Image", "sandglass-bench");
    put_argv(&json, argv);
    json_begin_object(&json, "HostConfig");
    json_put_text(&json, "NetworkMode", "none");
    json_begin_array(&json, "Binds");
    json_put_text(&json, NULL, "/usr:/usr:ro");
    json_put_text(&json, NULL, tools_bind);
    json_end_array(&json);
    json_end_object(&json);
    json_end_object(&json);
}

static int call(struct worker *worker, enum http_method method, const char *kind, const char *id,
                const char *what, const char *body, struct error *err)
{
    char target[TARGET_SIZE];

    snprintf(target, sizeof(target), "/%s/%s%s", kind, id, what);
    return bench_client_call(&worker->client, method, target, body, err) < 0 ? -1 : 0;
}

static int start(struct worker *worker, const char *program, struct bench_box *box,
                 struct error *err)
{
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(BODY_MAXIMUM);

    write_container(&body, worker->subject->tools, program);
    if (call(worker, HTTP_POST, "containers", "create", "", buffer_text(&body), err) < 0 ||
        bench_client_find(&worker->client, "\"Id\":\"", box->name, sizeof(box->name), err) < 0)
        return -1;
    return call(worker, HTTP_POST, "containers", box->name, "/start", "", err);
}

static int engine_make(struct worker *worker, struct bench_box *box, struct error *err)
{
    return start(worker, "/bench/pause", box, err);
}

static int engine_run(struct worker *worker, const struct bench_box *box, const char *const *argv,
                      struct error *err)
{
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(BODY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&body);
    char id[BENCH_NAME_SIZE];

    json_begin_object(&json, NULL);
    put_argv(&json, argv);
    json_put_bool(&json, "AttachStdout", true);
    json_put_bool(&json, "AttachStderr", true);
    json_end_object(&json);
    if (call(worker, HTTP_POST, "containers", box->name, "/exec", buffer_text(&body), err) < 0 ||
        bench_client_find(&worker->client, "\"Id\":\"", id, sizeof(id), err) < 0 ||
        call(worker, HTTP_POST, "exec", id, "/start", "{\"Detach\":false,\"Tty\":false}", err) <
            0 ||
        call(worker, HTTP_GET, "exec", id, "/json", NULL, err) < 0)
        return -1;
    if (!memmem(worker->client.body.data, worker->client.body.length, "\"ExitCode\":0", 12))
        return error_set(err, ERR_BACKEND, "the program failed: %.300s",
                         buffer_text(&worker->client.body));
    return 0;
}

static int engine_destroy(struct worker *worker, const struct bench_box *box, struct error *err)
{
    return call(worker, HTTP_DELETE, "containers", box->name, "?force=1", NULL, err);
}

/* Its own way to run one program: no exec, the container is the program. */
static int engine_cycle(struct worker *worker, struct error *err)
{
    struct bench_box box;

    if (start(worker, "/bin/true", &box, err) < 0 ||
        call(worker, HTTP_POST, "containers", box.name, "/wait", "", err) < 0)
        return -1;
    return engine_destroy(worker, &box, err);
}

const struct subject_ops engine_ops = {
    .cycle = engine_cycle,
    .make = engine_make,
    .run = engine_run,
    .destroy = engine_destroy,
};
