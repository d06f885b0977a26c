/* SPDX-License-Identifier: Apache-2.0 */
#include "core/execution_state.h"

#include "base/str.h"

static const char *const state_names[EXECUTION_STATES] = {
    [EXECUTION_QUEUED] = "queued",
    [EXECUTION_RUNNING] = "running",
    [EXECUTION_EXITED] = "exited",
    [EXECUTION_TIMEOUT] = "timeout",
    [EXECUTION_CANCELLED] = "cancelled",
    [EXECUTION_CRASHED] = "crashed",
    [EXECUTION_OUTPUT_LIMIT] = "output_limit",
};

const char *execution_state_name(enum execution_state state)
{
    return state_names[state];
}

enum execution_state execution_state_parse(const char *name)
{
    for (int state = 0; state < EXECUTION_STATES; state++) {
        if (str_equal(state_names[state], name))
            return (enum execution_state)state;
    }
    return EXECUTION_CRASHED;
}

bool execution_state_is_final(enum execution_state state)
{
    return state >= EXECUTION_EXITED;
}
