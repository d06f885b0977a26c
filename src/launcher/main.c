/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher's start and its loop: one request at a time, destroys side by side. */

#include "launcher/launcher.h"
#include "launcher/sys.h"

#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { MAX_REQUEST = 512, EVENTS = 64, REAP_ALL = 256 };

union request {
    struct launch_header header;
    struct launch_setup setup;
    struct launch_template template;
    struct launch_mount mount;
    struct launch_allow allow;
    struct launch_create create;
    struct launch_create_bound bound;
    struct launch_adopt adopt;
    struct launch_update update;
    struct launch_freeze freeze;
    struct launch_inspect inspect;
    struct launch_destroy destroy;
    char bytes[MAX_REQUEST];
};

static struct launcher launcher;
static char signals_token;

/* --- answers ------------------------------------------------------------------------------- */

void launcher_reply(struct launcher *self, struct launch_reply *reply, int pidfd)
{
    char control[CMSG_SPACE(sizeof(int))] = { 0 };
    struct iovec part = { .iov_base = reply, .iov_len = sizeof(*reply) };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

    /* Only a list needs all of the body. */
    if (reply->header.type != LAUNCH_LIST)
        part.iov_len = offsetof(struct launch_reply, body) + sizeof(struct launch_host);
    reply->header.length = (uint32_t)part.iov_len;
    if (pidfd >= 0) {
        struct cmsghdr *header;

        message.msg_control = control;
        message.msg_controllen = sizeof(control);
        header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &pidfd, sizeof(pidfd));
    }
    /* A daemon that is gone is noticed when we read from it. */
    (void)sendmsg(self->socket, &message, MSG_NOSIGNAL);
}

void launcher_report(struct launcher *self, const struct fail *fail)
{
    struct launch_reply reply = {
        .header = { .type = LAUNCH_TYPES, .version = LAUNCH_VERSION },
        .error = fail->error,
    };

    strncpy(reply.step, fail->step, sizeof(reply.step) - 1);
    launcher_reply(self, &reply, -1);
}

struct list_state {
    struct launcher *launcher;
    struct launch_reply reply;
};

static void list_one(void *user, const char *id)
{
    struct list_state *list = user;
    struct launch_ids *ids = &list->reply.body.list;
    struct mark mark = { 0 };
    int dir = state_open_sandbox(&list->launcher->context.state, id);

    if (dir < 0)
        return;
    /* A sandbox without a mark was being made by an earlier launcher: this directory is ours
     * alone. */
    if (mark_read(dir, &mark) == 0 && !mark_is_ours(&list->launcher->context.state, &mark, id)) {
        close(dir);
        return;
    }
    close(dir);
    memcpy(ids->ids[ids->count++], id, LAUNCH_ID_SIZE);
    if (ids->count == LAUNCH_LIST_IDS) {
        ids->more = 1;
        launcher_reply(list->launcher, &list->reply, -1);
        ids->count = 0;
    }
}

static void list_all(struct launcher *self, const struct launch_header *request)
{
    struct list_state list = { .launcher = self, .reply.header = *request };

    if (state_each(&self->context.state, list_one, &list) < 0)
        list.reply.error = errno;
    list.reply.body.list.more = 0;
    launcher_reply(self, &list.reply, -1);
}

static int watch(struct launcher *self, int fd, void *token)
{
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = token };

    return epoll_ctl(self->epoll, EPOLL_CTL_ADD, fd, &event);
}

/* --- requests ------------------------------------------------------------------------------ */

