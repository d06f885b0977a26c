/* SPDX-License-Identifier: Apache-2.0 */
/* Sandglass through its HTTP API, as any caller would. */

#include "bench/subject.h"

#include "base/alloc.h"
#include "wire/json.h"

#include <stdio.h>
#include <string.h>

enum { TARGET_SIZE = 160, BODY_MAXIMUM = 64 << 10 };

static int sandglass_make(struct worker *worker, struct bench_box *box, struct error *err)
{
    if (bench_client_call(&worker->client, HTTP_POST, "/api/v1/sessions", "{}", err) < 0)
        return -1;
    return bench_client_find(&worker->client, "\"id\":\"", box->name, sizeof(box->name), err);
}

int sandglass_run(struct bench_client *client, const char *session, const char *const *argv,
                  struct error *err)
{
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(BODY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&body);
    char target[TARGET_SIZE];

    json_begin_object(&json, NULL);
    json_begin_array(&json, "argv");
    for (; *argv; argv++)
        json_put_text(&json, NULL, *argv);
    json_end_array(&json);
    json_end_object(&json);
    snprintf(target, sizeof(target), "/api/v1/sessions/%s/executions", session);
    if (bench_client_call(client, HTTP_POST, target, buffer_text(&body), err) < 0)
        return -1;
    if (!memmem(client->body.data, client->body.length, "\"exit_code\":0", 13))
        return error_set(err, ERR_BACKEND, "the program failed: %.300s",
                         buffer_text(&client->body));
    return 0;
}

static int sandglass_run_in(struct worker *worker, const struct bench_box *box,
                            const char *const *argv, struct error *err)
{
    return sandglass_run(&worker->client, box->name, argv, err);
}

static int sandglass_destroy(struct worker *worker, const struct bench_box *box, struct error *err)
{
    char target[TARGET_SIZE];

    snprintf(target, sizeof(target), "/api/v1/sessions/%s", box->name);
    return bench_client_call(&worker->client, HTTP_DELETE, target, NULL, err) < 0 ? -1 : 0;
}

static int sandglass_cycle(struct worker *worker, struct error *err)
{
    struct bench_box box;

    if (sandglass_make(worker, &box, err) < 0 ||
        sandglass_run(&worker->client, box.name, (const char *const[]){ "/bin/true", NULL }, err) <
            0)
        return -1;
    return sandglass_destroy(worker, &box, err);
}

const struct subject_ops sandglass_ops = {
    .cycle = sandglass_cycle,
    .make = sandglass_make,
    .run = sandglass_run_in,
    .destroy = sandglass_destroy,
};
