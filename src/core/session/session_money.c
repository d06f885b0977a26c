/* What a session does with the reports of its budget and its approvals: the table that the assembly
 * of the core gives to core/money. */

#include "core/session/session_money.h"

#include "base/str.h"
#include "core/sandbox/sandbox.h"
#include "core/session/clocks.h"
#include "core/session/flavor_change.h"
#include "core/session/session.h"

static void on_exhausted(struct session *session)
{
    session_teardown(session, END_BUDGET);
}

static enum metered_sandbox metered_sandbox(const struct session *session, const char *id)
{
    const struct sandbox *sandbox = session_sandbox(session);

    if (!sandbox || !str_equal(sandbox_id(sandbox), id) || !sandbox_is_up(sandbox))
        return METERED_GONE;
    return sandbox_state(sandbox) == SANDBOX_UNKNOWN ? METERED_UNKNOWN : METERED_UP;
}

const struct money_observer session_money = {
    .on_asked = clocks_arm,
    .on_decided = session_note_activity,
    .on_approved = flavor_change_apply,
    .on_exhausted = on_exhausted,
    .metered_sandbox = metered_sandbox,
};
