/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ahead/builder.h"

#include "launcher/ahead/builder_cache.h"
#include "launcher/remove_tree.h"
#include "launcher/sys.h"
#include "launcher/walls/native.h"
#include "launcher/walls/walls.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SPARE_FDS = CGROUP_PARTS + 6 };

/* --- messages ------------------------------------------------------------------------------- */

struct delivery {
    struct spare spare; /* all fields but the descriptors */
    struct launch_limits wanted;
    int made;
    int error; /* of a failure, with its step */
    char step[LAUNCH_STEP_SIZE];
    int parts[SPARE_FDS]; /* which of the descriptors come along */
};

/* By value: a pointer means nothing to another process. */
static void set_failure(struct delivery *delivery, const struct fail *fail)
{
    delivery->error = fail->error;
    snprintf(delivery->step, sizeof(delivery->step), "%s", fail->step);
}

static void collect_fds(const struct spare *spare, int fds[SPARE_FDS])
{
    memcpy(fds, spare->cgroup.fds, sizeof(spare->cgroup.fds));
    fds[CGROUP_PARTS] = spare->userns;
    fds[CGROUP_PARTS + 1] = spare->netns;
    fds[CGROUP_PARTS + 2] = spare->directory.dir;
    fds[CGROUP_PARTS + 3] = spare->directory.mark;
    fds[CGROUP_PARTS + 4] = spare->directory.socket;
    fds[CGROUP_PARTS + 5] = spare->root;
}

static void spread_fds(struct spare *spare, const int fds[SPARE_FDS])
{
    memcpy(spare->cgroup.fds, fds, sizeof(spare->cgroup.fds));
    spare->userns = fds[CGROUP_PARTS];
    spare->netns = fds[CGROUP_PARTS + 1];
    spare->directory.dir = fds[CGROUP_PARTS + 2];
    spare->directory.mark = fds[CGROUP_PARTS + 3];
    spare->directory.socket = fds[CGROUP_PARTS + 4];
    spare->root = fds[CGROUP_PARTS + 5];
}

static int send_spare(int socket, struct delivery *delivery, int flags)
{
    char control[CMSG_SPACE(sizeof(int) * SPARE_FDS)] = { 0 };
    struct iovec part = { .iov_base = delivery, .iov_len = sizeof(*delivery) };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control };
    struct cmsghdr *header = (struct cmsghdr *)control;
    int fds[SPARE_FDS];
    size_t count = 0;

    collect_fds(&delivery->spare, fds);
    for (size_t i = 0; i < SPARE_FDS; i++) {
        delivery->parts[i] = fds[i] >= 0;
        if (fds[i] >= 0)
            memcpy(CMSG_DATA(header) + sizeof(int) * count++, &fds[i], sizeof(int));
    }
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * count);
    message.msg_controllen = count ? CMSG_SPACE(sizeof(int) * count) : 0;
    return sendmsg(socket, &message, MSG_NOSIGNAL | flags) < 0 ? -1 : 0;
}

static int receive_spare(int socket, struct delivery *delivery)
{
    char control[CMSG_SPACE(sizeof(int) * SPARE_FDS)] = { 0 };
    struct iovec part = { .iov_base = delivery, .iov_len = sizeof(*delivery) };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
    };
    int fds[SPARE_FDS];
    int placed[SPARE_FDS];
    const int *next = fds;
    struct cmsghdr *header;

    memset(fds, -1, sizeof(fds));
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != sizeof(*delivery))
        return -1;
    header = CMSG_FIRSTHDR(&message);
    if (header)
        memcpy(fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
    for (size_t i = 0; i < SPARE_FDS; i++)
        placed[i] = delivery->parts[i] ? *next++ : -1;
    spread_fds(&delivery->spare, placed);
    /* Some descriptors were dropped, because the process has no room for them. */
    if (message.msg_flags & MSG_CTRUNC) {
        delivery->made = 0;
        set_failure(delivery, &(struct fail){ .step = "take a spare", .error = EMFILE });
    }
    return 0;
}

/* --- the child ------------------------------------------------------------------------------ */

/* The root is for a sandbox without a network: its /etc depends on that. A spare without a root is
 * usable too, only slower. */
static int make_root(struct walls *walls, const struct spare *spare, struct cache_entry *entry)
{
    struct fail ignored;
    struct spawn spawn;
    mode_t mask;
    int root;

    if (!*spare->template_name || disk_is_wanted(&walls->disks, &spare->limits))
        return -1;
    spawn_init(&spawn, &walls->spawner, walls);
    spawn.template = host_template(&walls->host, spare->template_name, &ignored);
    spawn.userns = spare->userns;
    spawn.mark.slot = (uint32_t)spare->slot;
    spawn.mark.network = LAUNCH_NETWORK_NONE;
    spawn.mark.limits = spare->limits;
    if (!spawn.template)
        return -1;
    mask = umask(022); /* as in the child that makes its own */
    if (entry && layers_cache(&entry->layers, entry->number, &spawn) == 0)
        spawn.layers = &entry->layers;
    root = root_prepare(&spawn);
    umask(mask);
    return root;
}

