/* SPDX-License-Identifier: Apache-2.0 */
#include "core/session/flavor_change.h"

#include "base/str.h"
#include "config/config.h"
#include "core/backend_choice.h"
#include "core/ceiling.h"
#include "core/money/approvals.h"
#include "core/money/budget.h"
#include "core/money/flavor.h"
#include "core/sandbox/sandbox.h"
#include "core/session/session.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static bool has_limits(const struct sandbox_limits *limits)
{
    return limits->memory_bytes || limits->disk_bytes || limits->cpu_millis || limits->pids;
}

static bool limits_equal(const struct sandbox_limits *a, const struct sandbox_limits *b)
{
    return a->memory_bytes == b->memory_bytes && a->disk_bytes == b->disk_bytes &&
           a->cpu_millis == b->cpu_millis && a->pids == b->pids;
}

/* --- what cannot be ------------------------------------------------------------------------ */

static int check_alive(const struct session *session, struct error *err)
{
    if (session_state(session) == SESSION_ENDING || session_state(session) == SESSION_ENDED)
        return session_gone_error(session, err);
    if (session_core(session)->stopping)
        return error_named(err, ERR_UNAVAILABLE, "shutting_down", "the daemon is shutting down");
    return 0;
}

/* The price is for what the flavor has. */
static int check_limits(const struct config_flavor *flavor,
                        const struct flavor_change_request *request, struct error *err)
{
    if (flavor_is_free(flavor) || !has_limits(&request->limits))
        return 0;
    error_named(err, ERR_INVALID, "invalid_field",
                "memory, disk, cpus and pids of the flavor \"%s\" are fixed", flavor->name);
    return error_hint(err, "leave these fields out, or choose another flavor");
}

/* Also what the flavor itself has: it is asked for by its name. */
static int check_ceiling(const struct session *session, const struct config_flavor *flavor,
                         const struct sandbox_limits *limits, struct error *err)
{
    const struct ceiling *ceiling = session_core(session)->ceiling;
    struct ceiling_ask ask = { CEILING_ASK_INIT, .owner = session_owner(session),
                               .flavor = flavor };

    ask.limits = flavor_own_limits(flavor);
    if (!str_equal(flavor->name, session_base_flavor(session)) &&
        ceiling_check(ceiling, &ask, err) < 0)
        return -1;
    ask.limits = *limits;
    return ceiling_check(ceiling, &ask, err);
}

static int check_replaceable(const struct session *session, const char *flavor, struct error *err)
{
    if (!session_expects_sandbox(session) || session_choice(session) == CHOICE_AUTOMATIC)
        return 0;
    error_named(err, ERR_CONFLICT, "sandbox_chosen",
                "the sandbox of this session was chosen explicitly (%s); it cannot be changed to "
                "%s by another request",
                session_flavor(session), flavor);
    return error_hint(err,
                      "delete it first (POST /sessions/{id}/sandbox/teardown; its files are lost), "
                      "then request %s",
                      flavor);
}

/* --- what is said -------------------------------------------------------------------------- */

static int say_unchanged(const struct session *session, struct flavor_change_answer *out)
{
    out->outcome = FLAVOR_CHANGE_NONE;
    snprintf(out->message, sizeof(out->message),
             "Nothing changes: the sandbox of this session is already %s (generation %llu). Its "
             "files are unchanged; use it.",
             session_flavor(session), (unsigned long long)session_generation(session));
    return 0;
}

/* The fate of the files of the sandbox before, for the message. */
static const char *fate_of_files(const struct session *session)
{
    return session_keeps_files(session)
               ? "The files of the workspace are moved to it; everything else is gone."
               : "Files and processes are gone: set up again what you need.";
}

static int say_made(const struct session *session, bool replaced, const char *old,
                    struct flavor_change_answer *out)
{
    out->outcome = FLAVOR_CHANGE_MADE;
    if (replaced)
        snprintf(out->message, sizeof(out->message),
                 "The sandbox %s is being created and replaces %s, which is destroyed. %s Calls "
                 "wait for the new one.",
                 session_flavor(session), old, fate_of_files(session));
    else
        snprintf(out->message, sizeof(out->message),
                 "The sandbox %s is being created; calls wait for it.%s%s", session_flavor(session),
                 session_generation(session) ? " " : "",
                 session_generation(session) ? fate_of_files(session) : "");
    return 0;
}

static int say_asked(const struct approval *approval, struct flavor_change_answer *out)
{
    out->outcome = FLAVOR_CHANGE_ASKED;
    out->approval = approval;
    snprintf(out->message, sizeof(out->message),
             "The sandbox %s needs an approval first: %s. Nothing has changed; continue with the "
             "current sandbox, and check approval %s for the decision.",
             approval->flavor, approval->question, approval->id);
    return 0;
}

