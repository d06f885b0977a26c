/* What was asked for, and what ended, for the audit log. */

#include "audit/audit.h"
#include "api/sessions.h"
#include "audit/redact.h"
#include "auth/credentials.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/mask.h"
#include "base/str.h"
#include "config/config.h"
#include "core/events.h"
#include "core/output/spool.h"
#include "core/run/execution.h"
#include "core/session/secrets.h"
#include "service/event_page.h"

#include <stdlib.h>
#include <string.h>

enum { LINE_MAXIMUM = 256 * 1024, TARGET_MAXIMUM = 2048, OUTPUT_MAXIMUM = 32 * 1024 };

enum { RECOVERED_PAGE = 10000 };

struct api_audit {
    struct api *api; /* borrowed */
    struct events_watcher watcher;

    /* What the store knows and the log of a killed daemon does not. */
    struct event_page missing;
    uint64_t position; /* of the last event that was read */
    uint64_t last;     /* of the killed daemon */
    uint64_t recovered;
    unsigned in_page;
    bool is_catching_up;
};

/* The members of an object that the writer has begun are handed over without its brace. */
static void write_line(struct api *api, struct buffer *text)
{
    if (!text->overflowed)
        buffer_consume(text, 1);
    audit_write(api->parts.audit, text);
}

/* --- requests -------------------------------------------------------------------------------- */

static bool changes_something(const struct api_request *request)
{
    return request->route && request->route->method != HTTP_GET;
}

/* Of strangers only wrong credentials are noted, of which there is a limit: nobody fills the disk
 * who does not say who he is. */
static bool is_noted(const struct api_request *request)
{
    if (request->owner)
        return changes_something(request);
    return http_exchange_status(request->exchange) == 401 &&
           (http_head_header(http_exchange_head(request->exchange), "authorization") ||
            http_head_header(http_exchange_head(request->exchange), "x-api-key"));
}

