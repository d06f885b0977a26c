#include "backend/launcher.h"

#include "backend/launcher_process.h"
#include "base/alloc.h"
#include "base/log.h"
#include "config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { SETUP_TIMEOUT_MS = 20000 };

struct outgoing {
    struct list link;
    size_t length;
    unsigned char bytes[]; /* the message */
};

struct launcher {
    struct loop *loop; /* borrowed */
    int socket;        /* owned; -1 once it is lost */
    pid_t pid;
    struct io_watch watch;
    struct list calls;  /* in flight */
    struct list outbox; /* owned: what the socket would not take yet */
    uint64_t next_tag;
    struct launch_host host;
    struct deferred lose;
};

/* --- answers ------------------------------------------------------------------------------- */

static int take_pidfd(struct msghdr *message)
{
    int pidfd = -1;

    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS && pidfd < 0)
            memcpy(&pidfd, CMSG_DATA(header), sizeof(pidfd));
    }
    return pidfd;
}

/* 1 with an answer, 0 without one yet, -1 when the launcher is gone. */
static int receive(struct launcher *launcher, struct launch_reply *reply, int *out_pidfd)
{
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec part = { .iov_base = reply, .iov_len = sizeof(*reply) };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
    };
    ssize_t length = recvmsg(launcher->socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (length < (ssize_t)offsetof(struct launch_reply, body))
        return -1;
    memset((char *)reply + length, 0, sizeof(*reply) - (size_t)length);
    reply->step[sizeof(reply->step) - 1] = '\0';
    *out_pidfd = take_pidfd(&message);
    return 1;
}

static struct launcher_call *find_call(struct launcher *launcher, uint64_t tag)
{
    struct launcher_call *call;

    list_for_each (call, &launcher->calls, link) {
        if (call->tag == tag)
            return call;
    }
    return NULL;
}

static void lose(struct launcher *launcher)
{
    struct launcher_call *call;

    if (launcher->socket >= 0) {
        io_watch_stop(&launcher->watch);
        fd_close(launcher->socket);
        launcher->socket = -1;
    }
    while ((call = list_first(&launcher->calls, struct launcher_call, link))) {
        list_remove(&call->link);
        call->done(call, NULL, -1);
    }
}

/* It ended by itself, which it never does unless somebody kills it. */
static void miss(struct launcher *launcher)
{
    if (launcher->socket >= 0)
        log_error("the launcher is gone; until a restart no sandbox can be made or removed");
    lose(launcher);
}

static void on_lost(struct deferred *deferred)
{
    miss(container_of(deferred, struct launcher, lose));
}

static void answer(struct launcher *launcher, const struct launch_reply *reply, int pidfd)
{
    struct launcher_call *call = find_call(launcher, reply->header.tag);

    if (!reply->header.tag)
        log_warn("sandboxes are not made ahead; trying again", kv("step", reply->step),
                 kv("error", strerror(reply->error)));
    if (!call) {
        fd_close(pidfd);
        return;
    }
    if (reply->header.type != LAUNCH_LIST || !reply->body.list.more)
        list_remove(&call->link);
    call->done(call, reply, pidfd);
}

static void flush(struct launcher *launcher);

static void on_ready(struct io_watch *watch, unsigned events)
{
    struct launcher *launcher = container_of(watch, struct launcher, watch);
    struct launch_reply reply;
    int pidfd = -1;
    int result;

    if (events & IO_WRITE)
        flush(launcher);
    while (launcher->socket >= 0) {
        result = receive(launcher, &reply, &pidfd);
        if (result < 0)
            miss(launcher);
        if (result <= 0)
            return;
        answer(launcher, &reply, pidfd);
    }
}

/* --- requests ------------------------------------------------------------------------------ */

