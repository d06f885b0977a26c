/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine's JSON says about a container. */

#include "backend/docker/docker_private.h"

#include "base/scoped.h"
#include "base/str.h"
#include "wire/json.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* The labels of the result are those of the document, which is freed. */
static bool read_text(const char *text, struct container_state *out_state)
{
    json_t *document = json_loads(text, JSON_DECODE_ANY, NULL);
    bool is_read;

    assert_non_null(document);
    is_read = container_state_read(document, out_state);
    json_decref(document);
    return is_read;
}

/* With these members of State. */
static struct container_state state_of(const char *members)
{
    struct container_state state;
    char text[2048];

    snprintf(text, sizeof(text), "{\"Id\": \"" ID "\", \"State\": {%s}}", members);
    assert_true(read_text(text, &state));
    return state;
}

static void what_is_no_container_is_not_read(void **state)
{
    static const char *const texts[] = {
        "null",
        "7",
        "[]",
        "\"State\"",
        "{}",
        "{\"Id\": \"" ID "\"}",
        "{\"State\": {}}",
        "{\"Id\": \"\", \"State\": {}}",
        "{\"Id\": 7, \"State\": {}}",
        "{\"Id\": \"" ID "\", \"State\": []}",
        "{\"Id\": \"" ID "\", \"State\": \"running\"}",
        "{\"Id\": \"" ID "0\", \"State\": {}}",
        "{\"Id\": \"../../info\", \"State\": {}}",
        "{\"Id\": \"ABCDEF\", \"State\": {}}",
        "{\"Id\": \"" ID
        "\", \"State\": {\"StartedAt\": \"0123456789012345678901234567890123456789\"}}",
        "{\"Id\": \"" ID "\", \"State\": {\"StartedAt\": \"today, at noon\"}}",
    };
    struct container_state read;

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++)
        if (read_text(texts[i], &read))
            fail_msg("%s is read as a container", texts[i]);
}

static void what_is_missing_or_of_another_type_is_zero(void **state)
{
    static const char *const members[] = {
        "",
        "\"Running\": 1, \"Paused\": \"true\", \"OOMKilled\": null, \"ExitCode\": \"7\", "
        "\"Pid\": [4], \"StartedAt\": 5",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(members); i++) {
        struct container_state read = state_of(members[i]);

        assert_string_equal(read.engine_id, ID);
        assert_string_equal(read.started_at, "");
        assert_false(read.is_running || read.is_paused || read.was_started || read.is_oom);
        assert_int_equal(read.exit_code, 0);
        assert_int_equal(read.pid, 0);
        assert_string_equal(read.instance, "");
        assert_string_equal(read.sandbox, "");
        assert_string_equal(read.backend, "");
    }
}

static void numbers_out_of_range_are_none(void **state)
{
    static const char *const pids[] = { "-1",        "-4711",  "4294967297",
                                        "1e300",     "-1e300", "9223372036854775807",
                                        "2147483648" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(pids); i++) {
        char members[256];

        snprintf(members, sizeof(members), "\"Pid\": %s", pids[i]);
        assert_int_equal(state_of(members).pid, 0);
    }
    assert_int_equal(state_of("\"ExitCode\": 1e300").exit_code, 0);
    assert_int_equal(state_of("\"ExitCode\": 9223372036854775807").exit_code, 0);
    assert_int_equal(state_of("\"ExitCode\": -1").exit_code, -1);
    assert_int_equal(state_of("\"Pid\": 4711.0").pid, 4711); /* where a counter is unlimited */
}

static void counters_are_bounded(void **state)
{
    scoped(json_decref) json_t *object =
        json_loads("{\"a\": 5, \"b\": -5, \"c\": 1e300, \"d\": \"5\", \"e\": 1e15}", 0, NULL);

    (void)state;
    assert_int_equal(json_count_at(object, "a"), 5);
    assert_int_equal(json_count_at(object, "b"), 0);
    assert_int_equal(json_count_at(object, "c"), 0);
    assert_int_equal(json_count_at(object, "d"), 0);
    assert_int_equal(json_count_at(object, "e"), 1000000000000000);
    assert_int_equal(json_count_at(object, "f"), 0);
    assert_int_equal(json_count_at(NULL, "a"), 0);
}

static void a_running_container_is_read(void **state)
{
    struct container_state read =
        state_of("\"Status\": \"running\", \"Running\": true, \"Paused\": false, \"Pid\": 4711, "
                 "\"StartedAt\": \"2026-11-17T11:00:00.123456789Z\"");

    (void)state;
    assert_true(read.is_running && read.was_started);
    assert_false(read.is_paused || read.is_oom);
    assert_int_equal(read.pid, 4711);
    assert_string_equal(read.started_at, "2026-11-17T11:00:00.123456789Z");
}

/* Podman calls a paused one not running, and writes the zone of the host. */
static void a_paused_container_runs(void **state)
{
    struct container_state docker =
        state_of("\"Running\": true, \"Paused\": true, \"StartedAt\": \"2026-11-17T11:00:00.5Z\"");
    struct container_state podman = state_of("\"Running\": false, \"Paused\": true, \"StartedAt\": "
                                             "\"2026-11-17T12:00:00.123456789+01:00\"");

    (void)state;
    assert_true(docker.is_running && docker.is_paused);
    assert_true(podman.is_running && podman.is_paused && podman.was_started);
}

