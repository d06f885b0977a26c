/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/agent.h"

#include "agent/agent_private.h"
#include "base/alloc.h"
#include "base/fd.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdalign.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { QUEUE_LIMIT_BYTES = 8 * 1024 * 1024, FORGET_DELAY_US = 100 * 1000 };

enum { LIST_WAITS = 1 }; /* flag of a request that is not sent yet */

struct outgoing {
    struct outgoing *next;
    size_t length;
    int fd;                  /* owned; -1 without */
    alignas(8) char bytes[]; /* a message begins with numbers of 8 bytes */
};

/* Messages are built here: the loop has one thread, and a message that cannot be sent at once is
 * copied. */
static alignas(8) char scratch[PROTOCOL_MAX_MESSAGE];

/* --- the socket ------------------------------------------------------------------------------ */

static void on_socket_ready(struct io_watch *watch, unsigned events);

static void watch_socket(struct agent *agent)
{
    unsigned events = agent->queue ? IO_READ | IO_WRITE : IO_READ;

    if (agent->socket.events != events)
        io_watch_start(&agent->socket, agent->loop, agent->socket.fd, events, on_socket_ready);
}

static void note_sent(struct agent *agent, const void *bytes)
{
    const struct protocol_header *header = bytes;

    agent->last_sent = header->request;
    agent->highest_sent = MAX(agent->highest_sent, header->request);
}

/* 0, or -1 with errno. */
static int send_now(struct agent *agent, const void *bytes, size_t length, int fd)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = { .room = { 0 } };
    struct iovec part = { (void *)(uintptr_t)bytes, length };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

    if (fd >= 0) {
        control.header = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(sizeof(int)),
            .cmsg_level = SOL_SOCKET,
            .cmsg_type = SCM_RIGHTS,
        };
        memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
        message.msg_control = &control;
        message.msg_controllen = sizeof(control);
    }
    if (sendmsg(agent->socket.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        agent->was_reset = agent->was_reset || errno == ECONNRESET;
        return -1;
    }
    note_sent(agent, bytes);
    return 0;
}

static struct outgoing *outgoing_new(const void *bytes, size_t length, int fd)
{
    struct outgoing *outgoing = xmalloc(sizeof(*outgoing) + length);

    *outgoing = (struct outgoing){ .length = length, .fd = -1 };
    memcpy(outgoing->bytes, bytes, length);
    if (fd >= 0)
        outgoing->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return outgoing;
}

static void outgoing_free(struct outgoing *outgoing)
{
    fd_close(outgoing->fd);
    free(outgoing);
}

static void queue_append(struct outgoing **queue, struct outgoing *outgoing)
{
    while (*queue)
        queue = &(*queue)->next;
    *queue = outgoing;
}

static struct outgoing *queue_take(struct agent *agent, struct outgoing **queue)
{
    struct outgoing *first = *queue;

    *queue = first->next;
    first->next = NULL;
    agent->queued_bytes -= first->length;
    return first;
}

static int enqueue(struct agent *agent, struct outgoing **queue, const void *bytes, size_t length,
                   int fd, struct error *err)
{
    struct outgoing *outgoing;

    if (agent->queued_bytes + length > QUEUE_LIMIT_BYTES)
        return error_named(err, ERR_LIMIT, "sandbox_busy", "too much is waiting for the sandbox");
    outgoing = outgoing_new(bytes, length, fd);
    if (fd >= 0 && outgoing->fd < 0) {
        outgoing_free(outgoing);
        return error_sys(err, "keep a descriptor");
    }
    agent->queued_bytes += length;
    queue_append(queue, outgoing);
    return 0;
}

static bool socket_is_full(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ETOOMANYREFS;
}

/* Init does not listen any more. Its earlier messages are still to be read, and after them its end:
 * the reading side reports the loss. */
static bool socket_is_ending(int error)
{
    return error == EPIPE || error == ECONNRESET || error == ENOTCONN;
}

