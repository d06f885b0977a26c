/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/docker/docker_private.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/str.h"
#include "config/config.h"
#include "loop/workflow.h"
#include "wire/image_ref.h"

#include <stdio.h>
#include <string.h>

/* From an image to a container with an init in it. After a failure the core calls destroy(), which
 * removes the container. */
struct create {
    struct docker_job job;
    struct workflow workflow;
    struct sandbox_spec spec; /* its texts are owned */
    char *image;              /* owned: the reference */
    json_t *document;         /* owned: the engine's description of the image */
    struct image_facts facts;
    struct engine_pull pull;
    bool was_pulled;
    int64_t told_us; /* when progress was last logged */
    enum docker_way way;
    enum docker_rlimits rlimits;
    struct container *container; /* borrowed */
    struct engine_exec attach;   /* to its init, before the start */
    struct timer again;          /* looks at the container another time */
    unsigned looks;
    bool has_profile_file;  /* the engine was given the profile as a file */
    bool is_worth_retrying; /* the next attempt is another one */
};

static struct create *create_of(struct workflow *workflow)
{
    return container_of(workflow, struct create, workflow);
}

static struct create *create_of_call(struct engine_call *call)
{
    return container_of(container_of(call, struct docker_job, call), struct create, job);
}

static void clear(void *job)
{
    struct create *create = job;

    /* A container of an earlier attempt, not destroyed yet, may have reached the engine. */
    if (!create->container && !container_find(create->job.backend, create->job.base.id))
        unmade_note(&create->job.backend->unmade, create->job.base.id);
    workflow_drop(&create->workflow);
    timer_stop(&create->again);
    engine_pull_cancel(&create->pull);
    engine_exec_cancel(&create->attach);
    free((char *)create->spec.source.name);
    free((char *)create->spec.session);
    free((char *)create->spec.owner);
    free(create->image);
    json_decref(create->document);
}

/* --- the image -------------------------------------------------------------------------------- */

static void find_image(struct workflow *workflow);

static void on_progress(struct engine_pull *pull)
{
    struct create *create = container_of(pull, struct create, pull);
    int64_t now_us = loop_now_us(create->job.backend->base.loop);

    if (now_us - create->told_us < 1000 * 1000)
        return;
    create->told_us = now_us;
    if (create->job.base.op->on_progress)
        create->job.base.op->on_progress(create->job.base.op, "pulling", pull->done_bytes,
                                         pull->total_bytes);
}

static void on_pulled(struct engine_pull *pull)
{
    struct create *create = container_of(pull, struct create, pull);
    struct docker_backend *docker = create->job.backend;
    struct error err = pull->err;

    create->was_pulled = true;
    images_refresh(docker);
    if (err.code == ERR_NONE) {
        find_image(&create->workflow);
        return;
    }
    if (err.code != ERR_UNAVAILABLE && err.code != ERR_NO_SPACE && err.code != ERR_LIMIT)
        images_refuse(docker, create->image, pull->err.message, &err);
    workflow_step_done(&create->workflow, &err);
}

static void pull_image(struct create *create)
{
    struct docker_backend *docker = create->job.backend;
    struct image_ref ref;
    struct error err = { 0 };

    if (image_ref_parse(&ref, create->image, &err) < 0) {
        workflow_step_done(&create->workflow, &err);
        return;
    }
    log_info("pulling an image", kv("image", create->image), kv("sandbox", create->job.base.id));
    engine_pull_start(docker->engine, &create->pull, ref.repository, image_ref_version(&ref),
                      PULL_STALL_MS, on_progress, on_pulled);
}

static void read_image(struct create *create, json_t *document)
{
    const json_t *config = json_object_get(document, "Config");

    create->document = json_incref(document);
    create->facts = (struct image_facts){ .user = json_text_at(config, "User"),
                                          .workdir = json_text_at(config, "WorkingDir") };
}