/* --- making it ----------------------------------------------------------------------------- */

static int make(struct session *session, enum session_choice choice,
                const struct config_flavor *flavor, const struct sandbox_limits *limits,
                struct flavor_change_answer *out)
{
    bool replaced = session_expects_sandbox(session);
    char old[64];

    snprintf(old, sizeof(old), "%s", session_flavor(session));
    approvals_cancel(session, "another sandbox was requested");
    session_replace(session, choice, flavor->name, limits);
    return say_made(session, replaced, old, out);
}

/* Without a flavor: the one that it has will do. */
static int make_any(struct session *session, struct flavor_change_answer *out)
{
    if (session_expects_sandbox(session))
        return say_unchanged(session, out);
    session_forgive_crash(session);
    session_preload(session);
    return say_made(session, false, NULL, out);
}

static enum session_choice choice_for(const struct session *session, enum budget_verdict verdict,
                                      const struct config_flavor *flavor,
                                      const struct sandbox_limits *limits)
{
    if (verdict == BUDGET_GRANTED)
        return CHOICE_SESSION;
    if (verdict == BUDGET_CAPPED)
        return CHOICE_CAPPED;
    return str_equal(flavor->name, session_base_flavor(session)) &&
                   limits_equal(limits, session_base_limits(session))
               ? CHOICE_AUTOMATIC
               : CHOICE_FREE;
}

static int make_or_ask(struct session *session, const struct flavor_change_request *request,
                       const struct config_flavor *flavor, const struct sandbox_limits *limits,
                       struct flavor_change_answer *out)
{
    struct budget_judgement judgement = budget_judge(session, flavor);
    struct approval_origin origin = { request->principal, request->on_behalf_of };

    assert(judgement.verdict != BUDGET_REFUSED);
    if (judgement.verdict == BUDGET_ASK)
        return say_asked(approvals_ask(session, flavor, &judgement, &origin), out);
    return make(session, choice_for(session, judgement.verdict, flavor, limits), flavor, limits,
                out);
}

/* The flavor may need another backend than the sandbox that the session has. */
static int check_backend(const struct session *session, const struct config_flavor *flavor,
                         const struct sandbox_limits *limits, struct error *err)
{
    const struct backend_wishes wishes = { .owner = session_owner(session),
                                           .asked = session_asked_backend(session),
                                           .flavor = flavor,
                                           .template_name = session_template_name(session) };
    const struct backend *backend = backend_check_wishes(session_core(session), &wishes, err);

    return backend ? backend_check_limits(backend, limits, err) : -1;
}

/* Limits alone change those of the flavor that it has. */
int flavor_change_make(struct session *session, const struct flavor_change_request *request,
                       struct flavor_change_answer *out, struct error *err)
{
    const struct config_flavor *flavor;
    struct sandbox_limits limits;

    *out = (struct flavor_change_answer){ 0 };
    if (check_alive(session, err) < 0)
        return -1;
    if (str_is_empty(request->flavor) && !has_limits(&request->limits))
        return make_any(session, out);
    flavor = flavor_find(session_core(session),
                         str_is_empty(request->flavor) ? session_flavor(session) : request->flavor,
                         err);
    if (!flavor || check_limits(flavor, request, err) < 0 ||
        check_backend(session, flavor, &request->limits, err) < 0 ||
        check_ceiling(session, flavor, &request->limits, err) < 0)
        return -1;
    limits = flavor_limits(session_core(session), session_owner(session), flavor, &request->limits);
    if (session_expects_sandbox(session) && str_equal(flavor->name, session_flavor(session)) &&
        (!has_limits(&request->limits) || limits_equal(&limits, session_limits(session))))
        return say_unchanged(session, out);
    if (check_replaceable(session, flavor->name, err) < 0)
        return -1;
    return make_or_ask(session, request, flavor, &limits, out);
}

int flavor_change_apply(struct session *session, const char *name, enum session_choice choice,
                        struct error *err)
{
    const struct config_flavor *flavor;
    struct sandbox_limits limits;

    if (check_alive(session, err) < 0)
        return -1;
    flavor = flavor_find(session_core(session), name, err);
    if (!flavor || check_replaceable(session, name, err) < 0 ||
        check_ceiling(session, flavor, &(struct sandbox_limits){ 0 }, err) < 0 ||
        budget_check_approved(session, flavor, err) < 0)
        return -1;
    limits = flavor_limits(session_core(session), session_owner(session), flavor,
                           &(struct sandbox_limits){ 0 });
    if (choice == CHOICE_SESSION)
        budget_grant(session, name);
    session_replace(session, choice, name, &limits);
    return 0;
}
