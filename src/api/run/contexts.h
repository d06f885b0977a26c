/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the routes of contexts. */

#include "api/private.h"
#include "core/run/context/context.h"

/* Runs code and answers when it has ended, or with events as they come: see context_run.c. */
void api_run_context(struct request *request, struct context *context);

extern const struct json_field context_run_fields[3];

/* The context of the route; NULL when 404 was answered. */
struct context *api_find_context(struct request *request);
