/* SPDX-License-Identifier: Apache-2.0 */
#include "core/session/session.h"
#include "e2b/private.h"

#include <stdio.h>
#include <string.h>

bool e2b_is_lost(const struct session *session)
{
    scoped(e2b_notes_fini) struct e2b_notes notes = { 0 };

    e2b_notes_read(&notes, session);
    return notes.exists && session_previous_end(session)->kind != END_NONE;
}

static void fail(struct request *request, const char *named)
{
    char message[160];

    snprintf(message, sizeof(message), "sandbox \"%.60s\" not found", named);
    e2b_fail_status(request, 404, message);
}

void e2b_find(struct request *request, request_fn *then)
{
    const char *named = request_path(request, "id");
    const struct session *session;
    char id[ID_SIZE];

    if (!e2b_id_read(named, strlen(named), id)) {
        fail(request, named);
        return;
    }
    session = session_find(request->core, request->owner, request->any_owner, id);
    if (session && e2b_is_lost(session))
        fail(request, named);
    else
        request_find_session(request, id, ROUTE_LIVE_SESSION, then);
}