static int transmit(struct agent *agent, const void *bytes, size_t length, int fd,
                    struct error *err)
{
    if (!agent->queue) {
        if (!send_now(agent, bytes, length, fd) || socket_is_ending(errno))
            return 0;
        if (!socket_is_full(errno))
            return error_sys(err, "send to the sandbox");
    }
    if (enqueue(agent, &agent->queue, bytes, length, fd, err) < 0)
        return -1;
    watch_socket(agent);
    return 0;
}

static void flush(struct agent *agent)
{
    while (agent->queue) {
        struct outgoing *first = agent->queue;

        if (send_now(agent, first->bytes, first->length, first->fd) < 0) {
            if (socket_is_full(errno))
                return;
            if (!socket_is_ending(errno)) {
                agent_lose(agent, ERR_BACKEND, "a message does not reach the sandbox");
                return;
            }
        }
        outgoing_free(queue_take(agent, &agent->queue));
    }
    watch_socket(agent);
}

static void on_socket_ready(struct io_watch *watch, unsigned events)
{
    struct agent *agent = container_of(watch, struct agent, socket);

    if (events & IO_WRITE)
        flush(agent);
    if (events & IO_READ && !agent_is_lost(agent))
        agent_receive(agent);
}

/* --- requests -------------------------------------------------------------------------------- */

static void open_append(struct agent *agent, struct agent_request *request)
{
    struct agent_request **place = &agent->open;

    while (*place)
        place = &(*place)->next;
    *place = request;
}

struct agent_request *agent_take(struct agent *agent, uint64_t id)
{
    for (struct agent_request **place = &agent->open; *place; place = &(*place)->next) {
        struct agent_request *request = *place;

        if (request->id != id)
            continue;
        *place = request->next;
        request->next = NULL;
        request->is_open = false;
        return request;
    }
    return NULL;
}

static struct error loss_of(const struct agent *agent)
{
    return agent->loss ? *agent->loss : (struct error){ 0 };
}

static void request_open(struct agent *agent, struct agent_request *request, agent_done_fn *done,
                         enum protocol_type type, uint64_t number)
{
    *request = (struct agent_request){
        .done = done,
        .number = number,
        .agent = agent,
        .is_open = true,
        .id = ++agent->last_id,
        .type = type,
    };
    if (agent_is_lost(agent)) {
        request->err = loss_of(agent);
        request->is_untaken = true;
    }
    open_append(agent, request);
}

static void complete_failed(struct agent *agent)
{
    struct agent_request *request = agent->open;

    while (request && agent->state != AGENT_CLOSED) {
        struct agent_request *next = request->next;

        if (request->err.code) {
            (void)agent_take(agent, request->id);
            request->done(request);
            next = agent->open; /* the callback may have changed anything */
        }
        request = next;
    }
}

static void on_finish(struct deferred *deferred)
{
    struct agent *agent = container_of(deferred, struct agent, finish);

    complete_failed(agent);
    if (agent->state == AGENT_RETIRED)
        agent_free(agent);
    if (agent->state != AGENT_LOST)
        return;
    agent->state = AGENT_TOLD;
    if (agent->handler->on_lost)
        agent->handler->on_lost(agent, agent->loss);
}

/* Not here and now: the caller of the request is still on the stack. */
static void fail_soon(struct agent *agent, struct agent_request *request, const struct error *err)
{
    request->err = *err;
    loop_defer(agent->loop, &agent->finish, on_finish);
}

/* Sends `bytes` for the request, or lets the request fail. A length below 0 is an encoder's. */
static void request_send(struct agent *agent, struct agent_request *request, const void *bytes,
                         long length, int fd)
{
    struct error err = { 0 };

    if (agent_is_lost(agent))
        err = loss_of(agent);
    else if (length < 0)
        error_named(&err, ERR_TOO_LARGE, "request_too_large",
                    "the request has more or longer texts than a sandbox takes");
    else
        (void)transmit(agent, bytes, (size_t)length, fd, &err);
    if (err.code)
        fail_soon(agent, request, &err);
}