static void on_image(struct engine_call *call)
{
    struct create *create = create_of_call(call);
    struct docker_backend *docker = create->job.backend;
    struct error err = call->err;

    if (err.code == ERR_NOT_FOUND && docker->config->docker.pull != PULL_NEVER &&
        !create->was_pulled) {
        pull_image(create);
        return;
    }
    if (err.code == ERR_NOT_FOUND)
        images_refuse(docker, create->image, call->err.message, &err);
    else if (err.code == ERR_NONE && !json_is_object(call->body))
        error_set(&err, ERR_BACKEND, "the engine did not describe the image %s", create->image);
    else if (err.code == ERR_NONE &&
             images_check_processor(docker, create->image, call->body, &err) == 0)
        read_image(create, call->body);
    workflow_step_done(&create->workflow, err.code == ERR_NONE ? NULL : &err);
}

static void find_image(struct workflow *workflow)
{
    struct create *create = create_of(workflow);

    if (create->job.backend->config->docker.pull == PULL_ALWAYS && !create->was_pulled)
        pull_image(create);
    else
        docker_job_ask(&create->job, HTTP_GET, NULL, ENGINE_REQUEST_MS, on_image, "/images/%s/json",
                       create->image);
}

/* --- the container ----------------------------------------------------------------------------- */

/* Containers on this kernel pass descriptors; all others need a relay. */
static enum docker_way choose_way(const struct docker_backend *docker)
{
    static const char *const same_kernel[] = { "", "runc", "crun", "io.containerd.runc.v2" };

    if (docker->reach == REACH_ARCHIVE || !engine_is_unix(docker->engine))
        return WAY_UPLOADED;
    for (size_t i = 0; i < ARRAY_LENGTH(same_kernel); i++)
        if (str_equal(docker->runtime, same_kernel[i]))
            return WAY_DOOR;
    return WAY_MOUNTED;
}

static void prepare(struct workflow *workflow)
{
    struct create *create = create_of(workflow);
    struct docker_backend *docker = create->job.backend;
    struct container *container = container_find(docker, create->job.base.id);
    struct error err = { 0 };

    container_free(container);
    container = container_new(docker, create->job.base.id);
    container->limits = create->spec.limits;
    create->container = container;
    unmade_forget(&docker->unmade, create->job.base.id);
    create->way = choose_way(docker);
    create->rlimits = docker->rlimits;
    if (create->way != WAY_UPLOADED && init_file_make(docker->state_dir, &err) < 0) {
        workflow_step_done(workflow, &err);
        return;
    }
    if (create->way == WAY_DOOR)
        container->door = door_open(docker->base.loop, docker->state_dir, container->id, &err);
    workflow_step_done(workflow, err.code == ERR_NONE ? NULL : &err);
}

static void make(struct workflow *workflow);

/* A container already has the name, which derives from a random id. It is ours if it was made by a
 * request whose answer was lost; any other is left alone. */
static void on_conflicting(struct engine_call *call)
{
    struct create *create = create_of_call(call);
    struct docker_backend *docker = create->job.backend;
    struct container_state state;
    struct error err = call->err;

    if (err.code == ERR_NONE && container_state_read(call->body, &state) &&
        str_equal(state.instance, docker->config->instance) &&
        str_equal(state.sandbox, create->job.base.id)) {
        memcpy(create->container->engine_id, state.engine_id, sizeof(state.engine_id));
        workflow_step_done(&create->workflow, NULL);
        return;
    }
    if (err.code == ERR_NONE || err.code == ERR_NOT_FOUND) {
        error_named(&err, ERR_CONFLICT, "name_conflict",
                    "another container has the name sandglass-%s", create->job.base.id);
        error_hint(&err, "it is not of this instance, and was left alone");
    }
    workflow_step_done(&create->workflow, &err);
}

/* Another create may have set docker->reach meanwhile. Mounts of the settings exclude an
 * archive. */
static bool is_worth_an_archive(const struct create *create, const struct engine_call *call)
{
    const struct docker_backend *docker = create->job.backend;

    return create->way != WAY_UPLOADED && docker->reach != REACH_MOUNTS &&
           !docker->config->sandbox.mounts.count && engine_refused_mount(call);
}

static void try_without_mounts(struct create *create)
{
    struct docker_backend *docker = create->job.backend;

    log_info("the engine does not see the files of this daemon: init is uploaded, and reached "
             "through the engine",
             kv("engine", engine_host(docker->engine)));
    docker->reach = REACH_ARCHIVE;
    door_free(steal_ptr(&create->container->door));
    (void)door_remove(docker->state_dir, create->job.base.id, NULL);
    create->way = WAY_UPLOADED;
    make(&create->workflow);
}

