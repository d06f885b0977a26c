/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/docker/docker_private.h"

#include "backend/remote/image.h"
#include "base/alloc.h"
#include "base/buffer.h"
#include "base/str.h"
#include "config/config.h"
#include "wire/image_ref.h"

#include <stdlib.h>
#include <string.h>

enum {
    NAMES_SHOWN = 10,
    NAMES_MAXIMUM = 4096,
    WHY_SHOWN = 180,
    SHORT_ID = 12,
    FIND_MS = 10 * 1000,
};

/* docker.image, or the template of the settings where that is no name of the native backend. */
const char *images_default(const struct docker_backend *docker)
{
    const char *template_name = docker->config->sandbox.template_name;

    if (!str_is_empty(docker->config->docker.image))
        return docker->config->docker.image;
    return str_equal(template_name, "host") || *template_name == '/' ? "" : template_name;
}

const char *images_resolve(const struct docker_backend *docker, const char *name, struct error *err)
{
    return remote_image(name, images_default(docker), docker->base.ops->name, "docker.image", err);
}

/* --- known ones --------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void forget(struct images *images)
{
    for (size_t i = 0; i < images->count; i++)
        free(images->names[i]);
    free(images->names);
    images->names = NULL;
    images->count = 0;
}

/* Podman prefixes images without a registry with "localhost/". */
static const char *short_name(const char *tag)
{
    static const char *const prefixes[] = { "localhost/", "docker.io/library/" };

    for (size_t i = 0; i < ARRAY_LENGTH(prefixes); i++)
        if (str_starts_with(tag, prefixes[i]))
            return tag + strlen(prefixes[i]);
    return tag;
}

static void add_tags(struct images *images, const json_t *tags)
{
    const json_t *tag;
    size_t i;

    json_array_foreach(tags, i, tag)
    {
        const char *name = json_string_value(tag);

        if (!name || images->count >= NAMES_MAXIMUM || str_starts_with(name, "<none>"))
            continue;
        images->names = xrealloc(images->names, images->count + 1, sizeof(*images->names));
        images->names[images->count++] = xstrdup(short_name(name));
    }
}

static void on_images(struct engine_call *call)
{
    struct images *images = container_of(call, struct images, call);
    const json_t *image;
    size_t i;

    if (call->err.code != ERR_NONE || !json_is_array(call->body))
        return;
    forget(images);
    json_array_foreach(call->body, i, image) add_tags(images, json_object_get(image, "RepoTags"));
    if (images->count)
        qsort(images->names, images->count, sizeof(*images->names), by_name);
    images->are_known = true;
}

void images_refresh(struct docker_backend *docker)
{
    engine_cancel(&docker->images.call);
    engine_request(docker->engine, &docker->images.call, HTTP_GET, "/images/json", NULL, NULL, 0,
                   ENGINE_REQUEST_MS, on_images);
}

static struct docker_backend *docker_of(struct engine_events *events)
{
    return container_of(events, struct docker_backend, images.events);
}

static void on_up(struct engine_events *events)
{
    images_refresh(docker_of(events));
}

static void on_event(struct engine_events *events, json_t *event)
{
    (void)event;
    images_refresh(docker_of(events));
}

/* Names that cannot be checked are left to the engine. */
static void on_down(struct engine_events *events, const struct error *err)
{
    (void)err;
    docker_of(events)->images.are_known = false;
}

void images_watch(struct docker_backend *docker)
{
    static const struct engine_events_handler handler = { .on_up = on_up,
                                                          .on_event = on_event,
                                                          .on_down = on_down };

    engine_events_start(docker->engine, &docker->images.events, "type", "image", &handler);
}

void images_fini(struct docker_backend *docker)
{
    engine_events_stop(&docker->images.events);
    engine_cancel(&docker->images.call);
    forget(&docker->images);
}

