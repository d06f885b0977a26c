/* SPDX-License-Identifier: Apache-2.0 */
#include "init/zygote.h"

#include "init/defaults.h"
#include "init/init.h"
#include "init/supervisor.h"
#include "init/sys.h"
#include "init/tree.h"

#include <errno.h>
#include <string.h>

enum {
    PATIENCE_US = 400 * 1000, /* for a zygote that should be waiting */
    ORPHAN_PERIOD_MS = 1000,
    REPORT_PATIENCE_MS = 100, /* for a fork parent whose child has ended, before it is woken */
    REPORT_ATTEMPTS = 20,
    KILL_PATIENCE_MS = 1000,
    DEFAULT_UMASK = 022,
    ARGUMENTS = 2, /* interpreter and script */
    REQUEST_FDS = 5,
};

/* The last message of a fork parent. */
struct fork_end {
    uint64_t status; /* as of wait4 */
    uint64_t is_alone;
    uint64_t cpu_us;
    uint64_t max_rss_bytes;
};

/* A process that is being forked, and then watched. */
struct forking {
    struct process *process;
    int socket;
    int parent_fd; /* pidfds, owned, here and below */
    int child_fd;
    int parent;
    int64_t started_us;
    unsigned attempts; /* to make the fork parent speak */
    bool has_ended;
};

/* --- init's side ------------------------------------------------------------------------------ */

int zygote_prepare(struct process *process)
{
    int ends[2];
    long result = sys(socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);

    if (result < 0)
        return (int)result;
    process->control = ends[0];
    process->inner[3] = ends[1];
    return 0;
}

/* The process must ask for the settings that the zygote was started with. */
static bool is_usual(const struct process *process, const struct job *job)
{
    const struct protocol_start *start = job->start;

    return process->script >= 0 && !(process->flags & (START_TTY | START_ZYGOTE)) &&
           start->argc == ARGUMENTS && !job->texts.user[0] && !job->texts.cwd[0] &&
           !start->nofile && !start->file_size_bytes && start->umask == DEFAULT_UMASK;
}

/* The initial directory of all zygotes. A zygote that starts writes it before it can be chosen. */
static char beginning[WORKSPACE_SIZE];

static uint64_t inode_of(const char *path)
{
    struct stat status;

    return sys(newfstatat, AT_FDCWD, path, &status, 0) < 0 ? 0 : status.st_ino;
}

void zygote_note_directory(struct process *zygote, const char *path)
{
    zygote->directory = inode_of(".");
    memcpy(beginning, path, strnlen(path, sizeof beginning - 1) + 1);
}

/* The zygote's initial directory was removed or replaced. A direct sandbox is replaced then. */
static bool has_lost_directory(const struct process *zygote)
{
    return !settings.direct && (!zygote->directory || inode_of(beginning) != zygote->directory);
}

void zygote_choose(struct process *process, const struct job *job)
{
    for (unsigned i = 0; i < process_places() && is_usual(process, job); i++) {
        const struct process *zygote = &processes[i];

        if (zygote->state != PROCESS_RUNNING || !(zygote->flags & START_ZYGOTE) ||
            zygote->control < 0 || zygote->killing || has_lost_directory(zygote))
            continue;
        process->control = (int)sys(fcntl, zygote->control, F_DUPFD_CLOEXEC, 0);
        if (process->control < 0)
            return;
        process->zygote_number = zygote->number;
        process->zygote_pid = zygote->main_pid;
        process->uid = zygote->uid;
        process->gid = zygote->gid;
        return;
    }
}

void zygote_condemn(struct process *process)
{
    process->condemns = false;
    for (unsigned i = 0; i < process_places(); i++) {
        struct process *zygote = &processes[i];

        if (zygote->state != PROCESS_FREE && zygote->number == process->zygote_number &&
            zygote->supervisor && !zygote->killing)
            tree_begin_kill(zygote, 0);
    }
}

/* --- asking ----------------------------------------------------------------------------------- */

/* Receives a message and the pid of its sender. There is no room for descriptors: they are
 * dropped. */