/* -1 for an answer that names no container. */
static int take_id(struct create *create, const struct engine_call *call, struct error *err)
{
    const char *id = json_text_at(call->body, "Id");
    size_t length = strspn(id, "0123456789abcdef");

    if (!length || id[length] || length >= CONTAINER_ID_SIZE)
        return error_set(err, ERR_BACKEND, "the engine made a container without an id");
    memcpy(create->container->engine_id, id, length + 1);
    return 0;
}

/* Podman takes the profile for the path of a file on its host. */
static bool wants_profile_file(const struct create *create, const struct engine_call *call)
{
    return create->job.backend->seccomp && !create->has_profile_file &&
           engine_refused_profile(call);
}

/* Another create may have switched to the file meanwhile. */
static int use_profile_file(struct docker_backend *docker, struct error *err)
{
    const char *profile = docker->seccomp + strlen(SECCOMP_OPTION);

    if (*profile == '/')
        return 0;
    if (profile_file_make(docker->state_dir, profile, err) < 0)
        return -1;
    free(docker->seccomp);
    docker->seccomp = xasprintf(SECCOMP_OPTION "%s/" DOCKER_PROFILE, docker->state_path);
    return 0;
}

static void try_with_profile_file(struct create *create)
{
    struct error err = { 0 };

    create->has_profile_file = true;
    if (use_profile_file(create->job.backend, &err) < 0)
        workflow_step_done(&create->workflow, &err);
    else
        make(&create->workflow);
}

static void on_made(struct engine_call *call)
{
    struct create *create = create_of_call(call);
    struct error err = call->err;
    char name[CONTAINER_NAME_SIZE];

    if (engine_refused_name(call)) {
        container_name(create->job.base.id, name);
        docker_job_ask(&create->job, HTTP_GET, NULL, ENGINE_REQUEST_MS, on_conflicting,
                       "/containers/%s/json", name);
        return;
    }
    if (wants_profile_file(create, call)) {
        try_with_profile_file(create);
        return;
    }
    if (is_worth_an_archive(create, call)) {
        try_without_mounts(create);
        return;
    }
    if (err.code == ERR_NONE)
        (void)take_id(create, call, &err);
    workflow_step_done(&create->workflow, err.code == ERR_NONE ? NULL : &err);
}

static void make(struct workflow *workflow)
{
    struct create *create = create_of(workflow);
    struct docker_backend *docker = create->job.backend;
    struct container_order order = {
        .docker = docker,
        .spec = &create->spec,
        .image = create->image,
        .facts = &create->facts,
        .way = create->way,
        .rlimits = create->rlimits,
    };
    char key[2 * RELAY_KEY_SIZE + 1];
    char name[CONTAINER_NAME_SIZE];
    scoped(free) char *body = NULL;
    struct error err = { 0 };

    if (order.way != WAY_DOOR && docker_relay_key(docker, create->job.base.id, key, &err) < 0) {
        workflow_step_done(workflow, &err);
        return;
    }
    order.key = order.way == WAY_DOOR ? NULL : key;
    body = container_spec_json(&order);
    explicit_bzero(key, sizeof(key));
    container_name(create->job.base.id, name);
    docker_job_ask(&create->job, HTTP_POST, body, ENGINE_WORK_MS, on_made,
                   "/containers/create?name=%s", name);
}

static void on_uploaded(struct engine_call *call)
{
    struct create *create = create_of_call(call);

    if (engine_error_says(&call->err, "marked read-only")) {
        error_named(&call->err, ERR_BACKEND, "read_only_elsewhere",
                    "docker.read_only needs an engine that can mount files of this daemon");
        error_hint(&call->err, "set docker.read_only to false, or run the daemon on the engine's "
                               "host");
    }
    workflow_step_done(&create->workflow, call->err.code == ERR_NONE ? NULL : &call->err);
}

