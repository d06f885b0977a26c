/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A finite list that init writes to a pipe: the entries of a directory, or notes (matches of a
 * search, ports). Init is not trusted: a list that is malformed or too long ends as an error.
 */

#include "agent/agent.h"
#include "base/buffer.h"
#include "base/error.h"
#include "wire/protocol.h"

enum { LISTING_MAXIMUM = 16 * 1024 * 1024 };

struct listing;
typedef void listing_done_fn(struct listing *listing);

/* Embedded by the caller and kept until `done`. */
struct listing {
    struct loop *loop; /* borrowed */
    listing_done_fn *done;
    struct error err;
    int sys_errno;       /* errno from init; 0 otherwise */
    bool has_notes;      /* and not entries */
    struct buffer bytes; /* the entries, valid until listing_fini() */
    struct agent_request request;
    struct io_watch pipe; /* its fd is owned; -1 without */
};

void listing_start(struct listing *listing, struct loop *loop, struct agent *agent,
                   const char *user, const char *path, unsigned depth, listing_done_fn *done);

/* For any kind of operation that ends with a last entry or note. */
void listing_start_file(struct listing *listing, struct loop *loop, struct agent *agent,
                        const struct agent_file *file, listing_done_fn *done);

/* The ports that programs listen on: a NOTE_PORT for each. */
void listing_start_ports(struct listing *listing, struct loop *loop, struct agent *agent,
                         listing_done_fn *done);
void listing_fini(struct listing *listing); /* also before it is done */

/* Walks the entries: true and the next one. Start with *at = 0. */
bool listing_next(const struct listing *listing, size_t *at, struct protocol_entry_view *out_entry);

/* The same for notes, the last one included. */
bool listing_next_note(const struct listing *listing, size_t *at,
                       struct protocol_note_view *out_note);

/* Where the entries (or notes) begin, sorted by their paths; those of the same path stay in their
 * order, and a directory comes before its content. The caller frees it. */
size_t *listing_sort(const struct listing *listing, size_t *out_count);

/* The errno that cut the list short; 0 when the list is whole. */
int listing_cut(const struct listing *listing);
