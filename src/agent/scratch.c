/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/scratch.h"

#include "agent/agent.h"
#include "base/str.h"

char *agent_scratch_path(const struct agent *agent, const char *name, struct error *err)
{
    const struct protocol_hello *hello = agent_hello(agent);

    if (hello && *hello->scratch)
        return path_join(hello->scratch, name);
    error_named(err, ERR_BACKEND, "no_scratch",
                "the sandbox has no directory for scripts: its path would be longer than %d bytes",
                PROTOCOL_MAX_SCRATCH - 1);
    error_hint(err, "use a shorter state_dir, or run a command that is no script");
    return NULL;
}