static void upload_init(struct workflow *workflow)
{
    struct create *create = create_of(workflow);
    scoped(free) void *archive = NULL;
    char path[ENGINE_PATH_SIZE];
    size_t length;

    if (create->way != WAY_UPLOADED) {
        workflow_step_done(workflow, NULL);
        return;
    }
    archive = init_file_archive(&length);
    snprintf(path, sizeof(path), "/containers/%s/archive?path=/", create->container->engine_id);
    engine_request(create->job.backend->engine, &create->job.call, HTTP_PUT, path,
                   "application/x-tar", archive, length, ENGINE_WORK_MS, on_uploaded);
}

/* Where an engine cannot do it, the relay is reached by an exec after the start. */
static void on_attached(struct engine_exec *attach)
{
    struct create *create = container_of(attach, struct create, attach);

    if (attach->fd >= 0)
        pump_attach(&create->container->pump.base, attach->fd);
    else
        log_debug("not attached to the container, continuing without it",
                  kv("sandbox", create->job.base.id), kv("reason", attach->err.message));
    workflow_step_done(&create->workflow, NULL);
}

static void attach_to_init(struct workflow *workflow)
{
    struct create *create = create_of(workflow);

    if (create->way == WAY_DOOR)
        workflow_step_done(workflow, NULL);
    else
        engine_exec_attach(create->job.backend->engine, &create->attach,
                           create->container->engine_id, ENGINE_REQUEST_MS, on_attached);
}

/* A program that the engine cannot start is a fault of the image. */
static void name_start_failure(const struct create *create, struct error *err)
{
    if (engine_error_says(err, "exec format error"))
        error_named(err, ERR_INVALID, "image_architecture",
                    "the image %s is for another processor than the engine's host has",
                    create->image);
    else if (engine_error_says(err, "bind source path") || engine_error_says(err, "error mounting"))
        error_wrap(err, "mount files of this host");
}

/* Podman's service chooses limits that it may not set without CAP_SYS_RESOURCE. Another create may have
 * learnt it meanwhile. */
static void on_refused_rlimit(struct create *create, struct error *err)
{
    if (create->rlimits == RLIMITS_DAEMON) {
        error_hint(err, "the engine has lower limits than this daemon: give its service "
                        "CAP_SYS_RESOURCE, or higher limits (LimitNOFILE=, LimitNPROC=)");
        return;
    }
    create->job.backend->rlimits = RLIMITS_DAEMON;
    create->is_worth_retrying = err->retryable = true;
}

/* The core destroys a container that could not be started, and tries again. */
static void learn_from_start(struct create *create, struct engine_call *call)
{
    if (engine_refused_rlimit(call)) {
        on_refused_rlimit(create, &call->err);
    } else if (is_worth_an_archive(create, call)) {
        create->job.backend->reach = REACH_ARCHIVE;
        create->is_worth_retrying = call->err.retryable = true;
    }
}

static void on_started(struct engine_call *call)
{
    struct create *create = create_of_call(call);

    create->container->start = call->status ? START_ANSWERED : START_LOST;
    learn_from_start(create, call);
    if (call->err.code != ERR_NONE)
        name_start_failure(create, &call->err);
    else if (create->way != WAY_DOOR)
        pump_start(&create->container->pump.base);
    workflow_step_done(&create->workflow, call->err.code == ERR_NONE ? NULL : &call->err);
}

static void start(struct workflow *workflow)
{
    struct create *create = create_of(workflow);

    docker_job_ask(&create->job, HTTP_POST, NULL, ENGINE_WORK_MS, on_started,
                   "/containers/%s/start", create->container->engine_id);
}

static void look(struct workflow *workflow);

static int refuse_dead(struct create *create, int exit_code, struct error *err)
{
    error_named(err, ERR_BACKEND, "sandbox_died", "its init ended at once with code %d", exit_code);
    create->is_worth_retrying = err->retryable = true;
    return -1;
}

static int begin(struct create *create, const json_t *document, const struct container_state *state,
                 struct error *err)
{
    struct docker_backend *docker = create->job.backend;
    struct container *container = create->container;

    if (!state->is_running || !state->was_started)
        return refuse_dead(create, state->exit_code, err);
    memcpy(container->started_at, state->started_at, sizeof(container->started_at));
    container->pid = state->pid;
    container_note_paused(container, state->is_paused);
    if (container_begin(container, create->way == WAY_DOOR ? "door" : "relay", err) < 0)
        return -1;
    if (create->way != WAY_UPLOADED)
        docker->reach = REACH_MOUNTS;
    return container_require(container, document, err);
}