/* A message without an answer: it is lost with the connection. */
static void send_plain(struct agent *agent, const void *bytes, size_t length)
{
    struct error ignored;

    if (!agent_is_lost(agent))
        (void)transmit(agent, bytes, length, -1, &ignored);
}

void agent_cancel(struct agent_request *request)
{
    if (request->is_open)
        (void)agent_take(request->agent, request->id);
}

static bool opens_for_writing(const struct agent_request *request)
{
    return request->type == PROTOCOL_FILE &&
           (request->flags == FILE_OPEN_WRITE || request->flags == FILE_WRITE);
}

void agent_cancel_write(struct agent_request *request, const char *path)
{
    size_t size = strlen(path) + 1;
    struct given_up *given_up;

    if (request->is_open && opens_for_writing(request) && !agent_is_lost(request->agent)) {
        given_up = xmalloc(sizeof(*given_up) + size);
        given_up->next = request->agent->given_up;
        given_up->id = request->id;
        memcpy(given_up->path, path, size);
        request->agent->given_up = given_up;
    }
    agent_cancel(request);
}

static void on_discarded(struct agent_request *request UNUSED)
{
}

void agent_discard(struct agent *agent, uint64_t id, const char *temporary)
{
    struct given_up **link = &agent->given_up;
    scoped(free) struct given_up *found = NULL;
    struct agent_request request;
    struct agent_file file = { .kind = FILE_COMMIT, .flags = FILE_ABANDON, .second = temporary };

    while (*link && (*link)->id != id)
        link = &(*link)->next;
    found = *link;
    if (!found)
        return;
    *link = found->next;
    if (!*temporary)
        return;
    file.path = found->path;
    agent_file(agent, &file, &request, on_discarded);
    agent_cancel(&request);
}

/* --- processes ------------------------------------------------------------------------------- */

static uint32_t start_flags(const struct agent_start *start)
{
    uint32_t flags = 0;

    if (start->wants_stdin && !start->terminal)
        flags |= START_STDIN;
    if (start->terminal)
        flags |= START_TTY;
    if (start->script_path)
        flags |= START_SCRIPT;
    if (start->is_zygote)
        flags |= START_ZYGOTE;
    if (start->may_fork)
        flags |= START_FORK;
    return flags;
}

static int check_start(const struct agent_start *start, struct error *err)
{
    if (!start->argv || !start->argv[0])
        return error_named(err, ERR_INVALID, "no_command", "there is no command to run");
    if (start->cwd && start->cwd[0] && start->cwd[0] != '/')
        return error_named(err, ERR_INVALID, "bad_working_directory",
                           "the working directory is not an absolute path");
    if (start->script_path && start->script_path[0] != '/')
        return error_named(err, ERR_INVALID, "bad_script_path",
                           "the script has no absolute path to be written to");
    return 0;
}

/* A script may be longer than a message, so it is passed as a descriptor. */
static int make_script(const struct agent_start *start, int *out_fd, struct error *err)
{
    scoped(fd_close) int fd = memfd_create("script", MFD_CLOEXEC);

    if (fd < 0)
        return error_sys(err, "create the script");
    if (fd_write_at(fd, start->script, start->script_length, 0) < start->script_length)
        return error_sys(err, "write the script");
    *out_fd = steal_fd(&fd);
    return 0;
}

void agent_start(struct agent *agent, const struct agent_start *start,
                 struct agent_request *request, agent_done_fn *done)
{
    struct protocol_start fixed = {
        .flags = start_flags(start),
        .columns = (uint16_t)start->columns,
        .rows = (uint16_t)start->rows,
        .umask = 022,
        .nofile = start->nofile,
        .file_size_bytes = start->file_size_bytes,
    };
    struct protocol_start_texts texts = {
        .user = start->user ? start->user : "",
        .cwd = start->cwd ? start->cwd : "",
        .script_path = start->script_path ? start->script_path : "",
        .argv = start->argv,
        .env = start->env,
    };
    scoped(fd_close) int script = -1;
    struct error err;

