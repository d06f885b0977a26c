/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/agent_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { MESSAGES_PER_TURN = 64, LONGEST_ANSWER = 1024 };

/* A message from init and its descriptors. Descriptors that are not taken are closed. */
struct incoming {
    alignas(8) char bytes[LONGEST_ANSWER];
    size_t length;
    int fds[PROTOCOL_MAX_FDS];
    unsigned fd_count;
};

static void scoped_incoming_close(struct incoming *incoming)
{
    for (unsigned i = 0; i < incoming->fd_count; i++)
        fd_close(incoming->fds[i]);
}

/* --- checks of descriptors ----------------------------------------------------------------- */

static bool fd_unblock(int fd, int flags)
{
    return flags & O_NONBLOCK || fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

static bool fd_is_pipe(int fd, int access)
{
    int flags = fcntl(fd, F_GETFL);
    struct stat status;

    return flags >= 0 && (flags & O_ACCMODE) == access && fstat(fd, &status) == 0 &&
           S_ISFIFO(status.st_mode) && fd_unblock(fd, flags);
}

/* TIOCGPTN works for the master side of a terminal only. */
static bool fd_is_terminal(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    struct stat status;
    unsigned number;

    return flags >= 0 && (flags & O_ACCMODE) == O_RDWR && fstat(fd, &status) == 0 &&
           S_ISCHR(status.st_mode) && ioctl(fd, TIOCGPTN, &number) == 0 && fd_unblock(fd, flags);
}

static bool fd_is_file(int fd, int access)
{
    int flags = fcntl(fd, F_GETFL);
    struct stat status;

    if (flags < 0 || flags & O_PATH || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode))
        return false;
    return (flags & O_ACCMODE) == access || (flags & O_ACCMODE) == O_RDWR;
}

