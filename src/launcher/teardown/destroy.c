/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/teardown/destroy.h"

#include "launcher/direct/kill.h"
#include "launcher/direct/shared.h"
#include "launcher/namespaces.h"
#include "launcher/sys.h"
#include "launcher/walls/disk.h"
#include "launcher/walls/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>

enum { RETRY_MS = 2, GIVE_UP_MS = 4000 };

struct waiter {
    struct waiter *next;
    struct launch_header request;
};

struct destroy {
    struct destroy *next;
    struct destroy *previous;
    struct destroy *next_retry; /* while its remains are busy */
    struct waiter *waiters;     /* owned */
    char id[LAUNCH_ID_SIZE];
    struct mark mark;             /* zero when it could not be read */
    int pidfd;                    /* owned; -1 once it is dead */
    struct spare spare;           /* the parts to reclaim; no slot: none */
    struct teardown_job teardown; /* owned: removed later, so that the destroy does not wait */
    bool is_told;                 /* the death was reported; the rest is the launcher's own work */
    int64_t deadline_ms;
};

static void add_waiter(struct destroy *destroy, const struct launch_header *request)
{
    struct waiter *waiter;

    if (!request)
        return;
    waiter = calloc(1, sizeof(*waiter));
    if (!waiter)
        abort();
    waiter->request = *request;
    waiter->next = destroy->waiters;
    destroy->waiters = waiter;
    if (destroy->is_told)
        destroy->deadline_ms = sys_now_ms() + GIVE_UP_MS;
    destroy->is_told = false;
}

static void stop_watching(struct destroys *destroys, struct destroy *destroy)
{
    if (destroy->pidfd < 0)
        return;
    (void)epoll_ctl(destroys->epoll, EPOLL_CTL_DEL, destroy->pidfd, NULL);
    close(destroy->pidfd);
    destroy->pidfd = -1;
}

static void answer(struct destroys *destroys, struct destroy *destroy, int error, const char *step)
{
    while (destroy->waiters) {
        struct waiter *waiter = destroy->waiters;
        struct launch_reply reply = { .header = waiter->request, .error = error };

        destroy->waiters = waiter->next;
        if (step)
            strncpy(reply.step, step, sizeof(reply.step) - 1);
        destroys->reply(destroys->user, &reply);
        free(waiter);
    }
}

static void finish(struct destroys *destroys, struct destroy *destroy, int error, const char *step)
{
    if (destroy->previous)
        destroy->previous->next = destroy->next;
    else
        destroys->first = destroy->next;
    if (destroy->next)
        destroy->next->previous = destroy->previous;
    stop_watching(destroys, destroy);
    spare_reclaim_cancel(destroys->spares, destroy->id, &destroy->spare);
    answer(destroys, destroy, error, step);
    teardown_process_take(destroys->process, &destroy->teardown);
    free(destroy);
}

/* All processes of a native sandbox are dead with its first one: its cgroups are renamed here, and
 * removed by the teardown process. */
static int discard_cgroups(struct destroys *destroys, struct destroy *destroy)
{
    struct cgroups *cgroups = destroys->cgroups;
    char *name = destroy->teardown.cgroup_name;
    struct fail ignored;

    if (!*name && destroy->mark.mode == LAUNCH_NATIVE && destroy->mark.pid > 0 &&
        cgroups_can_rename(cgroups)) {
        snprintf(name, CGROUP_NAME_SIZE, CGROUP_SPARE_PREFIX "%d-x%u", destroys->context->pid,
                 destroys->discarded++);
        if (cgroups_rename(cgroups, destroy->id, name, &ignored) == 0)
            return 0;
    }
    return cgroups_remove(cgroups, destroy->id);
}

/* All processes are dead: removes cgroups and files. True when the sandbox is gone. */
static bool clean(struct destroys *destroys, struct destroy *destroy, const char **out_step)
{
    bool native = destroy->mark.mode == LAUNCH_NATIVE;
    int trash;

    /* Processes that its init leaves behind become our children, and are found until they are
     * reaped. */
    if (!native)
        destroys->reap(destroys->user);
    if (!native &&
        kill_stragglers(destroys->context, destroys->cgroups, &destroy->mark, destroy->id) > 0) {
        *out_step = "wait for its processes to die";
        return false;
    }
    if (!native && kill_has_own_uid(destroys->context, &destroy->mark))
        shared_remove(destroys->host->mounts, destroy->mark.uid);
    if (spare_reclaim_finish(destroys->spares, destroy->id, &destroy->spare)) {
        host_leave_template(destroys->host, &destroy->mark);
        return true;
    }
    if (discard_cgroups(destroys, destroy) < 0) {
        *out_step = "remove cgroup";
        return false;
    }
    host_leave_template(destroys->host, &destroy->mark);
    trash = state_discard(&destroys->context->state, destroy->id, destroys->trash_number++);
    if (trash < 0) {
        *out_step = "discard files";
        return false;
    }
    /* A native one leaves two small files. The ids of a direct one own files in the trash, and are
     * free again when those are gone. */
    if (trash > 0 && !(native && spares_sweep(destroys->spares)))
        trash_start(destroys->trash);
    if (native)
        uid_ranges_release(destroys->uid_ranges, destroy->mark.slot);
    return true;
}

