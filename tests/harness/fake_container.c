/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/fake_engine_private.h"

#include "base/alloc.h"
#include "base/fd.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { MAX_ARGUMENTS = 32 };

const char *fake_container_label(const struct fake_container *container, const char *label)
{
    const char *value =
        json_string_value(json_object_get(json_object_get(container->request, "Labels"), label));

    return value ? value : "";
}

bool fake_container_runs(const struct fake_container *container)
{
    return container->state == FAKE_RUNNING || container->state == FAKE_PAUSED;
}

/* --- finding ---------------------------------------------------------------------------------- */

struct fake_container *fake_engine_find(struct fake_engine *engine, const char *name_or_id)
{
    struct fake_container *container;

    list_for_each (container, &engine->containers, node)
        if (str_equal(container->name, name_or_id) || str_equal(container->id, name_or_id))
            return container;
    return NULL;
}

struct fake_container *fake_engine_find_sandbox(struct fake_engine *engine, const char *sandbox)
{
    struct fake_container *container;

    list_for_each (container, &engine->containers, node)
        if (str_equal(fake_container_label(container, "sandglass.sandbox"), sandbox))
            return container;
    return NULL;
}

size_t fake_engine_containers(const struct fake_engine *engine)
{
    struct fake_container *container;
    size_t count = 0;

    list_for_each (container, &engine->containers, node)
        count++;
    return count;
}

struct fake_container *fake_container_new(struct fake_engine *engine, const char *name,
                                          json_t *request)
{
    struct fake_container *container = xnew(struct fake_container);

    container->engine = engine;
    container->name = xstrdup(name);
    container->request = json_incref(request);
    container->reports.fd = -1;
    snprintf(container->id, sizeof(container->id), "%08x%056x", ++engine->serial, 0xfedcbaU);
    snprintf(container->started_at, sizeof(container->started_at), "0001-01-01T00:00:00Z");
    list_init(&container->node);
    list_append(&engine->containers, &container->node);
    return container;
}

struct fake_container *fake_engine_put(struct fake_engine *engine, const char *name,
                                       const char *labels)
{
    json_t *request = json_pack("{s:o}", "Labels", json_loads(labels, 0, NULL));
    struct fake_container *container = fake_container_new(engine, name, request);

    json_decref(request);
    return container;
}

/* --- its process ------------------------------------------------------------------------------ */

static const char *mount_source(const struct fake_container *container, const char *target)
{
    json_t *mounts = json_object_get(json_object_get(container->request, "HostConfig"), "Mounts");
    json_t *mount;
    size_t i;

    json_array_foreach(mounts, i, mount)
    {
        if (str_equal(json_string_value(json_object_get(mount, "Target")), target))
            return json_string_value(json_object_get(mount, "Source"));
    }
    return "";
}

static size_t write_arguments(const struct fake_container *container, const char **argv)
{
    const char *directory = mount_source(container, "/.sandglass/door");
    json_t *command = json_object_get(container->request, "Cmd");
    json_t *argument;
    size_t count = 3;
    size_t i;

    argv[0] = "fake_init";
    argv[1] = directory;
    argv[2] = "";
    json_array_foreach(command, i, argument)
    {
        const char *text = json_string_value(argument);

        assert_true(count < MAX_ARGUMENTS - 3);
        argv[count++] = text;
        if (str_starts_with(text, "--dial="))
            argv[2] = strrchr(text, '/') + 1;
    }
    if (container->engine->habits.inits_die)
        argv[count++] = "--die";
    /* The process of a container of gVisor is the sentry, whose arguments name the container. */
    argv[count++] = container->id;
    argv[count] = NULL;
    return count;
}

/* Marked afterwards: a child of another one of them must not hold this pipe open. */
static pid_t spawn(const struct fake_container *container, int *out_reports)
{
    const char *argv[MAX_ARGUMENTS];
    scoped(fd_close) int door = -1;
    int pipe_fds[2];
    pid_t pid;

    write_arguments(container, argv);
    /* As a mount: a directory that takes its place later is another one. */
    if (*argv[1])
        door = open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (door >= 0)
        argv[1] = ".";
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)!fchdir(door);
        dup2(pipe_fds[1], STDOUT_FILENO);
        execv(FAKE_INIT_PROGRAM, (char **)argv);
        _exit(127);
    }
    close(pipe_fds[1]);
    *out_reports = pipe_fds[0];
    return pid;
}

static void reap(struct fake_container *container)
{
    io_watch_stop(&container->reports);
    fd_close(steal_fd(&container->reports.fd));
    if (container->parent)
        waitpid(container->parent, NULL, 0);
    container->parent = 0;
    container->pid = 0;
}

static void note_end(struct fake_container *container)
{
    int status = 0;
    char code[16];

    if (read(container->reports.fd, &status, sizeof(status)) != (ssize_t)sizeof(status))
        status = SIGKILL;
    reap(container);
    container->state = container->engine->habits.is_slow_to_clean ? FAKE_STOPPED : FAKE_EXITED;
    container->exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    snprintf(code, sizeof(code), "%d", container->exit_code);
    fake_event(container, "die", "exitCode", code);
}

static void on_report(struct io_watch *watch, unsigned events UNUSED)
{
    struct fake_container *container = container_of(watch, struct fake_container, reports);

    if (container->engine->habits.is_slow_to_note)
        io_watch_stop(watch);
    else
        note_end(container);
}

