/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Work on files of a sandbox: a hold of the session, and one operation of init after another. The
 * daemon never opens a path inside of a sandbox: init does, with the rights of its programs. The
 * content of files is read and written as agent/files.h has it.
 *
 * Every failure ends the work and is reported once: as an error that a caller can be shown.
 */

#include "agent/agent.h"
#include "agent/files.h"
#include "base/error.h"
#include "core/session/session.h"

#include <stdbool.h>

struct file_call;
typedef void file_call_fn(struct file_call *call);
typedef void file_call_error_fn(struct file_call *call, const struct error *err);

/* Embedded by the caller, who sets the first block before file_call_begin(). */
struct file_call {
    const char *path;             /* borrowed: of the operations, in errors */
    file_call_error_fn *on_error; /* an operation failed, or there is no sandbox */
    file_call_error_fn *on_lost;  /* the sandbox ended meanwhile */
    bool (*on_failure)(struct file_call *call, int number); /* an operation failed with this errno:
                                   true when that is settled. May be NULL */

    struct session_hold hold;
    bool in_use; /* the hold is, or waits for a sandbox */
    struct agent_request operation;

    file_call_fn *next; /* private */
};

/* `start` is called when the sandbox is there. */
void file_call_begin(struct file_call *call, struct session *session, file_call_fn *start);

/* Does an operation, then calls `next`; a failure is reported. */
void file_call_do(struct file_call *call, const struct agent_file *file, file_call_fn *next);

/* Reports an errno about `path`, as a failed operation does. */
void file_call_fail(struct file_call *call, int number, const char *path);

/* The sandbox is not needed any more. */
void file_call_release(struct file_call *call);

/* Stops at any moment. */
void file_call_fini(struct file_call *call);
