/* SPDX-License-Identifier: Apache-2.0 */
/* The MCP face over HTTP: which message is whose, what it is answered, and when a client is over. */

#include "../api/client.h"

#include "base/alloc.h"
#include "base/str.h"
#include "wire/jsonrpc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    MINUTE_MS = 60 * 1000,
    SESSION_NOT_FOUND = -32001,
    RESOURCE_NOT_FOUND = -32002,
    HEADER_MISMATCH = -32020,
    VERSION_UNSUPPORTED = -32022,
};

static struct front front;

static int setup(void **state)
{
    (void)state;
    front_start(&front);
    front.world.config.mcp.idle_timeout_ms = MINUTE_MS;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    front_stop(&front);
    return 0;
}

static struct answer post(const char *headers, const char *body)
{
    return call(&front, "POST", "/mcp", headers, body);
}

/* The code of a JSON-RPC error, 0 for a result. */
static int code_of(const struct answer *answer)
{
    return (int)json_integer_value(json_object_get(json_object_get(answer->json, "error"), "code"));
}

static const char *message_of(const struct answer *answer)
{
    return json_string_value(json_object_get(json_object_get(answer->json, "error"), "message"));
}

static json_t *result_of(const struct answer *answer)
{
    return json_object_get(answer->json, "result");
}

/* The value of Mcp-Session-Id in the head of an answer. */
static char *session_of(const struct answer *answer)
{
    const char *name = "Mcp-Session-Id: ";
    const char *at = strstr(answer->head, name);

    assert_non_null(at);
    at += strlen(name);
    return xstrndup(at, strcspn(at, "\r\n"));
}