/* True when it is sent or can never be. */
static bool try_send(struct launcher *launcher, const void *message, size_t length)
{
    if (launcher->socket < 0)
        return true;
    if (send(launcher->socket, message, length, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
        return true;
    if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS)
        return false;
    loop_defer(launcher->loop, &launcher->lose, on_lost);
    return true;
}

static void flush(struct launcher *launcher)
{
    struct outgoing *outgoing;

    while ((outgoing = list_first(&launcher->outbox, struct outgoing, link))) {
        if (!try_send(launcher, outgoing->bytes, outgoing->length))
            return;
        list_remove(&outgoing->link);
        free(outgoing);
    }
    if (launcher->socket >= 0)
        io_watch_start(&launcher->watch, launcher->loop, launcher->socket, IO_READ, on_ready);
}

static void enqueue(struct launcher *launcher, const void *message, size_t length)
{
    struct outgoing *outgoing = xmalloc(sizeof(*outgoing) + length);

    outgoing->length = length;
    memcpy(outgoing->bytes, message, length);
    list_init(&outgoing->link);
    list_append(&launcher->outbox, &outgoing->link);
    io_watch_start(&launcher->watch, launcher->loop, launcher->socket, IO_READ | IO_WRITE,
                   on_ready);
}

static void fill_header(struct launcher *launcher, struct launch_header *header,
                        enum launch_type type, size_t length)
{
    *header = (struct launch_header){ .length = (uint32_t)length,
                                      .type = (uint16_t)type,
                                      .version = LAUNCH_VERSION,
                                      .tag = ++launcher->next_tag };
}

void launcher_send(struct launcher *launcher, struct launcher_call *call, enum launch_type type,
                   void *message, size_t length, launcher_done_fn *done)
{
    struct launch_header *header = message;

    fill_header(launcher, header, type, length);
    call->tag = header->tag;
    call->done = done;
    list_init(&call->link);
    list_append(&launcher->calls, &call->link);
    if (launcher->socket < 0)
        loop_defer(launcher->loop, &launcher->lose, on_lost);
    else if (!list_is_empty(&launcher->outbox) || !try_send(launcher, message, length))
        enqueue(launcher, message, length);
}

void launcher_cancel(struct launcher *launcher, struct launcher_call *call)
{
    (void)launcher;
    list_remove(&call->link);
}

int launcher_error(const struct launch_reply *reply, const char *what, struct error *err)
{
    if (!reply)
        return error_set(err, ERR_UNAVAILABLE, "%s: the launcher is gone", what);
    errno = reply->error;
    error_sys(err, "%s: %s", what, reply->step);
    if (err) {
        err->code = reply->error == EAGAIN   ? ERR_LIMIT
                    : reply->error == ENOENT ? ERR_NOT_FOUND
                    : reply->error == ESRCH  ? ERR_GONE
                                             : ERR_BACKEND;
        err->retryable = reply->error == EAGAIN || reply->error == EBUSY;
        err->name[0] = '\0';
        snprintf(err->name, sizeof(err->name), "%s", error_code_name(err->code));
    }
    return -1;
}

/* --- start and stop ------------------------------------------------------------------------ */

/* At start there is no loop yet that could wait for us. */
static int exchange(struct launcher *launcher, enum launch_type type, void *message, size_t length,
                    int fd, struct launch_reply *out_reply, struct error *err)
{
    struct pollfd watch = { .fd = launcher->socket, .events = POLLIN };
    int pidfd = -1;
    int result;

    fill_header(launcher, message, type, length);
    if (launcher_process_send(launcher->socket, message, length, fd) < 0)
        return error_sys(err, "talk to the launcher");
    do {
        if (poll(&watch, 1, SETUP_TIMEOUT_MS) <= 0)
            return error_set(err, ERR_TIMEOUT, "the launcher does not answer");
        result = receive(launcher, out_reply, &pidfd);
    } while (result == 0);
    fd_close(pidfd);
    if (result < 0)
        return error_set(err, ERR_BACKEND, "the launcher ended at its start");
    return out_reply->error ? launcher_error(out_reply, "launcher", err) : 0;
}

static int send_template(struct launcher *launcher, const char *path, struct error *err)
{
    struct launch_template message = { .name = LAUNCHER_CONFIGURED_TEMPLATE };
    struct launch_reply reply;
    scoped(fd_close) int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return error_sys(err, "sandbox.template: open %s", path);
    return exchange(launcher, LAUNCH_TEMPLATE, &message, sizeof(message), fd, &reply, err);
}

static int send_mount(struct launcher *launcher, const struct config_mount *mount,
                      struct error *err)
{
    struct launch_mount message = { .read_only = mount->read_only };
    struct launch_reply reply;
    scoped(fd_close) int fd = open(mount->host_path, O_PATH | O_CLOEXEC);

    if (fd < 0)
        return error_sys(err, "sandbox.mounts: open %s", mount->host_path);
    snprintf(message.path, sizeof(message.path), "%s", mount->path);
    if (strlen(mount->path) >= sizeof(message.path) || !launch_path_is_valid(message.path))
        return error_set(err, ERR_INVALID, "sandbox.mounts: \"%s\" is no path for a mount",
                         mount->path);
    return exchange(launcher, LAUNCH_MOUNT, &message, sizeof(message), fd, &reply, err);
}

/* What the operator gives to all sandboxes; only native ones can have it. */
static int send_configured(struct launcher *launcher, const struct config *config,
                           struct error *err)
{
    if (!config || !(launcher->host.features & LAUNCH_HAS_NATIVE))
        return 0;
    if (*config->sandbox.template_name == '/' &&
        send_template(launcher, config->sandbox.template_name, err) < 0)
        return -1;
    for (size_t i = 0; i < config->sandbox.mounts.count; i++) {
        if (send_mount(launcher, &config->sandbox.mounts.items[i], err) < 0)
            return -1;
    }
    return 0;
}

static int set_up(struct launcher *launcher, const struct launcher_options *options,
                  struct error *err)
{
    struct launch_setup setup;
    struct launch_seal seal;
    struct launch_reply reply;
    scoped(fd_close) int filter = -1;

    filter = launcher_process_filter(options->config, err);
    if (filter < 0)
        return -1;
    launcher_process_describe(options, &setup);
    if (exchange(launcher, LAUNCH_SETUP, &setup, sizeof(setup), filter, &reply, err) < 0)
        return -1;
    launcher->host = reply.body.host;
    launcher->host.missing[sizeof(launcher->host.missing) - 1] = '\0';
    if (send_configured(launcher, options->config, err) < 0)
        return -1;
    return exchange(launcher, LAUNCH_SEAL, &seal, sizeof(seal), -1, &reply, err);
}

struct launcher *launcher_start(const struct launcher_options *options, struct error *err)
{
    struct launcher *launcher = xnew(struct launcher);

    launcher->loop = options->loop;
    list_init(&launcher->calls);
    list_init(&launcher->outbox);
    launcher->socket = launcher_process_start(options->state_path, &launcher->pid, err);
    if (launcher->socket < 0 || set_up(launcher, options, err) < 0) {
        error_wrap(err, "start the launcher");
        launcher_stop(launcher);
        return NULL;
    }
    io_watch_start(&launcher->watch, launcher->loop, launcher->socket, IO_READ, on_ready);
    return launcher;
}

void launcher_stop(struct launcher *launcher)
{
    struct outgoing *outgoing;

    if (!launcher)
        return;
    loop_undefer(launcher->loop, &launcher->lose);
    lose(launcher);
    while ((outgoing = list_first(&launcher->outbox, struct outgoing, link))) {
        list_remove(&outgoing->link);
        free(outgoing);
    }
    launcher_process_end(launcher->pid);
    free(launcher);
}

const struct launch_host *launcher_host(const struct launcher *launcher)
{
    return &launcher->host;
}

pid_t launcher_pid(const struct launcher *launcher)
{
    return launcher->pid;
}