static long receive(int socket, void *bytes, size_t size, int flags, int *out_pid)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct iovec part = { bytes, size };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
    };
    long length = sys(recvmsg, socket, &message, flags | MSG_CMSG_CLOEXEC);
    struct ucred sender = { 0 };

    if (length > 0 && message.msg_controllen >= sizeof control.header &&
        control.header.cmsg_type == SCM_CREDENTIALS)
        memcpy(&sender, CMSG_DATA(&control.header), sizeof sender);
    *out_pid = sender.pid;
    return length;
}

static bool is_ready(int control)
{
    char byte;

    return sys(recvfrom, control, &byte, 1, MSG_PEEK | MSG_DONTWAIT, NULL, NULL) == 1;
}

static unsigned collect_fds(const struct process *process, int peer, int fds[REQUEST_FDS])
{
    unsigned count = 0;

    for (int i = process->flags & START_STDIN ? 0 : 1; i < 3; i++)
        fds[count++] = process->inner[i];
    fds[count++] = process->script;
    fds[count++] = peer;
    return count;
}

/* Writes the default variables behind the message. Their length, or -ENOBUFS. */
static long flatten_defaults(const struct job *job)
{
    char *at = job->memory->message + job->length;
    char *end = job->memory->message + sizeof job->memory->message;

    for (const char *const *variable = defaults_environment(); *variable; variable++) {
        size_t size = strlen(*variable) + 1;

        if (size > (size_t)(end - at))
            return -ENOBUFS;
        memcpy(at, *variable, size);
        at += size;
    }
    return at - (job->memory->message + job->length);
}

static struct iovec part_of(const char *begin, const char *end)
{
    return (struct iovec){ (void *)(uintptr_t)begin, (size_t)(end - begin) };
}

/* The number of arguments, then script path, arguments and environment as they came; of a variable
 * that is there twice the later one counts, so the defaults come before the others. */
