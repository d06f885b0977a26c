/* SPDX-License-Identifier: Apache-2.0 */
/* An exchange that one node relays to another: a client, the entry node and the home, all of them on
 * one loop with real sockets between them. */

#include "cluster/relay.h"

#include "base/alloc.h"
#include "base/str.h"
#include "net/http_client.h"
#include "net/http_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BIG_BYTES = 40 * 1000 * 1000 /* more than sockets hold */, DEADLINE_MS = 60 * 1000 };

static const struct relay_secret secret = { .bytes = "a secret of thirty-two bytes ...",
                                            .length = 32 };
static const struct relay_secret other_secret = { .bytes = "another secret, of thirty-two ..",
                                                  .length = 32 };

static struct {
    struct loop *loop;
    struct http_server *entry, *home;
    struct relay *entry_relay, *home_relay;
    struct http_client *client;
    char home_url[64];
    uint64_t home_epoch; /* as the entry node knows it */
    bool home_alive;     /* likewise */
    bool reads_body;     /* the entry node reads the body before it relays */
    unsigned requests;   /* that the home has served */
    unsigned refused;    /* and not */
    unsigned gone;       /* exchanges of the home that are over */
    unsigned failures;   /* told to the entry node */
    enum relay_failure failure;
    struct error err;
    struct http_exchange *held; /* at the home */
    size_t written;             /* of /big */
    size_t uploaded;
} rig;