static bool fd_is_stream_socket(int fd)
{
    int type = 0;
    int domain = 0;
    socklen_t length = sizeof(type);

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM &&
           getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

/* Of a port or a socket inside. */
static bool fd_is_connection(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    int type = 0, domain = 0, listens = 1;
    socklen_t length = sizeof(type);

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM &&
           getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 &&
           (domain == AF_UNIX || domain == AF_INET || domain == AF_INET6) &&
           getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && !listens &&
           flags >= 0 && fd_unblock(fd, flags);
}

/* Whether the answer to a file operation has its descriptor; true without one for the other kinds.
 */
static bool fd_fits_file_kind(int fd, enum protocol_file_kind kind)
{
    switch (kind) {
    case FILE_OPEN_READ:
        return fd_is_file(fd, O_RDONLY);
    case FILE_OPEN_WRITE:
        return fd_is_file(fd, O_WRONLY);
    case FILE_LIST:
    case FILE_GLOB:
    case FILE_GREP:
    case FILE_PACK:
    case FILE_WATCH:
    case FILE_DESCRIBE:
    case FILE_READ:
        return fd_is_pipe(fd, O_RDONLY);
    case FILE_UNPACK:
    case FILE_WRITE:
        return fd_is_stream_socket(fd);
    default:
        return fd < 0;
    }
}

/* The same for everything that FILE_DONE answers. */
static bool fd_fits_request(int fd, const struct agent_request *request)
{
    if (request->type == PROTOCOL_CONNECT)
        return fd_is_connection(fd);
    if (request->type == PROTOCOL_PORTS)
        return fd_is_pipe(fd, O_RDONLY);
    return fd_fits_file_kind(fd, (enum protocol_file_kind)request->flags);
}

static bool awaits_file_done(const struct agent_request *request)
{
    return request->type == PROTOCOL_FILE || request->type == PROTOCOL_CONNECT ||
           request->type == PROTOCOL_PORTS;
}

/* From a bridge: input and output. */
static bool terminal_pipes_are_sound(const struct incoming *incoming)
{
    return incoming->fd_count == 2 && fd_is_pipe(incoming->fds[0], O_WRONLY) &&
           fd_is_pipe(incoming->fds[1], O_RDONLY);
}

static bool pipes_are_sound(const struct agent *agent, const struct incoming *incoming,
                            uint32_t flags)
{
    unsigned at = 0;

    if (flags & START_TTY && agent_has_streams(agent))
        return terminal_pipes_are_sound(incoming);
    if (incoming->fd_count != protocol_pipe_count(flags))
        return false;
    if (flags & START_TTY)
        return fd_is_terminal(incoming->fds[0]);
    if (flags & START_STDIN && !fd_is_pipe(incoming->fds[at++], O_WRONLY))
        return false;
    return fd_is_pipe(incoming->fds[at], O_RDONLY) && fd_is_pipe(incoming->fds[at + 1], O_RDONLY);
}

static int take_fd(struct incoming *incoming, unsigned place)
{
    return place < incoming->fd_count ? steal_fd(&incoming->fds[place]) : -1;
}

/* Init passes one end of a terminal for both directions. */
static struct agent_pipes take_terminal(struct incoming *incoming)
{
    struct agent_pipes pipes = { .errors = -1, .terminal = incoming->fd_count == 1 };

    pipes.input = incoming->fd_count == 2 ? take_fd(incoming, 0)
                                          : fcntl(incoming->fds[0], F_DUPFD_CLOEXEC, 0);
    pipes.output = take_fd(incoming, incoming->fd_count - 1);
    return pipes;
}

static struct agent_pipes take_pipes(const struct agent *agent, struct incoming *incoming,
                                     uint32_t flags)
{
    struct agent_pipes pipes = { .input = -1, .output = -1, .errors = -1 };
    unsigned at = 0;

    if (flags & START_TTY) {
        pipes = take_terminal(incoming);
        pipes.input_is_buffered = agent_has_streams(agent);
        return pipes;
    }
    pipes.input_is_buffered = agent_has_streams(agent);
    if (flags & START_STDIN)
        pipes.input = take_fd(incoming, at++);
    pipes.output = take_fd(incoming, at++);
    pipes.errors = take_fd(incoming, at);
    return pipes;
}

/* --- errors -------------------------------------------------------------------------------- */

static void explain_start(struct agent_request *request)
{
    static const char *const stages[STAGES] = {
        [STAGE_REQUEST] = "the request",
        [STAGE_USER] = "the user",
        [STAGE_CWD] = "the working directory",
        [STAGE_SCRIPT] = "writing the script",
        [STAGE_SPAWN] = "making the process",
        [STAGE_EXEC] = "running the program",
        [STAGE_LIMIT] = "a limit",
    };
    bool is_full = request->sys_errno == EAGAIN || request->sys_errno == ENOMEM;
    enum error_code code = ERR_BACKEND;

    if (request->stage == STAGE_USER || request->stage == STAGE_CWD || request->stage == STAGE_EXEC)
        code = ERR_INVALID;
    if (is_full)
        code = ERR_LIMIT;
    error_set(&request->err, code, "%s: %s", stages[request->stage], strerror(request->sys_errno));
}

static enum error_code file_error_code(int number)
{
    switch (number) {
    case ENOENT:
        return ERR_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS:
        return ERR_FORBIDDEN;
    case EEXIST:
    case ENOTEMPTY:
    case EISDIR:
    case ENOTDIR:
    case EBUSY:
    case EXDEV:
    case ESTALE:
        return ERR_CONFLICT;
    case EINVAL:
    case ELOOP:
    case ENAMETOOLONG:
    case EBADMSG:
        return ERR_INVALID;
    case ENOSPC:
    case EDQUOT:
        return ERR_NO_SPACE;
    case EFBIG:
        return ERR_TOO_LARGE;
    case EAGAIN:
    case EMFILE:
    case ENOMEM:
        return ERR_LIMIT;
    default:
        return ERR_BACKEND;
    }
}

/* --- one message ------------------------------------------------------------------------------ */

/* Each function returns -1 when init violates the protocol. */
typedef int handle_fn(struct agent *agent, struct incoming *incoming);

/* Offsets in files are no larger. */
static bool is_offset(uint64_t bytes)
{
    return bytes <= INT64_MAX;
}

/* Only a bridge knows how many bytes are under way. */
static int read_totals(const struct agent *agent, const struct incoming *incoming,
                       struct agent_totals *out_totals)
{
    const struct protocol_totals *totals = protocol_totals_after(incoming->bytes, incoming->length);

    *out_totals = (struct agent_totals){ 0 };
    if (!totals)
        return 0;
    if (!agent_has_streams(agent) || !is_offset(totals->output) || !is_offset(totals->errors))
        return -1;
    *out_totals = (struct agent_totals){ true, totals->output, totals->errors };
    return 0;
}

static int read_bases(const struct agent *agent, const struct incoming *incoming,
                      struct agent_bases *out_bases)
{
    const struct protocol_bases *bases = protocol_bases_after(incoming->bytes, incoming->length);

    *out_bases = (struct agent_bases){ 0 };
    if (!bases)
        return 0;
    if (!agent_has_streams(agent) || !is_offset(bases->input) || !is_offset(bases->output) ||
        !is_offset(bases->errors))
        return -1;
    *out_bases = (struct agent_bases){ true, bases->input, bases->output, bases->errors };
    return 0;
}

static struct agent_exit exit_from(const struct protocol_end *end,
                                   const struct agent_totals *totals)
{
    return (struct agent_exit){
        .code = end->code,
        .signal = end->signal,
        .wall_us = end->wall_us,
        .cpu_us = end->cpu_us,
        .max_rss_bytes = end->max_rss_bytes,
        .survivors = end->survivors,
        .totals = *totals,
    };
}

static int handle_hello(struct agent *agent, struct incoming *incoming)
{
    if (agent->has_hello || incoming->fd_count ||
        protocol_hello_decode(incoming->bytes, incoming->length, &agent->hello) < 0)
        return -1;
    if (agent->hello.oldest > PROTOCOL_VERSION || agent->hello.newest < PROTOCOL_VERSION) {
        agent_lose_version(agent);
        return 0;
    }
    agent->has_hello = true;
    if (incoming->length < sizeof(agent->hello) && agent->first_scratch)
        snprintf(agent->hello.scratch, sizeof(agent->hello.scratch), "%s", agent->first_scratch);
    agent_continue_list(agent);
    return 0;
}

/* The answer to START; `request` is NULL when it is not open any more. */
static int answer_start(struct agent *agent, struct agent_request *request,
                        struct incoming *incoming, const struct protocol_header *header,
                        uint32_t flags, int pid, bool has_ended)
{
    bool is_sound;

    if (!request)
        return 0;
    is_sound = request->type == PROTOCOL_START && request->flags == flags &&
               request->number == header->process;
    if (is_sound) {
        request->result.started.pid = pid;
        request->result.started.has_ended = has_ended;
        request->result.started.pipes = take_pipes(agent, incoming, flags);
    } else {
        error_set(&request->err, ERR_BACKEND, "the sandbox answered something else");
    }
    request->done(request);
    return is_sound ? 0 : -1;
}

static int handle_started(struct agent *agent, struct incoming *incoming)
{
    const struct protocol_started *started =
        protocol_started_decode(incoming->bytes, incoming->length);

    if (!started || !pipes_are_sound(agent, incoming, started->flags))
        return -1;
    return answer_start(agent, agent_take(agent, started->header.request), incoming,
                        &started->header, started->flags, started->pid, false);
}

static void tell_exit(struct agent *agent, uint64_t number, const struct protocol_end *told,
                      const struct agent_totals *totals)
{
    struct agent_exit end = exit_from(told, totals);

    if (agent->handler->on_exited && agent->state != AGENT_CLOSED)
        agent->handler->on_exited(agent, number, &end);
}

/* A process that has written nothing comes without pipes. */
static bool ran_pipes_are_sound(const struct agent *agent, const struct incoming *incoming,
                                uint32_t flags)
{
    if (!incoming->fd_count)
        return !(flags & (START_TTY | START_STDIN));
    return pipes_are_sound(agent, incoming, flags);
}

static int handle_ran(struct agent *agent, struct incoming *incoming)
{
    const struct protocol_ran *ran = protocol_ran_decode(incoming->bytes, incoming->length);
    struct agent_totals totals;

    if (!ran || !ran_pipes_are_sound(agent, incoming, ran->flags) ||
        read_totals(agent, incoming, &totals) < 0 ||
        (!incoming->fd_count && totals.output + totals.errors) ||
        answer_start(agent, agent_take(agent, ran->header.request), incoming, &ran->header,
                     ran->flags, ran->pid, true) < 0)
        return -1;
    tell_exit(agent, ran->header.process, &ran->end, &totals);
    return 0;
}

static int handle_failed(struct agent *agent, struct incoming *incoming)
{
    const struct protocol_failed *failed =
        protocol_failed_decode(incoming->bytes, incoming->length);
    struct agent_request *request;
    bool is_expected;

    if (!failed || incoming->fd_count)
        return -1;
    request = agent_take(agent, failed->header.request);
    if (!request)
        return 0;
    is_expected = request->type == PROTOCOL_START;
    request->sys_errno = failed->error;
    request->stage = failed->stage;
    explain_start(request);
    request->done(request);
    return is_expected ? 0 : -1;
}

static int handle_exited(struct agent *agent, struct incoming *incoming)
{
    const struct protocol_exited *exited =
        protocol_exited_decode(incoming->bytes, incoming->length);
    struct agent_totals totals;

    if (!exited || incoming->fd_count || read_totals(agent, incoming, &totals) < 0)
        return -1;
    tell_exit(agent, exited->header.process, &exited->end, &totals);
    return 0;
}

static int handle_process(struct agent *agent, struct incoming *incoming)
{
    const struct protocol_process *process =
        protocol_process_decode(incoming->bytes, incoming->length);
    struct agent_totals totals;
    struct agent_bases bases;
    struct agent_pipes pipes;
    struct agent_exit end;

    if (!process || !pipes_are_sound(agent, incoming, process->flags) ||
        read_totals(agent, incoming, &totals) < 0 || read_bases(agent, incoming, &bases) < 0)
        return -1;
    if (!agent->handler->on_process)
        return 0;
    end = exit_from(&process->end, &totals);
    pipes = take_pipes(agent, incoming, process->flags);
    pipes.bases = bases;
    agent->handler->on_process(agent, process->header.process, process->pid, &pipes,
                               process->has_exited ? &end : NULL);
    return 0;
}

static int handle_done(struct agent *agent, struct incoming *incoming)
{
    const struct protocol_done *done = protocol_done_decode(incoming->bytes, incoming->length);
    struct agent_request *request;
    bool is_expected;

    if (!done || incoming->fd_count)
        return -1;
    request = agent_take(agent, done->header.request);
    if (!request)
        return 0;
    is_expected = request->type != PROTOCOL_START && request->type != AGENT_ATTENDS &&
                  !awaits_file_done(request);
    if (done->error || !is_expected) {
        request->sys_errno = done->error;
        error_set(&request->err, done->error == ESRCH ? ERR_GONE : ERR_BACKEND, "the sandbox: %s",
                  strerror(done->error ? done->error : EPROTO));
    } else if (request->type == PROTOCOL_SIGNAL) {
        request->result.processes = done->value;
    }
    request->done(request);
    return is_expected ? 0 : -1;
}

static bool file_answer_is_sound(const struct agent_request *request,
                                 const struct protocol_file_done *done,
                                 const struct incoming *incoming)
{
    if (!awaits_file_done(request) || incoming->fd_count > 1)
        return false;
    if (done->error)
        return !incoming->fd_count;
    if (done->stat.size > INT64_MAX) /* no file has as much, and offsets are signed elsewhere */
        return false;
    return fd_fits_request(incoming->fd_count ? incoming->fds[0] : -1, request);
}

static int handle_file_done(struct agent *agent, struct incoming *incoming)
{
    const char *temporary;
    const struct protocol_file_done *done =
        protocol_file_done_decode(incoming->bytes, incoming->length, &temporary);
    struct agent_request *request;
    bool is_sound;

    if (!done)
        return -1;
    agent_file_ended(agent);
    request = agent_take(agent, done->header.request);
    if (!request) {
        agent_discard(agent, done->header.request, done->error ? "" : temporary);
        return 0;
    }
    is_sound = file_answer_is_sound(request, done, incoming);
    if (!is_sound) {
        error_set(&request->err, ERR_BACKEND, "the sandbox answered something else");
    } else if (done->error) {
        request->sys_errno = done->error;
        error_set(&request->err, file_error_code(done->error), "%s", strerror(done->error));
    } else {
        request->result.file.stat = done->stat;
        request->result.file.fd = take_fd(incoming, 0);
        snprintf(request->result.file.temporary, sizeof(request->result.file.temporary), "%s",
                 temporary);
    }
    request->done(request);
    return is_sound ? 0 : -1;
}

static int handle_storage(struct agent *agent, struct incoming *incoming)
{
    const struct protocol_plain *storage =
        protocol_storage_decode(incoming->bytes, incoming->length);

    if (!storage || incoming->fd_count != 1 || !fd_is_stream_socket(incoming->fds[0]))
        return -1;
    if (agent->handler->on_storage)
        agent->handler->on_storage(agent, storage->header.process, take_fd(incoming, 0));
    return 0;
}

static int handle_taken(struct agent *agent, struct incoming *incoming)
{
    const struct protocol_taken *taken = protocol_taken_decode(incoming->bytes, incoming->length);

    if (!taken || incoming->fd_count || !agent_has_streams(agent) || !is_offset(taken->total))
        return -1;
    if (agent->handler->on_taken)
        agent->handler->on_taken(agent, taken->header.process, taken->total);
    return 0;
}

static int dispatch(struct agent *agent, struct incoming *incoming)
{
    static const struct {
        enum protocol_type type;
        handle_fn *handle;
    } handlers[] = {
        { PROTOCOL_STARTED, handle_started }, { PROTOCOL_FAILED, handle_failed },
        { PROTOCOL_EXITED, handle_exited },   { PROTOCOL_PROCESS, handle_process },
        { PROTOCOL_DONE, handle_done },       { PROTOCOL_FILE_DONE, handle_file_done },
        { PROTOCOL_RAN, handle_ran },         { PROTOCOL_STORAGE, handle_storage },
        { PROTOCOL_TAKEN, handle_taken },
    };
    int type = protocol_peek(incoming->bytes, incoming->length);

    if (!agent->has_hello) /* HELLO has no version itself and names those that init speaks */
        return handle_hello(agent, incoming);
    for (unsigned i = 0; i < ARRAY_LENGTH(handlers); i++)
        if ((int)handlers[i].type == type)
            return handlers[i].handle(agent, incoming);
    return -1;
}

/* --- the socket ------------------------------------------------------------------------------- */

static void take_descriptors(struct msghdr *header, struct incoming *incoming)
{
    for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part; part = CMSG_NXTHDR(header, part)) {
        size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(fd));
            if (incoming->fd_count < PROTOCOL_MAX_FDS)
                incoming->fds[incoming->fd_count++] = fd;
            else
                fd_close(fd);
        }
    }
}

