#pragma once

/*
 * Sandboxes that this launcher has made lately, with their marks and processes at hand: most are
 * destroyed soon, and need not be looked up by their folder and in /proc for that. The one that was
 * noted first gives way to the next.
 */

#include "wire/mark.h"

#include <stdbool.h>

enum { RECENT_MAX = 128 };

struct recent {
    struct recent_item {
        struct mark mark; /* with pid 0: none */
        int pidfd;        /* owned */
    } items[RECENT_MAX];
    unsigned next;
};

/* The pidfd is borrowed. */
void recent_note(struct recent *recent, const struct mark *mark, int pidfd);

/* False when it is not known, or dead. The receiver owns the pidfd. */
bool recent_take(struct recent *recent, const char *id, struct mark *out_mark, int *out_pidfd);

/* Its mark changes. */
void recent_forget(struct recent *recent, const char *id);