#define rig_wait(condition)                                                   \
    do {                                                                      \
        int64_t deadline_us_ = loop_now_us(rig.loop) + DEADLINE_MS * 1000LL;  \
        while (!(condition)) {                                                \
            if (loop_now_us(rig.loop) > deadline_us_)                         \
                fail_msg("%s:%d: never: %s", __FILE__, __LINE__, #condition); \
            loop_turn(rig.loop, 5);                                           \
        }                                                                     \
    } while (0)

/* --- the home -------------------------------------------------------------------------------- */

static uint8_t pattern(size_t at)
{
    return (uint8_t)(at * 7 + (at >> 9));
}

static void assert_pattern(const uint8_t *data, size_t length, size_t at)
{
    for (size_t i = 0; i < length; i++) {
        if (data[i] != pattern(at + i))
            fail_msg("byte %zu is wrong", at + i);
    }
}

static void on_home_closed(struct http_exchange *exchange)
{
    rig.gone++;
    if (rig.held == exchange)
        rig.held = NULL;
}

static void on_echo(struct http_exchange *exchange, const uint8_t *data, size_t length)
{
    if (length)
        http_respond_write(exchange, data, length);
    else
        http_respond_end(exchange);
}

static void on_upload(struct http_exchange *exchange, const uint8_t *data, size_t length)
{
    assert_pattern(data, length, rig.uploaded);
    rig.uploaded += length;
    if (!length)
        http_respond(exchange, 201, "text/plain", "taken", 5);
}

static void write_big(struct http_exchange *exchange)
{
    uint8_t piece[40000];

    while (rig.written < BIG_BYTES && http_respond_pending(exchange) < HTTP_HIGH_WATER) {
        size_t length = MIN(sizeof(piece), BIG_BYTES - rig.written);

        for (size_t i = 0; i < length; i++)
            piece[i] = pattern(rig.written + i);
        http_respond_write(exchange, piece, length);
        rig.written += length;
    }
    if (rig.written == BIG_BYTES)
        http_respond_end(exchange);
}

static void tell_who(struct http_exchange *exchange, const struct relay_identity *identity)
{
    const struct http_head *head = http_exchange_head(exchange);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(16 * 1024);

    buffer_appendf(&text,
                   "%s %s from=%s owner=%s principal=%s behalf=%s peer=%s roles=%u flags=%u\n",
                   http_method_name(head->method), head->target, identity->from, identity->owner,
                   identity->principal, identity->on_behalf_of, identity->peer, identity->roles,
                   identity->flags);
    for (size_t i = 0; i < head->header_count; i++) {
        if (strcmp(head->headers[i].name, RELAY_HEADER_LOWER) != 0)
            buffer_appendf(&text, "%s: %s\n", head->headers[i].name, head->headers[i].value);
    }
    http_respond_header(exchange, "ETag", "\"v1\"");
    http_respond_header(exchange, "Cache-Control", "max-age=60");
    http_respond(exchange, 200, "text/plain", text.data, text.length);
}

static void on_small(struct http_exchange *exchange, struct buffer *body)
{
    http_respond(exchange, 200, "text/plain", body->data, body->length);
}

static void serve(struct http_exchange *exchange, const struct relay_identity *identity)
{
    const char *path = http_exchange_head(exchange)->path;

    if (str_equal(path, "/who")) {
        tell_who(exchange, identity);
    } else if (str_equal(path, "/echo")) {
        http_respond_start(exchange, 200, "application/octet-stream", -1);
        http_exchange_stream_body(exchange, on_echo);
    } else if (str_equal(path, "/small")) {
        http_exchange_read_body(exchange, 1 << 20, on_small);
    } else if (str_equal(path, "/upload")) {
        http_exchange_stream_body(exchange, on_upload);
    } else if (str_equal(path, "/big")) {
        http_respond_start(exchange, 200, "application/octet-stream", BIG_BYTES);
        http_respond_on_drain(exchange, write_big);
        write_big(exchange);
    } else if (str_equal(path, "/events")) {
        rig.held = exchange;
        http_respond_start(exchange, 200, "text/event-stream", -1);
        http_respond_write(exchange, "data: 1\n\n", 9);
    } else if (str_equal(path, "/stream")) {
        http_respond_upgrade(exchange, "tcp", on_echo);
    } else if (str_equal(path, "/moved")) {
        http_respond_header(exchange, RELAY_REFUSED_HEADER, RELAY_REFUSED_MOVED);
        http_respond(exchange, 503, "text/plain", "moved", 5);
    } else if (str_equal(path, "/die")) {
        http_exchange_abort(exchange);
    } else if (str_equal(path, "/none")) {
        http_respond(exchange, 204, NULL, NULL, 0);
    } else {
        rig.held = exchange;
    }
}

static void on_home_request(void *context UNUSED, struct http_exchange *exchange)
{
    scoped(relay_identity_fini) struct relay_identity identity = { 0 };
    struct relay_node self = { "home", 9, NULL };
    struct error err = { 0 };
    const char *refusal;
    const char *id = http_head_header(http_exchange_head(exchange), "x-request-id");

    http_exchange_on_close(exchange, on_home_closed);
    if (relay_accept(rig.home_relay, &self, http_exchange_head(exchange), &identity, &refusal,
                     &err) < 0) {
        rig.refused++;
        if (refusal)
            http_respond_header(exchange, RELAY_REFUSED_HEADER, refusal);
        http_respond(exchange, refusal ? 503 : 403, "text/plain", err.name, strlen(err.name));
        return;
    }
    if (id)
        http_exchange_set_id(exchange, id);
    rig.requests++;
    serve(exchange, &identity);
}

/* --- the entry node -------------------------------------------------------------------------- */

struct entry {
    struct relayed *relayed; /* NULL when it has failed */
    struct http_exchange *exchange;
};

static const struct relay_identity caller = { .owner = "al;ice",
                                              .principal = "agent",
                                              .on_behalf_of = "bob",
                                              .peer = "10.0.0.1:1",
                                              .roles = 3,
                                              .flags = RELAY_OPERATOR };

static void on_entry_closed(struct http_exchange *exchange)
{
    struct entry *entry = http_exchange_user(exchange);

    if (entry->relayed)
        relayed_close(entry->relayed);
    free(entry);
}

static void on_entry_data(struct http_exchange *exchange, const uint8_t *data, size_t length)
{
    const struct entry *entry = http_exchange_user(exchange);

    if (entry->relayed)
        relayed_data(entry->relayed, data, length);
}

static void on_entry_drain(struct http_exchange *exchange)
{
    const struct entry *entry = http_exchange_user(exchange);

    if (entry->relayed)
        relayed_drained(entry->relayed);
}

static void on_relay_failed(void *user, enum relay_failure failure, const struct error *err)
{
    struct entry *entry = user;

    rig.failures++;
    rig.failure = failure;
    rig.err = *err;
    entry->relayed = NULL;
    http_respond(entry->exchange, 503, "text/plain", err->name, strlen(err->name));
}

static void relay_on(struct http_exchange *exchange, const struct buffer *body)
{
    struct entry *entry = http_exchange_user(exchange);

    entry->relayed =
        relay_start(rig.entry_relay, &(struct relay_request){
                                         .exchange = exchange,
                                         .from = { "entry", 4, NULL },
                                         .to = { "home", rig.home_epoch, rig.home_url },
                                         .caller = &caller,
                                         .body = body,
                                         .on_failed = on_relay_failed,
                                         .user = entry,
                                         .on_data = on_entry_data,
                                         .on_drain = on_entry_drain,
                                     });
}

static void on_entry_body(struct http_exchange *exchange, struct buffer *body)
{
    relay_on(exchange, body);
}

static void on_entry_request(void *context UNUSED, struct http_exchange *exchange)
{
    struct entry *entry = xnew(struct entry);

    entry->exchange = exchange;
    http_exchange_set_user(exchange, entry);
    http_exchange_on_close(exchange, on_entry_closed);
    http_respond_header(exchange, "Cache-Control", "no-store");
    if (rig.reads_body)
        http_exchange_read_body(exchange, 1 << 20, on_entry_body);
    else
        relay_on(exchange, NULL);
}

static bool is_alive(void *context UNUSED, const char *node UNUSED, uint64_t epoch UNUSED)
{
    return rig.home_alive;
}

/* --- rig ------------------------------------------------------------------------------------- */

static int start(void **state UNUSED)
{
    struct relay_parts parts = { .secret = &secret, .is_alive = is_alive };
    struct error err = { 0 };
    char url[64];

    memset(&rig, 0, sizeof(rig));
    rig.loop = parts.loop = loop_new(&clock_system);
    rig.home_epoch = 9;
    rig.home_alive = true;
    rig.entry_relay = relay_new(&parts);
    rig.home_relay = relay_new(&parts);
    rig.home = http_server_new(rig.loop, NULL, on_home_request, NULL);
    rig.entry = http_server_new(rig.loop, NULL, on_entry_request, NULL);
    assert_int_equal(http_server_listen(rig.home, "127.0.0.1:0", &err), 0);
    assert_int_equal(http_server_listen(rig.entry, "127.0.0.1:0", &err), 0);
    snprintf(rig.home_url, sizeof(rig.home_url), "http://127.0.0.1:%u", http_server_port(rig.home));
    snprintf(url, sizeof(url), "http://127.0.0.1:%u", http_server_port(rig.entry));
    rig.client = http_client_new(rig.loop, url, &err);
    assert_non_null(rig.client);
    return 0;
}

static int stop(void **state UNUSED)
{
    http_client_free(rig.client);
    http_server_free(rig.entry);
    http_server_free(rig.home);
    relay_free(rig.entry_relay);
    relay_free(rig.home_relay);
    loop_free(rig.loop);
    return 0;
}

static int fetch(enum http_method method, const char *target, const char *body, struct buffer *out)
{
    struct error err = { 0 };
    int status = http_client_fetch(rig.client, method, target, body ? "text/plain" : NULL, body,
                                   body ? strlen(body) : 0, out, &err);

    if (status < 0)
        fail_msg("%s", err.message);
    return status;
}

/* --- whole answers --------------------------------------------------------------------------- */

static void a_request_arrives_with_its_caller_and_without_credentials(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(1 << 20);
    const char *text;

    http_client_set_header(rig.client, "Authorization", "Bearer key");
    http_client_set_header(rig.client, "X-API-Key", "key");
    http_client_set_header(rig.client, RELAY_HEADER, "forged");
    http_client_set_header(rig.client, "X-Mine", "stays");
    http_client_set_header(rig.client, "Connection", "x-hop");
    http_client_set_header(rig.client, "X-Hop", "goes");
    assert_int_equal(fetch(HTTP_GET, "/who?a=%2Fb", NULL, &out), 200);
    text = buffer_text(&out);
    assert_non_null(strstr(text, "GET /who?a=%2Fb from=entry owner=al;ice principal=agent "
                                 "behalf=bob peer=10.0.0.1:1 roles=3 flags=1\n"));
    assert_non_null(strstr(text, "x-mine: stays\n"));
    assert_null(strstr(text, "authorization"));
    assert_null(strstr(text, "x-api-key"));
    assert_null(strstr(text, "x-hop"));
    assert_int_equal(rig.requests, 1);
}

struct seen {
    struct buffer body;
    int status;
    char etag[16], cache[32], id[64], upgrade[16];
    bool ended, failed;
    size_t pattern_bytes;
    bool is_pattern;
};

static void note(char *out, size_t size, const struct http_head *head, const char *name)
{
    const char *value = http_head_header(head, name);

    snprintf(out, size, "%s", value ? value : "");
}

static void on_seen_head(struct http_call *call, const struct http_head *head)
{
    struct seen *seen = http_call_user(call);

    seen->status = head->status;
    note(seen->etag, sizeof(seen->etag), head, "etag");
    note(seen->cache, sizeof(seen->cache), head, "cache-control");
    note(seen->id, sizeof(seen->id), head, "x-request-id");
    note(seen->upgrade, sizeof(seen->upgrade), head, "upgrade");
}

static void on_seen_data(struct http_call *call, const uint8_t *data, size_t length)
{
    struct seen *seen = http_call_user(call);

    if (!seen->is_pattern) {
        (void)buffer_append(&seen->body, data, length);
        return;
    }
    assert_pattern(data, length, seen->pattern_bytes);
    seen->pattern_bytes += length;
}

static void on_seen_end(struct http_call *call, const struct error *err)
{
    struct seen *seen = http_call_user(call);

    seen->ended = true;
    seen->failed = err != NULL;
    seen->status = http_call_status(call);
}

static const struct http_call_handler seeing = { .on_head = on_seen_head,
                                                 .on_data = on_seen_data,
                                                 .on_end = on_seen_end };

static struct http_call *get(struct seen *seen, const char *target, const char *const *headers)
{
    seen->body = BUFFER_INIT(1 << 20);
    return http_client_request(rig.client, HTTP_GET, target, NULL, NULL, 0, headers, &seeing, seen);
}

static void seen_fini(struct seen *seen)
{
    buffer_fini(&seen->body);
}

static inline void scoped_seen_fini(struct seen *seen)
{
    seen_fini(seen);
}

static void headers_of_the_answer_come_back_once(void **state UNUSED)
{
    scoped(seen_fini) struct seen seen = { 0 };

    get(&seen, "/who", NULL);
    rig_wait(seen.ended);
    assert_string_equal(seen.etag, "\"v1\"");
    assert_string_equal(seen.cache, "max-age=60");
    assert_true(str_starts_with(seen.id, "req_"));
    assert_non_null(strstr(buffer_text(&seen.body), seen.id)); /* the home had it too */
}

static void answers_without_a_body_stay_so(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(1 << 20);

    assert_int_equal(fetch(HTTP_GET, "/none", NULL, &out), 204);
    assert_int_equal(out.length, 0);
    assert_int_equal(fetch(HTTP_HEAD, "/who", NULL, &out), 200);
    assert_int_equal(out.length, 0);
    assert_int_equal(fetch(HTTP_GET, "/who", NULL, &out), 200);
    assert_int_equal(rig.requests, 3);
}

static void bodies_come_back_whole_streamed_or_read_before(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(1 << 20);

    assert_int_equal(fetch(HTTP_POST, "/echo", "hello", &out), 200);
    assert_string_equal(buffer_text(&out), "hello");
    rig.reads_body = true;
    assert_int_equal(fetch(HTTP_PUT, "/small", "hello again", &out), 200);
    assert_string_equal(buffer_text(&out), "hello again");
    assert_int_equal(fetch(HTTP_POST, "/small", NULL, &out), 200);
    assert_int_equal(out.length, 0);
}

/* --- streams --------------------------------------------------------------------------------- */

static void a_large_answer_waits_for_its_reader(void **state UNUSED)
{
    scoped(seen_fini) struct seen seen = { .is_pattern = true };
    struct http_call *call = get(&seen, "/big", NULL);

    rig_wait(seen.pattern_bytes > 0);
    http_call_pause(call);
    for (int i = 0; i < 200; i++)
        loop_turn(rig.loop, 1);
    assert_true(rig.written < BIG_BYTES); /* it stands still in the sockets and the queues */
    http_call_resume(call);
    rig_wait(seen.ended);
    assert_false(seen.failed);
    assert_int_equal(seen.pattern_bytes, BIG_BYTES);
}

static size_t sent_bytes;

static void on_upload_room(struct http_call *call)
{
    uint8_t piece[30000];
    size_t length = MIN(sizeof(piece), BIG_BYTES - sent_bytes);

    for (size_t i = 0; i < length; i++)
        piece[i] = pattern(sent_bytes + i);
    sent_bytes += length;
    if (length)
        http_call_write(call, piece, length);
    else
        http_call_end(call);
}

static void a_large_upload_arrives(void **state UNUSED)
{
    static const struct http_call_handler uploading = { .on_data = on_seen_data,
                                                        .on_writable = on_upload_room,
                                                        .on_end = on_seen_end };
    scoped(seen_fini) struct seen seen = { .body = BUFFER_INIT(1 << 20) };

    sent_bytes = 0;
    http_client_request(rig.client, HTTP_PUT, "/upload", NULL, NULL, -1, NULL, &uploading, &seen);
    rig_wait(seen.ended);
    assert_int_equal(seen.status, 201);
    assert_int_equal(rig.uploaded, BIG_BYTES);
}

static void events_come_as_they_happen_and_a_reader_that_leaves_is_noticed(void **state UNUSED)
{
    scoped(seen_fini) struct seen seen = { 0 };
    struct http_call *call = get(&seen, "/events", NULL);

    rig_wait(seen.body.length == 9);
    http_respond_write(rig.held, "data: 2\n\n", 9);
    rig_wait(seen.body.length == 18);
    assert_false(seen.ended);
    http_call_cancel(call);
    rig_wait(rig.gone == 1 && !rig.held);
}

static void an_upgrade_is_a_stream_both_ways(void **state UNUSED)
{
    static const char *const headers[] = { "Connection", "Upgrade", "Upgrade", "tcp", NULL };
    scoped(seen_fini) struct seen seen = { 0 };
    struct http_call *call = get(&seen, "/stream", headers);

    rig_wait(seen.status == 101);
    assert_string_equal(seen.upgrade, "tcp");
    loop_turn(rig.loop, 1);
    http_call_write(call, "ping", 4);
    rig_wait(seen.body.length == 4);
    http_call_write(call, "pong", 4);
    rig_wait(seen.body.length == 8);
    assert_memory_equal(seen.body.data, "pingpong", 8);
    http_call_end(call);
    rig_wait(seen.ended);
    assert_false(seen.failed);
}

static void connections_are_used_again(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(1 << 20);
    struct seen many[8] = { 0 };

    for (size_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < ARRAY_LENGTH(many); i++) {
            many[i] = (struct seen){ 0 };
            get(&many[i], "/who", NULL);
        }
        for (size_t i = 0; i < ARRAY_LENGTH(many); i++) {
            rig_wait(many[i].ended);
            assert_int_equal(many[i].status, 200);
            seen_fini(&many[i]);
        }
    }
    assert_int_equal(rig.requests, 24);
}

