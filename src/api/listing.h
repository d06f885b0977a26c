#pragma once

/*
 * A directory inside a sandbox, as init tells it through a pipe. What init says is not trusted: a
 * list that is malformed or too long ends as an error.
 */

#include "base/buffer.h"
#include "base/error.h"
#include "core/agent.h"
#include "wire/protocol.h"

enum { LISTING_MAXIMUM = 16 * 1024 * 1024 };

struct listing;
typedef void listing_done_fn(struct listing *listing);

/* Embedded by the caller and kept until `done`. */
struct listing {
    struct loop *loop; /* borrowed */
    listing_done_fn *done;
    struct error err;
    int sys_errno;       /* what init gave; 0 otherwise */
    struct buffer bytes; /* the entries, valid until listing_fini() */
    struct agent_request request;
    struct io_watch pipe; /* its fd is owned; -1 without */
};

void listing_start(struct listing *listing, struct loop *loop, struct agent *agent,
                   const char *user, const char *path, unsigned depth, listing_done_fn *done);
void listing_fini(struct listing *listing); /* also before it is done */

/* Walks the entries: true and the next one. Start with *at = 0. */
bool listing_next(const struct listing *listing, size_t *at, struct protocol_entry_view *out_entry);

/* What cut the list short, as errno; 0 when it is whole. */
int listing_cut(const struct listing *listing);
