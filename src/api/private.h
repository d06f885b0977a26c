/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Inside of the REST face: its object, its tables, and what several resources need. */

#include "api/api.h"
#include "face/rename.h"
#include "face/request.h"

struct api {
    struct api_parts parts;
    char *openapi; /* owned; made when it is first asked for */
};

static inline struct api *api_of(const struct request *request)
{
    return request->context;
}

/* Errors of this face: errors.c. */
void api_fail(struct request *request, const struct error *err);

/* --- who decides about money: approvals.c ----------------------------------------------------- */

/* With authentication the roles approver and admin decide for every owner. Without, owners decide for
 * themselves, and a caller without an owner, the operator of this host, for all. */
bool api_is_approver(const struct request *request, const char *owner);
int api_check_approver(const struct request *request, const char *owner, struct error *err);

/* --- tables ---------------------------------------------------------------------------------- */

/* Old names of fields and parameters. */
extern const struct rename api_renames[];

extern const struct route api_session_routes[];
extern const struct route api_approval_routes[];
extern const struct route api_budget_routes[];
extern const struct route api_context_routes[];
extern const struct route api_wait_routes[];
extern const struct route api_control_routes[];
extern const struct route api_execution_routes[];
extern const struct route api_input_routes[];
extern const struct route api_output_routes[];
extern const struct route api_display_routes[];
extern const struct route api_stream_routes[];
extern const struct route api_execute_routes[];
extern const struct route api_file_routes[];
extern const struct route api_search_routes[];
extern const struct route api_edit_routes[];
extern const struct route api_archive_routes[];
extern const struct route api_watch_routes[];
extern const struct route api_event_routes[];
extern const struct route api_scope_routes[];
extern const struct route api_system_routes[];
extern const struct route api_node_routes[];
extern const struct route api_storage_routes[];
extern const struct route api_teardown_routes[];
extern const struct route api_history_routes[];
extern const struct route api_audit_routes[];
extern const struct route api_kept_routes[];
extern const struct route api_tool_routes[];
extern const struct route api_port_routes[];
extern const struct route api_usage_routes[];

/* The document of the routes of all faces. */
void api_make_openapi(const struct faces *faces, struct buffer *out);
