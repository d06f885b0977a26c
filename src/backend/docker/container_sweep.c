/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/docker/container_sweep.h"

#include "backend/docker/docker_private.h"
#include "backend/docker/place.h"
#include "base/alloc.h"
#include "base/macros.h"
#include "base/str.h"
#include "config/config.h"

#include <stdio.h>

/* {"label":["sandglass=1"]}, escaped */
#define LIST_PATH \
    "/containers/json?all=true&filters=%7B%22label%22%3A%5B%22" LABEL_MARK "%3D1%22%5D%7D"

enum { LIST_MS = 5 * 1000, REMOVE_MS = 60 * 1000 };

struct container_sweep {
    struct loop *loop;     /* owned */
    struct engine *engine; /* owned */
    struct place place;    /* of this process */
};

/* One request, waited for. */
struct question {
    struct engine_call call;
    bool is_answered;
    json_t *body; /* owned */
};

struct container_sweep *container_sweep_new(const struct config *config, struct error *err)
{
    struct container_sweep *sweep = xnew(struct container_sweep);
    struct engine_options options = {
        .host = config->docker.host,
        .ca = config->docker.tls.ca,
        .certificate = config->docker.tls.cert,
        .key = config->docker.tls.key,
    };

    options.loop = sweep->loop = loop_new(&clock_system);
    sweep->engine = engine_new(&options, err);
    if (!sweep->engine) {
        container_sweep_free(sweep);
        return NULL;
    }
    place_read(&sweep->place);
    return sweep;
}

void container_sweep_free(struct container_sweep *sweep)
{
    if (!sweep)
        return;
    engine_free(sweep->engine);
    loop_free(sweep->loop);
    free(sweep);
}

static void on_answer(struct engine_call *call)
{
    struct question *question = container_of(call, struct question, call);

    question->is_answered = true;
    question->body = json_incref(call->body);
}

static void ask(struct container_sweep *sweep, struct question *question, enum http_method method,
                const char *path, int64_t timeout_ms)
{
    *question = (struct question){ 0 };
    engine_request(sweep->engine, &question->call, method, path, NULL, NULL, 0, timeout_ms,
                   on_answer);
    while (!question->is_answered)
        loop_turn(sweep->loop, 100);
}

/* The numbers of processes, files and times of another boot are those of another machine, unless the
 * engine is on this one: then it was this machine's last boot. */
static bool is_of_host(const struct container_sweep *sweep, const json_t *labels)
{
    const struct place *place = &sweep->place;

    return *place->host && str_equal(json_text_at(labels, LABEL_HOST), place->host) &&
           (engine_is_unix(sweep->engine) ||
            (*place->boot && str_equal(json_text_at(labels, LABEL_BOOT), place->boot)));
}

int container_sweep_list(struct container_sweep *sweep, container_found_fn *found, void *user,
                         struct error *err)
{
    struct question question;
    const json_t *row;
    size_t i;

    ask(sweep, &question, HTTP_GET, LIST_PATH, LIST_MS);
    if (question.call.err.code != ERR_NONE) {
        *err = question.call.err;
        json_decref(question.body);
        return -1;
    }
    json_array_foreach(question.body, i, row)
    {
        const json_t *labels = json_object_get(row, "Labels");
        const struct container_found one = {
            .engine_id = json_text_at(row, "Id"),
            .sandbox = json_text_at(labels, LABEL_SANDBOX),
            .instance = json_text_at(labels, LABEL_INSTANCE),
            .state = json_text_at(labels, LABEL_STATE),
            .is_of_host = is_of_host(sweep, labels),
            .made_s = (int64_t)json_number_value(json_object_get(row, "Created")),
        };

        if (id_is_valid(one.sandbox, ID_SANDBOX) && *one.engine_id && *one.state == '/')
            found(user, &one);
    }
    json_decref(question.body);
    return 0;
}

int container_sweep_remove(struct container_sweep *sweep, const char *engine_id, struct error *err)
{
    struct question question;
    char path[ENGINE_PATH_SIZE];

    snprintf(path, sizeof(path), "/containers/%s?force=true&v=true", engine_id);
    ask(sweep, &question, HTTP_DELETE, path, REMOVE_MS);
    json_decref(question.body);
    if (question.call.err.code == ERR_NONE || question.call.err.code == ERR_NOT_FOUND)
        return 0;
    *err = question.call.err;
    return -1;
}
