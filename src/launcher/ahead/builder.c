#include "launcher/ahead/builder.h"

#include "launcher/ahead/builder_cache.h"
#include "launcher/launcher.h"
#include "launcher/sys.h"
#include "launcher/teardown/destroy.h"
#include "launcher/walls/disk.h"
#include "launcher/walls/native.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KIT_FDS = CGROUP_PARTS + 6 };

/* --- messages ------------------------------------------------------------------------------- */

struct delivery {
    struct kit kit; /* what is not a descriptor */
    struct launch_limits wanted;
    int made;
    struct fail fail;   /* if it is not; the text is at the same place in both processes */
    int parts[KIT_FDS]; /* which of the descriptors come along */
};

static void collect_fds(const struct kit *kit, int fds[KIT_FDS])
{
    memcpy(fds, kit->cgroup.fds, sizeof(kit->cgroup.fds));
    fds[CGROUP_PARTS] = kit->userns;
    fds[CGROUP_PARTS + 1] = kit->netns;
    fds[CGROUP_PARTS + 2] = kit->folder.dir;
    fds[CGROUP_PARTS + 3] = kit->folder.mark;
    fds[CGROUP_PARTS + 4] = kit->folder.socket;
    fds[CGROUP_PARTS + 5] = kit->root;
}

static void spread_fds(struct kit *kit, const int fds[KIT_FDS])
{
    memcpy(kit->cgroup.fds, fds, sizeof(kit->cgroup.fds));
    kit->userns = fds[CGROUP_PARTS];
    kit->netns = fds[CGROUP_PARTS + 1];
    kit->folder.dir = fds[CGROUP_PARTS + 2];
    kit->folder.mark = fds[CGROUP_PARTS + 3];
    kit->folder.socket = fds[CGROUP_PARTS + 4];
    kit->root = fds[CGROUP_PARTS + 5];
}

static int send_kit(int socket, struct delivery *delivery, int flags)
{
    char control[CMSG_SPACE(sizeof(int) * KIT_FDS)] = { 0 };
    struct iovec part = { .iov_base = delivery, .iov_len = sizeof(*delivery) };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control };
    struct cmsghdr *header = (struct cmsghdr *)control;
    int fds[KIT_FDS];
    size_t count = 0;

    collect_fds(&delivery->kit, fds);
    for (size_t i = 0; i < KIT_FDS; i++) {
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

static int receive_kit(int socket, struct delivery *delivery)
{
    char control[CMSG_SPACE(sizeof(int) * KIT_FDS)] = { 0 };
    struct iovec part = { .iov_base = delivery, .iov_len = sizeof(*delivery) };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
    };
    int fds[KIT_FDS];
    int placed[KIT_FDS];
    const int *next = fds;
    struct cmsghdr *header;

    memset(fds, -1, sizeof(fds));
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != sizeof(*delivery))
        return -1;
    header = CMSG_FIRSTHDR(&message);
    if (header)
        memcpy(fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
    for (size_t i = 0; i < KIT_FDS; i++)
        placed[i] = delivery->parts[i] ? *next++ : -1;
    spread_fds(&delivery->kit, placed);
    /* There was no room for some of them. */
    if (message.msg_flags & MSG_CTRUNC) {
        delivery->made = 0;
        fail_set(&delivery->fail, "take a kit", EMFILE);
    }
    return 0;
}

/* --- the child ------------------------------------------------------------------------------ */

/* Without a network of its own: what /etc says about it is part of the root. A kit without a root
 * is as good, only slower. */
static int make_root(struct launcher *launcher, const struct kit *kit, struct kept *kept)
{
    struct fail ignored;
    struct spawn spawn;
    mode_t mask;
    int root;

    if (!*kit->template_name || disk_is_wanted(launcher, &kit->limits))
        return -1;
    spawn_init(&spawn, launcher);
    spawn.template = host_template(launcher, kit->template_name, &ignored);
    spawn.userns = kit->userns;
    spawn.mark.slot = (uint32_t)kit->slot;
    spawn.mark.network = LAUNCH_NETWORK_NONE;
    spawn.mark.limits = kit->limits;
    if (!spawn.template)
        return -1;
    mask = umask(022); /* as in the child that makes its own */
    if (kept && layers_keep(&kept->layers, kept->number, &spawn) == 0)
        spawn.layers = &kept->layers;
    root = root_prepare(&spawn);
    umask(mask);
    return root;
}