void fake_engine_note(struct fake_engine *engine)
{
    struct fake_container *container;

    engine->habits.is_slow_to_note = false;
    list_for_each (container, &engine->containers, node)
        if (container->parent && !container->reports.events)
            note_end(container);
}

void fake_container_start(struct fake_container *container)
{
    int pid = 0;

    container->parent = spawn(container, &container->reports.fd);
    assert_int_equal(read(container->reports.fd, &pid, sizeof(pid)), sizeof(pid));
    container->pid = pid;
    container->state = FAKE_RUNNING;
    container->is_oom = false;
    snprintf(container->started_at, sizeof(container->started_at), "2026-11-17T11:00:00.%09uZ",
             ++container->engine->serial);
    io_watch_start(&container->reports, container->engine->loop, container->reports.fd, IO_READ,
                   on_report);
    fake_event(container, "start", NULL, NULL);
}

static void stop(struct fake_container *container)
{
    if (container->pid)
        (void)kill(container->pid, SIGKILL);
    reap(container);
}

void fake_container_free(struct fake_container *container)
{
    stop(container);
    list_remove(&container->node);
    json_decref(container->request);
    json_decref(container->exec);
    free(container->name);
    free(container);
}

/* --- what somebody else does ------------------------------------------------------------------- */

/* Podman tells of it afterwards, and does not name the signal. */
static void kill_by_podman(struct fake_container *container, int signal_number)
{
    struct pollfd process = { .fd = (int)syscall(SYS_pidfd_open, container->pid, 0),
                              .events = POLLIN };

    assert_int_equal(kill(container->pid, signal_number), 0);
    if (signal_number == SIGKILL)
        assert_int_equal(poll(&process, 1, 60 * 1000), 1);
    close(process.fd);
    fake_event(container, "kill", NULL, NULL);
}

void fake_container_tell_kill(struct fake_container *container, int signal_number)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", signal_number);
    fake_event(container, "kill", "signal", text);
}

void fake_container_kill(struct fake_container *container, int signal_number)
{
    if (container->engine->habits.is_podman) {
        kill_by_podman(container, signal_number);
        return;
    }
    fake_container_tell_kill(container, signal_number);
    assert_int_equal(kill(container->pid, signal_number), 0);
}

void fake_container_exhaust(struct fake_container *container)
{
    container->is_oom = true;
    if (!container->engine->habits.is_podman)
        fake_event(container, "oom", NULL, NULL);
    assert_int_equal(kill(container->pid, SIGKILL), 0);
}

void fake_container_tell_stop(struct fake_container *container)
{
    fake_event(container, "stop", NULL, NULL);
}

void fake_container_restart(struct fake_container *container)
{
    stop(container);
    container->exit_code = 137;
    fake_event(container, "die", "exitCode", "137");
    fake_container_start(container);
    fake_event(container, "restart", NULL, NULL);
}

void fake_container_forget_start(struct fake_container *container)
{
    container->is_forgotten = true;
    container->state = FAKE_CREATED;
    snprintf(container->started_at, sizeof(container->started_at), "0001-01-01T00:00:00Z");
    io_watch_stop(&container->reports);
}

bool fake_container_may_start(struct fake_container *container)
{
    struct pollfd end = { .fd = container->reports.fd, .events = POLLIN };

    if (!container->is_forgotten)
        return true;
    if (poll(&end, 1, 0) != 1)
        return false;
    reap(container);
    container->is_forgotten = false;
    return true;
}

unsigned fake_engine_strays(const struct fake_engine *engine)
{
    return engine->strays;
}

void fake_container_pause(struct fake_container *container, bool is_paused)
{
    container->state = is_paused ? FAKE_PAUSED : FAKE_RUNNING;
    fake_event(container, is_paused ? "pause" : "unpause", NULL, NULL);
}

void fake_container_remove(struct fake_container *container)
{
    container->engine->strays += container->is_forgotten;
    if (container->pid && !container->engine->habits.is_podman)
        fake_event(container, "die", "exitCode", "137");
    stop(container);
    fake_event(container, container->engine->habits.is_podman ? "remove" : "destroy", NULL, NULL);
    fake_container_free(container);
}

/* --- its description ---------------------------------------------------------------------------- */

static const char *status_name(const struct fake_container *container)
{
    static const char *const names[] = { "created", "running", "paused",
                                         "stopped", "exited",  "removing" };

    return names[container->state];
}

json_t *fake_container_describe(const struct fake_container *container)
{
    json_t *host = json_object_get(container->request, "HostConfig");
    json_t *config = json_copy(container->request);
    json_t *document = NULL;
    /* Of a process that is there, and is no init of ours. */
    int pid = container->engine->habits.is_elsewhere && container->pid ? 1 : (int)container->pid;

    json_object_del(config, "HostConfig");
    document = json_pack("{s:s, s:s+, s:s, s:{s:s, s:b, s:b, s:b, s:i, s:i, s:s}, s:o, s:O?}", "Id",
                         container->id, "Name", "/", container->name, "Image", "sha256:0", "State",
                         "Status", status_name(container), "Running",
                         fake_container_runs(container), "Paused", container->state == FAKE_PAUSED,
                         "OOMKilled", container->is_oom && !container->engine->habits.is_podman,
                         "Pid", pid, "ExitCode", container->exit_code, "StartedAt",
                         container->started_at, "Config", config, "HostConfig", host);
    assert_non_null(document);
    return document;
}
