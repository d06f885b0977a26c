/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The lines of an audit log and the chain between them, as pure functions.
 *
 *     {"seq":7,"prev":"<hash of line 6>",…,"hash":"<hash of this line>"}
 *
 * The hash of a line is the SHA-256 of all that stands before `,"hash":`, so it covers the number
 * of the line and the hash of the one before it. A line that is changed does not have its hash; one
 * that is missing, added or moved breaks the numbers and the hashes around it. Beside the log, a
 * file says how far it went: cutting off the end is found too.
 */

#include "auth/encoding.h"
#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* The last line that was written. */
struct chain {
    uint64_t sequence;           /* 0: none */
    char hash[SHA256_TEXT_SIZE]; /* zeros for none */
    uint64_t event;              /* everything up to this event of the store is in the log; or
                                    CHAIN_NO_EVENT */
    bool is_closed;              /* it is CHAIN_STOPPED: the writing daemon ended well */
};

#define CHAIN_NO_EVENT UINT64_MAX

#define CHAIN_START                                                                              \
    ((struct chain){ .hash = "0000000000000000000000000000000000000000000000000000000000000000", \
                     .event = CHAIN_NO_EVENT })

/* Appends a line with `members` (JSON, as between the braces of an object) and moves the chain on.
 * They begin with "type"; "event" and then "time" are the last two, if there are any. */
void chain_append(struct chain *chain, const char *members, struct buffer *out);

enum chain_check {
    CHAIN_GOOD,
    CHAIN_MALFORMED, /* no line of an audit log */
    CHAIN_ALTERED,   /* it does not have its hash */
    CHAIN_BROKEN,    /* it does not follow the line before it */
};

/* The members of a log's first line begin with this when it goes on from one that was rotated. */
#define CHAIN_CONTINUED "\"type\":\"audit.continued\""

/* Of the first line that a process writes, and of the last one. */
#define CHAIN_STARTED "\"type\":\"audit.started\""
#define CHAIN_STOPPED "\"type\":\"audit.stopped\""

/* Checks a line without its newline. The `first` of a log is number 1 or has CHAIN_CONTINUED. The
 * chain moves on when the line has the form of one, so that one bad line is one finding. */
enum chain_check chain_check_line(struct chain *chain, const char *text, size_t length, bool first);

/* The members of a good line, from its "type" on. */
const char *chain_line_members(const char *line);

/* The text of the file beside the log, and back; 0 or -1. */
void chain_write_head(const struct chain *chain, struct buffer *out);
int chain_read_head(struct chain *chain, const char *text);
