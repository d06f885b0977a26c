/* SPDX-License-Identifier: Apache-2.0 */
#include "core/run/environment.h"

#include "base/alloc.h"
#include "base/buffer.h"
#include "core/run/execution.h"
#include "harness/world.h"
#include "wire/protocol.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { DEFAULTS = 1, PIP_DEFAULTS = 3 /* where the sandbox has files of its own */ };

struct fixture {
    struct world world;
    char path[64]; /* the state directory: the key that secrets are sealed with */
    struct environment environment;
};

/* The daemon of every test has these and nothing else. */
static int setup(void **state)
{
    static struct fixture fixture;

    scoped(free) char *format =
        xstrdup(getenv("CMOCKA_MESSAGE_OUTPUT") ? getenv("CMOCKA_MESSAGE_OUTPUT") : "STDOUT");

    clearenv();
    setenv("CMOCKA_MESSAGE_OUTPUT", format, 1); /* how cmocka reports, read again for each line */
    setenv("PATH", "/daemon/bin", 1);
    setenv("LANG", "de_DE.UTF-8", 1);
    setenv("DAEMON_TOKEN", "canary", 1);
    fixture = (struct fixture){ 0 };
    world_init(&fixture.world);
    fixture.world.config.sandbox.env_pass = (struct config_list){ 0 };
    fixture.world.config.sandbox.env_set = (struct config_map){ 0 };
    snprintf(fixture.path, sizeof(fixture.path), "/tmp/test-environment-XXXXXX");
    assert_non_null(mkdtemp(fixture.path));
    fixture.world.state_dir = open(fixture.path, O_DIRECTORY | O_CLOEXEC);
    world_start(&fixture.world);
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;

    environment_fini(&fixture->environment);
    fixture->world.config.sandbox.env_pass = (struct config_list){ 0 };
    fixture->world.config.sandbox.env_set = (struct config_map){ 0 };
    world_fini(&fixture->world);
    (void)unlinkat(fixture->world.state_dir, "secret.key", 0);
    close(fixture->world.state_dir);
    assert_int_equal(rmdir(fixture->path), 0);
    return 0;
}

/* NULL when it is not set. */
static const char *value_of(const struct fixture *fixture, const char *name)
{
    size_t length = strlen(name);

    for (size_t i = 0; i < fixture->environment.count; i++) {
        const char *item = fixture->environment.items[i];

        if (strncmp(item, name, length) == 0 && item[length] == '=')
            return item + length + 1;
    }
    return NULL;
}

static void allow(struct fixture *fixture, char **names, size_t count)
{
    fixture->world.config.sandbox.env_pass.items = names;
    fixture->world.config.sandbox.env_pass.count = count;
}

static struct session *open_session(struct fixture *fixture, const char *env_json,
                                    const char *secrets_json)
{
    struct session_request request = SESSION_REQUEST_INIT;
    struct session *session;
    struct opened opened;

    request.owner = "ann";
    request.env_json = env_json;
    request.secrets_json = secrets_json;
    session = world_open(&fixture->world, &request, &opened);
    assert_non_null(session);
    return session;
}

static void make(struct fixture *fixture, const struct session *session,
                 const struct execution_request *request)
{
    struct error err = { 0 };

    assert_int_equal(environment_make(&fixture->environment, session, request, "exe_1", &err), 0);
}

static void nothing_of_the_daemon_passes_unless_it_is_listed(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = open_session(fixture, NULL, NULL);

    make(fixture, session, &(struct execution_request){ 0 });
    assert_int_equal(fixture->environment.count, DEFAULTS + PIP_DEFAULTS + 3);
    assert_string_equal(value_of(fixture, "SANDGLASS_SESSION_ID"), session_id(session));
    assert_string_equal(value_of(fixture, "SANDGLASS_EXECUTION_ID"), "exe_1");
    assert_string_equal(value_of(fixture, "PYTHONUNBUFFERED"), "1");
    assert_string_equal(value_of(fixture, "PIP_BREAK_SYSTEM_PACKAGES"), "1");
    assert_string_equal(value_of(fixture, "PIP_RETRIES"), "1"); /* it has no network */
    assert_null(fixture->environment.items[fixture->environment.count]);
}

static void add_common(struct fixture *fixture)
{
    static const struct backend_ops ops = { .name = "files of this host" };

    environment_add_common(&fixture->environment, &fixture->world.config,
                           &(struct backend){ .ops = &ops });
}

/* Where a program runs among the files of this host, pip keeps away from those of the system. */
static void a_sandbox_without_files_of_its_own_has_the_path_of_this_host(void **state)
{
    struct fixture *fixture = *state;

    add_common(fixture);
    assert_int_equal(fixture->environment.count, DEFAULTS + 1);
    assert_string_equal(value_of(fixture, "PATH"), "/daemon/bin");
    assert_null(value_of(fixture, "PIP_BREAK_SYSTEM_PACKAGES"));
}