    request_open(agent, request, done, PROTOCOL_START, start->number);
    request->result.started.pipes = (struct agent_pipes){ .input = -1, .output = -1, .errors = -1 };
    request->flags = fixed.flags;
    if (check_start(start, &err) < 0 ||
        (start->script_path && make_script(start, &script, &err) < 0)) {
        fail_soon(agent, request, &err);
        return;
    }
    fixed.header = protocol_header(PROTOCOL_START, 0, start->number, request->id);
    request_send(agent, request, scratch,
                 protocol_start_encode(scratch, sizeof(scratch), &fixed, &texts), script);
}

void agent_signal(struct agent *agent, uint64_t number, int signal_number,
                  enum protocol_scope scope, struct agent_request *request, agent_done_fn *done)
{
    struct protocol_signal signal = {
        .header = protocol_header(PROTOCOL_SIGNAL, sizeof(signal), number, 0),
        .number = signal_number,
        .scope = scope,
    };

    if (!request) {
        send_plain(agent, &signal, sizeof(signal));
        return;
    }
    request_open(agent, request, done, PROTOCOL_SIGNAL, number);
    signal.header.request = request->id;
    request_send(agent, request, &signal, sizeof(signal), -1);
}

void agent_resize(struct agent *agent, uint64_t number, unsigned columns, unsigned rows,
                  struct agent_request *request, agent_done_fn *done)
{
    struct protocol_resize resize = {
        .header = protocol_header(PROTOCOL_RESIZE, sizeof(resize), number, 0),
        .columns = (uint16_t)columns,
        .rows = (uint16_t)rows,
    };

    if (!request) {
        send_plain(agent, &resize, sizeof(resize));
        return;
    }
    request_open(agent, request, done, PROTOCOL_RESIZE, number);
    resize.header.request = request->id;
    request_send(agent, request, &resize, sizeof(resize), -1);
}

static void tell_plain(struct agent *agent, enum protocol_type type, uint64_t number)
{
    struct protocol_plain plain = { protocol_header(type, sizeof(plain), number, 0) };

    send_plain(agent, &plain, sizeof(plain));
}

void agent_close_stdin(struct agent *agent, uint64_t number, struct agent_request *request,
                       agent_done_fn *done)
{
    struct protocol_plain plain = { protocol_header(PROTOCOL_CLOSE_STDIN, sizeof(plain), number,
                                                    0) };

    if (!request) {
        send_plain(agent, &plain, sizeof(plain));
        return;
    }
    request_open(agent, request, done, PROTOCOL_CLOSE_STDIN, number);
    plain.header.request = request->id;
    request_send(agent, request, &plain, sizeof(plain), -1);
}

/* No request waits for init to forget: init is woken up for several processes at once, when some
 * time has passed, or before it lists its processes. */
struct forgets {
    struct agent *agent; /* borrowed */
    struct timer clock;
    struct protocol_forget_many message;
};

static void drop_forgets(struct agent *agent)
{
    struct forgets *forgets = steal_ptr(&agent->forgets);

    if (!forgets)
        return;
    timer_stop(&forgets->clock);
    free(forgets);
}

static void send_forgets(struct agent *agent)
{
    if (agent->forgets)
        send_plain(agent, &agent->forgets->message, sizeof(agent->forgets->message));
    drop_forgets(agent);
}

/* No FORGET is sent behind an unanswered request: when init dies, only for the last message is it
 * known whether init has read it. */
static void on_forget_clock(struct timer *timer)
{
    struct forgets *forgets = container_of(timer, struct forgets, clock);

    if (forgets->agent->open)
        timer_arm_in(&forgets->clock, FORGET_DELAY_US);
    else
        send_forgets(forgets->agent);
}

static struct forgets *forgets_new(struct agent *agent)
{
    struct forgets *forgets = xnew(struct forgets);