/* --- failures -------------------------------------------------------------------------------- */

static void a_home_that_is_not_there_is_unreached(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(1 << 20);

    snprintf(rig.home_url, sizeof(rig.home_url), "http://127.0.0.1:1");
    assert_int_equal(fetch(HTTP_GET, "/who", NULL, &out), 503);
    assert_string_equal(buffer_text(&out), "home_unreachable");
    assert_int_equal(rig.failures, 1);
    assert_int_equal(rig.failure, RELAY_UNREACHED);
    assert_true(rig.err.retryable);
    snprintf(rig.home_url, sizeof(rig.home_url), "http://");
    assert_int_equal(fetch(HTTP_GET, "/who", NULL, &out), 503);
    assert_int_equal(rig.failure, RELAY_UNREACHED);
}

static void a_session_that_has_moved_is_told_apart(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(1 << 20);

    assert_int_equal(fetch(HTTP_POST, "/moved", "body", &out), 503);
    assert_int_equal(rig.failure, RELAY_MOVED);
    rig.home_epoch = 8;
    assert_int_equal(fetch(HTTP_POST, "/who", "body", &out), 503);
    assert_int_equal(rig.failure, RELAY_MOVED);
    assert_int_equal(rig.requests, 1);
    assert_int_equal(rig.refused, 1);
}