static void make_new(struct launcher *launcher, struct delivery *delivery)
{
    struct kit *kit = &delivery->kit;
    struct kept nothing;

    kept_init(&nothing);
    delivery->made = kit_complete(launcher, kit, &delivery->wanted, &nothing, &delivery->fail) == 0;
    kept_close(&nothing);
    if (delivery->made)
        kit->root = make_root(launcher, kit, NULL);
}

static void make_again(struct launcher *launcher, struct delivery *delivery)
{
    static struct shelf shelf;
    struct kit *kit = &delivery->kit;
    struct kept *kept = shelf_find(&shelf, kit);

    delivery->made = kit_complete(launcher, kit, &delivery->wanted, kept, &delivery->fail) == 0;
    if (!delivery->made) {
        shelf_empty(&shelf); /* descriptors may be what is missing; and this kit is dropped */
        return;
    }
    shelf_stamp(&shelf, kept, kit);
    kit->root = make_root(launcher, kit, kept);
}

static void make_ordered(struct launcher *launcher, struct delivery *delivery)
{
    if (delivery->kit.is_used)
        make_again(launcher, delivery);
    else
        make_new(launcher, delivery);
    if (!delivery->made)
        kit_drop(launcher, &delivery->kit);
}

/* Work without a launcher is for nobody: it ends at once, and the next launcher removes what it had
 * begun, which it must not do before. */
static int follow_launcher(const struct launcher *launcher)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)folders_lock(launcher, LOCK_SH);
    return getppid() == launcher->pid ? 0 : -1;
}

static _Noreturn void run(struct launcher *launcher, int socket)
{
    struct delivery delivery;

    (void)prctl(PR_SET_NAME, "sandglass-maker");
    if (follow_launcher(launcher) < 0)
        _exit(1);
    close(launcher->socket);
    close(launcher->epoll);
    leases_forget(&launcher->slots.leases);
    kits_close_fds(launcher);
    destroys_close_fds(launcher);
    /* Roots are assembled where no sandbox sees it. */
    if (unshare(CLONE_NEWNS) < 0 || layers_reset() < 0)
        _exit(1);
    while (receive_kit(socket, &delivery) == 0) {
        int slot = delivery.kit.slot;

        if (slot == SLOTS_NONE)
            (void)remove_content(launcher->state.trash);
        else
            make_ordered(launcher, &delivery);
        delivery.kit.slot = slot;
        if (send_kit(socket, &delivery, 0) < 0)
            break;
        kit_close(&delivery.kit); /* its names are the launcher's now */
    }
    _exit(0);
}

/* --- the launcher's end --------------------------------------------------------------------- */

int maker_start(struct launcher *launcher, int *out_pidfd)
{
    int pair[2];
    pid_t child;

    if (!launcher->host.native || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    child = fork();
    if (child == 0) {
        close(pair[0]);
        run(launcher, pair[1]);
    }
    close(pair[1]);
    /* Only we reap it, and not before this: the number is its own. */
    *out_pidfd = child < 0 ? -1 : sys_pidfd_open(child);
    if (child < 0) {
        close(pair[0]);
        return -1;
    }
    return pair[0];
}

int maker_order(int maker, struct kit *kit, const struct launch_limits *limits)
{
    struct delivery order = { .kit = *kit, .wanted = *limits };

    return send_kit(maker, &order, MSG_DONTWAIT);
}

int maker_receive(int maker, struct kit *out_kit, bool *out_made, struct fail *out_fail)
{
    struct delivery delivery;

    if (receive_kit(maker, &delivery) < 0)
        return -1;
    *out_kit = delivery.kit;
    *out_made = delivery.made;
    *out_fail = delivery.fail;
    return 0;
}