static int serve(struct launcher *self, const union request *request, int fd,
                 struct launch_reply *reply, int *out_pidfd, struct fail *fail)
{
    switch ((enum launch_type)request->header.type) {
    case LAUNCH_SETUP:
        return launcher_setup(self, &request->setup, fd, &reply->body.host, fail);
    case LAUNCH_TEMPLATE:
        if (self->sealed)
            return fail_set(fail, "templates are sealed", EPERM);
        return host_add_template(&self->walls.host, request->template.name, fd, fail);
    case LAUNCH_MOUNT:
        if (self->sealed)
            return fail_set(fail, "mounts are sealed", EPERM);
        return host_add_mount(&self->walls.host, &request->mount, fd, fail);
    case LAUNCH_ALLOW:
        if (self->sealed)
            return fail_set(fail, "mounts are sealed", EPERM);
        return host_allow(&self->walls.host, &request->allow, fail);
    case LAUNCH_SEAL:
        launcher_seal(self);
        return 0;
    case LAUNCH_CREATE:
        return sandbox_create(self, &request->create, NULL, &reply->body.made, out_pidfd, fail);
    case LAUNCH_CREATE_BOUND:
        return sandbox_create(self, &request->bound.create, &request->bound, &reply->body.made,
                              out_pidfd, fail);
    case LAUNCH_ADOPT:
        return sandbox_adopt(self, &request->adopt, &reply->body.made, out_pidfd, fail);
    case LAUNCH_UPDATE:
        return sandbox_update(self, &request->update, fail);
    case LAUNCH_FREEZE:
        return sandbox_freeze(self, &request->freeze, fail);
    case LAUNCH_INSPECT:
        return sandbox_inspect(self, &request->inspect, &reply->body.usage, fail);
    case LAUNCH_DESTROY:
    case LAUNCH_LIST:
    case LAUNCH_TYPES:
        break;
    }
    return fail_set(fail, "unknown request", ENOSYS);
}

static void handle(struct launcher *self, const union request *request, int fd)
{
    struct launch_reply reply = { .header = request->header };
    struct fail fail = { 0 };
    int pidfd = -1;

    if (!self->ready && request->header.type != LAUNCH_SETUP) {
        fail_set(&fail, "not set up", EPERM);
    } else if (request->header.type == LAUNCH_DESTROY) {
        destroy_start(&self->destroys, request->destroy.id, &request->header);
        return;
    } else if (request->header.type == LAUNCH_LIST) {
        list_all(self, &request->header);
        return;
    } else if (serve(self, request, fd, &reply, &pidfd, &fail) == 0) {
        fail = (struct fail){ 0 };
    }
    reply.error = fail.error;
    if (fail.step)
        strncpy(reply.step, fail.step, sizeof(reply.step) - 1);
    launcher_reply(self, &reply, pidfd);
    if (pidfd >= 0)
        close(pidfd);
}

/* Descriptors beside a message; more than one is nothing that we take. */
static unsigned take_descriptors(struct msghdr *message, int *out_fd)
{
    unsigned count = 0;

    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
         header = CMSG_NXTHDR(message, header)) {
        size_t length = header->cmsg_len - CMSG_LEN(0);

        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < length / sizeof(int); i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
            if (count++ == 0)
                *out_fd = fd;
            else
                close(fd);
        }
    }
    return count;
}

/* False when the daemon is gone or talks nonsense: both end us. */
static bool receive(struct launcher *self)
{
    union request request = { 0 };
    char control[CMSG_SPACE(sizeof(int) * LAUNCH_MAX_FDS)];
    struct iovec part = { .iov_base = &request, .iov_len = sizeof(request) };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
    };
    unsigned descriptors;
    int fd = -1;
    ssize_t length;
    bool valid;

    length = recvmsg(self->socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (length < 0)
        return errno == EAGAIN || errno == EINTR;
    if (length == 0)
        return false;
    descriptors = take_descriptors(&message, &fd);
    valid = !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) &&
            !launch_check(&request, (size_t)length, descriptors);
    if (valid)
        handle(self, &request, fd);
    if (fd >= 0)
        close(fd);
    return valid;
}

/* --- the loop ------------------------------------------------------------------------------ */

/* Uid ranges of files in the trash are free now. Spares and destroys without a mark on disk mark
 * their own as taken. */
