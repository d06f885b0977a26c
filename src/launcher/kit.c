#include "launcher/kit.h"

#include "launcher/destroy.h"
#include "launcher/disk.h"
#include "launcher/launcher.h"
#include "launcher/native.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { KIT_FDS = CGROUP_PARTS + 6, REFILL_MS = 20 };

static void kit_init(struct kit *kit)
{
    *kit = (struct kit){ .slot = SLOTS_NONE,
                         .userns = -1,
                         .netns = -1,
                         .cgroup = CGROUP_ENTRY_NONE,
                         .folder = FOLDER_NONE,
                         .root = -1 };
}

static void kit_drop(struct launcher *launcher, struct kit *kit)
{
    if (kit->userns >= 0)
        close(kit->userns);
    if (kit->netns >= 0)
        close(kit->netns);
    if (kit->root >= 0)
        close(kit->root);
    cgroup_entry_close(&kit->cgroup);
    folder_drop(launcher, &kit->folder);
    if (*kit->name)
        (void)cgroups_remove(&launcher->cgroups, kit->name);
    if (kit->slot != SLOTS_NONE)
        slots_release(&launcher->slots, (uint32_t)kit->slot);
    kit_init(kit);
}

static int make_namespaces(struct launcher *launcher, struct kit *kit, struct fail *fail)
{
    kit->userns = userns_make(launcher, (uint32_t)kit->slot, fail);
    if (kit->userns < 0)
        return -1;
    kit->netns = netns_make(launcher, fail);
    if (kit->netns < 0)
        return -1;
    return folder_make(launcher, &kit->folder, (unsigned)kit->slot, fail);
}

static int make_now(struct launcher *launcher, struct kit *kit, struct fail *fail)
{
    kit_init(kit);
    kit->slot = slots_take(&launcher->slots);
    if (kit->slot == SLOTS_NONE)
        return fail_set(fail, "all uid ranges are in use", EAGAIN);
    return make_namespaces(launcher, kit, fail);
}

/* --- the maker ------------------------------------------------------------------------------ */

/* Both ways; an order has no descriptors, and a kit that could not be made has none either. */
struct delivery {
    int slot;
    int made;
    struct launch_limits limits;
    int parts[KIT_FDS]; /* which of the descriptors come along */
    char folder[FOLDER_NAME_SIZE];
    char template_name[LAUNCH_NAME_SIZE];
};

static void collect_fds(struct kit *kit, int fds[KIT_FDS])
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

static void set_name(const struct launcher *launcher, struct kit *kit)
{
    if (cgroups_can_rename(&launcher->cgroups))
        snprintf(kit->name, sizeof(kit->name), "kit-%d-%d", (int)launcher->pid, kit->slot);
}

/* Without a network of its own: what /etc says about it is part of the root. A kit without a root
 * is as good, only slower. */
static int make_root(struct launcher *launcher, const struct delivery *delivery, struct kit *kit)
{
    struct fail ignored;
    struct spawn spawn;
    mode_t mask;
    int root;

    if (!*delivery->template_name || disk_is_wanted(launcher, &delivery->limits))
        return -1;
    spawn_init(&spawn, launcher);
    spawn.template = host_template(launcher, delivery->template_name, &ignored);
    spawn.userns = kit->userns;
    spawn.mark.slot = (uint32_t)kit->slot;
    spawn.mark.network = LAUNCH_NETWORK_NONE;
    spawn.mark.limits = delivery->limits;
    if (!spawn.template)
        return -1;
    mask = umask(022); /* as in the child that makes its own */
    root = root_prepare(&spawn);
    umask(mask);
    return root;
}

static void make_ordered(struct launcher *launcher, struct delivery *delivery, struct kit *kit)
{
    struct fail ignored;

    kit->slot = delivery->slot;
    set_name(launcher, kit);
    delivery->made = make_namespaces(launcher, kit, &ignored) == 0 &&
                     (!*kit->name || cgroups_make(&launcher->cgroups, kit->name, &delivery->limits,
                                                  &kit->cgroup, &ignored) == 0);
    if (delivery->made)
        kit->root = make_root(launcher, delivery, kit);
}

static int send_delivery(int socket, struct delivery *delivery, struct kit *kit)
{
    char control[CMSG_SPACE(sizeof(int) * KIT_FDS)] = { 0 };
    struct iovec part = { .iov_base = delivery, .iov_len = sizeof(*delivery) };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control };
    struct cmsghdr *header = (struct cmsghdr *)control;
    int fds[KIT_FDS];
    size_t count = 0;

    collect_fds(kit, fds);
    memcpy(delivery->folder, kit->folder.name, sizeof(delivery->folder));
    for (size_t i = 0; i < KIT_FDS; i++) {
        delivery->parts[i] = delivery->made && fds[i] >= 0;
        if (delivery->parts[i])
            memcpy(CMSG_DATA(header) + sizeof(int) * count++, &fds[i], sizeof(int));
    }
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * count);
    message.msg_controllen = count ? CMSG_SPACE(sizeof(int) * count) : 0;
    return sendmsg(socket, &message, MSG_NOSIGNAL) < 0 ? -1 : 0;
}

