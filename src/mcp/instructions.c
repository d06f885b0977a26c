/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "core/core.h"
#include "mcp/private.h"
#include "service/backend_view.h"

static const char *network_in_words(const char *network)
{
    if (str_equal(network, "none"))
        return "The sandbox has no network: pip install, apt-get and other downloads fail. Work "
               "with "
               "what is installed, and say so when a package is missing.";
    if (str_equal(network, "open"))
        return "The sandbox has a network: `pip install NAME` works.";
    return "Programs use the network of the machine.";
}

char *mcp_instructions(const struct mcp *mcp)
{
    const struct core *core = mcp->parts.core;
    const struct config *config = core->parts.config;
    char idle[STR_UNIT_SIZE] = "";

    if (config->session.idle_timeout_ms > 0)
        str_format_duration(config->session.idle_timeout_ms, idle);
    return xasprintf(
        "Runs code and commands in a Linux sandbox: bash, Python and, where node is installed, "
        "JavaScript. Its programs are those of the template \"%s\". %s All calls of this "
        "connection "
        "share one session: files and installed packages stay from call to call%s%s. Give "
        "session_id or key only to work in another session. Files that a tool makes are reported "
        "as resource links.",
        str_is_empty(config->sandbox.template_name) ? "host" : config->sandbox.template_name,
        network_in_words(backend_view_default_network(core)),
        *idle ? ", until the session is unused for " : "", idle);
}
