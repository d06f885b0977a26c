/* SPDX-License-Identifier: Apache-2.0 */
#include "init/connection.h"

#include "init/credentials.h"
#include "init/dial.h"
#include "init/init.h"
#include "init/listener.h"
#include "init/sys.h"
#include "init/tree.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>

enum { MESSAGES_PER_TURN = 16 };

struct connection connection = { .fd = -1 };

union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(PROTOCOL_MAX_FDS * sizeof(int))];
};

/* --- sending -------------------------------------------------------------------------------- */

static long send_message(int socket, const void *message, size_t length, const int *fds,
                         unsigned fd_count, int flags)
{
    union control control;
    struct iovec part = { (void *)(uintptr_t)message, length };
    struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };

    if (fd_count) {
        control.header = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(fd_count * sizeof(int)),
            .cmsg_level = SOL_SOCKET,
            .cmsg_type = SCM_RIGHTS,
        };
        memcpy(CMSG_DATA(&control.header), fds, fd_count * sizeof(int));
        header.msg_control = &control;
        header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
    }
    return sys(sendmsg, socket, &header, MSG_NOSIGNAL | flags);
}

/* False when the socket is full and the message has to wait; on a broken connection it is
 * dropped. */
static bool try_send(const void *message, size_t length, const int *fds, unsigned fd_count)
{
    long result;

    if (connection.fd < 0)
        return true;
    result = send_message(connection.fd, message, length, fds, fd_count, MSG_DONTWAIT);
    if (result >= 0)
        return true;
    if (result == -EAGAIN || result == -ENOBUFS || result == -ENOMEM || result == -ETOOMANYREFS) {
        connection.congested = true;
        return false;
    }
    connection_close();
    return true;
}

int connection_send_from_helper(int socket, const void *message, size_t length, int fd)
{
    return (int)send_message(socket, message, length, &fd, fd >= 0 ? 1 : 0, 0);
}

void connection_answer(const void *message, size_t length)
{
    if (connection.held_length) {
        connection_close(); /* two answers that a daemon does not take: it is not there any more */
        return;
    }
    if (length > sizeof connection.held || try_send(message, length, NULL, 0))
        return;
    memcpy(connection.held, message, length);
    connection.held_length = length;
}

void connection_answer_done(uint64_t process, uint64_t request, int error, unsigned value)
{
    struct protocol_done done = {
        .header = protocol_header(PROTOCOL_DONE, sizeof done, process, request),
        .error = error,
        .value = value,
    };

    if (request)
        connection_answer(&done, sizeof done);
}

static unsigned collect_pipes(const struct process *process, int fds[3])
{
    unsigned count = 0;

    if (process->input >= 0)
        fds[count++] = process->input;
    if (process->output >= 0)
        fds[count++] = process->output;
    if (process->errors >= 0)
        fds[count++] = process->errors;
    return count;
}

/* Request numbers are those of the connection that asked. */
static bool is_asked_here(const struct process *process)
{
    return process->connection == connection.generation;
}

static struct protocol_started started_of(const struct process *process)
{
    return (struct protocol_started){
        .header = protocol_header(PROTOCOL_STARTED, sizeof(struct protocol_started),
                                  process->number, process->start_request),
        .flags = process->flags,
        .pid = process->main_pid,
    };
}

static struct protocol_exited exited_of(const struct process *process)
{
    return (struct protocol_exited){
        .header =
            protocol_header(PROTOCOL_EXITED, sizeof(struct protocol_exited), process->number, 0),
        .end = process->end,
    };
}

static struct protocol_ran ran_of(const struct process *process)
{
    return (struct protocol_ran){
        .header = protocol_header(PROTOCOL_RAN, sizeof(struct protocol_ran), process->number,
                                  process->start_request),
        .flags = process->flags,
        .pid = process->main_pid,
        .end = process->end,
    };
}

/* The pipes are empty and have no writer left. */
static bool are_over(const struct process *process)
{
    struct pollfd polls[] = {
        { .fd = process->output, .events = POLLIN },
        { .fd = process->errors, .events = POLLIN },
    };

    return sys(poll, polls, 2, 0) == 2 && polls[0].revents == POLLHUP &&
           polls[1].revents == POLLHUP;
}

/* A process that has ended without output and without stdin needs no pipes in the message. */
static bool needs_pipes(const struct process *process, unsigned reports)
{
    return !(reports & REPORT_ENDED) || process->flags & (START_TTY | START_STDIN) ||
           !are_over(process);
}

