/* SPDX-License-Identifier: Apache-2.0 */
#include "service/ports.h"

#include "base/alloc.h"
#include "base/macros.h"
#include "base/str.h"
#include "core/core.h"
#include "core/sandbox/sandbox.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

enum { LIST_PATIENCE_US = 10 * 1000 * 1000, QUIET_US = PORT_QUIET_MS * 1000 };

/* --- what listens ---------------------------------------------------------------------------- */

static int compare_ports(const void *left, const void *right)
{
    return *(const uint16_t *)left - *(const uint16_t *)right;
}

static void sort_ports(struct port_list *list)
{
    size_t kept = 0;

    if (!list->count)
        return;
    qsort(list->ports, list->count, sizeof(*list->ports), compare_ports);
    for (size_t i = 1; i < list->count; i++)
        if (list->ports[i] != list->ports[kept])
            list->ports[++kept] = list->ports[i];
    list->count = kept + 1;
}

/* Init is not trusted: a number that is no port is left out. */
static void take_ports(struct port_list *list)
{
    struct protocol_note_view note;
    size_t at = 0;

    while (listing_next_note(&list->listing, &at, &note)) {
        if (note.fixed.kind == NOTE_LAST)
            list->is_cut = note.fixed.flags & NOTE_CUT;
        if (note.fixed.kind != NOTE_PORT || !note.fixed.number || note.fixed.number > PORT_MAXIMUM)
            continue;
        list->ports = xrealloc(list->ports, list->count + 1, sizeof(*list->ports));
        list->ports[list->count++] = (uint16_t)note.fixed.number;
    }
    sort_ports(list);
}

static void on_listed(struct listing *listing)
{
    struct port_list *list = container_of(listing, struct port_list, listing);

    timer_stop(&list->timer);
    list->err = listing->err;
    if (listing->sys_errno == ENOSYS)
        error_named(&list->err, ERR_CONFLICT, "ports_unknown",
                    "the sandbox has no /proc and cannot tell which ports its programs serve");
    if (!list->err.code)
        take_ports(list);
    list->done(list);
}

static void on_list_timer(struct timer *timer)
{
    struct port_list *list = container_of(timer, struct port_list, timer);

    if (list->listing.loop)
        error_named(&list->err, ERR_TIMEOUT, "sandbox_silent",
                    "the sandbox does not tell which ports its programs serve");
    listing_fini(&list->listing);
    list->listing = (struct listing){ 0 };
    list->done(list);
}

static bool is_frozen(const struct session *session, const struct sandbox *sandbox)
{
    return session_state(session) == SESSION_PAUSED || !sandbox_is_usable(sandbox);
}

void port_list_start(struct port_list *list, struct core *core, struct session *session,
                     port_list_fn *done)
{
    struct sandbox *sandbox = session_sandbox(session);
    struct agent *agent = sandbox && sandbox_is_up(sandbox) ? sandbox_agent(sandbox) : NULL;

    *list = (struct port_list){ .done = done };
    timer_init(&list->timer, core->loop, on_list_timer);
    if (sandbox && sandbox_is_up(sandbox) && (!agent || is_frozen(session, sandbox))) {
        error_named(&list->err, ERR_CONFLICT, "sandbox_not_running",
                    "the sandbox of session %s is %s and cannot tell which ports are served",
                    session_id(session), sandbox_state_name(sandbox_state(sandbox)));
        error_hint(&list->err, "resume the session first");
    }
    timer_arm_in(&list->timer, agent && !list->err.code ? LIST_PATIENCE_US : 0);
    if (agent && !list->err.code)
        listing_start_ports(&list->listing, core->loop, agent, on_listed);
}

void port_list_stop(struct port_list *list)
{
    timer_stop(&list->timer);
    if (list->listing.loop)
        listing_fini(&list->listing);
    free(list->ports);
    *list = (struct port_list){ 0 };
}

/* --- use ------------------------------------------------------------------------------------- */

/* A session that may not be held now goes on without: the next bytes try again. */
static void on_use(struct session_hold *use UNUSED)
{
}

static void on_use_lost(struct session_hold *use UNUSED)
{
}

static void on_quiet(struct timer *timer)
{
    struct port_stream *stream = container_of(timer, struct port_stream, quiet);
    int64_t due_us = stream->last_bytes_us + QUIET_US;

    if (due_us > loop_now_us(timer->loop))
        timer_arm_at(timer, due_us);
    else
        session_hold_end(&stream->use);
}

void port_stream_note_bytes(struct port_stream *stream)
{
    if (stream->state != PORT_STREAM_OPEN)
        return;
    stream->last_bytes_us = loop_now_us(stream->quiet.loop);
    if (timer_is_armed(&stream->quiet))
        return;
    timer_arm_in(&stream->quiet, QUIET_US);
    session_hold_begin(&stream->use, stream->session, stream->generation, on_use, on_use_lost);
}

/* --- opening --------------------------------------------------------------------------------- */

static void end_holds(struct port_stream *stream)
{
    timer_stop(&stream->quiet);
    if (stream->use.session)
        session_hold_end(&stream->use);
    if (stream->hold.session)
        session_hold_end(&stream->hold);
}

