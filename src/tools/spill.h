/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * All of a text that is too long to be shown, in a file of the sandbox where the model can look at
 * it. It is opened when the first piece comes and complete when it is closed.
 */

#include "agent/files.h"

struct agent;
struct spill;
typedef void spill_fn(struct spill *spill);

/* Embedded by the caller; zeroed before. */
struct spill {
    spill_fn *on_room;     /* more can be taken */
    spill_fn *on_closed;   /* once, after spill_close() */
    char *path;            /* owned; absolute in the sandbox; NULL while there is none */
    bool is_partial;       /* only the beginning could be kept */
    bool is_failed;        /* nothing is kept: `path` leads nowhere */
    uint64_t limit, bytes; /* at most so much, and so much it is */

    /* private */
    struct file_writer writer;
    struct agent *agent; /* borrowed: for the commit */
    struct buffer pending;
    bool is_open, is_closing;
};

/* `name` says what it is of: the file is named after it. False when the sandbox has no directory
 * for it: then there is nothing to add to or to close. */
bool spill_start(struct spill *spill, struct agent *agent, const char *name, uint64_t limit_bytes);
bool spill_has_room(const struct spill *spill);
void spill_add(struct spill *spill, const void *data, size_t length);

/* Only once, and only after spill_start(); on_closed may come inside. */
void spill_close(struct spill *spill, struct agent *agent);

/* The agent is NULL when the sandbox has gone. */
void spill_fini(struct spill *spill, struct agent *agent);