int connection_tell(int socket, const struct process *process, unsigned reports)
{
    union {
        struct protocol_started started;
        struct protocol_exited exited;
        struct protocol_ran ran;
    } message;
    size_t length = sizeof message.exited;
    unsigned fd_count = 0;
    int fds[3];
    long result;

    if (reports & REPORT_STARTED && needs_pipes(process, reports))
        fd_count = collect_pipes(process, fds);
    if (!(reports & REPORT_STARTED)) {
        message.exited = exited_of(process);
    } else if (reports & REPORT_ENDED) {
        message.ran = ran_of(process);
        length = sizeof message.ran;
    } else {
        message.started = started_of(process);
        length = sizeof message.started;
    }
    result = send_message(socket, &message, length, fds, fd_count, MSG_DONTWAIT);
    return result < 0 ? (int)result : 0;
}

static bool send_started(struct process *process)
{
    struct protocol_started started = started_of(process);
    int fds[3];

    return !is_asked_here(process) ||
           try_send(&started, sizeof started, fds, collect_pipes(process, fds));
}

static bool send_failed(struct process *process)
{
    struct protocol_failed failed = {
        .header = protocol_header(PROTOCOL_FAILED, sizeof failed, process->number,
                                  process->start_request),
        .stage = process->failed_stage,
        .error = process->failed_error,
    };

    return !is_asked_here(process) || try_send(&failed, sizeof failed, NULL, 0);
}

static bool send_exited(struct process *process)
{
    struct protocol_exited exited = exited_of(process);

    return try_send(&exited, sizeof exited, NULL, 0);
}

static bool send_killed(struct process *process)
{
    struct protocol_done done = {
        .header =
            protocol_header(PROTOCOL_DONE, sizeof done, process->number, process->kill_request),
        .error = process->kill_error,
        .value = process->kill_count,
    };

    if (!try_send(&done, sizeof done, NULL, 0))
        return false;
    process->kill_request = 0;
    return true;
}

static bool flush_process(struct process *process)
{
    static const struct {
        unsigned bit;
        bool (*send)(struct process *process);
    } messages[] = {
        { PENDING_STARTED, send_started },
        { PENDING_FAILED, send_failed },
        { PENDING_EXITED, send_exited },
        { PENDING_KILLED, send_killed },
    };

    for (unsigned i = 0; i < sizeof messages / sizeof messages[0]; i++) {
        if (!(process->pending & messages[i].bit))
            continue;
        if (!messages[i].send(process))
            return false;
        process->pending &= ~messages[i].bit;
    }
    process_settle(process);
    return true;
}

static bool send_process(struct process *process)
{
    struct protocol_process message = {
        .header = protocol_header(PROTOCOL_PROCESS, sizeof message, process->number, 0),
        .flags = process->input < 0 ? process->flags & ~(uint32_t)START_STDIN : process->flags,
        .pid = process->main_pid,
        .has_exited = process->state == PROCESS_ENDED,
    };
    int fds[3];

    if (message.has_exited)
        message.end = process->end;
    return try_send(&message, sizeof message, fds, collect_pipes(process, fds));
}

/* A process that an earlier daemon was starting belongs into the list, so LIST waits for it. */
static bool is_undecided(const struct process *process)
{
    return process->state == PROCESS_STARTING && !is_asked_here(process);
}

static void flush_list(void)
{
    if (!connection.wants_list)
        return;
    for (unsigned i = 0; i < process_places(); i++)
        if (is_undecided(&processes[i]))
            return;

    for (; connection.list_place < process_places(); connection.list_place++) {
        struct process *process = &processes[connection.list_place];

        if ((process->state == PROCESS_RUNNING || process->state == PROCESS_ENDED) &&
            !send_process(process))
            return;
    }
    connection.wants_list = false;
    connection_answer_done(0, connection.list_request, 0, process_count());
}

void connection_flush(void)
{
    connection.congested = false;
    if (connection.held_length) {
        if (!try_send(connection.held, connection.held_length, NULL, 0))
            return;
        connection.held_length = 0;
    }
    for (unsigned i = 0; i < process_places(); i++)
        if (processes[i].pending && !flush_process(&processes[i]))
            return;
    flush_list();
}

void connection_pass_storage(uint64_t process, int fd)
{
    struct protocol_plain message = {
        .header = protocol_header(PROTOCOL_STORAGE, sizeof message, process, 0),
    };

    (void)try_send(&message, sizeof message, &fd, 1);
}

/* --- receiving ------------------------------------------------------------------------------ */

bool connection_can_receive(void)
{
    return connection.fd >= 0 && !connection.held_length && !connection.wants_list &&
           job_get_free() != NULL;
}

