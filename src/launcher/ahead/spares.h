/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The stock of spares: complete ones, ones that the builder has yet to deliver, and ones reclaimed
 * from dead sandboxes.
 */

#include "launcher/ahead/builder.h"
#include "launcher/ahead/spare.h"
#include "wire/mark.h"

#include <stdbool.h>
#include <stdint.h>

enum { SPARES_MAX = 64 };

struct disks;
struct template;

/* The parts of the launcher that the stock uses; all borrowed. */
struct spares_parts {
    struct builder_parts builder;
    int epoll;                                           /* where the builder's socket is watched */
    void (*report)(void *user, const struct fail *fail); /* for the daemon's log */
};

/* The identity of the parts issued to the sandbox of a slot; all zero for a sandbox of an earlier
 * launcher. */
struct issued {
    uint64_t userns, netns; /* inodes */
    uint64_t socket;        /* cookie */
    uint64_t stamp;         /* of the spare */
};

struct spares {
    struct spares_parts parts;
    struct spare items[SPARES_MAX];
    unsigned count;
    unsigned wanted;
    bool is_started;
    struct spare reclaimed[SPARES_MAX]; /* used ones, to be completed again, oldest first */
    unsigned reclaimed_count;
    unsigned reclaiming;                  /* spares of dying sandboxes */
    unsigned ordered;                     /* the builder has yet to deliver these */
    int ordered_slots[SPARES_MAX];        /* of ordered spares, oldest first */
    struct issued *issued;                /* owned: by slot */
    bool sweeping;                        /* the builder has been asked to empty the trash */
    int64_t trash_since_ms;               /* trash that is not ordered to be emptied; 0: none */
    struct launch_limits limits;          /* of their cgroups: those of the last request */
    char template_name[LAUNCH_NAME_SIZE]; /* of their roots; "" for none */
    int builder;                          /* owned: its socket; -1 without one */
    int builder_pidfd;                    /* owned; -1 without one */
    int64_t due_ms;                       /* until then only half of the stock is refilled */
    int64_t again_ms;  /* after a failure: until then nothing is ordered, and no builder started */
    unsigned failures; /* in a row */
};

static inline const struct spare_parts *spares_parts_of(const struct spares *spares)
{
    return &spares->parts.builder.spare;
}

/* Removes the spares of an earlier launcher. */
void spares_open(struct spares *spares, const struct spares_parts *parts, unsigned wanted);

/* All templates of the settings are there: the next turn starts the builder. Roots are made of the
 * template of this name, "" for none. */
void spares_start(struct spares *spares, const char *template_name);
void spares_close(struct spares *spares);

/* Orders missing spares: up to half of the stock at once, the rest in a lull, because building
 * competes with the sandbox that has just been made for the processor. A failure, or the death of
 * the builder, is reported once and retried after a second, two, and so on up to a minute. Returns
 * how long the loop may wait, in ms, -1 without a limit. */
int spares_turn(struct spares *spares);

/* Has the builder empty the trash, which is small, in a lull or after a second. False without a
 * builder. */
bool spares_sweep(struct spares *spares);

/* Starts the wait for a lull again: a request has come. */
void spares_wait_for_lull(struct spares *spares);

/* The builder's socket is readable. */
void spares_receive(struct spares *spares);

/* A spare made ahead, or a new one. The receiver owns it; its directory and its cgroups have the
 * given name, and the cgroups the given limits. EEXIST when there is a sandbox of that id; after
 * any other failure destroy removes the remains of the id. */
int spare_take(struct spares *spares, const char *id, const struct launch_limits *limits,
               struct spare *out_spare, struct fail *fail);

/* Whether the root of the spare fits the request. */
bool spare_root_fits(const struct disks *disks, const struct spare *spare,
                     const struct template *template, const struct launch_create *create);

/* In a child of the launcher: closes the descriptors of the stock. */
void spares_close_fds(struct spares *spares);

/* Marks the slots of all spares, ordered ones included, as taken. */
void spares_mark(const struct spares *spares);

/* --- reclaiming ------------------------------------------------------------------------------ */

/* Before a sandbox dies: opens its issued parts through its init. False when they are not to be
 * reclaimed, or are not the issued ones. */
bool spare_reclaim_begin(struct spares *spares, const struct mark *mark, int pidfd,
                         struct spare *out_spare);

/* Prevents the reclaiming of the sandbox's parts: its cgroups may be frozen when it dies, or have
 * limits that differ from its mark. */
void spare_pin(struct spares *spares, const struct mark *mark);

/* When the sandbox is dead: takes its cgroups and its directory. False when that fails: reclaiming is
 * cancelled, and the sandbox is to be removed. */
bool spare_reclaim_finish(struct spares *spares, const char *id, struct spare *spare);

/* Gives the cgroups the id of the sandbox again and forgets the rest. */
void spare_reclaim_cancel(struct spares *spares, const char *id, struct spare *spare);
