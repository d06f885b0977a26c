/* SPDX-License-Identifier: Apache-2.0 */
/* Writes requests, and ends of sessions and executions, into the audit log. */

#include "face/trail.h"

#include "audit/audit.h"
#include "audit/redact.h"
#include "auth/credentials.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/mask.h"
#include "base/str.h"
#include "cluster/relay_identity.h"
#include "config/config.h"
#include "core/events.h"
#include "core/output/spool.h"
#include "core/run/execution.h"
#include "core/secrets.h"
#include "face/request.h"
#include "service/event_page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAXIMUM = 256 * 1024, TARGET_MAXIMUM = 2048, OUTPUT_MAXIMUM = 32 * 1024 };

enum { RECOVERED_PAGE = 10000 };

struct audit_trail {
    struct faces *faces; /* borrowed */
    struct events_watcher watcher;

    /* Events of the store that the log of a killed daemon lacks. */
    struct event_page missing;
    uint64_t position; /* of the last event that was read */
    uint64_t last;     /* of the killed daemon */
    uint64_t recovered;
    unsigned in_page;
    bool is_catching_up;
};

/* The members of an object that the writer has begun are handed over without its brace. */
static void write_line(struct faces *faces, struct buffer *text)
{
    if (!text->overflowed)
        buffer_consume(text, 1);
    audit_write(faces->parts.audit, text);
}

/* --- requests -------------------------------------------------------------------------------- */

static bool changes_something(const struct request *request)
{
    return request->route && request->route->method != HTTP_GET;
}

/* Of strangers only wrong credentials are noted, of which there is a limit: a
 * stranger cannot fill the disk. */
static bool is_noted(const struct request *request)
{
    if (request->owner)
        return changes_something(request);
    return http_exchange_status(request->exchange) == 401 &&
           (http_head_header(http_exchange_head(request->exchange), "authorization") ||
            http_head_header(http_exchange_head(request->exchange), "x-api-key"));
}

static void put_caller(struct json_writer *json, const struct request *request)
{
    char peer[PEER_NAME_SIZE];

    if (request->relay)
        snprintf(peer, sizeof(peer), "%s", request->relay->peer);
    else
        peer_name(http_exchange_peer(request->exchange), peer);
    json_put_text(json, "principal", request->principal ? request->principal : "");
    json_put_text(json, "owner", request->owner ? request->owner : "");
    json_put_text(json, "on_behalf_of", request->on_behalf_of ? request->on_behalf_of : "");
    json_put_text(json, "peer", peer);
    if (request->relay)
        json_put_text(json, "relayed_by", request->relay->from);
}

static void put_masked(struct json_writer *json, const char *name, const struct mask *secrets,
                       const void *text, size_t length)
{
    scoped(buffer_fini) struct buffer masked = BUFFER_INIT(LINE_MAXIMUM);

    mask_append(secrets, text, length, &masked);
    json_put_bytes(json, name, masked.data ? masked.data : (const void *)"", masked.length);
}

static char *unescaped(const char *target)
{
    scoped(free) char *spaced = xstrdup(target);
    char *decoded = xmalloc(strlen(target) + 1);

    for (char *plus = strchr(spaced, '?'); plus && (plus = strchr(plus, '+'));)
        *plus = ' ';
    request_unescape(spaced, strlen(spaced), decoded);
    return decoded;
}

/* As it was sent, unless a secret stands in it behind escapes. */
static void put_masked_target(struct json_writer *json, const struct mask *secrets,
                              const char *target)
{
    scoped(free) char *shown = mask_text(secrets, target);
    scoped(free) char *plain = unescaped(shown);
    scoped(free) char *masked = mask_text(secrets, plain);

    const char *told = str_equal(plain, masked) ? shown : masked;

    json_put_bytes(json, "target", told, strnlen(told, TARGET_MAXIMUM));
}

static void put_target(struct json_writer *json, const struct request *request)
{
    const struct http_head *head = http_exchange_head(request->exchange);

    json_put_text(json, "method", http_method_name(head->method));
    json_put_text(json, "route", request->route ? request->route->path : "");
    if (request->lacks_secrets || (request->route && strstr(request->route->path, "{token}")))
        json_put_text(json, "target", request->route->path); /* a token is a permission */
    else
        put_masked_target(json, request->secrets, head->target);
    json_put_text(json, "session", *request->session_id ? request->session_id : NULL);
}