void images_list(const struct docker_backend *docker, backend_source_fn *add, void *user)
{
    for (size_t i = 0; i < docker->images.count; i++)
        add(user, docker->images.names[i]);
}

struct likeness {
    const char *name; /* borrowed */
    unsigned distance;
};

/* Fills in the names that are most similar, best first, and returns their number. */
static size_t find_alike(const struct images *images, const char *name,
                         struct likeness out_best[NAMES_SHOWN])
{
    size_t count = 0;

    for (size_t i = 0; i < images->count; i++) {
        struct likeness next = { images->names[i], str_distance(name, images->names[i]) };
        size_t at = count < NAMES_SHOWN ? count++ : NAMES_SHOWN;

        for (; at > 0 && out_best[at - 1].distance > next.distance; at--)
            if (at < NAMES_SHOWN)
                out_best[at] = out_best[at - 1];
        if (at < NAMES_SHOWN)
            out_best[at] = next;
    }
    return count;
}

void images_refuse(const struct docker_backend *docker, const char *name, const char *why,
                   struct error *err)
{
    scoped(buffer_fini) struct buffer known = BUFFER_INIT(512);
    const struct images *images = &docker->images;
    struct likeness best[NAMES_SHOWN];
    size_t count = find_alike(images, name, best);

    for (size_t i = 0; i < count; i++)
        buffer_appendf(&known, "%s%s", i ? ", " : "", best[i].name);
    if (images->count > NAMES_SHOWN)
        buffer_appendf(&known, " and %zu more", images->count - NAMES_SHOWN);
    error_named(
        err, ERR_INVALID, "image_not_found",
        "unknown template \"%.100s\": the engine has no such image%s%.*s%s; known images: %s", name,
        *why ? ": " : "", WHY_SHOWN, why, strlen(why) > WHY_SHOWN ? "..." : "",
        known.length        ? buffer_text(&known)
        : images->are_known ? "none"
                            : "not listed yet");
    error_hint(err, "pull or load the image %.100s into the engine%s", name,
               docker->config->docker.pull == PULL_NEVER ? ", or set docker.pull to missing" : "");
    err->retryable = false;
}

/* --- checks ------------------------------------------------------------------------------------- */

/* Engines find images by the beginning of their ids too. */
static bool may_be_id(const char *name)
{
    size_t digits = strspn(name, "0123456789abcdef");

    return str_starts_with(name, "sha256:") || (digits >= SHORT_ID && !name[digits]);
}

/* One image has several names: "alpine" is "docker.io/library/alpine:latest", and Podman finds
 * "quay.io/team/tool:1" by "team/tool:1". */
static bool is_name_of(const char *known, const char *name, const struct image_ref *ref)
{
    struct image_ref other;
    size_t length = strlen(known);
    size_t tail = strlen(name);

    if (image_ref_parse(&other, known, NULL) == 0 && str_equal(other.repository, ref->repository) &&
        str_equal(other.tag, ref->tag))
        return true;
    return length > tail && known[length - tail - 1] == '/' &&
           str_equal(known + length - tail, name);
}

static bool has_name(const struct images *images, const char *name)
{
    struct image_ref ref;

    if (!images->are_known || image_ref_parse(&ref, short_name(name), NULL) < 0)
        return false;
    for (size_t i = 0; i < images->count; i++)
        if (is_name_of(images->names[i], name, &ref))
            return true;
    return false;
}

/* The list has names alone. */
static bool is_in_no_list(const char *name)
{
    struct image_ref ref;

    return may_be_id(name) || image_ref_parse(&ref, short_name(name), NULL) < 0 || *ref.digest;
}

/* Only an engine that pulls nothing is certain to refuse an image that it does not have. */
int images_check(const struct docker_backend *docker, const char *name, struct error *err)
{
    const char *image = images_resolve(docker, name, err);

    if (!image)
        return -1;
    if (docker->config->docker.pull != PULL_NEVER || !docker->images.are_known ||
        is_in_no_list(image) || has_name(&docker->images, image))
        return 0;
    images_refuse(docker, image, "", err);
    return -1;
}

