/* SPDX-License-Identifier: Apache-2.0 */
#include "init/relay_message.h"

#include "init/init.h"
#include "init/relay_content.h"
#include "init/relay_stream.h"
#include "init/sys.h"
#include "init/tree.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

enum { MESSAGES_PER_TURN = 32 };

/* A process of init: the channels of its descriptors, 0 without. */
struct relayed {
    uint64_t number; /* 0: free */
    uint16_t input;
    uint16_t output;
    uint16_t errors;
    bool is_terminal;
    bool is_closing; /* CLOSE_STDIN waits until the input is written */
    uint64_t close_request;
};

/* A message of init that is being changed into one for the bridge. */
struct passage {
    size_t length;
    int fds[PROTOCOL_MAX_FDS]; /* owned; -1 once taken */
    unsigned fd_count;
    struct relay_descriptor descriptors[PROTOCOL_MAX_FDS];
    unsigned count;
};

union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(PROTOCOL_MAX_FDS * sizeof(int))];
};

static struct {
    int fd; /* owned; -1 without a session */
    bool is_readable;
    bool is_lost;
} to_init = { .fd = -1 };

static TABLE_SELDOM_USED struct relayed processes_of_init[PROTOCOL_MAX_PROCESSES];
static unsigned closing_count;
static TABLE_SELDOM_USED union {
    char bytes[PROTOCOL_MAX_MESSAGE + sizeof(struct protocol_bases) +
               sizeof(struct protocol_totals)];
    struct protocol_header header;
    struct protocol_hello hello;
    struct protocol_started started;
    struct protocol_process process;
    struct protocol_file_done file_done;
} message;

/* --- the connection to init ----------------------------------------------------------------- */

