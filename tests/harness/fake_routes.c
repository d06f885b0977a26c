/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/fake_engine_private.h"

#include "base/alloc.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

typedef void serve_fn(struct fake_request *request, const char *name);

/* The value of a name in the query, allocated; "" without. */
static char *query_value(const struct fake_request *request, const char *wanted)
{
    scoped(buffer_fini) struct buffer name = BUFFER_INIT(4096);
    scoped(buffer_fini) struct buffer value = BUFFER_INIT(65536);
    const char *query = request->query;

    while (http_query_next(&query, &name, &value) > 0)
        if (str_equal(buffer_text(&name), wanted))
            return xstrdup(buffer_text(&value));
    return xstrdup("");
}

/* --- the engine itself ------------------------------------------------------------------------ */

static void serve_ping(struct fake_request *request, const char *name)
{
    (void)name;
    request->state = REQUEST_DONE;
    http_respond_header(request->exchange, "Api-Version", "1.41");
    http_respond(request->exchange, 200, "text/plain", "OK", 2);
}

static void serve_info(struct fake_request *request, const char *name)
{
    json_t *runtimes = json_pack("{s:{}, s:{}, s:{}}", "runc", "crun", "io.containerd.runc.v2");
    json_t *info = json_pack("{s:b, s:b, s:b, s:s, s:s, s:o}", "MemoryLimit", 1, "CpuCfsQuota", 1,
                             "PidsLimit", 1, "Driver", "overlay2", "CgroupVersion", "1", "Runtimes",
                             runtimes);

    (void)name;
    if (!request->engine->habits.lacks_runsc)
        json_object_set_new(runtimes, "runsc", json_object());
    if (request->engine->habits.is_podman)
        json_object_set_new(info, "BuildahVersion", json_string("1.28.2"));
    fake_answer(request, 200, info);
}

static void serve_events(struct fake_request *request, const char *name)
{
    scoped(free) char *filters = query_value(request, "filters");

    (void)name;
    fake_stream(request, strstr(filters, "\"image\""));
}

/* --- images ----------------------------------------------------------------------------------- */

static struct fake_image *find_image(struct fake_engine *engine, const char *name)
{
    scoped(free) char *tagged = xasprintf("%s:latest", name);
    struct fake_image *image;

    list_for_each (image, &engine->images, node)
        if (str_equal(image->name, name) || str_equal(image->name, tagged))
            return image;
    return NULL;
}

static void serve_images(struct fake_request *request, const char *name)
{
    json_t *answer = json_array();
    struct fake_image *image;

    (void)name;
    list_for_each (image, &request->engine->images, node)
        json_array_append_new(answer,
                              json_pack("{s:s, s:[s]}", "Id", "sha256:0", "RepoTags", image->name));
    fake_answer(request, 200, answer);
}

static void serve_image(struct fake_request *request, const char *name)
{
    const struct fake_image *image = find_image(request->engine, name);

    if (!image)
        fake_refuse(request, 404, "image not known", "No such image: %s", name);
    else
        fake_answer(request, 200,
                    json_pack("{s:s, s:{s:s, s:s}}", "Id", "sha256:0", "Config", "User",
                              image->user, "WorkingDir", image->workdir));
}

/* What can be pulled is in the registry; tests refuse the rest. */
static void serve_registry(struct fake_request *request, const char *name)
{
    (void)name;
    fake_answer(request, 200, json_pack("{s:{s:s}}", "Descriptor", "digest", "sha256:0"));
}

static void serve_pull(struct fake_request *request, const char *name)
{
    scoped(free) char *repository = query_value(request, "fromImage");
    scoped(free) char *tag = query_value(request, "tag");
    const char *short_name = str_starts_with(repository, "docker.io/library/")
                                 ? repository + strlen("docker.io/library/")
                                 : repository;
    scoped(free) char *reference = xasprintf("%s:%s", short_name, tag);
    const char *lines = request->engine->pull_lines ? request->engine->pull_lines : "{}\n";

    (void)name;
    if (!strstr(lines, "\"error\""))
        fake_engine_add_image(request->engine, reference, "", "");
    fake_send_lines(request, lines);
}

/* --- containers ------------------------------------------------------------------------------- */

static struct fake_container *need(struct fake_request *request, const char *name)
{
    struct fake_container *container = fake_engine_find(request->engine, name);

    if (!container)
        fake_refuse(request, 404, "no such container", "No such container: %s", name);
    return container;
}

static bool has_mounts(const json_t *body)
{
    return json_array_size(json_object_get(json_object_get(body, "HostConfig"), "Mounts")) > 0;
}