/* All processes of a sandbox die with its first one, and the daemon waits for no more, so it gets
 * its answer now. A sandbox with an imported template answers later, after the template is
 * released. The daemon does not ask again after the answer: the mark is cleared first, which makes
 * the rest the work of this launcher or of the next one. */
static void note_death(struct destroys *destroys, struct destroy *destroy)
{
    siginfo_t info;

    if (destroy->spare.slot != UID_RANGE_NONE && !*destroy->mark.template_name &&
        mark_clear(destroy->spare.directory.mark) == 0) {
        answer(destroys, destroy, 0, NULL);
        destroy->is_told = true;
    }
    /* Reaps our own child; a sandbox of an earlier launcher has another parent. */
    (void)waitid(P_PIDFD, (id_t)destroy->pidfd, &info, WEXITED | WNOHANG);
    stop_watching(destroys, destroy);
}

static void go_on(struct destroys *destroys, struct destroy *destroy)
{
    const char *step = "wait for init to die";

    if (destroy->pidfd >= 0 && sys_pidfd_is_dead(destroy->pidfd))
        note_death(destroys, destroy);
    if (destroy->pidfd < 0 && clean(destroys, destroy, &step)) {
        finish(destroys, destroy, 0, NULL);
        return;
    }
    if (sys_now_ms() >= destroy->deadline_ms && !destroy->is_told) {
        finish(destroys, destroy, EBUSY, step);
    } else if (destroy->pidfd < 0) {
        destroy->next_retry = destroys->retries;
        destroys->retries = destroy;
    }
}

static void watch_death(struct destroys *destroys, struct destroy *destroy)
{
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = destroy };

    if (!sys_pidfd_is_dead(destroy->pidfd))
        (void)epoll_ctl(destroys->epoll, EPOLL_CTL_ADD, destroy->pidfd, &event);
}

/* Before the sandbox dies, because its end would wait for the writes. */
static void abandon_disk(struct destroys *destroys, const struct mark *mark)
{
    char path[48];
    int store;

    if (!disk_is_wanted(destroys->disks, &mark->limits))
        return;
    snprintf(path, sizeof(path), "%d/root/dev/shm", (int)mark->pid);
    store = openat(destroys->context->state.proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store < 0)
        return;
    disk_abandon(store);
    close(store);
}

/* Only kills, so that the dying processes get the processor: directory and cgroups are reclaimed
 * when the sandbox is dead. */
static void kill_native(struct destroys *destroys, struct destroy *destroy)
{
    const struct mark *mark = &destroy->mark;

    destroy->teardown.mounts = namespace_of_process(destroys->context->state.proc, mark->pid,
                                                    destroy->pidfd, LAUNCH_NS_MNT);
    /* A network with an interface on the host is removed at once, not by the teardown process. */
    if (!spare_reclaim_begin(destroys->spares, mark, destroy->pidfd, &destroy->spare) &&
        mark->network == LAUNCH_NETWORK_NONE)
        destroy->teardown.netns = namespace_of_process(destroys->context->state.proc, mark->pid,
                                                       destroy->pidfd, LAUNCH_NS_NET);
    abandon_disk(destroys, mark);
    kill_init(destroys->context, destroy->pidfd);
}

static void kill_all(struct destroys *destroys, struct destroy *destroy)
{
    const struct mark *mark = &destroy->mark;
    struct fail ignored;

    if (destroy->pidfd < 0)
        destroy->pidfd = state_open_process(&destroys->context->state, mark->pid, mark->start_time);
    if (destroy->pidfd >= 0 && mark->mode == LAUNCH_NATIVE)
        kill_native(destroys, destroy);
    else
        kill_tree(destroys->context, destroys->cgroups, mark, destroy->pidfd, destroy->id);
    /* Members of a frozen v1 cgroup die only when it is thawed. A sandbox whose spare is
     * reclaimed was never frozen. */
    if (destroy->spare.slot == UID_RANGE_NONE)
        (void)cgroups_freeze(destroys->cgroups, destroy->id, false, &ignored);
    if (destroy->pidfd >= 0)
        watch_death(destroys, destroy);
}