static long send_packet(int fd, const void *packet, size_t length, int descriptor)
{
    union control control;
    struct iovec part = { (void *)(uintptr_t)packet, length };
    struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };

    if (descriptor >= 0) {
        control.header = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(sizeof(int)),
            .cmsg_level = SOL_SOCKET,
            .cmsg_type = SCM_RIGHTS,
        };
        memcpy(CMSG_DATA(&control.header), &descriptor, sizeof descriptor);
        header.msg_control = &control;
        header.msg_controllen = CMSG_SPACE(sizeof(int));
    }
    return sys(sendmsg, fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

int message_connect(int init_fd, int epoll_fd, uint32_t tag)
{
    struct epoll_event event = { .events = EPOLLET | EPOLLIN | EPOLLOUT, .data.u32 = tag };
    int ends[2];
    char byte = 0;

    message_disconnect();
    if (sys(socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -1;
    if (send_packet(init_fd, &byte, sizeof byte, ends[1]) < 0 ||
        sys(epoll_ctl, epoll_fd, EPOLL_CTL_ADD, ends[0], &event) < 0) {
        sys_close(ends[0]);
        sys_close(ends[1]);
        return -1;
    }
    sys_close(ends[1]);
    to_init.fd = ends[0];
    to_init.is_readable = true;
    to_init.is_lost = false;
    return 0;
}

void message_disconnect(void)
{
    sys_drop(&to_init.fd);
    to_init.is_readable = false;
    content_drop_all();
    for (unsigned i = 0; i < PROTOCOL_MAX_PROCESSES && closing_count; i++)
        processes_of_init[i].close_request = 0; /* the answer is not needed any more */
}

void message_wake(uint32_t events)
{
    if (events & ~(uint32_t)EPOLLOUT)
        to_init.is_readable = true;
}

/* LINK_WAITS when init takes nothing now. */
static enum link_result send_to_init(const void *packet, size_t length, int descriptor)
{
    long result = send_packet(to_init.fd, packet, length, descriptor);

    if (result >= 0)
        return LINK_TAKEN;
    if (result == -EAGAIN || result == -ENOBUFS || result == -ENOMEM || result == -ETOOMANYREFS)
        return LINK_WAITS;
    to_init.is_lost = true;
    return LINK_BROKEN;
}

/* --- processes ------------------------------------------------------------------------------ */

static struct relayed *find_process(uint64_t number)
{
    for (unsigned i = 0; i < PROTOCOL_MAX_PROCESSES; i++)
        if (processes_of_init[i].number == number)
            return &processes_of_init[i];
    return NULL;
}

static void forget(uint64_t number)
{
    struct relayed *process = number ? find_process(number) : NULL;

    if (!process)
        return;
    closing_count -= process->is_closing;
    if (process->input)
        channel_forget(process->input);
    if (process->output)
        channel_forget(process->output);
    if (process->errors)
        channel_forget(process->errors);
    *process = (struct relayed){ 0 };
}

/* --- from the bridge ------------------------------------------------------------------------ */

static enum link_result close_stdin(struct relayed *process)
{
    struct protocol_plain plain = {
        .header = protocol_header(PROTOCOL_CLOSE_STDIN, sizeof plain, process->number,
                                  process->close_request),
    };
    enum link_result result;

    if (!channel_is_flushed(process->input))
        return LINK_WAITS;
    result = send_to_init(&plain, sizeof plain, -1);
    if (result != LINK_TAKEN)
        return result;
    channel_end_input(process->input);
    process->is_closing = false;
    closing_count--;
    return LINK_TAKEN;
}

static enum link_result take_close_stdin(const struct relay_message_view *view,
                                         const struct protocol_header *header)
{
    struct relayed *process = header->process ? find_process(header->process) : NULL;

    if (!process || !process->input || process->is_terminal || process->is_closing)
        return send_to_init(view->packet, view->length, -1);
    process->is_closing = true;
    process->close_request = header->request;
    closing_count++;
    return close_stdin(process) == LINK_BROKEN ? LINK_BROKEN : LINK_TAKEN;
}

static enum link_result take_forget_many(const struct relay_message_view *view)
{
    struct protocol_forget_many many;
    enum link_result result;

    if (view->length != sizeof many)
        return LINK_BROKEN;
    memcpy(&many, view->packet, sizeof many);
    if (many.count > PROTOCOL_MAX_FORGOTTEN)
        return LINK_BROKEN;
    result = send_to_init(view->packet, view->length, -1);
    if (result == LINK_TAKEN)
        for (unsigned i = 0; i < many.count; i++)
            forget(many.processes[i]);
    return result;
}

static void refuse_script(const struct protocol_header *header, int error)
{
    struct protocol_failed failed = {
        .header = protocol_header(PROTOCOL_FAILED, sizeof failed, header->process, header->request),
        .stage = STAGE_SCRIPT,
        .error = error,
    };

    link_put_message(NULL, 0, &failed, sizeof failed);
}

static enum link_result take_script(const struct relay_message_view *view,
                                    const struct protocol_header *header)
{
    const struct relay_descriptor *descriptor = &view->descriptors[0];
    struct content *content;
    enum link_result result = LINK_TAKEN;

    if (!link_has_room(RELAY_MAX_FRAME / 2))
        return LINK_WAITS;
    content = content_find(descriptor->channel, descriptor->base);
    if (!content)
        return LINK_BROKEN;
    if (content->error) {
        refuse_script(header, content->error);
    } else {
        (void)sys(lseek, content->fd, 0, SEEK_SET);
        result = send_to_init(view->packet, view->length, content->fd);
    }
    if (result != LINK_TAKEN)
        return result;
    content_finish(content);
    return LINK_TAKEN;
}

static enum link_result pass_to_init(const struct relay_message_view *view,
                                     const struct protocol_header *header)
{
    enum link_result result;

    switch (header->type) {
    case PROTOCOL_CLOSE_STDIN:
        return take_close_stdin(view, header);
    case PROTOCOL_FORGET_MANY:
        return take_forget_many(view);
    case PROTOCOL_FORGET:
        result = send_to_init(view->packet, view->length, -1);
        if (result == LINK_TAKEN)
            forget(header->process);
        return result;
    default:
        return send_to_init(view->packet, view->length, -1);
    }
}

enum link_result message_take(const struct relay_frame *frame, const uint8_t *payload)
{
    struct relay_message_view view;
    struct protocol_header header;

    if (relay_message_decode(payload, frame->length, RELAY_OF_BRIDGE, &view) < 0 || to_init.fd < 0)
        return LINK_BROKEN;
    memcpy(&header, view.packet, sizeof header);
    if (header.length != view.length || header.type >= PROTOCOL_HELLO)
        return LINK_BROKEN;
    if (!view.count)
        return pass_to_init(&view, &header);
    if (view.count != 1 || header.type != PROTOCOL_START)
        return LINK_BROKEN;
    return take_script(&view, &header);
}

/* --- from init ------------------------------------------------------------------------------ */

static int take_fd(struct passage *passage, unsigned index)
{
    int fd = index < passage->fd_count ? passage->fds[index] : -1;

    if (fd >= 0)
        passage->fds[index] = -1;
    return fd;
}

static void name_channel(struct passage *passage, uint16_t channel, enum relay_kind kind,
                         uint64_t base)
{
    passage->descriptors[passage->count++] = (struct relay_descriptor){
        .channel = channel,
        .kind = (uint16_t)kind,
        .base = base,
    };
}

/* The channel of one stream of a process, as it is or a new one. */
static int pass_stream(struct passage *passage, int fd, uint16_t *channel, enum relay_kind kind)
{
    if (!*channel) {
        *channel = channel_open(fd, kind, true);
        fd = -1;
    }
    if (!*channel)
        return -1;
    name_channel(passage, *channel, kind, channel_attach(*channel, fd));
    return 0;
}

static int pass_terminal(struct passage *passage, struct relayed *process)
{
    int fd = take_fd(passage, 0);
    int second = fd < 0 ? -1 : (int)sys(fcntl, fd, F_DUPFD_CLOEXEC, 3);

    process->is_terminal = true;
    if (second < 0) {
        sys_close(fd);
        return -1;
    }
    if (pass_stream(passage, fd, &process->input, RELAY_INPUT) < 0) {
        sys_close(second);
        return -1;
    }
    return pass_stream(passage, second, &process->output, RELAY_OUTPUT);
}

static int pass_pipes(struct passage *passage, struct relayed *process, uint32_t flags)
{
    unsigned next = 0;

    if (flags & START_STDIN &&
        pass_stream(passage, take_fd(passage, next++), &process->input, RELAY_INPUT) < 0)
        return -1;
    if (pass_stream(passage, take_fd(passage, next++), &process->output, RELAY_OUTPUT) < 0)
        return -1;
    return pass_stream(passage, take_fd(passage, next), &process->errors, RELAY_OUTPUT);
}

/* Descriptors of STARTED, RAN and PROCESS. NULL when they are not as they should be. */
static struct relayed *pass_process(struct passage *passage, uint32_t flags)
{
    uint64_t number = message.header.process;
    struct relayed *process = find_process(number);

    if (!number || passage->fd_count != protocol_pipe_count(flags))
        return NULL;
    if (!process) {
        process = find_process(0);
        if (!process)
            return NULL;
        *process = (struct relayed){ .number = number };
    }
    if ((flags & START_TTY ? pass_terminal(passage, process)
                           : pass_pipes(passage, process, flags)) < 0)
        return NULL;
    return process;
}

static void append(struct passage *passage, const void *bytes, size_t length)
{
    memcpy(message.bytes + passage->length, bytes, length);
    passage->length += length;
    message.header.length = (uint32_t)passage->length;
}

static void append_totals(struct passage *passage, const struct relayed *process)
{
    struct protocol_totals totals = { 0 };

    if (process && process->output)
        totals.output = channel_total(process->output, process->is_terminal);
    if (process && process->errors)
        totals.errors = channel_total(process->errors, false);
    append(passage, &totals, sizeof totals);
}

static void append_bases(struct passage *passage, const struct relayed *process)
{
    struct protocol_bases bases = {
        .input = process->input ? channel_base(process->input) : 0,
        .output = channel_base(process->output),
        .errors = process->errors ? channel_base(process->errors) : 0,
    };

    append(passage, &bases, sizeof bases);
}

static int pass_ran(struct passage *passage)
{
    const struct protocol_ran *ran = protocol_ran_decode(message.bytes, passage->length);
    struct relayed *process = NULL;

    if (!ran)
        return -1;
    if (passage->fd_count) {
        process = pass_process(passage, ran->flags);
        if (!process)
            return -1;
    }
    append_totals(passage, process);
    return 0;
}

/* 1 when the message is dropped: the bridge does not know this process yet, or has forgotten it. A
 * LIST would report the end. */
static int pass_exited(struct passage *passage)
{
    const struct protocol_exited *exited = protocol_exited_decode(message.bytes, passage->length);
    const struct relayed *process = exited ? find_process(exited->header.process) : NULL;

    if (!exited)
        return -1;
    if (!process)
        return 1;
    if (process->input)
        channel_tell_input(process->input);
    append_totals(passage, process);
    if (process->is_terminal && tree_is_weak())
        channel_hang_up(process->output); /* Linux does so at the end of a session's leader */
    return 0;
}

static int pass_listed(struct passage *passage)
{
    const struct protocol_process *listed = protocol_process_decode(message.bytes, passage->length);
    struct relayed *process = listed ? pass_process(passage, listed->flags) : NULL;

    if (!process)
        return -1;
    append_bases(passage, process);
    append_totals(passage, process);
    return 0;
}

/* 0 for a descriptor that cannot be passed. */
static enum relay_kind kind_of(int fd)
{
    struct stat status;

    if (sys(fstat, fd, &status) < 0)
        return 0;
    return S_ISFIFO(status.st_mode) ? RELAY_OUTPUT : S_ISSOCK(status.st_mode) ? RELAY_BOTH : 0;
}

/* The errno of a descriptor that could not be passed. */
static int pass_other(struct passage *passage)
{
    int fd = take_fd(passage, 0);
    enum relay_kind kind = kind_of(fd);
    uint16_t channel;

    if (!kind) {
        sys_close(fd);
        return EOPNOTSUPP;
    }
    channel = channel_open(fd, kind, false);
    if (!channel)
        return EMFILE;
    name_channel(passage, channel, kind, 0);
    return 0;
}

static int pass_file_done(struct passage *passage)
{
    if (passage->length < sizeof message.file_done)
        return -1;
    if (passage->fd_count)
        message.file_done.error = pass_other(passage);
    return 0;
}

/* 1 when the message goes no further: the program sees that its connection is closed. */
static int pass_storage(struct passage *passage)
{
    return passage->fd_count && pass_other(passage) ? 1 : 0;
}

static int pass_one(struct passage *passage)
{
    switch (protocol_peek(message.bytes, passage->length)) {
    case PROTOCOL_HELLO:
        if (passage->length >= offsetof(struct protocol_hello, seccomp_mode))
            message.hello.features |= FEATURE_STREAMS;
        return 0;
    case PROTOCOL_STARTED:
        return protocol_started_decode(message.bytes, passage->length) &&
                       pass_process(passage, message.started.flags)
                   ? 0
                   : -1;
    case PROTOCOL_RAN:
        return pass_ran(passage);
    case PROTOCOL_PROCESS:
        return pass_listed(passage);
    case PROTOCOL_EXITED:
        return pass_exited(passage);
    case PROTOCOL_FILE_DONE:
        return pass_file_done(passage);
    case PROTOCOL_STORAGE:
        return pass_storage(passage);
    default:
        return 0;
    }
}

static void take_descriptors(struct msghdr *header, struct passage *passage)
{
    for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part; part = CMSG_NXTHDR(header, part)) {
        size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
            if (passage->fd_count < PROTOCOL_MAX_FDS)
                passage->fds[passage->fd_count++] = fd;
            else
                sys_close(fd);
        }
    }
}

/* 1 when there may be more, 0 when there is not, -1 when the connection is lost. */
static int receive_one(void)
{
    union control control;
    struct iovec part = { message.bytes, PROTOCOL_MAX_MESSAGE };
    struct msghdr header = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof control,
    };
    struct passage passage = { 0 };
    long length = sys(recvmsg, to_init.fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    int result = -1;

    if (length == -EINTR)
        return 1;
    if (length == -EAGAIN) {
        to_init.is_readable = false;
        return 0;
    }
    if (length <= 0)
        return -1;
    take_descriptors(&header, &passage);
    passage.length = (size_t)length;
    if (!(header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) && passage.length >= sizeof message.header)
        result = pass_one(&passage);
    for (unsigned i = 0; i < passage.fd_count; i++)
        sys_close(passage.fds[i]);
    if (!result)
        link_put_message(passage.descriptors, passage.count, message.bytes, passage.length);
    return result < 0 ? -1 : 1;
}

static int close_inputs(void)
{
    for (unsigned i = 0; i < PROTOCOL_MAX_PROCESSES && closing_count; i++)
        if (processes_of_init[i].is_closing && close_stdin(&processes_of_init[i]) == LINK_BROKEN)
            return -1;
    return 0;
}

int message_work(void)
{
    int result = to_init.is_readable;

    if (to_init.fd < 0)
        return 0;
    if (to_init.is_lost || close_inputs() < 0)
        return -1;
    for (unsigned i = 0; i < MESSAGES_PER_TURN && result > 0; i++) {
        if (!link_has_room(RELAY_MAX_FRAME))
            return 0;
        result = receive_one();
    }
    return result;
}