static void refuse_name(struct fake_request *request, const struct fake_container *other)
{
    if (request->engine->habits.is_podman)
        fake_refuse(request, 500, "that name is already in use",
                    "container create: creating container storage: the container name \"%s\" is "
                    "already in use by %s. You have to remove that container to be able to reuse "
                    "that name: that name is already in use",
                    other->name, other->id);
    else
        fake_refuse(request, 409, "",
                    "Conflict. The container name \"/%s\" is already in use by container \"%s\". "
                    "You have to remove (or rename) that container to be able to reuse that name.",
                    other->name, other->id);
}

static void serve_create(struct fake_request *request, const char *object)
{
    scoped(free) char *name = query_value(request, "name");
    const char *image = json_string_value(json_object_get(request->body, "Image"));
    const struct fake_container *other = fake_engine_find(request->engine, name);
    struct fake_container *container;

    (void)object;
    if (other) {
        refuse_name(request, other);
    } else if (request->engine->habits.sees_no_files && has_mounts(request->body)) {
        fake_refuse(request, 400, "",
                    "invalid mount config for type \"bind\": bind source path does not exist: /x");
    } else if (!image || !find_image(request->engine, image)) {
        fake_refuse(request, 404, "image not known", "No such image: %s", image ? image : "");
    } else {
        container = fake_container_new(request->engine, name, request->body);
        fake_event(container, "create", NULL, NULL);
        fake_answer(request, 201, json_pack("{s:s, s:[]}", "Id", container->id, "Warnings"));
    }
}

static bool has_label(const struct fake_container *container, const char *wanted)
{
    size_t length = strcspn(wanted, "=");
    scoped(free) char *label = xstrndup(wanted, length);

    return str_equal(fake_container_label(container, label), wanted + length + 1);
}

static void serve_list(struct fake_request *request, const char *name)
{
    scoped(free) char *filters = query_value(request, "filters");
    json_t *document = json_loads(filters, 0, NULL);
    json_t *answer = json_array();
    struct fake_container *container;

    (void)name;
    list_for_each (container, &request->engine->containers, node) {
        json_t *description = fake_container_describe(container);
        json_t *config = json_object_get(description, "Config");
        json_t *state = json_object_get(description, "State");
        bool fits = true;
        json_t *label;
        size_t i;

        json_array_foreach(json_object_get(document, "label"), i, label)
            fits = fits && has_label(container, json_string_value(label));
        if (fits)
            json_array_append_new(answer, json_pack("{s:s, s:O, s:O?}", "Id", container->id,
                                                    "State", json_object_get(state, "Status"),
                                                    "Labels", json_object_get(config, "Labels")));
        json_decref(description);
    }
    json_decref(document);
    fake_answer(request, 200, answer);
}

static void serve_inspect(struct fake_request *request, const char *name)
{
    const struct fake_container *container = need(request, name);

    if (container)
        fake_answer(request, 200, fake_container_describe(container));
}

/* Whether one that is asked for, or that the engine would choose itself, is above what this process has. */
static bool exceeds_limit(const json_t *limits, const char *name, int resource)
{
    struct rlimit own;
    size_t i;
    json_t *limit;

    assert_int_equal(getrlimit(resource, &own), 0);
    json_array_foreach(limits, i,
                       limit) if (str_equal(json_string_value(json_object_get(limit, "Name")),
                                            name)) return (rlim_t)
            json_integer_value(json_object_get(limit, "Hard")) > own.rlim_max;
    return true;
}

static bool exceeds_limits(const json_t *body)
{
    const json_t *limits = json_object_get(json_object_get(body, "HostConfig"), "Ulimits");

    return exceeds_limit(limits, "nofile", RLIMIT_NOFILE) ||
           exceeds_limit(limits, "nproc", RLIMIT_NPROC);
}

static void serve_start(struct fake_request *request, const char *name)
{
    struct fake_container *container = need(request, name);

    if (!container)
        return;
    if (fake_container_runs(container)) {
        fake_answer(request, 304, NULL);
    } else if (!fake_container_may_start(container)) {
        fake_refuse(request, 500, "", "id already in use");
    } else if (request->engine->habits.hides_files && has_mounts(container->request)) {
        container->exit_code = 127;
        fake_refuse(request, 400, "",
                    "OCI runtime create failed: error mounting \"/x\" to rootfs: no such file or "
                    "directory: unknown");
    } else if (request->engine->habits.lacks_resource && exceeds_limits(container->request)) {
        fake_refuse(request, 500, "OCI permission denied",
                    "runc: runc create failed: unable to start container process: error during "
                    "container init: error setting rlimits for ready process: error setting rlimit "
                    "type 7: operation not permitted: OCI permission denied");
    } else {
        fake_container_start(container);
        fake_answer(request, 204, NULL);
    }
}

static void serve_remove(struct fake_request *request, const char *name)
{
    struct fake_container *container = need(request, name);

    if (!container)
        return;
    if (container->state == FAKE_REMOVING) {
        fake_refuse(request, 409, "", "removal of container %s is already in progress", name);
        return;
    }
    fake_container_remove(container);
    fake_answer(request, 204, NULL);
}