/* Ends with the launcher, when its end of the socket is closed. */
static _Noreturn void run_maker(struct launcher *launcher, int socket)
{
    struct delivery delivery;
    struct kit kit;

    (void)prctl(PR_SET_NAME, "sandglass-maker");
    close(launcher->socket);
    close(launcher->epoll);
    leases_forget(&launcher->slots.leases);
    /* Roots are assembled where no sandbox sees it. */
    if (unshare(CLONE_NEWNS) < 0)
        _exit(1);
    while (recv(socket, &delivery, sizeof(delivery), 0) == sizeof(delivery)) {
        kit_init(&kit);
        if (delivery.slot == SLOTS_NONE)
            (void)remove_content(launcher->state.trash);
        else
            make_ordered(launcher, &delivery, &kit);
        if (send_delivery(socket, &delivery, &kit) < 0)
            break;
        if (delivery.made)
            kit.name[0] = kit.folder.name[0] = '\0'; /* these are the launcher's now */
        kit.slot = SLOTS_NONE;
        kit_drop(launcher, &kit);
    }
    _exit(0);
}

static void start_maker(struct launcher *launcher)
{
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = &launcher->kits };
    int pair[2];
    pid_t child;

    launcher->kits.maker = -1;
    if (!launcher->host.native || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return;
    child = fork();
    if (child == 0) {
        close(pair[0]);
        run_maker(launcher, pair[1]);
    }
    close(pair[1]);
    if (child < 0 || epoll_ctl(launcher->epoll, EPOLL_CTL_ADD, pair[0], &event) < 0) {
        close(pair[0]);
        return;
    }
    launcher->kits.maker = pair[0];
}

/* --- the launcher's end --------------------------------------------------------------------- */

void kits_open(struct launcher *launcher, unsigned wanted)
{
    const uint64_t gigabyte = (uint64_t)1 << 30;

    cgroups_sweep(&launcher->cgroups, "kit-");
    folders_sweep(launcher);
    launcher->kits.wanted = wanted < KITS_MAX ? wanted : KITS_MAX;
    launcher->kits.limits = (struct launch_limits){
        .memory_bytes = 2 * gigabyte, .disk_bytes = 4 * gigabyte, .cpu_millis = 1000, .pids = 256
    };
    launcher->kits.maker = -1;
}

void kits_start(struct launcher *launcher)
{
    const struct host *host = &launcher->host;

    if (launcher->root && host->template_count > 0)
        memcpy(launcher->kits.template_name, host->templates[0].name,
               sizeof(launcher->kits.template_name));
    start_maker(launcher);
}

static void lose_maker(struct launcher *launcher)
{
    (void)epoll_ctl(launcher->epoll, EPOLL_CTL_DEL, launcher->kits.maker, NULL);
    close(launcher->kits.maker);
    launcher->kits.maker = -1;
    launcher->kits.ordered = 0;
    launcher->kits.sweeping = false;
}

