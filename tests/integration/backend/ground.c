/* SPDX-License-Identifier: Apache-2.0 */
#include "ground.h"

#include "backend/launched_handle.h"
#include "base/alloc.h"
#include "base/buffer.h"
#include "wire/protocol.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

/* For an answer, and for the end of a program: one that tries all ways out is a minute's work on a busy machine. */
enum { WAIT_MS = 60000, PROGRAM_MS = 120000 };

/* An emulated machine is given more time. */
static int64_t patience(int64_t ms)
{
    const char *factor = getenv("SANDGLASS_TEST_PATIENCE");

    return ms * (factor ? atoi(factor) : 1);
}

static int64_t wait_ms(void)
{
    return patience(WAIT_MS);
}

int64_t ground_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool running_as_root(void)
{
    return geteuid() == 0;
}

bool running_with_groups(void)
{
    return running_as_root() || getenv("SANDGLASS_TEST_DELEGATED");
}

bool process_exists(pid_t pid)
{
    char path[64];
    char state = 'Z';
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (!file)
        return false;
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
        state = 'Z';
    fclose(file);
    return state != 'Z' && state != 'X';
}

/* --- operations ---------------------------------------------------------------------------- */

struct waited {
    struct backend_op op;
    bool finished;
};

static void on_done(struct backend_op *op)
{
    container_of(op, struct waited, op)->finished = true;
}

static int wait_for(struct ground *ground, struct waited *waited, struct error *err)
{
    int64_t deadline = ground_now_ms() + wait_ms();

    while (!waited->finished) {
        if (ground_now_ms() > deadline)
            fail_msg("an operation does not end");
        loop_turn(ground->loop, 100);
    }
    if (err)
        *err = waited->op.err;
    return waited->op.err.code == ERR_NONE ? 0 : -1;
}

/* --- opening and closing ------------------------------------------------------------------- */

static void start_parts(struct ground *ground, const char *backend)
{
    struct error err = { 0 };

    ground->launcher = launcher_start(&(struct launcher_options){ .loop = ground->loop,
                                                                  .config = &ground->config,
                                                                  .state_path = ground->path,
                                                                  .uid = geteuid(),
                                                                  .gid = getegid() },
                                      &err);
    if (!ground->launcher)
        fail_msg("launcher: %s", err.message);
    ground->backend = backend_open(backend,
                                   &(struct backend_options){ .loop = ground->loop,
                                                              .config = &ground->config,
                                                              .state_dir = ground->state_dir,
                                                              .state_path = ground->path,
                                                              .launcher = ground->launcher },
                                   &err);
    if (!ground->backend)
        fail_msg("backend: %s", err.message);
}

