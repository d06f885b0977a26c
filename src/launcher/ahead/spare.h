#pragma once

/*
 * Spares: what a native sandbox needs and what does not depend on whose it is, made ahead. A slot
 * with its user namespace, a network namespace, the root of the first template, mounted nowhere
 * yet, and what only has to be renamed: its directory, and on v1 a set of cgroups.
 *
 * A root is used once. The rest comes back when its sandbox is dead, because the kernel takes
 * longer to make and to remove namespaces and cgroups than to run a program, and is used again when
 * nothing of that sandbox is left: see spare_complete().
 *
 * They are completed by a child of the launcher, the builder, so that a request never waits for one
 * that is being made.
 */

#include "launcher/ahead/directory.h"
#include "launcher/cgroup/cgroup.h"
#include "launcher/fail.h"
#include "wire/mark.h"

#include <stdbool.h>
#include <stdint.h>

enum { SPARES_MAX = 64 };

struct cache_entry;
struct launcher;
struct template;

struct spare {
    int slot;
    int userns;                           /* owned */
    int netns;                            /* owned */
    struct cgroup_entry cgroup;           /* owned */
    struct directory directory;           /* owned */
    char cgroup_name[CGROUP_NAME_SIZE];   /* name of its cgroups; "" without */
    int root;                             /* owned: mounts that are attached nowhere; -1 without */
    char template_name[LAUNCH_NAME_SIZE]; /* of the root */
    struct launch_limits limits;          /* of its cgroups, and how large the root is */
    bool is_used;                         /* it has been a sandbox's */
    uint64_t stamp;                       /* by which the builder knows it again; 0: not */
};

/* What the sandbox of a slot was given, to know it again; all zero when we did not make it. */
struct issued {
    uint64_t userns, netns; /* inodes */
    uint64_t socket;        /* cookie */
    uint64_t stamp;         /* of the spare */
};

struct spares {
    struct spare items[SPARES_MAX];
    unsigned count;
    unsigned wanted;
    struct spare reclaimed[SPARES_MAX]; /* used ones, to be completed again, oldest first */
    unsigned reclaimed_count;
    unsigned reclaiming;                  /* on their way back */
    unsigned ordered;                     /* the builder has yet to deliver these */
    int ordered_slots[SPARES_MAX];        /* of what is ordered, oldest first */
    struct issued *issued;                /* owned: by slot */
    bool sweeping;                        /* the builder has been asked to empty the trash */
    int64_t trash_since_ms;               /* what it has not been asked for yet; 0: none */
    struct launch_limits limits;          /* of their cgroups: those that were asked for last */
    char template_name[LAUNCH_NAME_SIZE]; /* of their roots; "" for none */
    int builder;                          /* owned: its socket; -1 without one */
    int builder_pidfd;                    /* owned; -1 without one */
    int64_t due_ms;    /* until then what is missing may wait, unless it is much */
    int64_t again_ms;  /* after a failure: until then nothing is ordered, and no builder started */
    unsigned failures; /* in a row */
};

/* --- one spare -------------------------------------------------------------------------------- */

void spare_init(struct spare *spare);

/* Closes descriptors and leaves names. */
void spare_close(struct spare *spare);

/* All of it, its slot included. */
void spare_drop(struct launcher *launcher, struct spare *spare);

void spare_name_cgroup(const struct launcher *launcher, struct spare *spare);

/* Makes what the spare of this slot lacks, but its root. What a sandbox has used is looked at first,
 * and made anew when anything of it is left: a network namespace that has carried a packet or holds
 * a socket; cgroups with a member, with memory that is not free yet, or with a count that cannot be
 * set back. Ids, and with them the user namespace, have nothing to leave when all processes are
 * dead and all mounts are gone: no capability and no call that would change it is allowed inside.
 * What is kept of it for the next time may be empty. */
int spare_complete(struct launcher *launcher, struct spare *spare,
                   const struct launch_limits *limits, struct cache_entry *entry,
                   struct fail *fail);

/* --- the stock ------------------------------------------------------------------------------ */

/* Removes what an earlier launcher has left. */
void spares_open(struct launcher *launcher, unsigned wanted);

/* All templates of the settings are there: the next turn starts the builder. */
void spares_start(struct launcher *launcher);
void spares_close(struct launcher *launcher);

/* Orders what is missing: the half of it at once, the rest when nobody has asked for a while,
 * because making one takes the processor from the sandbox that has just been made. When that fails,
 * or the builder has died, it is told once, and tried again a second later, two, and so on up to a
 * minute. Returns how long
 * the loop may wait, in ms, -1 for ever. */
int spares_turn(struct launcher *launcher);

/* Has the builder empty the trash, which is small, in a lull or after a second. False without a
 * builder.
 */
bool spares_sweep(struct launcher *launcher);

/* What is missing may wait again until nobody has asked for a while. */
void spares_wait_for_lull(struct spares *spares);

/* The builder's socket is readable. */
void spares_receive(struct launcher *launcher);

/* A spare made ahead, or a new one. The receiver owns it; its directory and its cgroups have the name,
 * and the cgroups the limits, that are given. EEXIST when there is a sandbox of that id; what any
 * other failure leaves under the id is for destroy. */
int spare_take(struct launcher *launcher, const char *id, const struct launch_limits *limits,
               struct spare *out_spare, struct fail *fail);

/* Whether its root is what is asked for. */
bool spare_root_fits(const struct launcher *launcher, const struct spare *spare,
                     const struct template *template, const struct launch_create *create);

/* In a child, for which they are not. */
void spares_close_fds(struct launcher *launcher);

/* Marks the slots of all spares, and of those that are ordered, as taken. */
void spares_mark(struct launcher *launcher);

/* --- coming back ---------------------------------------------------------------------------- */

/* Before a sandbox dies: gets hold of what it was given, through its init. False when it is not to
 * be used again, or is not what it was given. */
bool spare_reclaim_begin(struct launcher *launcher, const struct mark *mark, int pidfd,
                         struct spare *out_spare);

/* It will not be reclaiming: its cgroups may be frozen when it dies, or have limits that the mark does
 * not tell. */
void spare_pin(struct launcher *launcher, const struct mark *mark);

/* When all of it is dead: takes its cgroups and its directory. False when that is not possible: the
 * sandbox is to be removed then, and what was reclaiming is forgotten. */
bool spare_reclaim_finish(struct launcher *launcher, const char *id, struct spare *spare);

/* It does not come back: the cgroups have the sandbox's id again. */
void spare_reclaim_cancel(struct launcher *launcher, const char *id, struct spare *spare);