static char *given_secrets(const struct request *request)
{
    const json_t *secrets = json_object_get(request->body, "secrets");

    return secrets ? json_dumps(secrets, JSON_COMPACT) : NULL;
}

/* The session that a request needs; allocated, NULL when it needs none. */
static char *needed_session(const struct request *request)
{
    const char *in_body = json_string_value(json_object_get(request->body, "session_id"));
    const struct face *face = request->face;
    char in_head[ID_SIZE];

    if (request->route->session)
        return xstrdup(request_path(request, "session"));
    if (in_body)
        return xstrdup(in_body);
    if (face->session_of &&
        face->session_of(request->context, http_exchange_head(request->exchange), in_head))
        return xstrdup(in_head);
    return *request->session_id ? xstrdup(request->session_id) : NULL;
}

/* The session that it opens again, if it is there. */
static char *opened_session(const struct request *request)
{
    const char *key = json_string_value(json_object_get(request->body, "key"));

    return key ? xasprintf("key:%s", key) : NULL;
}

/* Of the session that is meant, if it is the caller's, and of the request itself. */
static void find_secrets(struct request *request)
{
    scoped(free) char *needed = needed_session(request);
    scoped(free) char *opened = needed ? NULL : opened_session(request);
    const char *reference = needed ? needed : opened;
    scoped(free) char *given = given_secrets(request);
    struct caller_identity identity = request_identity(request);
    const struct session *session;

    /* Faces that find the session in the head ask for a permission of that session. */
    identity.any_owner = request_reaches_all(request) || request->face->session_of;
    session = reference ? find_live_session(request->core, &identity, reference, NULL) : NULL;
    mask_free(request->secrets);
    request->secrets = secrets_join(session ? session_secrets(session) : NULL, given);
    request->lacks_secrets = needed && !session;
}

void audit_trail_begin(struct request *request)
{
    if (request->faces->trail && changes_something(request))
        find_secrets(request);
}

void audit_trail_body(struct request *request)
{
    struct buffer text = BUFFER_INIT(LINE_MAXIMUM);

    if (!request->faces->trail || !changes_something(request))
        return;
    find_secrets(request);
    if (request->lacks_secrets)
        return;
    redact_body(request->body, request->secrets, request->faces->parts.config->audit.code, &text);
    request->audited = buffer_steal_text(&text);
}

void audit_trail_request(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(LINE_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    int64_t took_us = loop_now_us(request->faces->parts.loop) - request->began_us;

    if (!request->faces->trail || !is_noted(request) || request->is_relayed)
        return; /* a request that another node has answered is in the log of that one */
    json_begin_object(&json, NULL);
    json_put_text(&json, "type", request->owner ? "request" : "wrong_credentials");
    json_put_text(&json, "request_id", http_exchange_id(request->exchange));
    put_caller(&json, request);
    put_target(&json, request);
    if (request->audited)
        json_put_raw(&json, "body", request->audited);
    json_put_int(&json, "status", http_exchange_status(request->exchange));
    json_put_double(&json, "seconds", (double)took_us / 1e6);
    write_line(request->faces, &text);
}

/* --- what ended ------------------------------------------------------------------------------ */

static void put_stream(struct json_writer *json, const char *name, const struct mask *secrets,
                       struct spool *spool)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(2 * OUTPUT_MAXIMUM);
    bool truncated;

    if (spool && spool_capture(spool, OUTPUT_MAXIMUM, &text, &truncated) == 0)
        put_masked(json, name, secrets, text.data, text.length);
}

static void put_output(struct json_writer *json, struct faces *faces,
                       const struct event_record *event)
{
    scoped(json_decref) json_t *data = json_read(event->data_json, strlen(event->data_json), NULL);
    const char *id = json_string_value(json_object_get(data, "execution_id"));
    struct execution *execution = id ? execution_find(faces->parts.core, event->session_id, id)
                                     : NULL;

    if (!execution)
        return;
    put_stream(json, "stdout", execution_mask(execution), execution_stdout(execution));
    put_stream(json, "stderr", execution_mask(execution), execution_stderr(execution));
}

