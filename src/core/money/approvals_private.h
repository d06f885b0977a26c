/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Private to the files of approvals. */

#include "core/core.h"
#include "core/money/approvals.h"

struct approvals {
    struct core *core; /* borrowed */
    struct map by_id;
    struct list all; /* by their last change */
    size_t decided;  /* of these */
};

/* approvals_record.c; expires_wall_us is 0 while it is pending. */
void approval_put(const struct approval *approval, int64_t expires_wall_us);
struct approval *approval_read(struct approvals *approvals, const struct document_record *record);

/* approvals.c */
struct approval *approval_new(struct approvals *approvals, const char *id);
void approval_free(struct approval *approval);
