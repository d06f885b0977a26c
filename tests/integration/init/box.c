#include "box.h"

#include "base/alloc.h"
#include "wire/inside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { OUTPUT_LIMIT = 64 * 1024 * 1024, MAX_ARGUMENTS = 16 };

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

/* As the launcher does: init lets nobody in who has this limit. */
static void mark_as_inside(void)
{
    struct rlimit limit;

    if (getrlimit(INSIDE_RESOURCE, &limit) < 0)
        _exit(113);
    limit.rlim_max = inside_limit(limit.rlim_max);
    limit.rlim_cur = limit.rlim_cur < limit.rlim_max ? limit.rlim_cur : limit.rlim_max;
    if (setrlimit(INSIDE_RESOURCE, &limit) < 0)
        _exit(113);
}

static void become_init(enum box_mode mode, int socket, int filter_fd, char *const *argv)
{
    char *env[] = { NULL };
    int high = fcntl(socket, F_DUPFD, 10);
    int filter = filter_fd >= 0 ? fcntl(filter_fd, F_DUPFD, 10) : -1;

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nothing running */
    if (mode == BOX_NAMESPACE &&
        (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
         mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0))
        _exit(111);
    if (mode == BOX_DIRECT)
        mark_as_inside();
    dup2(high, 3);
    if (filter >= 0)
        dup2(filter, 4);
    execve(getenv("SANDGLASS_INIT"), argv, env);
    _exit(112);
}

static pid_t spawn(enum box_mode mode, int socket, int filter_fd, const char *const *arguments)
{
    char *argv[MAX_ARGUMENTS] = { (char *)(uintptr_t) "sandglass-init" };
    unsigned long flags = SIGCHLD;
    size_t count = 1;
    pid_t pid;

    if (mode == BOX_DIRECT)
        argv[count++] = (char *)(uintptr_t) "--direct";
    else
        flags |= CLONE_NEWPID | CLONE_NEWNS;
    for (; arguments && *arguments; arguments++)
        argv[count++] = (char *)(uintptr_t)*arguments;
    pid = (pid_t)syscall(SYS_clone, flags, NULL, NULL, NULL, NULL);
    if (!pid)
        become_init(mode, socket, filter_fd, argv);
    assert_true(pid > 0);
    return pid;
}

struct box *box_new(enum box_mode mode, const char *const *arguments, int filter_fd)
{
    struct box *box = xnew(struct box);
    int socket;

    assert_non_null(getenv("SANDGLASS_INIT"));
    box->mode = mode;
    snprintf(box->dir, sizeof(box->dir), "/tmp/sandglass-init-test-XXXXXX");
    assert_non_null(mkdtemp(box->dir));
    assert_int_equal(chmod(box->dir, 0755), 0);
    snprintf(box->socket, sizeof(box->socket), "%s/init.sock", box->dir);
    socket = listen_at(box->socket);
    box->init = spawn(mode, socket, filter_fd, arguments);
    close(socket);
    box->loop = loop_new(&clock_system);
    box_connect(box);
    return box;
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
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", box->socket);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

void box_connect(struct box *box)
{
    box_disconnect(box);
    box->is_lost = false;
    box->agent = agent_new(box->loop, box_connect_raw(box), &handler, box);
    box_wait(box, agent_hello(box->agent) || box->is_lost);
    assert_false(box->is_lost);
}

void box_disconnect(struct box *box)
{
    agent_free(box->agent);
    box->agent = NULL;
}

int64_t box_deadline_us(int ms)
{
    return clock_now_us(&clock_system) + (int64_t)ms * 1000;
}

void box_turn(struct box *box, int64_t deadline_us, const char *condition)
{
    if (clock_now_us(&clock_system) > deadline_us)
        fail_msg("this did not become true in time: %s", condition);
    loop_turn(box->loop, 20);
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
    int64_t deadline_us = box_deadline_us(20000);
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
    struct asked asked = { 0 };
    int status;

    if (!box->agent || box->is_lost)
        box_connect(box);
    agent_shutdown(box->agent, &asked.request, asked_done);
    box_wait(box, asked.answered);
    assert_int_equal(asked.request.err.code, ERR_NONE);
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
    loop_free(box->loop);
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