/* --- finding an image that the engine may lack --------------------------------------------- */

struct find {
    struct docker_job job;
    char *image; /* owned: the reference */
};

static void clear_find(void *job)
{
    free(((struct find *)job)->image);
}

static struct find *find_of(struct engine_call *call)
{
    return container_of(container_of(call, struct docker_job, call), struct find, job);
}

/* A registry that does not answer may do so the next time. */
static void refuse_found(const struct find *find, const struct error *err)
{
    images_refuse(find->job.backend, find->image, err->message, &find->job.base.op->err);
    find->job.base.op->err.retryable = err->code == ERR_BACKEND;
}

/* An engine that is away or busy says nothing about the image, nor does Podman, which asks no registry
 * but to pull. */
static bool is_verdict(const struct error *err)
{
    return err->code != ERR_NONE && err->code != ERR_UNAVAILABLE && err->code != ERR_LIMIT &&
           !engine_error_says(err, "is not supported");
}

static void on_registry(struct engine_call *call)
{
    struct find *find = find_of(call);

    if (is_verdict(&call->err))
        refuse_found(find, &call->err);
    docker_job_done(&find->job);
}

static void on_looked_up(struct engine_call *call)
{
    struct find *find = find_of(call);
    const struct docker_backend *docker = find->job.backend;

    if (call->err.code == ERR_NOT_FOUND && docker->config->docker.pull != PULL_NEVER &&
        !may_be_id(find->image)) {
        docker_job_ask(&find->job, HTTP_GET, NULL, FIND_MS, on_registry, "/distribution/%s/json",
                       find->image);
        return;
    }
    if (call->err.code == ERR_NOT_FOUND)
        refuse_found(find, &call->err);
    docker_job_done(&find->job);
}

bool images_find(struct docker_backend *docker, const char *name, struct backend_op *op)
{
    struct error err = { 0 };
    const char *image = images_resolve(docker, name, &err);
    struct find *find;

    if (!image || has_name(&docker->images, image))
        return true;
    find = docker_job_new(sizeof(*find), docker, op, "");
    find->job.base.clear = clear_find;
    find->image = xstrdup(image);
    docker_job_ask(&find->job, HTTP_GET, NULL, FIND_MS, on_looked_up, "/images/%s/json", image);
    return false;
}

/* --- processors ---------------------------------------------------------------------------------- */

/* Engines and images have different words for the same processor. */
static bool is_for_another_processor(const struct docker_backend *docker, const char *architecture)
{
    static const struct {
        const char *host, *image, *also; /* a second platform that it runs */
    } processors[] = {
        { "x86_64", "amd64", "386" },        { "aarch64", "arm64", "arm" },
        { "armv7l", "arm", "arm" },          { "i686", "386", "386" },
        { "ppc64le", "ppc64le", "ppc64le" }, { "riscv64", "riscv64", "riscv64" },
        { "s390x", "s390x", "s390x" },
    };
    const char *host = docker->facts.architecture;

    for (size_t i = 0; i < ARRAY_LENGTH(processors); i++)
        if (str_equal(processors[i].host, host) || str_equal(processors[i].image, host))
            return !str_equal(processors[i].image, architecture) &&
                   !str_equal(processors[i].also, architecture);
    return false;
}

int images_check_processor(const struct docker_backend *docker, const char *image,
                           const json_t *document, struct error *err)
{
    const char *architecture = json_text_at(document, "Architecture");

    if (!*architecture || !is_for_another_processor(docker, architecture))
        return 0;
    error_named(err, ERR_INVALID, "image_architecture",
                "the image %.200s is for the processor %.32s, the engine's host has %s", image,
                architecture, docker->facts.architecture);
    return error_hint(err, "pull the image for the processor of the host");
}