void ground_open(struct ground *ground, const char *backend, const char *settings)
{
    struct error err = { 0 };
    char text[4096];

    *ground = (struct ground){ .state_dir = -1 };
    snprintf(text, sizeof(text), "sandbox.backend: %s\ninstance: test-%d\n%s", backend,
             (int)getpid(), settings);
    if (config_load_text(&ground->config, text, strlen(text), "test", &err) < 0)
        fail_msg("config: %s", err.message);
    snprintf(ground->path, sizeof(ground->path), "/tmp/sandglass-test.XXXXXX");
    assert_non_null(mkdtemp(ground->path));
    assert_int_equal(chmod(ground->path, 0711), 0);
    ground->state_dir = open(ground->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(ground->state_dir >= 0);
    ground->loop = loop_new(&clock_system);
    start_parts(ground, backend);
}

static void stop_parts(struct ground *ground)
{
    backend_close(ground->backend);
    launcher_stop(ground->launcher);
}

void ground_restart(struct ground *ground)
{
    const char *name = ground->backend->ops->name;

    stop_parts(ground);
    start_parts(ground, name);
}

/* --- checks at the end --------------------------------------------------------------------- */

static void check_no_group(const char *hierarchy)
{
    char path[256];

    snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/sandglass.test-%d", hierarchy, (int)getpid());
    if (rmdir(path) < 0 && errno != ENOENT)
        fail_msg("%s is left: %s", path, strerror(errno));
}

static size_t count_entries(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    size_t count = 0;

    while (stream && (entry = readdir(stream)))
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    if (stream)
        closedir(stream);
    return count;
}

static void check_empty(struct ground *ground, const char *folder)
{
    int64_t deadline = ground_now_ms() + wait_ms();

    while (count_entries(ground->state_dir, folder) > 0) {
        if (ground_now_ms() > deadline)
            fail_msg("%s is not empty", folder);
        loop_turn(ground->loop, 5);
    }
}

/* A test that failed has left its sandboxes: they go, and are told. */
static size_t destroy_rest(struct ground *ground)
{
    struct waited waited = { .op.done = on_done };
    size_t count;

    backend_list(ground->backend, &waited.op);
    (void)wait_for(ground, &waited, NULL);
    count = waited.op.result.list.count;
    for (size_t i = 0; i < count; i++)
        (void)ground_destroy(ground, waited.op.result.list.ids[i], NULL);
    free(waited.op.result.list.ids);
    return count;
}

void ground_close(struct ground *ground)
{
    static const char *const hierarchies[] = { ".",    "memory",  "cpu",  "cpuacct",
                                               "pids", "freezer", "blkio" };
    size_t rest = destroy_rest(ground);

    check_empty(ground, "sandboxes");
    check_empty(ground, "trash");
    stop_parts(ground);
    loop_free(ground->loop);
    config_fini(&ground->config);
    for (size_t i = 0; running_as_root() && i < ARRAY_LENGTH(hierarchies); i++)
        check_no_group(hierarchies[i]);
    (void)unlinkat(ground->state_dir, "relay.key", 0);
    (void)unlinkat(ground->state_dir, "sandboxes", AT_REMOVEDIR);
    (void)unlinkat(ground->state_dir, "trash", AT_REMOVEDIR);
    (void)unlinkat(ground->state_dir, "ahead", AT_REMOVEDIR);
    (void)unlinkat(ground->state_dir, "templates", AT_REMOVEDIR);
    (void)unlinkat(ground->state_dir, "docker/bin/sandglass-init", 0);
    (void)unlinkat(ground->state_dir, "docker/bin", AT_REMOVEDIR);
    (void)unlinkat(ground->state_dir, "docker/doors", AT_REMOVEDIR);
    (void)unlinkat(ground->state_dir, "docker", AT_REMOVEDIR);
    fd_close(ground->state_dir);
    if (rmdir(ground->path) < 0)
        fail_msg("%s: %s", ground->path, strerror(errno));
    assert_int_equal(rest, 0);
}

void ground_spec(struct sandbox_spec *spec)
{
    *spec = (struct sandbox_spec){
        .source = { SOURCE_TEMPLATE, "host" },
        .limits = { .memory_bytes = 512 << 20,
                    .disk_bytes = 256 << 20,
                    .cpu_millis = 1000,
                    .pids = 64 },
    };
    id_make(spec->id, ID_SANDBOX);
}

int ground_create(struct ground *ground, const struct sandbox_spec *spec,
                  struct backend_sandbox *out_sandbox, struct error *err)
{
    struct waited waited = { .op.done = on_done };

    backend_create(ground->backend, spec, &waited.op);
    if (wait_for(ground, &waited, err) < 0)
        return -1;
    *out_sandbox = waited.op.result.made.sandbox;
    return 0;
}

static struct launched_handle parse_handle(const struct backend_sandbox *sandbox)
{
    struct launched_handle handle;

    assert_true(launched_handle_parse(sandbox->handle, &handle));
    return handle;
}

pid_t ground_pid(const struct backend_sandbox *sandbox)
{
    return parse_handle(sandbox).pid;
}

uint32_t ground_slot(const struct backend_sandbox *sandbox)
{
    return parse_handle(sandbox).slot;
}

void ground_make_stale(struct backend_sandbox *sandbox)
{
    struct launched_handle handle = parse_handle(sandbox);

    handle.start_time++;
    launched_handle_write(&handle, sandbox->handle, sizeof(sandbox->handle));
}

struct backend_sandbox ground_sandbox(struct ground *ground)
{
    struct backend_sandbox sandbox = { 0 };
    struct sandbox_spec spec;
    struct error err = { 0 };

    ground_spec(&spec);
    if (ground_create(ground, &spec, &sandbox, &err) < 0)
        fail_msg("create: %s", err.message);
    return sandbox;
}

int ground_adopt(struct ground *ground, const struct backend_sandbox *sandbox, struct error *err)
{
    struct waited waited = { .op.done = on_done };

    backend_adopt(ground->backend, sandbox, &waited.op);
    if (wait_for(ground, &waited, err) < 0)
        return -1;
    return 0;
}

int ground_destroy(struct ground *ground, const char *id, struct error *err)
{
    struct waited waited = { .op.done = on_done };

    backend_destroy(ground->backend, id, &waited.op);
    return wait_for(ground, &waited, err);
}

int ground_freeze(struct ground *ground, const char *id, bool frozen, struct error *err)
{
    struct waited waited = { .op.done = on_done };

    backend_freeze(ground->backend, id, frozen, &waited.op);
    return wait_for(ground, &waited, err);
}

int ground_update(struct ground *ground, const char *id, const struct sandbox_limits *limits,
                  struct error *err)
{
    struct waited waited = { .op.done = on_done };

    backend_update(ground->backend, id, limits, &waited.op);
    return wait_for(ground, &waited, err);
}

int ground_inspect(struct ground *ground, const char *id, struct sandbox_usage *out_usage,
                   struct error *err)
{
    struct waited waited = { .op.done = on_done };

    backend_inspect(ground->backend, id, &waited.op);
    if (wait_for(ground, &waited, err) < 0)
        return -1;
    *out_usage = waited.op.result.usage;
    return 0;
}

size_t ground_count(struct ground *ground)
{
    struct waited waited = { .op.done = on_done };
    struct error err = { 0 };

    backend_list(ground->backend, &waited.op);
    if (wait_for(ground, &waited, &err) < 0)
        fail_msg("list: %s", err.message);
    free(waited.op.result.list.ids);
    return waited.op.result.list.count;
}

int ground_report(struct ground *ground, const char *id, struct buffer *json, struct error *err)
{
    struct waited waited = { .op.done = on_done };
    struct error ignored;

    if (backend_report(ground->backend, id, &waited.op))
        waited.finished = true;
    if (wait_for(ground, &waited, err ? err : &ignored) < 0)
        return -1;
    buffer_append_text(json, waited.op.result.report);
    free(waited.op.result.report);
    return 0;
}

/* --- talking to init ----------------------------------------------------------------------- */

struct packet {
    _Alignas(8) char bytes[PROTOCOL_MAX_MESSAGE];
    long length;
    int fds[PROTOCOL_MAX_FDS];
    size_t fd_count;
};

static void receive_within(int fd, struct packet *packet, int64_t ms)
{
    char control[CMSG_SPACE(sizeof(int) * PROTOCOL_MAX_FDS)];
    struct iovec part = { .iov_base = packet->bytes, .iov_len = sizeof(packet->bytes) };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
    };
    struct pollfd watch = { .fd = fd, .events = POLLIN };
    struct cmsghdr *header;

    if (poll(&watch, 1, (int)patience(ms)) != 1)
        fail_msg("init says nothing for %d s", (int)(patience(ms) / 1000));
    packet->length = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    packet->fd_count = 0;
    if (packet->length <= 0)
        fail_msg("init closed the connection");
    header = CMSG_FIRSTHDR(&message);
    if (header) {
        packet->fd_count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(packet->fds, CMSG_DATA(header), packet->fd_count * sizeof(int));
    }
}