static void finish(struct port_stream *stream, enum port_stream_state state)
{
    port_stream_fn *done = stream->on_open;

    stream->state = state;
    if (state == PORT_STREAM_CLOSED)
        end_holds(stream);
    done(stream);
}

static void fail_closed(struct port_stream *stream, const char *what)
{
    error_named(&stream->err, ERR_BACKEND, "port_closed", "nothing listens on port %u: %s",
                stream->port, what);
    error_hint(&stream->err,
               "start the server first; GET /api/v1/sessions/%s/ports tells which "
               "ports are served",
               session_id(stream->session));
    stream->err.retryable = true;
}

static void explain(struct port_stream *stream)
{
    const struct agent_request *request = &stream->request;

    if (request->sys_errno == ECONNREFUSED)
        fail_closed(stream, "the connection was refused");
    else if (request->sys_errno)
        error_named(&stream->err, ERR_BACKEND, "port_unreachable",
                    "port %u inside of the sandbox cannot be reached: %s", stream->port,
                    request->err.message);
    else
        stream->err = request->err;
}

static void on_connected(struct agent_request *request)
{
    struct port_stream *stream = container_of(request, struct port_stream, request);

    if (request->err.code) {
        explain(stream);
        finish(stream, PORT_STREAM_CLOSED);
        return;
    }
    stream->fd = request->result.file.fd;
    stream->generation = stream->hold.generation;
    stream->state = PORT_STREAM_OPEN;
    port_stream_note_bytes(stream);
    session_hold_weaken(&stream->hold);
    finish(stream, PORT_STREAM_OPEN);
}

static void start_connecting(struct port_stream *stream)
{
    stream->state = PORT_STREAM_CONNECTING;
    agent_connect(stream->hold.agent, "", stream->port, NULL, &stream->request, on_connected);
}

static bool has_port(const struct port_list *list, unsigned port)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->ports[i] == port)
            return true;
    return false;
}

static void on_own_ports(struct port_list *own)
{
    struct port_stream *stream = container_of(own, struct port_stream, own);
    bool is_own = has_port(own, stream->port);

    stream->err = own->err;
    if (!stream->err.code && !is_own)
        fail_closed(stream, "no program of this sandbox does");
    port_list_stop(own);
    if (!stream->err.code && !stream->hold.agent)
        error_named(&stream->err, ERR_UNAVAILABLE, "sandbox_unreachable",
                    "the sandbox cannot be reached at this moment");
    if (stream->err.code)
        finish(stream, PORT_STREAM_CLOSED);
    else
        start_connecting(stream);
}

/* On the network of the host a port may be another program's. */
static bool shares_network(const struct port_stream *stream)
{
    return str_equal(session_network_name(stream->session), "host");
}

static void on_ready(struct session_hold *hold)
{
    struct port_stream *stream = container_of(hold, struct port_stream, hold);

    if (hold->err.code) {
        stream->err = hold->err;
        stream->hold.session = NULL;
        finish(stream, PORT_STREAM_CLOSED);
    } else if (!hold->agent) {
        session_hold_retry(hold, hold->generation);
    } else if (shares_network(stream)) {
        stream->state = PORT_STREAM_CHECKING;
        port_list_start(&stream->own, session_core(hold->session), hold->session, on_own_ports);
    } else {
        start_connecting(stream);
    }
}

static void on_hold_lost(struct session_hold *hold)
{
    struct port_stream *stream = container_of(hold, struct port_stream, hold);
    enum port_stream_state state = stream->state;
    char reason[END_TEXT_SIZE];

    end_reason_text(&hold->lost, reason);
    error_named(&stream->err, ERR_BACKEND, "sandbox_lost", "the sandbox of port %u is gone: %s",
                stream->port, reason);
    agent_cancel(&stream->request);
    port_list_stop(&stream->own);
    end_holds(stream);
    stream->state = PORT_STREAM_CLOSED;
    if (state == PORT_STREAM_OPEN)
        stream->on_lost(stream);
    else
        stream->on_open(stream);
}

static void on_absent(struct timer *timer)
{
    struct port_stream *stream = container_of(timer, struct port_stream, quiet);

    fail_closed(stream, "the session has no sandbox");
    finish(stream, PORT_STREAM_CLOSED);
}

void port_stream_open(struct port_stream *stream, struct session *session, unsigned port,
                      uint64_t generation, port_stream_fn *on_open, port_stream_fn *on_lost)
{
    struct core *core = session_core(session);

    assert(port > 0 && port <= PORT_MAXIMUM);
    *stream = (struct port_stream){
        .fd = -1,
        .on_open = on_open,
        .on_lost = on_lost,
        .state = PORT_STREAM_WAITING,
        .session = session,
        .port = port,
    };
    if (!session_expects_sandbox(session)) {
        timer_init(&stream->quiet, core->loop, on_absent);
        timer_arm_in(&stream->quiet, 0);
        return;
    }
    timer_init(&stream->quiet, core->loop, on_quiet);
    session_hold_begin(&stream->hold, session, generation, on_ready, on_hold_lost);
}

void port_stream_close(struct port_stream *stream)
{
    if (stream->state == PORT_STREAM_CLOSED)
        return;
    if (stream->state == PORT_STREAM_CONNECTING)
        agent_cancel(&stream->request);
    port_list_stop(&stream->own);
    end_holds(stream);
    stream->state = PORT_STREAM_CLOSED;
}
