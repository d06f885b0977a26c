/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Inside of the dashboard's faces. */

#include "face/request.h"
#include "web/assets.h"
#include "web/dashboard.h"
#include "web/tickets.h"

struct dashboard {
    struct dashboard_parts parts;
    struct tickets *tickets; /* owned */
    char *url;               /* owned: where browsers find it; NULL while no port is listened on */
};

static inline struct dashboard *dashboard_of(const struct request *request)
{
    return request->context;
}

extern const struct route web_login_routes[];
