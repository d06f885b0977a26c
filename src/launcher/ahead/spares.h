#pragma once

/*
 * The stock of spares: those that wait for a sandbox, those that are ordered from the builder, and those
 * that were reclaimed from dead sandboxes.
 */

#include "launcher/ahead/builder.h"
#include "launcher/ahead/spare.h"
#include "wire/mark.h"

#include <stdbool.h>
#include <stdint.h>

enum { SPARES_MAX = 64 };

struct disks;
struct template;

/* What the stock needs of the rest of the launcher; all borrowed. */
struct spares_parts {
    struct builder_parts builder;
    int epoll;                                           /* where the builder's socket is watched */
    void (*report)(void *user, const struct fail *fail); /* for the daemon's log */
};

/* What was issued to the sandbox of a slot, to recognise it; all zero for a sandbox of an earlier
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

static inline const struct spare_parts *spares_parts_of(const struct spares *spares)
{
    return &spares->parts.builder.spare;
}

/* Removes what an earlier launcher has left. */
void spares_open(struct spares *spares, const struct spares_parts *parts, unsigned wanted);

/* All templates of the settings are there: the next turn starts the builder. Roots are made of the
 * template of this name, "" for none. */
void spares_start(struct spares *spares, const char *template_name);
void spares_close(struct spares *spares);

/* Orders what is missing: half of it at once, the rest in a lull, because building takes the processor
 * from the sandbox that has just been made. A failure, or the death of the builder, is reported once and
 * tried again after a second, two, and so on up to a minute. Returns how long the loop may wait, in ms,
 * -1 without a limit. */
int spares_turn(struct spares *spares);

/* Has the builder empty the trash, which is small, in a lull or after a second. False without a
 * builder. */
bool spares_sweep(struct spares *spares);

/* Starts the wait for a lull again: a request has come. */
void spares_wait_for_lull(struct spares *spares);

/* The builder's socket is readable. */
void spares_receive(struct spares *spares);

/* A spare made ahead, or a new one. The receiver owns it; its directory and its cgroups have the given
 * name, and the cgroups the given limits. EEXIST when there is a sandbox of that id; whatever another
 * failure leaves under the id is for destroy. */
int spare_take(struct spares *spares, const char *id, const struct launch_limits *limits,
               struct spare *out_spare, struct fail *fail);

/* Whether its root fits the request. */
bool spare_root_fits(const struct disks *disks, const struct spare *spare,
                     const struct template *template, const struct launch_create *create);

/* In a child of the launcher: closes the descriptors of the stock. */
void spares_close_fds(struct spares *spares);

/* Marks the slots of all spares, and of those that are ordered, as taken. */
void spares_mark(const struct spares *spares);

/* --- reclaiming ------------------------------------------------------------------------------ */

/* Before a sandbox dies: opens what was issued to it, through its init. False when it is not to be used
 * again, or is not what was issued. */
bool spare_reclaim_begin(struct spares *spares, const struct mark *mark, int pidfd,
                         struct spare *out_spare);

/* Keeps what the sandbox has from being reclaimed: its cgroups may be frozen when it dies, or have limits
 * that its mark does not have. */
void spare_pin(struct spares *spares, const struct mark *mark);

/* When the sandbox is dead: takes its cgroups and its directory. False when that fails: reclaiming is
 * cancelled, and the sandbox is to be removed. */
bool spare_reclaim_finish(struct spares *spares, const char *id, struct spare *spare);

/* Gives the cgroups the id of the sandbox again and forgets the rest. */
void spare_reclaim_cancel(struct spares *spares, const char *id, struct spare *spare);
