/* SPDX-License-Identifier: Apache-2.0 */
#include "box.h"

#include "base/alloc.h"
#include "bridge/bridge.h"
#include "bridge/carrier.h"
#include "cutter.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { OUTPUT_LIMIT = 64 * 1024 * 1024 };

/* --- starting init ---------------------------------------------------------------------------- */

bool box_can_have(enum box_mode mode)
{
    return mode == BOX_DIRECT || geteuid() == 0;
}

static int listen_at(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

static struct box *make_box(enum box_mode mode, const struct clock *clock)
{
    struct box *box = xnew(struct box);

    box->mode = mode;
    box->listener = -1;
    snprintf(box->dir, sizeof(box->dir), "/tmp/sandglass-init-test-XXXXXX");
    assert_non_null(mkdtemp(box->dir));
    assert_int_equal(chmod(box->dir, 0755), 0);
    snprintf(box->socket, sizeof(box->socket), "%s/init.sock", box->dir);
    box->loop = loop_new(clock);
    return box;
}

struct box *box_new(enum box_mode mode, const char *const *arguments, int filter_fd)
{
    struct box *box = make_box(mode, &clock_system);
    int socket = listen_at(box->socket);

    box->init = box_spawn(&(struct box_spawn){
        .mode = mode, .socket = socket, .filter_fd = filter_fd, .arguments = arguments });
    close(socket);
    box_connect(box);
    return box;
}

/* It has its final mode, which no other socket there has had, once init has made it. */
static bool has_made_socket(const struct box *box)
{
    struct stat status;

    return stat(box->socket, &status) == 0 && status.st_mode == (S_IFSOCK | 0600);
}

pid_t box_spawn_relayed(enum box_mode mode, const char *path)
{
    char argument[128];
    struct box_spawn options = {
        .mode = mode,
        .socket = -1,
        .filter_fd = -1,
        .arguments = (const char *const[]){ argument, NULL },
        .environment = (const char *const[]){ "SANDGLASS_KEY=" BOX_KEY, NULL },
    };

    snprintf(argument, sizeof(argument), "--relay=%s", path);
    return box_spawn(&options);
}

struct box *box_new_listening(enum box_mode mode)
{
    struct box *box = make_box(mode, &clock_system);
    char argument[sizeof(box->socket) + 16];

    close(listen_at(box->socket)); /* as an earlier init has left it */
    assert_int_equal(chmod(box->socket, 0644), 0);
    snprintf(argument, sizeof(argument), "--listen=%s", box->socket);
    box->init = box_spawn(&(struct box_spawn){
        .mode = mode,
        .socket = -1,
        .filter_fd = -1,
        .arguments = (const char *const[]){ argument, NULL },
    });
    box_wait(box, has_made_socket(box));
    box_connect(box);
    return box;
}

/* --- an init that dials ----------------------------------------------------------------------- */

static void spawn_dialling(struct box *box, const struct box_spawn *options)
{
    enum { MAX_ARGUMENTS = 8 };
    char dial[sizeof(box->socket) + 16];
    const char *arguments[MAX_ARGUMENTS + 1] = { dial };
    struct box_spawn all = *options;

    snprintf(dial, sizeof(dial), "--dial=%s", box->socket);
    for (size_t i = 0; options->arguments && options->arguments[i]; i++) {
        assert_true(i + 2 <= MAX_ARGUMENTS);
        arguments[i + 1] = options->arguments[i];
    }
    all.arguments = arguments;
    all.socket = all.filter_fd = -1;
    box->init = box_spawn(&all);
}

struct box *box_new_dialling_nobody(const struct box_spawn *options)
{
    struct box *box = make_box(options->mode, &clock_system);

    spawn_dialling(box, options);
    return box;
}

struct box *box_new_dialling(const struct box_spawn *options)
{
    struct box *box = make_box(options->mode, &clock_system);

    box_listen(box);
    spawn_dialling(box, options);
    box_connect(box);
    return box;
}

void box_listen(struct box *box)
{
    fd_close(box->listener);
    (void)unlink(box->socket);
    box->listener = listen_at(box->socket);
    assert_int_equal(chmod(box->socket, 0666), 0);
    assert_int_equal(fcntl(box->listener, F_SETFL, O_RDWR | O_NONBLOCK), 0);
}

int box_accept(struct box *box)
{
    return accept4(box->listener, NULL, NULL, SOCK_CLOEXEC);
}

/* --- with a relay ----------------------------------------------------------------------------- */

enum { HASTE = 20 };

static int64_t quick_boot_us(const struct clock *clock UNUSED)
{
    return clock_now_us(&clock_system) * HASTE;
}

static int64_t quick_wall_us(const struct clock *clock UNUSED)
{
    return clock_wall_us(&clock_system);
}

static const struct clock quick_clock = { .boot_us = quick_boot_us, .wall_us = quick_wall_us };

struct box *box_new_bridged(enum box_mode mode)
{
    struct box *box = make_box(mode, &quick_clock);

    snprintf(box->carrier, sizeof(box->carrier), "%s/carrier.sock", box->dir);
    box->cutter = cutter_new(box->loop, box->carrier, box->socket);
    box->init = box_spawn_relayed(mode, box->socket);
    box_wait(box, has_made_socket(box));
    box_connect(box);
    return box;
}

static void open_bridge(struct box *box)
{
    static const struct bridge_handler silent = { 0 };
    struct bridge_options options = {
        .loop = box->loop,
        .name = "box",
        .carrier = carrier_unix_new(box->loop, -1, box->carrier),
        .handler = &silent,
        .patience_ms = (int64_t)60000 * HASTE,
    };

    for (unsigned i = 0; i < sizeof(options.key); i++)
        assert_int_equal(sscanf(&BOX_KEY[2 * i], "%2hhx", &options.key[i]), 1);
    box->bridge = bridge_new(&options);
}

/* --- the connection --------------------------------------------------------------------------- */

static void on_exited(struct agent *agent, uint64_t number, const struct agent_exit *end)
{
    struct box *box = agent_user(agent);

    assert_true(box->end_count < BOX_MAX_ENDS);
    box->ends[box->end_count++] = (struct box_end){ number, *end };
}

static void on_process(struct agent *agent, uint64_t number, int pid,
                       const struct agent_pipes *pipes, const struct agent_exit *end)
{
    struct box *box = agent_user(agent);
    struct box_listed *listed = &box->listed[box->listed_count++];

    assert_true(box->listed_count <= BOX_MAX_LISTED);
    *listed = (struct box_listed){ .number = number, .pid = pid, .pipes = *pipes };
    listed->has_ended = end != NULL;
    if (end)
        listed->end = *end;
}

static void on_lost(struct agent *agent, const struct error *err UNUSED)
{
    struct box *box = agent_user(agent);

    box->is_lost = true;
}

static const struct agent_handler handler = {
    .on_exited = on_exited,
    .on_process = on_process,
    .on_lost = on_lost,
};

int box_connect_raw(struct box *box)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = -1;

    if (box->listener >= 0) {
        box_wait(box, (fd = box_accept(box)) >= 0);
        return fd;
    }
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", box->socket);
    /* An init that makes its socket itself may not listen yet. */
    box_wait(box, connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    return fd;
}

void box_connect(struct box *box)
{
    int fd;

    box_disconnect(box);
    box->is_lost = false;
    if (box->cutter)
        open_bridge(box);
    fd = box->bridge ? bridge_connect(box->bridge, NULL) : box_connect_raw(box);
    box->agent = agent_new(box->loop, fd, &handler, box);
    box_wait(box, agent_hello(box->agent) || box->is_lost);
    assert_false(box->is_lost);
}

void box_disconnect(struct box *box)
{
    agent_free(box->agent);
    box->agent = NULL;
    bridge_free(box->bridge);
    box->bridge = NULL;
}

int64_t box_deadline_us(int ms)
{
    return clock_now_us(&clock_system) + (int64_t)ms * 1000;
}

void box_turn(struct box *box, int64_t deadline_us, const char *condition)
{
    if (clock_now_us(&clock_system) > deadline_us)
        fail_msg("this did not become true in time: %s", condition);
    loop_turn(box->loop, box->cutter ? 1 : 20);
}

const struct agent_exit *box_find_end(const struct box *box, uint64_t number)
{
    for (size_t i = 0; i < box->end_count; i++)
        if (box->ends[i].number == number)
            return &box->ends[i].end;
    return NULL;
}

size_t box_count_descriptors(const struct box *box)
{
    char path[64];
    DIR *dir;
    size_t count = 0;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)box->init);
    dir = opendir(path);
    if (!dir && geteuid() != 0)
        return 0;
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