static int complete(const struct builder_parts *parts, struct delivery *delivery,
                    struct cache_entry *entry, struct fail *fail)
{
    return spare_complete(&parts->spare, &delivery->spare, &delivery->wanted, &entry->traces,
                          &entry->cgroups, fail);
}

static int make_new(const struct builder_parts *parts, struct delivery *delivery, struct fail *fail)
{
    struct cache_entry nothing;
    int result;

    cache_entry_init(&nothing);
    result = complete(parts, delivery, &nothing, fail);
    cache_entry_close(&nothing);
    if (result == 0)
        delivery->spare.root = make_root(parts->walls, &delivery->spare, NULL);
    return result;
}

static int make_again(const struct builder_parts *parts, struct delivery *delivery,
                      struct fail *fail)
{
    static struct builder_cache cache;
    struct spare *spare = &delivery->spare;
    struct cache_entry *entry = builder_cache_find(&cache, spare);

    if (complete(parts, delivery, entry, fail) < 0) {
        /* The process may be out of descriptors: empty the cache. This spare is dropped. */
        builder_cache_empty(&cache);
        return -1;
    }
    builder_cache_stamp(&cache, entry, spare);
    spare->root = make_root(parts->walls, spare, entry);
    return 0;
}

static void make_ordered(const struct builder_parts *parts, struct delivery *delivery)
{
    struct fail fail = { 0 };
    int result = delivery->spare.is_used ? make_again(parts, delivery, &fail)
                                         : make_new(parts, delivery, &fail);

    delivery->made = result == 0;
    if (delivery->made)
        return;
    spare_drop(&parts->spare, &delivery->spare);
    set_failure(delivery, &fail);
}

/* The builder ends at once with its launcher, and the next launcher removes unfinished spares. The
 * lock prevents that while the builder still runs. */
static int follow_launcher(const struct context *context)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)directories_lock(context, LOCK_SH);
    return getppid() == context->pid ? 0 : -1;
}

static _Noreturn void run(const struct builder_parts *parts, int socket)
{
    const struct context *context = parts->spare.context;
    struct delivery delivery;

    (void)prctl(PR_SET_NAME, "sandglass-build");
    if (follow_launcher(context) < 0)
        _exit(1);
    parts->on_child(parts->user);
    /* Roots are assembled in a mount namespace of the builder's own. */
    if (unshare(CLONE_NEWNS) < 0 || layers_reset() < 0)
        _exit(1);
    while (receive_spare(socket, &delivery) == 0) {
        int slot = delivery.spare.slot;

        if (slot == UID_RANGE_NONE)
            (void)remove_content(context->state.trash);
        else
            make_ordered(parts, &delivery);
        delivery.spare.slot = slot;
        if (send_spare(socket, &delivery, 0) < 0)
            break;
        spare_close(&delivery.spare); /* its names are the launcher's now */
    }
    _exit(0);
}

/* --- the launcher's end --------------------------------------------------------------------- */

int builder_start(const struct builder_parts *parts, int *out_pidfd)
{
    int pair[2];
    pid_t child;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    child = fork();
    if (child == 0) {
        close(pair[0]);
        run(parts, pair[1]);
    }
    close(pair[1]);
    /* Only the launcher reaps the child, and not before this: the pid cannot be reused yet. */
    *out_pidfd = child < 0 ? -1 : sys_pidfd_open(child);
    if (child < 0) {
        close(pair[0]);
        return -1;
    }
    return pair[0];
}

int builder_order(int builder, struct spare *spare, const struct launch_limits *limits)
{
    struct delivery order = { .spare = *spare, .wanted = *limits };

    return send_spare(builder, &order, MSG_DONTWAIT);
}

int builder_receive(int builder, struct spare *out_spare, bool *out_made, struct fail *out_fail)
{
    static char step[LAUNCH_STEP_SIZE]; /* of the last failure */
    struct delivery delivery;

    if (receive_spare(builder, &delivery) < 0)
        return -1;
    delivery.step[sizeof(delivery.step) - 1] = '\0';
    memcpy(step, delivery.step, sizeof(step));
    *out_spare = delivery.spare;
    *out_made = delivery.made;
    *out_fail = (struct fail){ .step = step, .error = delivery.error };
    return 0;
}