static void pause_or_not(struct fake_request *request, const char *name, bool is_paused)
{
    struct fake_container *container = need(request, name);

    if (!container)
        return;
    if (container->state == (is_paused ? FAKE_RUNNING : FAKE_PAUSED)) {
        fake_container_pause(container, is_paused);
        fake_answer(request, 204, NULL);
    } else {
        fake_refuse(request, is_paused && !request->engine->habits.is_podman ? 409 : 500,
                    "container state improper", "Container %s is %s paused", name,
                    is_paused ? "already" : "not");
    }
}

static void serve_pause(struct fake_request *request, const char *name)
{
    pause_or_not(request, name, true);
}

static void serve_unpause(struct fake_request *request, const char *name)
{
    pause_or_not(request, name, false);
}

static void serve_update(struct fake_request *request, const char *name)
{
    struct fake_container *container = need(request, name);

    if (!container)
        return;
    container->updates++;
    json_object_update(json_object_get(container->request, "HostConfig"), request->body);
    fake_answer(request, 200, json_pack("{s:[]}", "Warnings"));
}

static void serve_stats(struct fake_request *request, const char *name)
{
    if (need(request, name))
        fake_answer(request, 200,
                    json_pack("{s:{s:{s:I}}, s:{s:I, s:I}, s:{s:i}}", "cpu_stats", "cpu_usage",
                              "total_usage", (json_int_t)5000000, "memory_stats", "usage",
                              (json_int_t)1048576, "max_usage", (json_int_t)2097152, "pids_stats",
                              "current", 3));
}

static void serve_upload(struct fake_request *request, const char *name)
{
    struct fake_container *container = need(request, name);

    if (!container)
        return;
    container->uploads++;
    fake_answer(request, 200, NULL);
}

static void serve_attach(struct fake_request *request, const char *name)
{
    if (!need(request, name))
        return;
    if (request->engine->habits.attaches_to_nothing)
        fake_refuse(request, 500, "", "cannot attach to %s", name);
    else
        fake_attach(request);
}

/* No program runs in a container of ours: a bridge tries again. */
static void serve_exec(struct fake_request *request, const char *name)
{
    struct fake_container *container = need(request, name);

    if (!container)
        return;
    json_decref(container->exec);
    container->exec = json_incref(request->body);
    fake_refuse(request, 500, "", "no program of %s can be started", name);
}

/* --- routes ----------------------------------------------------------------------------------- */

static const struct route {
    enum http_method method;
    const char *before, *after; /* of the name; NULL: there is none */
    serve_fn *serve;
} routes[] = {
    { HTTP_GET, "/_ping", NULL, serve_ping },
    { HTTP_GET, "/info", NULL, serve_info },
    { HTTP_GET, "/events", NULL, serve_events },
    { HTTP_GET, "/images/json", NULL, serve_images },
    { HTTP_POST, "/images/create", NULL, serve_pull },
    { HTTP_GET, "/images/", "/json", serve_image },
    { HTTP_GET, "/distribution/", "/json", serve_registry },
    { HTTP_POST, "/containers/create", NULL, serve_create },
    { HTTP_GET, "/containers/json", NULL, serve_list },
    { HTTP_GET, "/containers/", "/json", serve_inspect },
    { HTTP_GET, "/containers/", "/stats", serve_stats },
    { HTTP_POST, "/containers/", "/start", serve_start },
    { HTTP_POST, "/containers/", "/pause", serve_pause },
    { HTTP_POST, "/containers/", "/unpause", serve_unpause },
    { HTTP_POST, "/containers/", "/update", serve_update },
    { HTTP_POST, "/containers/", "/attach", serve_attach },
    { HTTP_POST, "/containers/", "/exec", serve_exec },
    { HTTP_PUT, "/containers/", "/archive", serve_upload },
    { HTTP_DELETE, "/containers/", "", serve_remove },
};

/* The name between the two ends, allocated; NULL when the path is another. */
static char *match(const struct route *route, const char *path)
{
    size_t length = strlen(path);
    size_t before = strlen(route->before);
    size_t after = route->after ? strlen(route->after) : 0;

    if (!route->after)
        return str_equal(path, route->before) ? xstrdup("") : NULL;
    if (length <= before + after || strncmp(path, route->before, before) != 0 ||
        !str_equal(path + length - after, route->after))
        return NULL;
    return xstrndup(path + before, length - before - after);
}

void fake_serve(struct fake_request *request)
{
    enum http_method method = http_exchange_head(request->exchange)->method;

    for (size_t i = 0; i < ARRAY_LENGTH(routes); i++) {
        scoped(free) char *name = routes[i].method == method ? match(&routes[i], request->path)
                                                             : NULL;

        if (name) {
            routes[i].serve(request, name);
            return;
        }
    }
    fake_refuse(request, 404, "", "page not found");
}
