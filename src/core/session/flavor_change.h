/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A session asks for a sandbox of another flavor. The answer is one of
 *
 *     nothing changes    the one that it has is as asked for
 *     it is made         the one that it has goes first, with its files; the new one is started
 *     approval           an approver was asked; until the decision everything stays as it is
 *     refusal            with the reason, before an approver is asked
 *
 * The automatic sandbox of a session may be replaced. A chosen sandbox stays until it is torn
 * down: asking again and again would cost money and files each time.
 */

#include "core/session/session.h"

struct approval;

struct flavor_change_request {
    const char *flavor; /* NULL: any, the one it has will do */
    struct sandbox_limits
        limits;               /* 0 where nothing is asked for; only with a flavor that is free */
    const char *principal;    /* the requester; borrowed */
    const char *on_behalf_of; /* as the caller says; borrowed */
};

enum flavor_change_outcome { FLAVOR_CHANGE_NONE, FLAVOR_CHANGE_MADE, FLAVOR_CHANGE_ASKED };

struct flavor_change_answer {
    enum flavor_change_outcome outcome;
    const struct approval *approval; /* borrowed, for now; with FLAVOR_CHANGE_ASKED */
    char message[400];               /* in plain words, also for a model */
};

int flavor_change_make(struct session *session, const struct flavor_change_request *request,
                       struct flavor_change_answer *out, struct error *err);

/* A person has approved it. ERR_CONFLICT when it cannot be now: nothing has changed then. */
int flavor_change_apply(struct session *session, const char *name, enum session_choice choice,
                        struct error *err);