static long send_request(const struct process *process, int peer)
{
    const struct job *job = process->job;
    const char *end = job->memory->message + job->length;
    const char *variables = job->start->envc ? job->texts.env[0] : end;
    long defaults_length = flatten_defaults(job);
    uint32_t argc = job->start->argc;
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(REQUEST_FDS * sizeof(int))];
    } control;
    struct iovec parts[] = {
        { &argc, sizeof argc },
        part_of(job->texts.script_path, variables),
        part_of(end, end + (defaults_length > 0 ? defaults_length : 0)),
        part_of(variables, end),
    };
    int fds[REQUEST_FDS];
    unsigned count = collect_fds(process, peer, fds);
    struct msghdr message = { .msg_iov = parts,
                              .msg_iovlen = sizeof parts / sizeof parts[0],
                              .msg_control = &control,
                              .msg_controllen = CMSG_SPACE(count * sizeof(int)) };

    if (defaults_length < 0)
        return defaults_length;
    control.header = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(count * sizeof(int)),
        .cmsg_level = SOL_SOCKET,
        .cmsg_type = SCM_RIGHTS,
    };
    memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
    return sys(sendmsg, process->control, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* The forked process has reported: checks that its fork parent is a child of the zygote. */
static bool take_child(struct forking *forking, int pid)
{
    struct process *process = forking->process;

    forking->child_fd = (int)sys(pidfd_open, pid, 0);
    forking->parent = pid > 0 ? tree_parent(pid) : 0;
    forking->parent_fd = forking->parent ? (int)sys(pidfd_open, forking->parent, 0) : -1;
    if (forking->child_fd < 0 || forking->parent_fd < 0 || tree_parent(pid) != forking->parent ||
        tree_parent_of_living(forking->parent) != process->zygote_pid)
        return false;
    process->main_pid = pid;
    process->root = forking->parent;
    return true;
}

static bool await_child(struct forking *forking)
{
    struct pollfd poll = { .fd = forking->socket, .events = POLLIN };
    struct timespec patience = { .tv_nsec = PATIENCE_US * 1000 };
    char text[8];
    int pid;

    if (sys(ppoll, &poll, 1, &patience, NULL, 0) != 1) {
        forking->process->condemns = true;
        return false;
    }
    return receive(forking->socket, text, sizeof text, MSG_DONTWAIT, &pid) > 0 &&
           take_child(forking, pid);
}

/* From here on it is the zygote's child, or nothing has happened. */
static bool fork_it(struct forking *forking)
{
    struct process *process = forking->process;
    int ends[2];
    int on = 1;
    bool is_sent;

    if (!is_ready(process->control) ||
        sys(socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return false;
    forking->socket = ends[0];
    is_sent = sys(setsockopt, ends[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) >= 0 &&
              send_request(process, ends[1]) > 0;
    sys_close(ends[1]);
    if (!is_sent || !await_child(forking))
        return false;
    forking->started_us = sys_now_us();
    return sys(sendto, forking->socket, "", 1, MSG_NOSIGNAL, NULL, 0) == 1;
}

/* --- watching --------------------------------------------------------------------------------- */

static void take_end(struct forking *forking, const struct fork_end *end)
{
    struct process *process = forking->process;

    supervisor_record_end(process, (int)end->status, (int64_t)end->cpu_us, end->max_rss_bytes,
                          forking->started_us);
    supervisor_remove_script(process);
    process->left_children = !end->is_alone;
    forking->has_ended = true;
}

/* The fork parent was killed, and only the program itself could do that: the program is killed
 * too. */
static void lose_parent(struct forking *forking)
{
    struct pollfd poll = { .fd = forking->child_fd, .events = POLLIN };

    (void)sys(pidfd_send_signal, forking->child_fd, SIGKILL, NULL, 0);
    (void)sys(poll, &poll, 1, KILL_PATIENCE_MS);
    take_end(forking, &(struct fork_end){ .status = SIGKILL, .is_alone = 1 });
    forking->process->condemns = true;
}

/* The script has ended and its fork parent does not report it: a program may have stopped it. */
static void urge_parent(struct forking *forking)
{
    int number = ++forking->attempts > REPORT_ATTEMPTS ? SIGKILL : SIGCONT;

    (void)sys(pidfd_send_signal, forking->parent_fd, number, NULL, 0);
}

/* Waits for the end, or, when that has come, until nothing is left. */
static void watch(struct forking *forking)
{
    struct pollfd polls[] = {
        { .fd = forking->socket, .events = POLLIN },
        { .fd = forking->parent_fd, .events = POLLIN },
        { .fd = forking->has_ended ? -1 : forking->child_fd, .events = POLLIN },
    };
    int patience_ms = settings.direct ? ORPHAN_PERIOD_MS : -1;
    bool is_gone = false;

    while (!is_gone) {
        bool had_ended = forking->has_ended;
        struct fork_end end;
        int pid;
        long length;

        if (!sys(poll, polls, 3, patience_ms) && polls[2].fd < 0 && !had_ended)
            urge_parent(forking);
        if (settings.direct)
            supervisor_end_if_orphaned();
        if (polls[2].revents) {
            polls[2].fd = -1;
            patience_ms = REPORT_PATIENCE_MS;
        }
        is_gone = polls[1].revents;
        length = receive(forking->socket, &end, sizeof end, MSG_DONTWAIT, &pid);
        if (!length)
            polls[0].fd = -1;
        if (length == sizeof end && pid == forking->parent && !had_ended)
            take_end(forking, &end);
        if (forking->has_ended && !had_ended)
            return;
    }
    if (!forking->has_ended)
        lose_parent(forking);
}

static void see_through(struct forking *forking)
{
    struct process *process = forking->process;

    supervisor_tell(process, REPORT_STARTED);
    watch(forking);
    if (!process->left_children)
        process->root = 0;
    supervisor_tell(process, REPORT_ENDED);
    if (process->left_children)
        watch(forking);
    process->root = 0;
}

bool zygote_serve(struct process *process)
{
    struct forking forking = { .process = process, .socket = -1, .parent_fd = -1, .child_fd = -1 };
    bool is_forked = fork_it(&forking);

    if (is_forked)
        see_through(&forking);
    else
        process->main_pid = process->root = 0;
    sys_close(forking.socket);
    sys_close(forking.parent_fd);
    sys_close(forking.child_fd);
    return is_forked;
}