#define INITIALIZE(version)                                                    \
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{"     \
    "\"protocolVersion\":\"" version "\",\"capabilities\":{},\"clientInfo\":{" \
    "\"name\":\"test\",\"version\":\"1\"}}}"

static char *initialize(const char *headers)
{
    scoped(answer_fini) struct answer answer = post(headers, INITIALIZE("2025-06-18"));

    assert_int_equal(answer.status, 200);
    return session_of(&answer);
}

/* A request of this client. */
static struct answer ask(const char *client, const char *method, const char *params)
{
    scoped(free) char *headers = xasprintf("Mcp-Session-Id: %s\r\n", client);
    scoped(free) char *body =
        xasprintf("{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"%s\",\"params\":%s}", method, params);

    return post(headers, body);
}

/* --- lifecycle ------------------------------------------------------------------------------- */

static void initialize_makes_a_client_and_agrees_on_a_version(void **state)
{
    scoped(answer_fini) struct answer known = post("", INITIALIZE("2025-03-26"));
    scoped(answer_fini) struct answer unknown = post("", INITIALIZE("1999-01-01"));
    scoped(free) char *first = session_of(&known);
    scoped(free) char *second = session_of(&unknown);

    (void)state;
    assert_int_equal(known.status, 200);
    assert_string_equal(json_string_value(json_object_get(result_of(&known), "protocolVersion")),
                        "2025-03-26");
    assert_string_equal(json_string_value(json_object_get(result_of(&unknown), "protocolVersion")),
                        "2025-11-25");
    assert_true(str_starts_with(first, "mcp_"));
    assert_string_not_equal(first, second);
}

static void initialize_needs_a_version_and_comes_once(void **state)
{
    scoped(free) char *client = initialize("");
    scoped(answer_fini) struct answer without =
        post("", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{}}");
    scoped(answer_fini) struct answer again =
        ask(client, "initialize", "{\"protocolVersion\":\"2025-06-18\"}");

    (void)state;
    assert_int_equal(without.status, 400);
    assert_int_equal(code_of(&without), JSONRPC_INVALID_PARAMS);
    assert_int_equal(code_of(&again), JSONRPC_INVALID_REQUEST);
}

static void a_ping_is_answered_and_a_notification_is_accepted(void **state)
{
    scoped(free) char *client = initialize("");
    scoped(free) char *header = xasprintf("Mcp-Session-Id: %s\r\n", client);
    scoped(answer_fini) struct answer ping = ask(client, "ping", "{}");
    scoped(answer_fini) struct answer note =
        post(header, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}");

    (void)state;
    assert_int_equal(ping.status, 200);
    assert_true(json_is_object(result_of(&ping)));
    assert_int_equal(json_integer_value(json_object_get(ping.json, "id")), 7);
    assert_int_equal(note.status, 202);
    assert_int_equal(note.length, 0);
}

static void a_client_that_is_deleted_is_gone(void **state)
{
    scoped(free) char *client = initialize("");
    scoped(free) char *header = xasprintf("Mcp-Session-Id: %s\r\n", client);
    scoped(answer_fini) struct answer gone = call(&front, "DELETE", "/mcp", header, NULL);
    scoped(answer_fini) struct answer after = ask(client, "ping", "{}");

    (void)state;
    assert_int_equal(gone.status, 204);
    assert_int_equal(after.status, 404);
    assert_int_equal(code_of(&after), SESSION_NOT_FOUND);
}

/* --- expiry ---------------------------------------------------------------------------------- */

static void a_client_that_says_nothing_expires(void **state)
{
    scoped(free) char *client = initialize("");

    (void)state;
    world_advance(&front.world, MINUTE_MS + 1);
    {
        scoped(answer_fini) struct answer answer = ask(client, "ping", "{}");

        assert_int_equal(answer.status, 404);
        assert_int_equal(code_of(&answer), SESSION_NOT_FOUND);
    }
}

static void a_client_that_says_something_does_not_expire(void **state)
{
    scoped(free) char *client = initialize("");

    (void)state;
    for (int i = 0; i < 5; i++) {
        scoped(answer_fini) struct answer answer = { 0 };

        world_advance(&front.world, MINUTE_MS - 1000);
        answer = ask(client, "ping", "{}");
        assert_int_equal(answer.status, 200);
    }
}

/* --- which message is whose ------------------------------------------------------------------ */

static void a_message_needs_a_client_that_is_the_callers_own(void **state)
{
    scoped(free) char *client = initialize("");
    scoped(free) char *stranger =
        xasprintf("Mcp-Session-Id: %s\r\nX-Sandglass-On-Behalf-Of: bob\r\n", client);
    static const char ping[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}";
    scoped(answer_fini) struct answer without = post("", ping);
    scoped(answer_fini) struct answer unknown =
        post("Mcp-Session-Id: mcp_00000000000000000000000000\r\n", ping);
    scoped(answer_fini) struct answer anothers = post(stranger, ping);

    (void)state;
    assert_int_equal(without.status, 400);
    assert_int_equal(code_of(&without), JSONRPC_INVALID_REQUEST);
    assert_int_equal(unknown.status, 404);
    assert_int_equal(anothers.status, 404);
    assert_int_equal(code_of(&anothers), SESSION_NOT_FOUND);
    assert_string_equal(message_of(&anothers), message_of(&unknown));
}

struct wrong {
    const char *body;
    int code;
};

static void what_is_not_a_message_is_refused_with_its_code(void **state)
{
    static const struct wrong cases[] = {
        { "{\"jsonrpc\":", JSONRPC_PARSE_ERROR },
        { "[]", JSONRPC_INVALID_REQUEST },
        { "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}", JSONRPC_INVALID_REQUEST },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":5}", JSONRPC_INVALID_REQUEST },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        scoped(answer_fini) struct answer answer = post("", cases[i].body);

        assert_int_equal(answer.status, 400);
        assert_int_equal(code_of(&answer), cases[i].code);
    }
}

static void an_unknown_method_and_an_unknown_tool_are_told_apart(void **state)
{
    scoped(free) char *client = initialize("");
    scoped(answer_fini) struct answer method = ask(client, "tools/dance", "{}");
    scoped(answer_fini) struct answer tool = ask(client, "tools/call", "{\"name\":\"dance\"}");

    (void)state;
    assert_int_equal(code_of(&method), JSONRPC_METHOD_NOT_FOUND);
    assert_int_equal(code_of(&tool), JSONRPC_INVALID_PARAMS);
}

static void the_tools_are_listed_with_closed_schemas(void **state)
{
    scoped(free) char *client = initialize("");
    scoped(answer_fini) struct answer answer = ask(client, "tools/list", "{}");
    json_t *tools = json_object_get(result_of(&answer), "tools");
    json_t *tool;
    size_t i;

    (void)state;
    assert_true(json_array_size(tools) > 5);
    json_array_foreach(tools, i, tool)
    {
        assert_non_null(json_string_value(json_object_get(tool, "name")));
        assert_non_null(json_string_value(json_object_get(tool, "description")));
        assert_true(json_is_object(json_object_get(tool, "inputSchema")));
    }
}

static void a_post_has_to_accept_one_of_the_two_kinds_of_answers(void **state)
{
    scoped(answer_fini) struct answer answer =
        post("Accept: text/html\r\n", INITIALIZE("2025-06-18"));

    (void)state;
    assert_int_equal(answer.status, 406);
    assert_int_equal(code_of(&answer), JSONRPC_INVALID_REQUEST);
}