void kits_close(struct launcher *launcher)
{
    struct kits *kits = &launcher->kits;

    /* What is on its way is waited for: its groups have to go too. */
    while (kits->maker >= 0 && (kits->ordered > 0 || kits->sweeping))
        kits_receive(launcher);
    if (kits->maker >= 0)
        lose_maker(launcher);
    while (kits->count > 0)
        kit_drop(launcher, &kits->items[--kits->count]);
}

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void order(struct launcher *launcher)
{
    struct kits *kits = &launcher->kits;

    while (kits->count + kits->ordered < kits->wanted) {
        struct delivery order = { .slot = slots_take(&launcher->slots), .limits = kits->limits };

        memcpy(order.template_name, kits->template_name, sizeof(order.template_name));
        if (order.slot == SLOTS_NONE)
            return;
        if (send(kits->maker, &order, sizeof(order), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
            slots_release(&launcher->slots, (uint32_t)order.slot);
            return;
        }
        kits->slots[kits->ordered++] = order.slot;
    }
}

int kits_turn(struct launcher *launcher)
{
    struct kits *kits = &launcher->kits;
    unsigned there = kits->count + kits->ordered;
    int64_t left_ms;

    if (kits->maker < 0 || !launcher->sealed || there >= kits->wanted)
        return -1;
    left_ms = kits->due_ms - now_ms();
    if (there > kits->wanted / 2 && left_ms > 0)
        return (int)left_ms;
    order(launcher);
    return -1;
}

bool kits_sweep(struct launcher *launcher)
{
    struct kits *kits = &launcher->kits;
    struct delivery order = { .slot = SLOTS_NONE };

    if (kits->maker < 0)
        return false;
    kits->swept_late = kits->sweeping;
    if (!kits->sweeping)
        kits->sweeping = send(kits->maker, &order, sizeof(order), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
    return kits->sweeping;
}

static bool same_groups(const struct launch_limits *a, const struct launch_limits *b)
{
    return a->memory_bytes == b->memory_bytes && a->cpu_millis == b->cpu_millis &&
           a->pids == b->pids;
}

static void store(struct launcher *launcher, const struct delivery *delivery, const int *fds)
{
    struct kits *kits = &launcher->kits;
    struct kit *kit = &kits->items[kits->count];
    int placed[KIT_FDS];
    struct fail ignored;

    for (size_t i = 0; i < KIT_FDS; i++)
        placed[i] = delivery->parts[i] ? *fds++ : -1;
    kit_init(kit);
    spread_fds(kit, placed);
    memcpy(kit->folder.name, delivery->folder, sizeof(kit->folder.name));
    memcpy(kit->template_name, delivery->template_name, sizeof(kit->template_name));
    kit->limits = delivery->limits;
    kit->slot = delivery->slot;
    set_name(launcher, kit);
    /* The limits may have changed since it was ordered. */
    if (!delivery->made ||
        (*kit->name && !same_groups(&delivery->limits, &kits->limits) &&
         cgroups_limit(&launcher->cgroups, kit->name, &kits->limits, &ignored) < 0)) {
        /* The next creation makes its own and tells why that fails; no more are ordered. */
        kits->wanted = 0;
        kit_drop(launcher, kit);
        return;
    }
    kits->count++;
}

void kits_receive(struct launcher *launcher)
{
    struct kits *kits = &launcher->kits;
    char control[CMSG_SPACE(sizeof(int) * KIT_FDS)] = { 0 };
    struct delivery delivery;
    struct iovec part = { .iov_base = &delivery, .iov_len = sizeof(delivery) };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
    };
    int fds[KIT_FDS] = { 0 };
    struct cmsghdr *header;

    if (recvmsg(kits->maker, &message, MSG_CMSG_CLOEXEC) != sizeof(delivery)) {
        lose_maker(launcher);
        return;
    }
    header = CMSG_FIRSTHDR(&message);
    if (header)
        memcpy(fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
    if (delivery.slot == SLOTS_NONE) {
        kits->sweeping = false;
        if (kits->swept_late)
            (void)kits_sweep(launcher);
        return;
    }
    memmove(&kits->slots[0], &kits->slots[1], sizeof(kits->slots[0]) * --kits->ordered);
    store(launcher, &delivery, fds);
}

bool kit_root_fits(const struct launcher *launcher, const struct kit *kit,
                   const struct template *template, const struct launch_create *create)
{
    return kit->root >= 0 && !template->imported && create->network == LAUNCH_NETWORK_NONE &&
           strcmp(kit->template_name, template->name) == 0 &&
           !disk_is_wanted(launcher, &create->limits) &&
           kit->limits.disk_bytes == create->limits.disk_bytes &&
           kit->limits.memory_bytes == create->limits.memory_bytes;
}

void kits_mark(struct launcher *launcher)
{
    for (unsigned i = 0; i < launcher->kits.count; i++)
        slots_mark(&launcher->slots, (uint32_t)launcher->kits.items[i].slot);
    for (unsigned i = 0; i < launcher->kits.ordered; i++)
        slots_mark(&launcher->slots, (uint32_t)launcher->kits.slots[i]);
}

/* Gives the groups of the kit their name and limits, or makes them now. */
static int settle_groups(struct launcher *launcher, struct kit *kit, const char *id,
                         const struct launch_limits *limits, bool current, struct fail *fail)
{
    if (!*kit->name)
        return cgroups_make(&launcher->cgroups, id, limits, &kit->cgroup, fail);
    if (cgroups_rename(&launcher->cgroups, kit->name, id, fail) < 0)
        return -1;
    kit->name[0] = '\0';
    return current ? 0 : cgroups_limit(&launcher->cgroups, id, limits, fail);
}

int kit_take(struct launcher *launcher, const char *id, const struct launch_limits *limits,
             struct kit *out_kit, struct fail *fail)
{
    struct kits *kits = &launcher->kits;
    bool current = same_groups(&kits->limits, limits);

    kits->due_ms = now_ms() + REFILL_MS;
    if (kits->count > 0) {
        *out_kit = kits->items[0];
        memmove(&kits->items[0], &kits->items[1], sizeof(kits->items[0]) * --kits->count);
    } else if (make_now(launcher, out_kit, fail) < 0) {
        kit_drop(launcher, out_kit);
        return -1;
    }
    if (folder_rename(launcher, &out_kit->folder, id, fail) < 0 ||
        settle_groups(launcher, out_kit, id, limits, current, fail) < 0) {
        kit_drop(launcher, out_kit);
        return -1;
    }
    kits->limits.disk_bytes = limits->disk_bytes;
    kits->limits.image = limits->image;
    /* Those that wait were made for the limits that were asked for before. */
    if (!current) {
        kits->limits = *limits;
        for (unsigned i = 0; i < kits->count; i++) {
            struct fail ignored;

            if (*kits->items[i].name)
                (void)cgroups_limit(&launcher->cgroups, kits->items[i].name, limits, &ignored);
        }
    }
    return 0;
}
