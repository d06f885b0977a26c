/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The states of an execution, for every room that counts or shows them; core/run has the execution.
 *
 *     queued → running → exited | timeout | output_limit | cancelled | crashed
 */

#include <stdbool.h>

enum execution_state {
    EXECUTION_QUEUED,
    EXECUTION_RUNNING,
    EXECUTION_EXITED, /* with a code or by a signal of its own */
    EXECUTION_TIMEOUT,
    EXECUTION_OUTPUT_LIMIT, /* stopped because it wrote more than is kept, as was asked */
    EXECUTION_CANCELLED,
    EXECUTION_CRASHED, /* the sandbox went, or the OOM killer took it: see its reason */
    EXECUTION_STATES
};

const char *execution_state_name(enum execution_state state);
enum execution_state execution_state_parse(const char *name); /* CRASHED for an unknown one */
bool execution_state_is_final(enum execution_state state);
