/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Private to archive_pack.c, archive_restore.c and workspace_archive.c. */

#include "agent/agent.h"
#include "base/buffer.h"
#include "core/sandbox/sandbox_private.h"
#include "core/sandbox/workspace_archive.h"
#include "loop/worker.h"

struct workspace_archive {
    struct core *core; /* borrowed */
    uint64_t total_bytes;
};

struct archive_work {
    struct sandbox *sandbox; /* borrowed; NULL when it was cancelled while a job runs */
    archive_done_fn *done;
    struct agent_request request;
    struct io_watch stream; /* its fd is owned; -1 without */
    struct timer timer;     /* the bound */
    struct deferred later;  /* finishes work that failed at once from the loop */
    struct error err;
    int file; /* owned; -1 without */
    uint64_t bytes;

    /* packing: the last step */
    struct job job;
    bool in_job;
    char session_id[ID_SIZE];
    int state_dir;
    uint64_t replaced; /* bytes of the archive that was there */

    /* restoring */
    uint64_t archive_bytes;
    struct buffer notes;
    bool is_sent;
};

struct archive_work *archive_work_new(struct sandbox *sandbox, archive_done_fn *done,
                                      int64_t timeout_ms, void (*on_timeout)(struct timer *timer));
void archive_work_free(struct archive_work *work);

/* Whether a file of so many bytes has the end of an archive. */
bool archive_has_end(int file, uint64_t bytes);