static void settings_and_requests_replace_the_defaults(void **state)
{
    struct fixture *fixture = *state;
    char name[] = "PIP_RETRIES", value[] = "7";
    struct config_variable pairs[] = { { .name = name, .value = value } };
    struct session *session = open_session(fixture, "{\"PYTHONUNBUFFERED\":\"\"}", NULL);

    fixture->world.config.sandbox.env_set.items = pairs;
    fixture->world.config.sandbox.env_set.count = 1;
    make(fixture, session, &(struct execution_request){ 0 });
    assert_string_equal(value_of(fixture, "PYTHONUNBUFFERED"), "");
    assert_string_equal(value_of(fixture, "PIP_RETRIES"), "7");
}

static void no_variable_that_names_files_of_this_host_passes_to_an_image(void **state)
{
    static const struct backend_ops ops = { .capabilities = { .environment = true,
                                                              .templates = true } };
    struct fixture *fixture = *state;
    char path[] = "PATH", lang[] = "LANG", certificates[] = "SSL_CERT_DIR";
    char *names[] = { path, lang, certificates };

    setenv("SSL_CERT_DIR", "/daemon/certs", 1);
    allow(fixture, names, 3);
    environment_add_common(&fixture->environment, &fixture->world.config,
                           &(struct backend){ .ops = &ops });
    assert_int_equal(fixture->environment.count, DEFAULTS + PIP_DEFAULTS + 1);
    assert_string_equal(value_of(fixture, "LANG"), "de_DE.UTF-8");
}

static void a_listed_variable_passes_with_the_daemons_value(void **state)
{
    struct fixture *fixture = *state;
    char path[] = "PATH", absent[] = "ABSENT";
    char *names[] = { path, absent };

    allow(fixture, names, 2);
    add_common(fixture);
    assert_int_equal(fixture->environment.count, DEFAULTS + 1);
    assert_string_equal(value_of(fixture, "PATH"), "/daemon/bin");
}

static void a_listed_name_is_a_whole_name(void **state)
{
    struct fixture *fixture = *state;
    char beginning[] = "DAEMON", star[] = "DAEMON_*";
    char *names[] = { beginning, star };

    allow(fixture, names, 2);
    add_common(fixture);
    assert_int_equal(fixture->environment.count, DEFAULTS + 1);
    assert_null(value_of(fixture, "DAEMON_TOKEN"));
}

static void a_set_variable_wins_over_a_listed_one(void **state)
{
    struct fixture *fixture = *state;
    char path[] = "PATH", lang[] = "LANG", value[] = "/set/bin", own[] = "OWN", text[] = "a=b";
    char *names[] = { path, lang };
    struct config_variable pairs[] = { { .name = path, .value = value },
                                       { .name = own, .value = text } };

    allow(fixture, names, 2);
    fixture->world.config.sandbox.env_set.items = pairs;
    fixture->world.config.sandbox.env_set.count = 2;
    add_common(fixture);
    assert_int_equal(fixture->environment.count, DEFAULTS + 3);
    assert_string_equal(value_of(fixture, "PATH"), "/set/bin");
    assert_string_equal(value_of(fixture, "LANG"), "de_DE.UTF-8");
    assert_string_equal(value_of(fixture, "OWN"), "a=b");
}

/* Each layer overrides one variable of the layer below and keeps the others. */
static void the_layers_win_in_the_order_of_the_header(void **state)
{
    struct fixture *fixture = *state;
    char a[] = "A", b[] = "B", low[] = "set";
    struct config_variable pairs[] = { { .name = a, .value = low }, { .name = b, .value = low } };
    struct session *session = open_session(fixture, "{\"B\":\"session\",\"C\":\"session\"}",
                                           "{\"C\":\"session-secret\",\"D\":\"session-secret\"}");
    struct execution_request request = {
        .env_json = "{\"D\":\"request\",\"E\":\"request\"}",
        .secrets_json = "{\"E\":\"request-secret\",\"SANDGLASS_SESSION_ID\":\"forged\"}",
    };

    fixture->world.config.sandbox.env_set.items = pairs;
    fixture->world.config.sandbox.env_set.count = 2;
    make(fixture, session, &request);
    assert_string_equal(value_of(fixture, "A"), "set");
    assert_string_equal(value_of(fixture, "B"), "session");
    assert_string_equal(value_of(fixture, "C"), "session-secret");
    assert_string_equal(value_of(fixture, "D"), "request");
    assert_string_equal(value_of(fixture, "E"), "request-secret");
    assert_string_equal(value_of(fixture, "SANDGLASS_SESSION_ID"), session_id(session));
    assert_int_equal(fixture->environment.count, DEFAULTS + PIP_DEFAULTS + 8);
}

