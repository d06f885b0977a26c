/* SPDX-License-Identifier: Apache-2.0 */
/* The walls alone, see bare.h. One process puts up and takes down all of them. */

#include "bare.h"
#include "peers.h"

#include "launcher/sys.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum {
    SLOTS = 128,
    STACK_SIZE = 64 << 10,
    NAMESPACES = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS
};

static struct bare_host host;
static struct bare_slot slots[SLOTS];
static unsigned slot_count;
static unsigned free_slots[SLOTS];
static unsigned free_count;
static pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;

static void close_all(void)
{
    while (slot_count > 0) {
        slot_count--;
        bare_slot_drop(&slots[slot_count], slot_count);
    }
    bare_close(&host);
}

int bare_prepare(const char *tools, unsigned count, struct error *err)
{
    atexit(close_all);
    if (bare_open(&host, tools, err) < 0)
        return -1;
    while (slot_count < MIN(count, (unsigned)SLOTS)) {
        if (bare_slot_make(&slots[slot_count], slot_count, err) < 0)
            return -1;
        free_slots[free_count++] = slot_count++;
    }
    return 0;
}

static int take_slot(void)
{
    int slot;

    pthread_mutex_lock(&free_lock);
    slot = free_count > 0 ? (int)free_slots[--free_count] : -1;
    pthread_mutex_unlock(&free_lock);
    return slot;
}

static void give_slot(int slot)
{
    pthread_mutex_lock(&free_lock);
    free_slots[free_count++] = (unsigned)slot;
    pthread_mutex_unlock(&free_lock);
}

/* Where a sandbox is, as its name says it. */
struct place {
    int slot, channel, pidfd;
};

static struct place place_of(const struct bench_box *box)
{
    struct place place = { -1, -1, -1 };

    (void)sscanf(box->name, "%d %d %d", &place.slot, &place.channel, &place.pidfd);
    return place;
}

static int run_child(void *argument)
{
    bare_child(argument);
    _exit(127);
}

static int start(struct bare_start *start, int *out_pidfd, struct error *err)
{
    char stack[STACK_SIZE] __attribute__((aligned(16)));
    int pid = clone(run_child, stack + sizeof(stack),
                    (int)(NAMESPACES | CLONE_VM | CLONE_VFORK | SYS_CLONE_PIDFD | SIGCHLD), start,
                    out_pidfd);

    if (pid < 0)
        return error_sys(err, "clone");
    if (!start->step)
        return 0;
    (void)waitpid(pid, NULL, 0);
    close(*out_pidfd);
    errno = start->error_number;
    return error_sys(err, "%s", start->step);
}

static int bare_make(struct worker *worker UNUSED, struct bench_box *box, struct error *err)
{
    struct place place = { .slot = take_slot() };
    struct bare_start begin = { .host = &host };
    int channel[2], result;

    if (place.slot < 0)
        return error_set(err, ERR_BACKEND, "there are no more than %u bare sandboxes", slot_count);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel) < 0)
        return error_sys(err, "make a socket pair");
    begin.slot = &slots[place.slot];
    begin.channel = channel[1];
    result = start(&begin, &place.pidfd, err);
    close(channel[1]);
    if (result < 0) {
        close(channel[0]);
        give_slot(place.slot);
        return -1;
    }
    snprintf(box->name, sizeof(box->name), "%d %d %d", place.slot, channel[0], place.pidfd);
    return 0;
}

static int bare_run(struct worker *worker UNUSED, const struct bench_box *box,
                    const char *const *argv, struct error *err)
{
    struct place place = place_of(box);
    char words[1024];
    size_t length = 0;
    int status = -1;

    for (; *argv; argv++)
        length += (size_t)snprintf(words + length, sizeof(words) - length, "%s", *argv) + 1;
    if (send(place.channel, words, length, 0) < 0 ||
        recv(place.channel, &status, sizeof(status), 0) != sizeof(status))
        return error_sys(err, "ask the init of a bare sandbox");
    return status == 0 ? 0 : error_set(err, ERR_BACKEND, "the program ended with %d", status);
}

static int bare_destroy(struct worker *worker UNUSED, const struct bench_box *box,
                        struct error *err)
{
    struct place place = place_of(box);
    siginfo_t info;
    int result = 0;

    if (sys_pidfd_kill(place.pidfd, SIGKILL) < 0 ||
        waitid(P_PIDFD, (id_t)place.pidfd, &info, WEXITED) < 0)
        result = error_sys(err, "end a bare sandbox");
    close(place.pidfd);
    close(place.channel);
    give_slot(place.slot);
    return result;
}

static int bare_cycle(struct worker *worker, struct error *err)
{
    static const char *const argv[] = { "/bin/true", NULL };
    struct bench_box box = { 0 };
    int result;

    if (bare_make(worker, &box, err) < 0)
        return -1;
    result = bare_run(worker, &box, argv, err);
    return bare_destroy(worker, &box, err) < 0 ? -1 : result;
}

const struct subject_ops bare_ops = {
    .cycle = bare_cycle,
    .make = bare_make,
    .run = bare_run,
    .destroy = bare_destroy,
};
