/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Why a session or a sandbox ended: a kind, and for some of them a detail. */

enum end_kind {
    END_NONE,
    END_IDLE,
    END_LEASE,
    END_LIFETIME,
    END_DELETED,
    END_EVICTED,
    END_CRASHED, /* detail: "oom", "signal 9", "exit 1", "unknown" */
    END_SHUTDOWN,
    END_BUDGET,
    END_REPLACED,
    END_FAILED, /* the first execute did not start; a sandbox that did not become ready */
    END_TEARDOWN,
    END_NODE_LOST, /* with the machine that the sandbox was on */
    END_KINDS
};

struct end_reason {
    enum end_kind kind;
    char detail[48];
};

enum { END_TEXT_SIZE = 64 };
void end_reason_text(const struct end_reason *reason,
                     char text[END_TEXT_SIZE]); /* "crashed: oom" */
const char *end_kind_name(enum end_kind kind);

/* NULL for END_NONE, else `text`. */
const char *end_reason_text_or_null(const struct end_reason *reason, char text[END_TEXT_SIZE]);

/* The reverse, for records; END_NONE for what no end_reason_text() writes. */
struct end_reason end_reason_parse(const char *text);