    forgets->agent = agent;
    forgets->message.header = protocol_header(PROTOCOL_FORGET_MANY, sizeof(forgets->message), 0, 0);
    timer_init(&forgets->clock, agent->loop, on_forget_clock);
    timer_arm_in(&forgets->clock, FORGET_DELAY_US);
    return forgets;
}

void agent_forget(struct agent *agent, uint64_t number)
{
    struct protocol_forget_many *message;

    if (agent_is_lost(agent))
        return;
    if (!agent->has_hello || !(agent->hello.features & FEATURE_FORGET_MANY)) {
        tell_plain(agent, PROTOCOL_FORGET, number);
        return;
    }
    if (!agent->forgets)
        agent->forgets = forgets_new(agent);
    message = &agent->forgets->message;
    message->processes[message->count++] = number;
    if (message->count == PROTOCOL_MAX_FORGOTTEN)
        send_forgets(agent);
}

static void send_list(struct agent *agent, struct agent_request *request)
{
    struct protocol_plain plain = { protocol_header(PROTOCOL_LIST, sizeof(plain), 0, request->id) };

    request->flags = 0;
    send_forgets(agent);
    request_send(agent, request, &plain, sizeof(plain), -1);
}

void agent_list(struct agent *agent, struct agent_request *request, agent_done_fn *done)
{
    request_open(agent, request, done, PROTOCOL_LIST, 0);
    if (agent->has_hello || agent_is_lost(agent))
        send_list(agent, request);
    else
        request->flags = LIST_WAITS;
}

void agent_continue_list(struct agent *agent)
{
    struct agent_request *request = agent->open;

    while (request && (request->type != PROTOCOL_LIST || request->flags != LIST_WAITS))
        request = request->next;
    if (!request)
        return;
    if (agent->hello.processes) {
        send_list(agent, request);
        return;
    }
    (void)agent_take(agent, request->id);
    request->done(request);
}

/* --- files ----------------------------------------------------------------------------------- */

static int send_file(struct agent *agent, const void *bytes, size_t length, struct error *err)
{
    if (agent->files_in_flight == PROTOCOL_MAX_FILES)
        return enqueue(agent, &agent->files, bytes, length, -1, err);
    if (transmit(agent, bytes, length, -1, err) < 0)
        return -1;
    agent->files_in_flight++;
    return 0;
}

/* Sends a message whose answer is FILE_DONE, or fails the request. */
static void request_send_file(struct agent *agent, struct agent_request *request, long length)
{
    struct error err = { 0 };

    if (agent_is_lost(agent))
        err = loss_of(agent);
    else if (length < 0)
        error_named(&err, ERR_INVALID, "bad_path", "the path is empty or too long");
    else
        (void)send_file(agent, scratch, (size_t)length, &err);
    if (err.code)
        fail_soon(agent, request, &err);
}

void agent_file(struct agent *agent, const struct agent_file *file, struct agent_request *request,
                agent_done_fn *done)
{
    struct protocol_file fixed = {
        .kind = file->kind,
        .flags = file->flags,
        .mode = file->mode,
        .depth = file->depth,
        .limit = file->limit,
        .context = file->context,
        .bytes = file->bytes,
        .expected = file->expected,
    };
    struct protocol_file_texts texts = {
        .user = file->user ? file->user : "",
        .path = file->path,
        .second = file->second ? file->second : "",
        .third = file->third,
    };

    if (file->kind == FILE_READ)
        fixed.offset = file->offset;
    request_open(agent, request, done, PROTOCOL_FILE, 0);
    request->result.file.fd = -1;
    request->flags = file->kind;
    fixed.header = protocol_header(PROTOCOL_FILE, 0, 0, request->id);
    request_send_file(agent, request,
                      protocol_file_encode(scratch, sizeof(scratch), &fixed, &texts));
}

/* An init of an earlier release would end the connection. */
static bool fail_without_connect(struct agent *agent, struct agent_request *request)
{
    struct error err = { 0 };

    if (agent_is_lost(agent) || (agent->has_hello && agent->hello.features & FEATURE_CONNECT))
        return false;
    error_named(&err, ERR_CONFLICT, "sandbox_too_old",
                "the sandbox was made by an earlier release, which tells nothing about its ports");
    error_hint(&err, "open a new session, or restart the sandbox of this one");
    fail_soon(agent, request, &err);
    return true;
}