static void receive(int fd, struct packet *packet)
{
    receive_within(fd, packet, WAIT_MS);
}

static struct packet packet;

static int ground_connect(struct ground *ground, const char *id, struct error *err)
{
    struct waited waited = { .op.done = on_done };

    if (backend_connect(ground->backend, id, &waited.op))
        *err = waited.op.err;
    else
        (void)wait_for(ground, &waited, err);
    return waited.op.result.fd;
}

static int greet(struct ground *ground, const char *id)
{
    struct error err = { 0 };
    int fd = ground_connect(ground, id, &err);

    if (fd < 0)
        fail_msg("connect: %s", err.message);
    receive(fd, &packet);
    assert_int_equal(protocol_peek(packet.bytes, (size_t)packet.length), PROTOCOL_HELLO);
    return fd;
}

static void request_start(int fd, const char *user, const char *command)
{
    static _Alignas(8) char bytes[PROTOCOL_MAX_MESSAGE];
    const char *argv[] = { "/bin/sh", "-c", command, NULL };
    const char *env[] = { "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                          NULL };
    static uint64_t number;
    struct protocol_start fixed = { .header.request = ++number, .umask = 022 };
    struct protocol_start_texts texts = {
        .user = user, .cwd = "", .script_path = "", .argv = argv, .env = env
    };
    long length;

    /* The numbers of one sandbox are its own; those of a connection that was closed go on. */
    fixed.header.process = (uint64_t)ground_now_ms() * 1000 + number;
    length = protocol_start_encode(bytes, sizeof(bytes), &fixed, &texts);
    assert_true(length > 0);
    assert_int_equal(send(fd, bytes, (size_t)length, MSG_NOSIGNAL), length);
}

static void drain(int fd, char *text, size_t size)
{
    size_t used = strlen(text);
    ssize_t got = 1;
    char rest[4096];

    while (got > 0) {
        got = used < size - 1 ? read(fd, text + used, size - 1 - used)
                              : read(fd, rest, sizeof(rest));
        if (got > 0 && used < size - 1)
            used += (size_t)got;
    }
    text[used] = '\0';
}

static bool is_of(enum protocol_type type)
{
    return protocol_peek(packet.bytes, (size_t)packet.length) == (int)type;
}

static bool await_started(int fd, struct outcome *outcome, int pipes[2])
{
    /* The end of something that was left running may come in between. */
    do
        receive(fd, &packet);
    while (is_of(PROTOCOL_EXITED));
    if (is_of(PROTOCOL_FAILED)) {
        outcome->error = protocol_failed_decode(packet.bytes, (size_t)packet.length)->error;
        return false;
    }
    assert_true(is_of(PROTOCOL_STARTED) || is_of(PROTOCOL_RAN));
    if (is_of(PROTOCOL_RAN) && !packet.fd_count) { /* it has written nothing */
        pipes[0] = pipes[1] = -1;
    } else {
        assert_int_equal(packet.fd_count, 2);
        memcpy(pipes, packet.fds, sizeof(packet.fds[0]) * 2);
    }
    outcome->started = true;
    return true;
}

static void await_exit(int fd, struct outcome *outcome)
{
    const struct protocol_exited *exited;
    const struct protocol_ran *ran;
    const struct protocol_end *end;

    while (!is_of(PROTOCOL_EXITED) && !is_of(PROTOCOL_RAN))
        receive_within(fd, &packet, PROGRAM_MS);
    exited = protocol_exited_decode(packet.bytes, (size_t)packet.length);
    ran = protocol_ran_decode(packet.bytes, (size_t)packet.length);
    assert_true(exited || ran);
    end = exited ? &exited->end : &ran->end;
    outcome->code = end->code;
    outcome->signal = end->signal;
}

/* What the program left in the pipes when it had ended; background processes may still hold them.
 */
static void drain_now(int fd, char *text, size_t size)
{
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    drain(fd, text, size);
}

static void forget(int fd, uint64_t process)
{
    struct protocol_plain message = {
        .header = protocol_header(PROTOCOL_FORGET, sizeof(message), process, 0),
    };

    (void)!send(fd, &message, sizeof(message), MSG_NOSIGNAL);
}

void ground_run(struct ground *ground, const char *id, const char *user, const char *command,
                struct outcome *outcome)
{
    int fd = greet(ground, id);
    int pipes[2];

    memset(outcome, 0, sizeof(*outcome));
    request_start(fd, user, command);
    if (await_started(fd, outcome, pipes)) {
        const struct protocol_header *header = (const void *)packet.bytes;
        uint64_t process = header->process;

        await_exit(fd, outcome);
        for (int i = 0; i < 2; i++) {
            drain_now(pipes[i], outcome->output, sizeof(outcome->output));
            close(pipes[i]);
        }
        forget(fd, process);
    }
    close(fd);
}

void ground_expect(struct ground *ground, const char *id, const char *user, const char *command,
                   const char *output)
{
    static struct outcome outcome;

    ground_run(ground, id, user, command, &outcome);
    if (!outcome.started)
        fail_msg("`%s` did not start: %s", command, strerror(outcome.error));
    if (outcome.code != 0 || strcmp(outcome.output, output) != 0)
        fail_msg("`%s` ended with %d (signal %d) and printed \"%s\", not \"%s\"", command,
                 outcome.code, outcome.signal, outcome.output, output);
}

void ground_start(struct ground *ground, const char *id, const char *user, const char *command)
{
    static struct outcome outcome;
    int fd = greet(ground, id);
    int pipes[2];

    outcome.started = false;
    request_start(fd, user, command);
    if (!await_started(fd, &outcome, pipes))
        fail_msg("`%s` did not start: %s", command, strerror(outcome.error));
    close(pipes[0]);
    close(pipes[1]);
    close(fd);
}

int ground_reach(struct ground *ground, const char *id, const char *user, unsigned port,
                 const char *path)
{
    _Alignas(8) char message[PROTOCOL_MAX_PATH + 256];
    struct protocol_connect connect = { .header.request = 1, .port = port };
    long length = protocol_connect_encode(message, sizeof(message), &connect, user, path);
    int fd = greet(ground, id);
    const struct protocol_file_done *done;
    const char *temporary;

    assert_true(length > 0);
    assert_int_equal(send(fd, message, (size_t)length, MSG_NOSIGNAL), length);
    do
        receive(fd, &packet);
    while (is_of(PROTOCOL_EXITED));
    close(fd);
    done = protocol_file_done_decode(packet.bytes, (size_t)packet.length, &temporary);
    assert_non_null(done);
    assert_int_equal(packet.fd_count, done->error ? 0 : 1);
    return done->error ? -done->error : packet.fds[0];
}

static void expect_hello(int fd)
{
    struct pollfd watch = { .fd = fd, .events = POLLIN };
    char text[8] = "";

    if (fd < 0)
        fail_msg("not reached: %s", strerror(-fd));
    assert_int_equal(poll(&watch, 1, (int)wait_ms()), 1);
    assert_int_equal(recv(fd, text, sizeof(text), MSG_DONTWAIT), 5);
    assert_string_equal(text, "hello");
    close(fd);
}

void ground_expect_servers(struct ground *ground, const char *id)
{
    static struct outcome outcome;
    char *path;
    unsigned port;

    ground_start(ground, id, "",
                 "exec python3 -c 'import os, socket\n"
                 "t = socket.create_server((\"127.0.0.1\", 0))\n"
                 "u = socket.socket(socket.AF_UNIX)\nu.bind(\"served\")\nu.listen()\n"
                 "print(t.getsockname()[1], file=open(\"new\", \"w\"))\n"
                 "os.rename(\"new\", \"port\")\n"
                 "for s in t, u:\n    c = s.accept()[0]\n    c.sendall(b\"hello\")'");
    ground_run(ground, id, "",
               "while ! test -e port; do sleep 0.01; done; cat port; printf %s/served \"$PWD\"",
               &outcome);
    assert_int_equal(outcome.code, 0);
    port = (unsigned)strtoul(outcome.output, &path, 10);
    expect_hello(ground_reach(ground, id, "", port, ""));
    expect_hello(ground_reach(ground, id, "", 0, path + strspn(path, "\n")));
    assert_int_equal(ground_reach(ground, id, "", 0, "/nowhere/served"), -ENOENT);
}
