/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Problems of a database and the files beside it; for `store check` and `doctor --store`. */

#include "base/error.h"
#include "base/map.h"
#include "store/maintenance.h"
#include "wire/json.h"

struct store_report {
    struct store_check check;
    json_t *findings;  /* owned; an array of text */
    struct map output; /* executions with output on the disk; owns its names */
    uint64_t unknown_output;
    const char *state_dir; /* borrowed; or NULL */
    json_t *stored;        /* owned; the stored files by "SESSION/NAME", as their documents say */
};

/* `state_dir`: NULL for a database alone, without output beside it. */
int store_report_run(struct store_report *report, const char *path, const char *state_dir,
                     struct error *err);
void store_report_fini(struct store_report *report);