static bool read_mark_of(struct destroys *destroys, const char *id, struct mark *mark,
                         bool *foreign)
{
    int dir = state_open_sandbox(&destroys->context->state, id);

    if (dir < 0)
        return false;
    if (mark_read(dir, mark) < 0)
        *mark = (struct mark){ 0 };
    else
        *foreign = !mark_is_ours(&destroys->context->state, mark, id);
    close(dir);
    return true;
}

void destroy_start(struct destroys *destroys, const char *id, const struct launch_header *request)
{
    struct destroy *destroy;
    bool foreign = false;

    for (destroy = destroys->first; destroy; destroy = destroy->next) {
        if (strcmp(destroy->id, id) == 0) {
            add_waiter(destroy, request);
            return;
        }
    }
    destroy = calloc(1, sizeof(*destroy));
    if (!destroy)
        abort();
    destroy->pidfd = destroy->teardown.mounts = destroy->teardown.netns = -1;
    spare_init(&destroy->spare);
    destroy->deadline_ms = sys_now_ms() + GIVE_UP_MS;
    memcpy(destroy->id, id, sizeof(destroy->id));
    destroy->next = destroys->first;
    if (destroy->next)
        destroy->next->previous = destroy;
    destroys->first = destroy;
    add_waiter(destroy, request);
    if (!mark_cache_take(destroys->marks, id, &destroy->mark, &destroy->pidfd))
        (void)read_mark_of(destroys, id, &destroy->mark, &foreign);
    if (foreign) {
        finish(destroys, destroy, EPERM, "sandbox belongs to another instance");
        return;
    }
    kill_all(destroys, destroy);
    go_on(destroys, destroy);
}

static void resume_one(void *user, const char *id)
{
    struct destroys *destroys = user;
    int dir = state_open_sandbox(&destroys->context->state, id);
    bool is_blank = dir >= 0 && mark_is_blank(dir);

    if (dir >= 0)
        close(dir);
    if (is_blank)
        destroy_start(destroys, id, NULL);
}

void destroys_resume(struct destroys *destroys)
{
    (void)state_each(&destroys->context->state, resume_one, destroys);
}

void destroys_mark(const struct destroys *destroys)
{
    for (const struct destroy *destroy = destroys->first; destroy; destroy = destroy->next) {
        if (destroy->is_told)
            uid_ranges_mark(destroys->uid_ranges, destroy->mark.slot);
    }
}

void destroy_on_death(struct destroys *destroys, struct destroy *destroy)
{
    go_on(destroys, destroy);
}

/* A death is reported by its descriptor: for the rest only deadlines are checked, and not every
 * time, because there may be thousands. */
static void check_deadlines(struct destroys *destroys, int64_t now)
{
    struct destroy *following;

    if (now < destroys->next_deadline_check_ms)
        return;
    destroys->next_deadline_check_ms = now + GIVE_UP_MS / 8;
    for (struct destroy *destroy = destroys->first; destroy; destroy = following) {
        following = destroy->next;
        if (destroy->pidfd >= 0 && now >= destroy->deadline_ms)
            go_on(destroys, destroy);
    }
}

int destroys_turn(struct destroys *destroys)
{
    struct destroy *retries;
    struct destroy *following;
    int64_t now = sys_now_ms();

    if (!destroys->first)
        return -1;
    check_deadlines(destroys, now);
    retries = destroys->retries; /* with those whose death is noticed only now */
    destroys->retries = NULL;
    for (struct destroy *destroy = retries; destroy; destroy = following) {
        following = destroy->next_retry;
        go_on(destroys, destroy);
    }
    for (const struct destroy *destroy = destroys->retries; destroy;
         destroy = destroy->next_retry) {
        if (now < destroy->deadline_ms)
            return RETRY_MS;
    }
    return destroys->first ? GIVE_UP_MS / 8 : -1;
}

void destroys_close(struct destroys *destroys)
{
    for (struct destroy *destroy = destroys->first; destroy; destroy = destroy->next)
        spare_reclaim_cancel(destroys->spares, destroy->id, &destroy->spare);
}

void destroys_close_fds(struct destroys *destroys)
{
    for (struct destroy *destroy = destroys->first; destroy; destroy = destroy->next) {
        spare_close(&destroy->spare);
        if (destroy->pidfd >= 0)
            close(destroy->pidfd);
        if (destroy->teardown.mounts >= 0)
            close(destroy->teardown.mounts);
        if (destroy->teardown.netns >= 0)
            close(destroy->teardown.netns);
    }
    destroys->first = NULL;
}