static void on_sweeper_exit(struct launcher *self)
{
    uid_ranges_scan(&self->uid_ranges, &self->context.state);
    spares_mark(&self->spares);
    destroys_mark(&self->destroys);
    trash_on_exit(&self->trash);
}

static void reap_child(struct launcher *self, pid_t which)
{
    pid_t pid = waitpid(which, NULL, WNOHANG);

    if (pid > 0 && pid == self->trash.sweeper)
        on_sweeper_exit(self);
}

void launcher_reap(struct launcher *self)
{
    pid_t pid;

    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
        if (pid == self->trash.sweeper)
            on_sweeper_exit(self);
    }
}

/* Reaps by pid: waiting for any child makes the kernel scan all of them, perhaps thousands.
 * Children that die at the same moment share one SIGCHLD. A sandbox among them is reaped when it is
 * destroyed, other children by launcher_reap() after every REAP_ALL deaths. */
static void reap(struct launcher *self, int signals)
{
    struct signalfd_siginfo info;

    while (read(signals, &info, sizeof(info)) == sizeof(info))
        reap_child(self, (pid_t)info.ssi_pid);
    if (self->trash.sweeper > 0)
        reap_child(self, self->trash.sweeper);
    if (++self->deaths % REAP_ALL == 0)
        launcher_reap(self);
}

/* The shorter of two waits; negative means without a limit. */
static int sooner(int a_ms, int b_ms)
{
    if (a_ms < 0 || b_ms < 0)
        return a_ms < 0 ? b_ms : a_ms;
    return a_ms < b_ms ? a_ms : b_ms;
}

/* Does the work that is due; returns how long the loop may wait, in ms. */
static int turn(struct launcher *self)
{
    int destroys_ms;
    int spares_ms;

    if (!self->ready)
        return -1;
    destroys_ms = destroys_turn(&self->destroys);
    spares_ms = spares_turn(&self->spares);
    teardown_process_turn(&self->teardown);
    return sooner(sooner(destroys_ms, spares_ms), memory_watch_turn(&self->memory_watch));
}

static void on_network_change(struct launcher *self)
{
    struct fail fail;

    if (network_on_change(&self->walls.network, &fail) < 0)
        launcher_report(self, &fail);
}

static void run(struct launcher *self, int signals)
{
    struct epoll_event events[EVENTS];

    for (;;) {
        int count = epoll_wait(self->epoll, events, EVENTS, turn(self));

        for (int i = 0; i < count; i++) {
            void *token = events[i].data.ptr;

            if (token == self) {
                /* Requests of a dead daemon are for the next one to decide. */
                if (events[i].events & EPOLLHUP || !receive(self))
                    return;
            } else if (token == &signals_token) {
                reap(self, signals);
            } else if (token == &self->spares) {
                spares_receive(&self->spares);
            } else if (token == &self->walls.network) {
                on_network_change(self);
            } else {
                /* A destroy ends only in its own event or in destroys_turn(), so it is alive. */
                destroy_on_death(&self->destroys, token);
            }
        }
    }
}

int main(void)
{
    sigset_t every;
    sigset_t children;
    int signals;

    launcher_init(&launcher);
    (void)sys_close_range(LAUNCH_FD_STATE + 1, ~0U, 0);
    if (spawn_open() < 0)
        return 1;
    (void)prctl(PR_SET_NAME, "sandglass-launcher");
    (void)prctl(PR_SET_DUMPABLE, 0);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    umask(077);
    (void)!chdir("/");
    sigfillset(&every);
    sigprocmask(SIG_SETMASK, &every, NULL);
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    signals = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    launcher.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (signals < 0 || launcher.epoll < 0 || watch(&launcher, launcher.socket, &launcher) < 0 ||
        watch(&launcher, signals, &signals_token) < 0)
        return 1;
    run(&launcher, signals);
    launcher_close(&launcher);
    return 0;
}