/* --- resources ------------------------------------------------------------------------------- */

static void resources_are_named_by_templates_and_unknown_ones_are_refused(void **state)
{
    scoped(free) char *client = initialize("");
    scoped(answer_fini) struct answer list = ask(client, "resources/list", "{}");
    scoped(answer_fini) struct answer templates = ask(client, "resources/templates/list", "{}");
    scoped(answer_fini) struct answer without = ask(client, "resources/read", "{}");
    scoped(answer_fini) struct answer foreign =
        ask(client, "resources/read", "{\"uri\":\"file:///etc/passwd\"}");
    scoped(answer_fini) struct answer unknown = ask(
        client, "resources/read", "{\"uri\":\"sandglass://ses_00000000000000000000000000/note\"}");

    (void)state;
    assert_int_equal(json_array_size(json_object_get(result_of(&list), "resources")), 0);
    assert_int_equal(json_array_size(json_object_get(result_of(&templates), "resourceTemplates")),
                     1);
    assert_int_equal(code_of(&without), JSONRPC_INVALID_PARAMS);
    assert_int_equal(code_of(&foreign), RESOURCE_NOT_FOUND);
    assert_int_equal(code_of(&unknown), RESOURCE_NOT_FOUND);
    assert_non_null(strstr(message_of(&unknown), "not found"));
}

/* --- the stateless era ----------------------------------------------------------------------- */

#define META(version)                                                        \
    "{\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"" version     \
    "\",\"io.modelcontextprotocol/clientInfo\":{\"name\":\"t\",\"version\":" \
    "\"1\"},\"io.modelcontextprotocol/clientCapabilities\":{}}}"
#define STATELESS(version, method) \
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"" method "\",\"params\":" META(version) "}"

static void a_stateless_request_needs_no_client_and_headers_that_agree(void **state)
{
    scoped(answer_fini) struct answer good =
        post("Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n",
             STATELESS("2026-07-28", "tools/list"));
    scoped(answer_fini) struct answer mismatch =
        post("Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n",
             STATELESS("2026-07-28", "tools/list"));
    scoped(answer_fini) struct answer version =
        post("Mcp-Protocol-Version: 2031-01-01\r\nMcp-Method: tools/list\r\n",
             STATELESS("2031-01-01", "tools/list"));

    (void)state;
    assert_int_equal(good.status, 200);
    assert_true(json_array_size(json_object_get(result_of(&good), "tools")) > 5);
    assert_null(strstr(good.head, "Mcp-Session-Id"));
    assert_int_equal(mismatch.status, 400);
    assert_int_equal(code_of(&mismatch), HEADER_MISMATCH);
    assert_int_equal(version.status, 400);
    assert_int_equal(code_of(&version), VERSION_UNSUPPORTED);
}

/* --- the face -------------------------------------------------------------------------------- */

static void the_face_answers_its_paths_and_no_others(void **state)
{
    scoped(answer_fini) struct answer method = call(&front, "PATCH", "/mcp", "", NULL);
    scoped(answer_fini) struct answer below = call(&front, "GET", "/mcp/more", "", NULL);
    scoped(answer_fini) struct answer beside = call(&front, "GET", "/mcpx", "", NULL);
    scoped(answer_fini) struct answer rest = call(&front, "GET", "/healthz", "", NULL);

    (void)state;
    assert_int_equal(method.status, 405);
    assert_non_null(strstr(method.head, "Allow: POST, GET, HEAD, DELETE"));
    assert_int_equal(below.status, 404);
    assert_string_equal(error_code_of(&below), "route_not_found");
    assert_int_equal(beside.status, 404);
    assert_int_equal(rest.status, 200);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(initialize_makes_a_client_and_agrees_on_a_version),
        TEST(initialize_needs_a_version_and_comes_once),
        TEST(a_ping_is_answered_and_a_notification_is_accepted),
        TEST(a_client_that_is_deleted_is_gone),
        TEST(a_client_that_says_nothing_expires),
        TEST(a_client_that_says_something_does_not_expire),
        TEST(a_message_needs_a_client_that_is_the_callers_own),
        TEST(what_is_not_a_message_is_refused_with_its_code),
        TEST(an_unknown_method_and_an_unknown_tool_are_told_apart),
        TEST(the_tools_are_listed_with_closed_schemas),
        TEST(a_post_has_to_accept_one_of_the_two_kinds_of_answers),
        TEST(resources_are_named_by_templates_and_unknown_ones_are_refused),
        TEST(a_stateless_request_needs_no_client_and_headers_that_agree),
        TEST(the_face_answers_its_paths_and_no_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