static void a_request_is_sent_once_more_but_done_once(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(1 << 20);

    rig.reads_body = true;
    assert_int_equal(fetch(HTTP_POST, "/die", "body", &out), 503);
    assert_int_equal(rig.failure, RELAY_BROKEN);
    assert_int_equal(rig.requests, 1); /* the second had the same counter */
    assert_int_equal(rig.refused, 1);
}

static void an_idle_connection_that_the_home_closed_costs_nothing(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(1 << 20);
    struct error err = { 0 };

    rig.reads_body = true;
    assert_int_equal(fetch(HTTP_POST, "/small", "one", &out), 200);
    http_server_free(rig.home); /* and another daemon at its address */
    rig.home = http_server_new(rig.loop, NULL, on_home_request, NULL);
    assert_int_equal(http_server_listen(rig.home, rig.home_url + strlen("http://"), &err), 0);
    assert_int_equal(fetch(HTTP_POST, "/small", "two", &out), 200);
    assert_string_equal(buffer_text(&out), "two");
}

static void an_answer_that_breaks_off_is_cut_for_the_client(void **state UNUSED)
{
    scoped(seen_fini) struct seen seen = { 0 };

    get(&seen, "/events", NULL);
    rig_wait(seen.body.length == 9);
    http_exchange_abort(rig.held);
    rig_wait(seen.ended);
    assert_true(seen.failed);
}