static bool is_audited(const char *type)
{
    static const char *const types[] = { "command.blocked", "command.warned",
                                         "session.created", "execution.started",
                                         "execution.ended", "sandbox.crashed",
                                         "sandbox.evicted", "sandbox.destroyed",
                                         "session.ended" };

    for (size_t i = 0; i < ARRAY_LENGTH(types); i++)
        if (str_equal(type, types[i]))
            return true;
    return false;
}

static void write_event(struct faces *faces, const struct event_record *event, bool is_recovered)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(LINE_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    bool is_execution = str_equal(event->type, "execution.ended");

    json_begin_object(&json, NULL);
    json_put_text(&json, "type", event->type);
    if (is_recovered) {
        json_put_bool(&json, "recovered", true);
        json_put_time(&json, "happened", event->wall_us);
    }
    json_put_text(&json, "owner", event->owner);
    json_put_text(&json, "session", event->session_id);
    json_put_raw(&json, "data", str_is_empty(event->data_json) ? "{}" : event->data_json);
    if (is_execution && faces->parts.config->audit.output && !str_is_empty(event->data_json))
        put_output(&json, faces, event);
    write_line(faces, &text);
}

static void on_event(struct events_watcher *watcher, const struct event_record *event)
{
    struct audit_trail *trail = container_of(watcher, struct audit_trail, watcher);

    if (!trail->is_catching_up)
        audit_covers(trail->faces->parts.audit, event->sequence);
    if (is_audited(event->type))
        write_event(trail->faces, event, false);
}

/* --- after a kill ---------------------------------------------------------------------------- */

static void on_missing(struct event_page *page, const struct event_record *event)
{
    struct audit_trail *trail = container_of(page, struct audit_trail, missing);

    trail->in_page++;
    trail->position = event->sequence;
    if (event->sequence > trail->last)
        return; /* of this daemon */
    audit_covers(trail->faces->parts.audit, event->sequence);
    if (!is_audited(event->type))
        return;
    write_event(trail->faces, event, true);
    trail->recovered++;
}

static void read_missing(struct audit_trail *trail);

static void caught_up(struct audit_trail *trail)
{
    struct faces *faces = trail->faces;

    trail->is_catching_up = false;
    audit_covers(faces->parts.audit, events_last(faces->parts.core->events));
    if (trail->recovered)
        log_warn(
            "the audit log lacked the last records before the daemon was killed; they were added",
            kv("lines", trail->recovered));
    audit_start(faces->parts.audit, trail->recovered);
}

static void on_missing_read(struct event_page *page)
{
    struct audit_trail *trail = container_of(page, struct audit_trail, missing);

    if (page->err.code)
        log_error("the store cannot be read for records that the audit log lacks",
                  kv("error", page->err.message));
    else if (trail->in_page == RECOVERED_PAGE && trail->position < trail->last)
        read_missing(trail);
    else
        caught_up(trail);
}

static void read_missing(struct audit_trail *trail)
{
    trail->in_page = 0;
    trail->missing = (struct event_page){ .on_event = on_missing,
                                          .done = on_missing_read,
                                          .after = trail->position,
                                          .limit = RECOVERED_PAGE };
    event_page_read(&trail->missing, trail->faces->parts.core);
}

/* The store answers in order: the first page is written before anything of this daemon. */
static void catch_up(struct audit_trail *trail)
{
    struct audit_left left = audit_left(trail->faces->parts.audit);

    trail->last = events_last(trail->faces->parts.core->events);
    trail->position = left.event;
    trail->is_catching_up = true;
    if (left.was_interrupted && left.event < trail->last)
        read_missing(trail);
    else
        caught_up(trail);
}

struct audit_trail *audit_trail_new(struct faces *faces)
{
    struct audit_trail *trail;

    if (!faces->parts.audit)
        return NULL;
    trail = xnew(struct audit_trail);
    trail->faces = faces;
    trail->watcher.on_event = on_event;
    events_overhear(faces->parts.core->events, &trail->watcher);
    catch_up(trail);
    return trail;
}

void audit_trail_free(struct audit_trail *trail)
{
    if (!trail)
        return;
    events_unwatch(&trail->watcher);
    free(trail);
}