static void a_container_that_was_never_started_is_told(void **state)
{
    (void)state;
    assert_false(state_of("\"StartedAt\": \"0001-01-01T00:00:00Z\"").was_started);
    assert_false(state_of("\"StartedAt\": \"\"").was_started);
    assert_false(
        state_of("\"Running\": true, \"StartedAt\": \"0001-01-01T00:00:00Z\"").was_started);
}

static void its_labels_are_read(void **state)
{
    scoped(json_decref) json_t *document = json_loads(
        "{\"Id\": \"" ID "\", \"State\": {}, \"Config\": {\"Labels\": {\"sandglass.instance\": "
        "\"main\", \"sandglass.sandbox\": \"sbx_1\", \"sandglass.backend\": \"gvisor\"}}}",
        0, NULL);
    scoped(json_decref) json_t *other =
        json_loads("{\"Id\": \"" ID "\", \"State\": {}, \"Config\": {\"Labels\": null}}", 0, NULL);
    struct container_state read;

    (void)state;
    assert_true(container_state_read(document, &read));
    assert_string_equal(read.instance, "main");
    assert_string_equal(read.sandbox, "sbx_1");
    assert_string_equal(read.backend, "gvisor");
    assert_true(container_state_read(other, &read));
    assert_string_equal(read.instance, "");
}

/* --- its end ---------------------------------------------------------------------------------- */

static void an_exit_code_tells_an_exit_from_a_signal(void **state)
{
    static const struct {
        int exit_code, code, signal;
    } rows[] = {
        { 0, 0, 0 },     { 1, 1, 0 },     { 127, 127, 0 }, { 128, 128, 0 },
        { 137, -1, 9 },  { 143, -1, 15 }, { 139, -1, 11 }, { 192, -1, 64 },
        { 193, 193, 0 }, { 255, 255, 0 }, { -1, -1, 0 },   { 1000000, 1000000, 0 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct container_state read = { .exit_code = rows[i].exit_code };
        struct backend_end end = container_state_end(&read, false);

        assert_true(end.is_known);
        assert_int_equal(end.code, rows[i].code);
        assert_int_equal(end.signal, rows[i].signal);
        assert_string_equal(end.detail, "");
    }
}

static void the_cause_of_an_end_is_named(void **state)
{
    struct container_state killed = { .exit_code = 137 };
    struct container_state exhausted = { .exit_code = 137, .is_oom = true };
    struct container_state relay = { .exit_code = RELAY_EXIT_CODE };

    (void)state;
    assert_string_equal(container_state_end(&killed, true).detail, "killed through the engine");
    assert_true(container_state_end(&exhausted, false).oom);
    assert_string_equal(container_state_end(&exhausted, true).detail, "");
    assert_string_equal(container_state_end(&relay, false).detail, "relay");
}

/* --- its handle -------------------------------------------------------------------------------- */

static void a_handle_reads_back_as_it_was_written(void **state)
{
    struct container container = { .id = "sbx_1",
                                   .engine_id = ID,
                                   .started_at = "2026-11-17T12:00:00.123456789+01:00",
                                   .pid = 4194304 };
    struct backend_sandbox sandbox;
    struct container_handle handle;

    (void)state;
    container_write_handle(&container, &sandbox);
    assert_string_equal(sandbox.id, "sbx_1");
    assert_true(container_parse_handle(sandbox.handle, &handle));
    assert_string_equal(handle.engine_id, ID);
    assert_string_equal(handle.kind, "door");
    assert_string_equal(handle.started_at, container.started_at);
    assert_int_equal(handle.pid, container.pid);
    container.bridge = (struct bridge *)&container;
    container_write_handle(&container, &sandbox);
    assert_true(container_parse_handle(sandbox.handle, &handle));
    assert_string_equal(handle.kind, "relay");
}

static void what_is_no_handle_of_ours_is_not_read(void **state)
{
    static const char *const texts[] = {
        "",
        ",",
        "4711:1:0",
        "docker://" ID,
        ID,
        ID ",door",
        ID ",door,2026-11-17T11:00:00Z",
        ID ",window,2026-11-17T11:00:00Z,1",
        ID "0,door,2026-11-17T11:00:00Z,1",
        ID ",door,2026-11-17T11:00:00Z,",
        ID ",door,2026-11-17T11:00:00Z,-1",
        ID ",door,2026-11-17T11:00:00Z,1,2",
        ID ",door,2026-11-17T11:00:00Z,1 ",
        ID ",door,2026-11-17T11:00:00Z,99999999999999999999",
        ID ",door,today,1",
        ID ",door,,1",
        ",door,2026-11-17T11:00:00Z,1",
        "../x,door,2026-11-17T11:00:00Z,1",
    };
    struct container_handle handle;

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++)
        if (container_parse_handle(texts[i], &handle))
            fail_msg("\"%s\" is read as a handle", texts[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_container_is_not_read),
        cmocka_unit_test(what_is_missing_or_of_another_type_is_zero),
        cmocka_unit_test(numbers_out_of_range_are_none),
        cmocka_unit_test(counters_are_bounded),
        cmocka_unit_test(a_running_container_is_read),
        cmocka_unit_test(a_paused_container_runs),
        cmocka_unit_test(a_container_that_was_never_started_is_told),
        cmocka_unit_test(its_labels_are_read),
        cmocka_unit_test(an_exit_code_tells_an_exit_from_a_signal),
        cmocka_unit_test(the_cause_of_an_end_is_named),
        cmocka_unit_test(a_handle_reads_back_as_it_was_written),
        cmocka_unit_test(what_is_no_handle_of_ours_is_not_read),
    };

    return cmocka_run_group_tests_name("docker/container_state", tests, NULL, NULL);
}
