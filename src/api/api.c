/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api.h"

#include "api/private.h"
#include "base/alloc.h"

#include <stdlib.h>

struct api *api_new(const struct api_parts *parts)
{
    struct api *api = xnew(struct api);

    api->parts = *parts;
    return api;
}

void api_free(struct api *api)
{
    if (!api)
        return;
    free(api->openapi);
    free(api);
}

static const struct route *const tables[] = {
    api_session_routes,  api_control_routes, api_execution_routes,
    api_input_routes,    api_output_routes,  api_display_routes,
    api_stream_routes,   api_execute_routes, api_file_routes,
    api_search_routes,   api_edit_routes,    api_archive_routes,
    api_watch_routes,    api_event_routes,   api_scope_routes,
    api_system_routes,   api_node_routes,    api_context_routes,
    api_wait_routes,     api_tool_routes,    api_storage_routes,
    api_teardown_routes, api_history_routes, api_audit_routes,
    api_approval_routes, api_budget_routes,  api_kept_routes,
    api_port_routes,     api_usage_routes,   NULL,
};

const struct face api_face = {
    .name = "rest",
    .identify = request_identify,
    .fail = api_fail,
    .renames = api_renames,
    .tables = tables,
};