static void a_node_that_loses_its_lease_is_given_up(void **state UNUSED)
{
    scoped(seen_fini) struct seen streamed = { 0 };
    scoped(seen_fini) struct seen waiting = { 0 };

    get(&streamed, "/events", NULL);
    rig_wait(streamed.body.length == 9);
    get(&waiting, "/hold", NULL);
    rig_wait(rig.requests == 2);
    rig.home_alive = false;
    rig_wait(streamed.ended && waiting.ended);
    assert_true(streamed.failed);
    assert_int_equal(waiting.status, 503);
    assert_string_equal(rig.err.name, "home_lost");
    assert_int_equal(rig.failure, RELAY_BROKEN);
}

static void a_header_of_a_stranger_is_refused(void **state UNUSED)
{
    struct relay_parts parts = { .loop = rig.loop, .secret = &other_secret };
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(1 << 20);

    relay_free(rig.entry_relay);
    rig.entry_relay = relay_new(&parts);
    assert_int_equal(fetch(HTTP_GET, "/who", NULL, &out), 403);
    assert_string_equal(buffer_text(&out), "relay_refused");
    assert_int_equal(rig.requests, 0);
}

static void a_call_of_our_own_is_signed_too(void **state UNUSED)
{
    scoped(seen_fini) struct seen seen = { .body = BUFFER_INIT(1 << 20) };
    struct error err = { 0 };

    assert_non_null(relay_call(rig.entry_relay,
                               &(struct relay_ask){ .from = { "entry", 4, NULL },
                                                    .to = { "home", 9, rig.home_url },
                                                    .caller = &caller,
                                                    .method = HTTP_GET,
                                                    .target = "/who?node=home" },
                               &seeing, &seen, &err));
    rig_wait(seen.ended);
    assert_int_equal(seen.status, 200);
    assert_non_null(strstr(buffer_text(&seen.body), "owner=al;ice"));
}

#define RIGGED(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIGGED(a_request_arrives_with_its_caller_and_without_credentials),
        RIGGED(headers_of_the_answer_come_back_once),
        RIGGED(answers_without_a_body_stay_so),
        RIGGED(bodies_come_back_whole_streamed_or_read_before),
        RIGGED(a_large_answer_waits_for_its_reader),
        RIGGED(a_large_upload_arrives),
        RIGGED(events_come_as_they_happen_and_a_reader_that_leaves_is_noticed),
        RIGGED(an_upgrade_is_a_stream_both_ways),
        RIGGED(connections_are_used_again),
        RIGGED(a_home_that_is_not_there_is_unreached),
        RIGGED(a_session_that_has_moved_is_told_apart),
        RIGGED(a_request_is_sent_once_more_but_done_once),
        RIGGED(an_idle_connection_that_the_home_closed_costs_nothing),
        RIGGED(an_answer_that_breaks_off_is_cut_for_the_client),
        RIGGED(a_node_that_loses_its_lease_is_given_up),
        RIGGED(a_header_of_a_stranger_is_refused),
        RIGGED(a_call_of_our_own_is_signed_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