/* The container's init is not on this kernel. If an earlier init was, this one has died; otherwise
 * the next attempt uses an archive. */
static void on_elsewhere(struct create *create, struct error *err)
{
    struct docker_backend *docker = create->job.backend;

    create->is_worth_retrying = true;
    if (docker->reach == REACH_MOUNTS)
        error_named(err, ERR_BACKEND, "sandbox_died", "its init ended at once");
    else
        docker->reach = REACH_ARCHIVE;
    err->retryable = true;
}

static void look_again(struct timer *timer)
{
    look(&container_of(timer, struct create, again)->workflow);
}

static void on_running(struct engine_call *call)
{
    struct create *create = create_of_call(call);
    struct container_state state;
    struct error err = call->err;

    if (err.code == ERR_NONE && !container_state_read(call->body, &state))
        error_set(&err, ERR_BACKEND, "the engine did not describe the container");
    if (err.code == ERR_NONE)
        (void)begin(create, call->body, &state, &err);
    if (str_equal(err.name, "engine_elsewhere") && create->looks++ < ELSEWHERE_LOOKS) {
        timer_arm_in(&create->again, ELSEWHERE_LOOK_US);
        return;
    }
    if (str_equal(err.name, "engine_elsewhere"))
        on_elsewhere(create, &err);
    workflow_step_done(&create->workflow, err.code == ERR_NONE ? NULL : &err);
}

static void look(struct workflow *workflow)
{
    struct create *create = create_of(workflow);

    docker_job_ask(&create->job, HTTP_GET, NULL, ENGINE_REQUEST_MS, on_running,
                   "/containers/%s/json", create->container->engine_id);
}

static const struct workflow_step create_steps[] = {
    { "find the image", find_image },
    { "prepare its files", prepare },
    { "create the container", make },
    { "upload init", upload_init },
    { "attach to the input and output of init", attach_to_init },
    { "start the container", start },
    { "look at the container", look },
    { 0 },
};

static void on_created(struct workflow *workflow)
{
    struct create *create = create_of(workflow);
    struct backend_op *op = create->job.base.op;

    if (workflow->err)
        op->err = *workflow->err;
    if (op->err.code == ERR_BACKEND && op->err.sys_errno == 0 && !create->is_worth_retrying)
        op->err.retryable = false; /* an engine gives the same answer to the same question */
    if (!workflow->err)
        container_write_handle(create->container, &op->result.made.sandbox);
    docker_job_done(&create->job);
}

static char *copy(const char *text)
{
    return xstrdup(text ? text : "");
}

/* Whether the sandbox is being created or exists. A container of a failed attempt does not
 * count. */
static bool exists(const struct docker_backend *docker, const char *id)
{
    const struct container *container = container_find(docker, id);

    return remote_jobs_have(&docker->jobs, id) || (container && container->phase != CONTAINER_MADE);
}

/* The caller may retry while the container of an earlier attempt is being removed. */
static void refuse_second(const struct docker_backend *docker, const char *id, struct error *err)
{
    error_set(err, ERR_CONFLICT, "sandbox %s exists already", id);
    err->retryable = late_is_removing(docker, id);
}

void docker_create(struct backend *backend, const struct sandbox_spec *spec, struct backend_op *op)
{
    struct docker_backend *docker = docker_from(backend);
    bool is_second = exists(docker, spec->id);
    struct create *create = docker_job_new(sizeof(*create), docker, op, spec->id);
    const char *image = is_second ? NULL : images_resolve(docker, spec->source.name, &op->err);

    if (is_second)
        refuse_second(docker, spec->id, &op->err);
    create->job.base.clear = clear;
    timer_init(&create->again, backend->loop, look_again);
    create->spec = *spec;
    create->spec.source.name = copy(spec->source.name);
    create->spec.session = copy(spec->session);
    create->spec.owner = copy(spec->owner);
    if (!image) {
        remote_job_done_later(&create->job.base);
        return;
    }
    create->image = xstrdup(image);
    workflow_start(&create->workflow, backend->loop, create_steps, on_created);
}