static unsigned take_descriptors(struct msghdr *header, int fds[PROTOCOL_MAX_FDS])
{
    unsigned count = 0;

    for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part; part = CMSG_NXTHDR(header, part)) {
        size_t bytes = part->cmsg_len - CMSG_LEN(0);

        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < bytes / sizeof(int); i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
            if (count < PROTOCOL_MAX_FDS)
                fds[count++] = fd;
            else
                sys_close(fd);
        }
    }
    return count;
}

/* False when there is nothing more to take. After a START there hardly is: poll() looks again while
 * the process starts. */
static bool receive_one(const struct connection_handler *handler)
{
    struct job *job = job_get_free();
    union control control;
    struct iovec part = { job->memory->message, sizeof job->memory->message };
    struct msghdr header = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof control,
    };
    int fds[PROTOCOL_MAX_FDS] = { -1, -1, -1, -1 };
    unsigned fd_count;
    long length = sys(recvmsg, connection.fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    bool is_whole;

    if (length == -EAGAIN || length == -EINTR)
        return false;
    is_whole = length > 0 && !(header.msg_flags & (MSG_TRUNC | MSG_CTRUNC));
    fd_count = length < 0 ? 0 : take_descriptors(&header, fds);
    handler->on_arrival();
    if (!is_whole || handler->on_message(job, (size_t)length, fds, fd_count) < 0)
        connection_close();
    else
        dial_confirm();
    for (unsigned i = 0; i < fd_count; i++)
        sys_close(fds[i]);
    return job->kind != JOB_START && connection_can_receive();
}

void connection_receive(const struct connection_handler *handler)
{
    for (unsigned i = 0; i < MESSAGES_PER_TURN && connection_can_receive(); i++)
        if (!receive_one(handler))
            return;
}

/* --- coming and going ----------------------------------------------------------------------- */

/* Without a namespace /tmp is the host's, and only the workspace may be written to. */
static void name_scratch(char scratch[PROTOCOL_MAX_SCRATCH])
{
    static const char name[] = "/.sandglass";
    const char *parent = settings.direct ? settings.workspace : "/tmp";
    size_t length = strlen(parent);

    if (parent[0] != '/' || length + sizeof name > PROTOCOL_MAX_SCRATCH)
        return;
    memcpy(scratch, parent, length);
    memcpy(scratch + length, name, sizeof name);
}

static void say_hello(void)
{
    struct protocol_hello hello = {
        .header = protocol_header(PROTOCOL_HELLO, sizeof hello, 0, 0),
        .processes = process_count(),
        .features = FEATURE_FORGET_MANY | FEATURE_CONNECT | FEATURE_DESCRIBE |
                    (settings.direct ? 0 : FEATURE_NAMESPACE) |
                    (settings.filter ? FEATURE_SECCOMP : 0) |
                    (settings.proc_fd >= 0 ? FEATURE_PROC | FEATURE_ZYGOTE : 0) |
                    (tree_is_weak() ? FEATURE_WEAK_TREES : 0),
        .seccomp_mode = (uint32_t)sys(prctl, PR_GET_SECCOMP, 0, 0, 0, 0),
        .no_new_privs = (uint32_t)sys(prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0),
        .capabilities = credentials_effective(),
        .bounding = settings.keep_capabilities,
        .oldest = PROTOCOL_VERSION,
        .newest = PROTOCOL_VERSION,
    };

    name_scratch(hello.scratch);
    connection_answer(&hello, sizeof hello);
}

void connection_accept(void)
{
    int fd = listener_accept();

    if (fd < 0)
        return;
    connection_close();
    connection.fd = fd;
    connection.generation++;
    say_hello();
}

int connection_dial(void)
{
    if (settings.origin != ORIGIN_DIALLED || connection.fd >= 0)
        return -1;
    if (!dial_wait_ms())
        connection_accept();
    return connection.fd >= 0 ? -1 : dial_wait_ms();
}

/* Messages that were not sent are dropped: the next daemon asks by LIST. Supervisors have duplicates
 * of the socket. */
void connection_close(void)
{
    if (connection.fd >= 0)
        (void)sys(shutdown, connection.fd, SHUT_RDWR);
    sys_drop(&connection.fd);
    connection.held_length = 0;
    connection.wants_list = false;
    connection.congested = false;
    for (unsigned i = 0; i < process_places(); i++) {
        processes[i].pending = 0;
        processes[i].kill_request = 0;
        process_settle(&processes[i]);
    }
}
