#pragma once

/*
 * Kits: what a native sandbox needs and what does not depend on whose it is, made ahead while there
 * is nothing else to do. A slot with its user namespace, a network namespace, and on v1 a set of
 * control groups that only has to be renamed. Each is used once.
 */

#include "launcher/cgroup.h"
#include "launcher/fail.h"

#include <stdbool.h>
#include <stdint.h>

enum { KITS_MAX = 64, KIT_NAME_SIZE = 24 };

struct launcher;

struct kit {
    int slot;
    int userns;                 /* owned */
    int netns;                  /* owned */
    struct cgroup_entry cgroup; /* owned */
    char name[KIT_NAME_SIZE];   /* of its groups; "" without */
};

struct kits {
    struct kit items[KITS_MAX];
    unsigned count;
    unsigned wanted;
    struct launch_limits limits; /* of its groups: those that were asked for last */
    bool failed;                 /* the last attempt; the next creation will tell why */
};

/* Removes what an earlier launcher has left. */
void kits_open(struct launcher *launcher, unsigned wanted);
void kits_close(struct launcher *launcher);

/* Whether one is missing, and making it. */
bool kits_are_short(const struct launcher *launcher);
void kits_refill(struct launcher *launcher);

/* A kit made ahead, or a new one. The receiver owns it; its groups have the limits and the name
 * that are given. */
int kit_take(struct launcher *launcher, const char *id, const struct launch_limits *limits,
             struct kit *out_kit, struct fail *fail);

/* Marks the slots of all kits as taken. */
void kits_mark(struct launcher *launcher);