void agent_connect(struct agent *agent, const char *user, unsigned port, const char *path,
                   struct agent_request *request, agent_done_fn *done)
{
    struct protocol_connect fixed = { .port = port };

    request_open(agent, request, done, PROTOCOL_CONNECT, 0);
    request->result.file.fd = -1;
    if (fail_without_connect(agent, request))
        return;
    fixed.header = protocol_header(PROTOCOL_CONNECT, 0, 0, request->id);
    request_send_file(agent, request,
                      protocol_connect_encode(scratch, sizeof(scratch), &fixed, user ? user : "",
                                              path ? path : ""));
}

void agent_ports(struct agent *agent, struct agent_request *request, agent_done_fn *done)
{
    struct protocol_plain plain;

    request_open(agent, request, done, PROTOCOL_PORTS, 0);
    request->result.file.fd = -1;
    if (fail_without_connect(agent, request))
        return;
    plain.header = protocol_header(PROTOCOL_PORTS, sizeof(plain), 0, request->id);
    memcpy(scratch, &plain, sizeof(plain));
    request_send_file(agent, request, sizeof(plain));
}

void agent_attend(struct agent *agent, struct agent_request *request, agent_done_fn *done)
{
    request_open(agent, request, done, AGENT_ATTENDS, 0);
    if (agent_is_lost(agent))
        loop_defer(agent->loop, &agent->finish, on_finish);
}

/* A request that was cancelled meanwhile is not open any more. */
static void fail_unsent(struct agent *agent, const struct outgoing *outgoing,
                        const struct error *err)
{
    const struct protocol_header *header = (const void *)outgoing->bytes;

    for (struct agent_request *request = agent->open; request; request = request->next) {
        if (request->id == header->request)
            fail_soon(agent, request, err);
    }
}

void agent_file_ended(struct agent *agent)
{
    if (agent->files_in_flight)
        agent->files_in_flight--;
    while (agent->files && agent->files_in_flight < PROTOCOL_MAX_FILES && !agent_is_lost(agent)) {
        struct outgoing *next = queue_take(agent, &agent->files);
        struct error err;

        if (transmit(agent, next->bytes, next->length, -1, &err) == 0)
            agent->files_in_flight++;
        else
            fail_unsent(agent, next, &err);
        outgoing_free(next);
    }
}

/* --- its life -------------------------------------------------------------------------------- */

static void drop_queues(struct agent *agent)
{
    while (agent->queue)
        outgoing_free(queue_take(agent, &agent->queue));
    while (agent->files)
        outgoing_free(queue_take(agent, &agent->files));
}

static void close_socket(struct agent *agent)
{
    io_watch_stop(&agent->socket);
    fd_close(agent->socket.fd);
    agent->socket.fd = -1;
    drop_queues(agent);
    drop_forgets(agent);
}

/* Messages that a dead init has not read: when the other end is closed, the kernel reports them
 * once, to the first call that asks; while a child of init's still has it open, they are in the
 * queue. */
static bool has_unread(struct agent *agent)
{
    socklen_t length = sizeof(int);
    int number = 0;
    int queued = 0;

    if (agent->socket.fd >= 0) {
        if (getsockopt(agent->socket.fd, SOL_SOCKET, SO_ERROR, &number, &length) == 0)
            agent->was_reset = agent->was_reset || number == ECONNRESET;
        (void)ioctl(agent->socket.fd, SIOCOUTQ, &queued);
    }
    return agent->was_reset || queued > 0;
}

bool agent_is_untaken(const struct agent_request *request)
{
    struct agent *agent = request->agent;

    return request->id > agent->highest_sent ||
           (request->id == agent->last_sent && has_unread(agent));
}