static void put_caller(struct json_writer *json, const struct api_request *request)
{
    char peer[PEER_NAME_SIZE];

    peer_name(http_exchange_peer(request->exchange), peer);
    json_put_text(json, "principal", request->principal ? request->principal : "");
    json_put_text(json, "owner", request->owner ? request->owner : "");
    json_put_text(json, "on_behalf_of", request->on_behalf_of ? request->on_behalf_of : "");
    json_put_text(json, "peer", peer);
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
    api_unescape(spaced, strlen(spaced), decoded);
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

static void put_target(struct json_writer *json, const struct api_request *request)
{
    const struct http_head *head = http_exchange_head(request->exchange);

    json_put_text(json, "method", http_method_name(head->method));
    json_put_text(json, "route", request->route ? request->route->path : "");
    if (request->route && strstr(request->route->path, "{token}"))
        json_put_text(json, "target", request->route->path); /* it is a permission */
    else
        put_masked_target(json, request->secrets, head->target);
    json_put_text(json, "session", *request->session_id ? request->session_id : NULL);
}

/* Of the session that is meant, if it is the caller's, and of the request itself. */
static struct mask *find_secrets(const struct api_request *request)
{
    const char *in_body = json_string_value(json_object_get(request->body, "session_id"));
    const char *in_path = request->route->session ? api_path(request, "session") : NULL;
    const char *reference = in_path ? in_path : in_body;
    scoped(free) char *given = json_to_text(json_object_get(request->body, "secrets"));
    struct identity identity = api_identity(request);
    const struct session *session =
        reference ? find_live_session(request->core, &identity, reference, NULL) : NULL;

    return secrets_join(session ? session_secrets(session) : NULL, given);
}

void api_audit_begin(struct api_request *request)
{
    if (request->api->audit && changes_something(request))
        request->secrets = find_secrets(request);
}

void api_audit_body(struct api_request *request)
{
    struct buffer text = BUFFER_INIT(LINE_MAXIMUM);

    if (!request->api->audit || !changes_something(request))
        return;
    mask_free(request->secrets);
    request->secrets = find_secrets(request);
    redact_body(request->body, request->secrets, request->api->parts.config->audit.code, &text);
    request->audited = buffer_steal_text(&text);
}

void api_audit_request(struct api_request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(LINE_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    int64_t took_us = loop_now_us(request->api->parts.loop) - request->began_us;

    if (!request->api->audit || !is_noted(request))
        return;
    json_begin_object(&json, NULL);
    json_put_text(&json, "type", request->owner ? "request" : "wrong_credentials");
    json_put_text(&json, "request_id", http_exchange_id(request->exchange));
    put_caller(&json, request);
    put_target(&json, request);
    if (request->audited)
        json_put_raw(&json, "body", request->audited);
    json_put_int(&json, "status", http_exchange_status(request->exchange));
    json_put_double(&json, "seconds", (double)took_us / 1e6);
    write_line(request->api, &text);
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

static void put_output(struct json_writer *json, struct api *api, const struct event_record *event)
{
    scoped(json_decref) json_t *data = json_read(event->data_json, strlen(event->data_json), NULL);
    const char *id = json_string_value(json_object_get(data, "execution_id"));
    struct execution *execution = id ? execution_find(api->parts.core, event->session_id, id)
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

static void write_event(struct api *api, const struct event_record *event, bool is_recovered)
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
    if (is_execution && api->parts.config->audit.output && !str_is_empty(event->data_json))
        put_output(&json, api, event);
    write_line(api, &text);
}

static void on_event(struct events_watcher *watcher, const struct event_record *event)
{
    struct api_audit *audit = container_of(watcher, struct api_audit, watcher);

    if (!audit->is_catching_up)
        audit_covers(audit->api->parts.audit, event->sequence);
    if (is_audited(event->type))
        write_event(audit->api, event, false);
}

/* --- after a kill ---------------------------------------------------------------------------- */

static void on_missing(struct event_page *page, const struct event_record *event)
{
    struct api_audit *audit = container_of(page, struct api_audit, missing);

    audit->in_page++;
    audit->position = event->sequence;
    if (event->sequence > audit->last)
        return; /* of this daemon */
    audit_covers(audit->api->parts.audit, event->sequence);
    if (!is_audited(event->type))
        return;
    write_event(audit->api, event, true);
    audit->recovered++;
}

static void read_missing(struct api_audit *audit);

static void caught_up(struct api_audit *audit)
{
    struct api *api = audit->api;

    audit->is_catching_up = false;
    audit_covers(api->parts.audit, events_last(api->parts.core->events));
    if (audit->recovered)
        log_warn("the audit log lacked what happened before the daemon was killed; it was added",
                 kv("lines", audit->recovered));
    audit_start(api->parts.audit, audit->recovered);
}

static void on_missing_read(struct event_page *page)
{
    struct api_audit *audit = container_of(page, struct api_audit, missing);

    if (page->err.code)
        log_error("the store cannot tell what the audit log lacks", kv("error", page->err.message));
    else if (audit->in_page == RECOVERED_PAGE && audit->position < audit->last)
        read_missing(audit);
    else
        caught_up(audit);
}

static void read_missing(struct api_audit *audit)
{
    audit->in_page = 0;
    audit->missing = (struct event_page){ .on_event = on_missing,
                                          .done = on_missing_read,
                                          .after = audit->position,
                                          .limit = RECOVERED_PAGE };
    event_page_read(&audit->missing, audit->api->parts.core);
}

/* The store answers in order: the first page is written before anything of this daemon. */
static void catch_up(struct api_audit *audit)
{
    struct audit_left left = audit_left(audit->api->parts.audit);

    audit->last = events_last(audit->api->parts.core->events);
    audit->position = left.event;
    audit->is_catching_up = true;
    if (left.was_interrupted && left.event < audit->last)
        read_missing(audit);
    else
        caught_up(audit);
}

struct api_audit *api_audit_new(struct api *api)
{
    struct api_audit *audit;

    if (!api->parts.audit)
        return NULL;
    audit = xnew(struct api_audit);
    audit->api = api;
    audit->watcher.on_event = on_event;
    events_overhear(api->parts.core->events, &audit->watcher);
    catch_up(audit);
    return audit;
}

void api_audit_free(struct api_audit *audit)
{
    if (!audit)
        return;
    events_unwatch(&audit->watcher);
    free(audit);
}