void box_wait_for_exit(struct box *box, int *out_status)
{
    int64_t deadline_us = box_deadline_us(60000);
    pid_t pid;

    while (!(pid = waitpid(box->init, out_status, WNOHANG))) {
        assert_true(clock_now_us(&clock_system) < deadline_us);
        usleep(1000);
    }
    assert_int_equal(pid, box->init);
    box->init = 0;
}

static void close_pipes(const struct agent_pipes *pipes)
{
    fd_close(pipes->input);
    fd_close(pipes->output);
    fd_close(pipes->errors);
}

static void shut_down(struct box *box)
{
    int status;

    assert_int_equal(kill(box->init, SIGTERM), 0);
    box_wait_for_exit(box, &status);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

void box_free(struct box *box)
{
    if (!box)
        return;
    if (box->init)
        shut_down(box);
    box_disconnect(box);
    for (size_t i = 0; i < box->listed_count; i++)
        close_pipes(&box->listed[i].pipes);
    cutter_free(box->cutter);
    loop_free(box->loop);
    fd_close(box->listener);
    assert_int_equal(unlink(box->socket), 0);
    assert_int_equal(rmdir(box->dir), 0);
    free(box);
}

/* --- processes -------------------------------------------------------------------------------- */

void asked_done(struct agent_request *request)
{
    container_of(request, struct asked, request)->answered = true;
}

static void on_started(struct agent_request *request)
{
    struct run *run = container_of(request, struct run, request);

    run->answered = true;
    if (!request->err.code)
        run->pipes = request->result.started.pipes;
}

void run_begin(struct run *run, struct box *box, struct agent_start *start)
{
    *run = (struct run){
        .box = box,
        .number = ++box->last_number,
        .pipes = { .input = -1, .output = -1, .errors = -1 },
        .out = BUFFER_INIT(OUTPUT_LIMIT),
        .errors = BUFFER_INIT(OUTPUT_LIMIT),
    };
    start->number = run->number;
    agent_start(box->agent, start, &run->request, on_started);
}

void run_wait_started(struct run *run)
{
    box_wait(run->box, run->answered);
    if (run->request.err.code)
        fail_msg("not started: %s", run->request.err.message);
}

static void drain(int fd, struct buffer *buffer)
{
    char bytes[65536];
    ssize_t got;

    while (fd >= 0 && (got = read(fd, bytes, sizeof(bytes))) > 0)
        assert_int_equal(buffer_append(buffer, bytes, (size_t)got), 0);
}

void run_read(struct run *run)
{
    drain(run->pipes.output, &run->out);
    drain(run->pipes.errors, &run->errors);
}

static bool has_ended(struct run *run)
{
    run_read(run);
    return box_find_end(run->box, run->number) != NULL;
}

void run_wait_end(struct run *run)
{
    box_wait(run->box, has_ended(run));
    run_read(run);
}

void run_finish(struct run *run)
{
    if (run->box->agent)
        agent_forget(run->box->agent, run->number);
    close_pipes(&run->pipes);
    run->pipes = (struct agent_pipes){ .input = -1, .output = -1, .errors = -1 };
    buffer_fini(&run->out);
    buffer_fini(&run->errors);
}

const char *run_out(struct run *run)
{
    return buffer_text(&run->out);
}

void run_all(struct run *run, struct box *box, struct agent_start *start)
{
    run_begin(run, box, start);
    run_wait_started(run);
    run_wait_end(run);
}

int box_kill_tree(struct box *box, uint64_t number, int signal_number)
{
    struct asked asked = { 0 };

    agent_signal(box->agent, number, signal_number, SCOPE_TREE, &asked.request, asked_done);
    box_wait(box, asked.answered);
    return asked.request.sys_errno;
}

void box_list(struct box *box)
{
    struct asked asked = { 0 };

    agent_list(box->agent, &asked.request, asked_done);
    box_wait(box, asked.answered);
    assert_int_equal(asked.request.err.code, ERR_NONE);
}