/* Init has read the start: a client that sends it again could run the program twice. */
static void forbid_repeating(struct error *err)
{
    err->retryable = false;
    error_hint(err, "the program may have started: look for its effects before you start it again");
}

static void lose_with(struct agent *agent, const struct error *err)
{
    if (agent_is_lost(agent))
        return;
    agent->state = AGENT_LOST;
    error_keep(&agent->loss, err);
    close_socket(agent);
    for (struct agent_request *request = agent->open; request; request = request->next) {
        request->err = *err;
        request->is_untaken = agent_is_untaken(request);
        if (request->type == PROTOCOL_START && !request->is_untaken)
            forbid_repeating(&request->err);
    }
    loop_defer(agent->loop, &agent->finish, on_finish);
}

void agent_lose(struct agent *agent, enum error_code code, const char *why)
{
    struct error err;

    error_named(&err, code, "sandbox_connection_lost", "%s", why);
    lose_with(agent, &err);
}

void agent_lose_version(struct agent *agent)
{
    struct error err;

    error_named(&err, ERR_BACKEND, AGENT_OTHER_VERSION,
                "the sandbox's init speaks versions %u to %u of the protocol, this daemon %d",
                agent->hello.oldest, agent->hello.newest, PROTOCOL_VERSION);
    error_hint(&err, "end the session, or use it with the release that made its sandbox");
    lose_with(agent, &err);
}

struct agent *agent_new(struct loop *loop, int fd, const struct agent_handler *handler, void *user)
{
    struct agent *agent = xnew(struct agent);

    agent->loop = loop;
    agent->handler = handler;
    agent->user = user;
    agent->socket.fd = fd;
    watch_socket(agent);
    return agent;
}

static void on_release(struct deferred *deferred)
{
    struct agent *agent = container_of(deferred, struct agent, release);

    while (agent->given_up) {
        struct given_up *next = agent->given_up->next;

        free(agent->given_up);
        agent->given_up = next;
    }
    free(agent->loss);
    free(agent->first_scratch);
    free(agent);
}

int agent_release(struct agent *agent)
{
    int fd = -1;

    if (agent && agent->state != AGENT_CLOSED) {
        io_watch_stop(&agent->socket);
        fd = steal_fd(&agent->socket.fd);
    }
    agent_free(agent);
    return fd;
}

void agent_free(struct agent *agent)
{
    if (!agent || agent->state == AGENT_CLOSED)
        return;
    agent->state = AGENT_CLOSED;
    close_socket(agent);
    loop_undefer(agent->loop, &agent->finish);
    while (agent->open)
        (void)agent_take(agent, agent->open->id);
    loop_defer(agent->loop, &agent->release, on_release);
}

void agent_retire(struct agent *agent)
{
    if (!agent || agent->state >= AGENT_RETIRED)
        return;
    agent_lose(agent, ERR_BACKEND, "the connection to the sandbox was abandoned");
    agent->state = AGENT_RETIRED;
    loop_defer(agent->loop, &agent->finish, on_finish);
}

void *agent_user(const struct agent *agent)
{
    return agent->user;
}

struct loop *agent_loop(const struct agent *agent)
{
    return agent->loop;
}

int64_t agent_heard_us(const struct agent *agent)
{
    return agent->heard_us;
}

bool agent_is_lost(const struct agent *agent)
{
    return agent->state != AGENT_CONNECTED;
}

void agent_assume_scratch(struct agent *agent, char *path)
{
    free(agent->first_scratch);
    agent->first_scratch = path;
}

const struct protocol_hello *agent_hello(const struct agent *agent)
{
    return agent->has_hello ? &agent->hello : NULL;
}

bool agent_has_hung_up(const struct agent *agent)
{
    struct pollfd socket = { .fd = agent->socket.fd, .events = POLLRDHUP };

    return agent_is_lost(agent) || poll(&socket, 1, 0) > 0;
}

bool agent_has_streams(const struct agent *agent)
{
    return agent->has_hello && agent->hello.features & FEATURE_STREAMS;
}