/* 1 with a message, 0 when there is none now, -1 when there will be no more. */
static int receive_message(struct agent *agent, struct incoming *incoming)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(PROTOCOL_MAX_FDS * sizeof(int))];
    } control;
    struct iovec part = { incoming->bytes, sizeof(incoming->bytes) };
    struct msghdr header = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control),
    };
    ssize_t length = recvmsg(agent->socket.fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    /* Reported once, when init ended with requests unread, and before the messages it had sent. */
    if (length < 0 && errno == ECONNRESET) {
        agent->was_reset = true;
        length = recvmsg(agent->socket.fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    }
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (length <= 0) {
        agent_lose(agent, ERR_BACKEND, "the sandbox has closed the connection");
        return -1;
    }
    take_descriptors(&header, incoming);
    incoming->length = (size_t)length;
    if (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        agent_lose(agent, ERR_BACKEND, "the sandbox sent more than it may");
        return -1;
    }
    return 1;
}

/* Without an open request another message is unlikely, and the loop would report it. */
void agent_receive(struct agent *agent)
{
    for (unsigned i = 0; i < MESSAGES_PER_TURN && !agent_is_lost(agent) && (!i || agent->open);
         i++) {
        scoped(incoming_close) struct incoming incoming;

        incoming.fd_count = 0;
        if (receive_message(agent, &incoming) <= 0)
            return;
        agent->heard_us = loop_now_us(agent->loop);
        if (dispatch(agent, &incoming) < 0 && agent->state != AGENT_CLOSED)
            agent_lose(agent, ERR_BACKEND, "the sandbox does not follow the protocol");
    }
}