static void the_plain_locale_is_told_by_its_characters_unless_a_locale_was_given(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = open_session(fixture, NULL, NULL);
    char lang[] = "LANG", *names[] = { lang };

    setenv("LANG", "C.UTF-8", 1);
    allow(fixture, names, 1);
    make(fixture, session, &(struct execution_request){ 0 });
    assert_string_equal(value_of(fixture, "LC_CTYPE"), "C.UTF-8");
    assert_null(value_of(fixture, "LANG"));
    environment_fini(&fixture->environment);
    make(fixture, session, &(struct execution_request){ .env_json = "{\"LANG\":\"C\"}" });
    assert_string_equal(value_of(fixture, "LANG"), "C");
    assert_null(value_of(fixture, "LC_CTYPE"));
    environment_fini(&fixture->environment);
    make(fixture, session, &(struct execution_request){ .env_json = "{\"LC_ALL\":\"C\"}" });
    assert_null(value_of(fixture, "LANG"));
    assert_null(value_of(fixture, "LC_CTYPE"));
    environment_fini(&fixture->environment);
    setenv("LANG", "de_DE.UTF-8", 1);
    make(fixture, session, &(struct execution_request){ 0 });
    assert_string_equal(value_of(fixture, "LANG"), "de_DE.UTF-8");
    assert_null(value_of(fixture, "LC_CTYPE"));
}

static void a_terminal_has_a_type_unless_one_was_given(void **state)
{
    struct fixture *fixture = *state;
    struct session *session = open_session(fixture, NULL, NULL);

    make(fixture, session, &(struct execution_request){ .terminal = true });
    assert_string_equal(value_of(fixture, "TERM"), "xterm-256color");
    environment_fini(&fixture->environment);
    make(fixture, session,
         &(struct execution_request){ .terminal = true, .env_json = "{\"TERM\":\"dumb\"}" });
    assert_string_equal(value_of(fixture, "TERM"), "dumb");
}

static void setting_replaces_only_the_variable_of_that_name(void **state)
{
    struct fixture *fixture = *state;

    environment_set(&fixture->environment, "AB", "1");
    environment_set(&fixture->environment, "A", "2");
    environment_set(&fixture->environment, "A", "3");
    assert_int_equal(fixture->environment.count, 2);
    assert_string_equal(fixture->environment.items[0], "AB=1");
    assert_string_equal(fixture->environment.items[1], "A=3");
    assert_true(environment_has(&fixture->environment, "A"));
    assert_false(environment_has(&fixture->environment, "ABC"));
    assert_false(environment_has(&fixture->environment, ""));
}

static void what_is_no_variable_is_refused_with_its_field(void **state)
{
    static const struct {
        const char *json, *message;
    } cases[] = {
        { "{\"A=B\":\"1\"}", "env: \"A=B\" is not a valid variable name" },
        { "{\"\":\"1\"}", "env: \"\" is not a valid variable name" },
        { "{\"A\":1}", "env.A must be a string" },
        { "{\"A\":null}", "env.A must be a string" },
    };
    struct fixture *fixture = *state;

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct error err = { 0 };

        assert_int_equal(environment_add_json(&fixture->environment, "env", cases[i].json, &err),
                         -1);
        assert_int_equal(err.code, ERR_INVALID);
        assert_string_equal(err.name, "invalid_env");
        assert_string_equal(err.message, cases[i].message);
    }
    assert_int_equal(fixture->environment.count, 0);
}

static void too_many_variables_are_refused(void **state)
{
    scoped(buffer_fini) struct buffer json = BUFFER_INIT(1 << 20);
    struct fixture *fixture = *state;
    struct error err = { 0 };

    for (int i = 0; i <= PROTOCOL_MAX_STRINGS; i++)
        buffer_appendf(&json, "%s\"V%d\":\"\"", i ? "," : "{", i);
    buffer_append_byte(&json, '}');
    assert_int_equal(
        environment_add_json(&fixture->environment, "secrets", buffer_text(&json), &err), -1);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    assert_string_equal(err.name, "env_too_large");
    assert_int_equal(fixture->environment.count, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_of_the_daemon_passes_unless_it_is_listed),
        TEST(a_listed_variable_passes_with_the_daemons_value),
        TEST(a_sandbox_without_files_of_its_own_has_the_path_of_this_host),
        TEST(settings_and_requests_replace_the_defaults),
        TEST(no_variable_that_names_files_of_this_host_passes_to_an_image),
        TEST(a_listed_name_is_a_whole_name),
        TEST(a_set_variable_wins_over_a_listed_one),
        TEST(the_layers_win_in_the_order_of_the_header),
        TEST(the_plain_locale_is_told_by_its_characters_unless_a_locale_was_given),
        TEST(a_terminal_has_a_type_unless_one_was_given),
        TEST(setting_replaces_only_the_variable_of_that_name),
        TEST(what_is_no_variable_is_refused_with_its_field),
        TEST(too_many_variables_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
