/* SPDX-License-Identifier: Apache-2.0 */
#include "core/session/session_move.h"

#include "core/money/budget.h"
#include "core/sandbox/workspace_archive.h"
#include "core/session/session_private.h"
#include "core/session/session_recover.h"

#include <assert.h>
#include <stdlib.h>

void session_lose_elsewhere(struct session *session, uint64_t generation)
{
    const struct end_reason reason = { .kind = END_NODE_LOST };

    if (generation > session->slot.generation)
        session->slot.generation = generation;
    session->slot.crashed = true;
    session_note_previous_end(session, &reason);
    session_emit(session, "sandbox.destroyed", "{\"reason\":\"node lost\"}");
}

void session_check_archive(struct session *session)
{
    if (session->slot.archive.bytes &&
        !workspace_archive_exists(session->core->parts.state_dir, session->identity.id)) {
        session->slot.archive = (struct session_archive){ 0 };
        session_changed(session);
    }
}

bool session_can_go(const struct session *session)
{
    return session->state == SESSION_OPEN && session->record.state == RECORD_DURABLE &&
           !session->slot.sandbox && !session_is_used(session) && !session->money.approval &&
           !session->run.started && !session->slot.archive.bytes &&
           list_is_empty(&session->holds.weak) && list_is_empty(&session->control.waiters) &&
           list_is_empty(&session->record.waiters) && !session->identity.claim.asked;
}

void session_give_up(struct session *session)
{
    char reason[END_TEXT_SIZE];
    scoped(free) char *spec = session_spec_text(session);
    struct session_record record;

    assert(session_can_go(session));
    session_fill_record(session, spec, reason, &record);
    record.node = STORE_NO_NODE;
    store_put_session(session->core->parts.store, &record);
    budget_forget(session);
    session_free(session);
}
