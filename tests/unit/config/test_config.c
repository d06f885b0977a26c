/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

#include "base/alloc.h"
#include "base/macros.h"
#include "base/str.h"
#include "config/settings.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char directory[] = "/tmp/sandglass-config-XXXXXX";

static const char *origin_of(const struct config *config, const char *key)
{
    return config->origins[setting_find(settings, key) - settings];
}

/* A directory of our own instead of the user's, and none of our variables. */
static int group_setup(void **state UNUSED)
{
    if (!mkdtemp(directory))
        return -1;
    setenv("XDG_CONFIG_HOME", directory, 1);
    setenv("HOME", directory, 1);
    return 0;
}

static int group_teardown(void **state UNUSED)
{
    return rmdir(directory);
}

static int clear_environment(void **state UNUSED)
{
    unsetenv("SANDGLASS_CONFIG");
    unsetenv("SANDGLASS_SESSION_IDLE_TIMEOUT");
    unsetenv("SANDGLASS_LISTEN");
    unsetenv("SANDGLASS_DOCKER_HOST");
    unsetenv("DOCKER_HOST");
    unsetenv("DOCKER_CERT_PATH");
    return 0;
}

static char *write_file(const char *name, const char *text)
{
    char *path = path_join(directory, name);
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    return path;
}

static void load(struct config *config, const char *path)
{
    struct error err = { 0 };

    if (config_load(config, path, &err) < 0)
        fail_msg("%s", err.message);
}

static void every_row_is_complete_and_its_default_is_valid(void **state UNUSED)
{
    scoped(config_fini) struct config config = { 0 };

    load(&config, NULL);
    for (const struct setting *row = settings; row->key; row++) {
        assert_non_null(row->fallback);
        assert_true(row->help && str_ends_with(row->help, "."));
        assert_ptr_equal(setting_find(settings, row->key), row);
        assert_string_equal(origin_of(&config, row->key), "default");
        assert_int_equal(row->type == SETTING_ITEMS, row->item != NULL);
    }
}

static void a_named_file_is_read_and_lines_are_remembered(void **state UNUSED)
{
    scoped(free) char *path = write_file("named.yaml", "\nsession:\n  idle_timeout: 5m\n");
    scoped(free) char *origin = xasprintf("%s:3", path);
    scoped(config_fini) struct config config = { 0 };

    load(&config, path);
    assert_int_equal(config.session.idle_timeout_ms, 300000);
    assert_string_equal(config.path, path);
    assert_string_equal(origin_of(&config, "session.idle_timeout"), origin);
    unlink(path);
}

static void the_variable_names_the_file(void **state UNUSED)
{
    scoped(free) char *path = write_file("variable.yaml", "pool: {size: 9}\n");
    scoped(config_fini) struct config config = { 0 };

    setenv("SANDGLASS_CONFIG", path, 1);
    load(&config, NULL);
    assert_int_equal(config.pool_size, 9);
    unlink(path);
}

static void a_named_file_that_is_missing_is_an_error(void **state UNUSED)
{
    struct config config = { 0 };
    struct error err = { 0 };

    assert_int_equal(config_load(&config, "/nonexistent/sandglass.yaml", &err), -1);
    assert_non_null(strstr(err.message, "/nonexistent/sandglass.yaml"));
    setenv("SANDGLASS_CONFIG", "/nonexistent/other.yaml", 1);
    assert_int_equal(config_load(&config, NULL, &err), -1);
    assert_non_null(strstr(err.message, "/nonexistent/other.yaml"));
}

static void the_users_own_file_is_found(void **state UNUSED)
{
    scoped(free) char *folder = path_join(directory, "sandglass");
    scoped(free) char *path = NULL;
    scoped(config_fini) struct config config = { 0 };

    if (access("/etc/sandglass/sandglass.yaml", F_OK) == 0)
        skip();
    assert_int_equal(path_make_dirs(folder, 0700, NULL), 0);
    path = write_file("sandglass/sandglass.yaml", "pool.size: 7\n");
    load(&config, NULL);
    assert_int_equal(config.pool_size, 7);
    unlink(path);
    rmdir(folder);
}

static void without_a_file_the_defaults_hold(void **state UNUSED)
{
    scoped(config_fini) struct config config = { 0 };

    if (access("/etc/sandglass/sandglass.yaml", F_OK) == 0)
        skip();
    load(&config, NULL);
    assert_null(config.path);
    assert_int_equal(config.pool_size, 4);
}

static void the_environment_wins_over_the_file(void **state UNUSED)
{
    scoped(free) char *path = write_file("env.yaml", "session.idle_timeout: 5m\n");
    scoped(config_fini) struct config config = { 0 };

    setenv("SANDGLASS_SESSION_IDLE_TIMEOUT", "7m", 1);
    setenv("SANDGLASS_LISTEN", "127.0.0.1:1,127.0.0.1:2", 1);
    load(&config, path);
    assert_int_equal(config.session.idle_timeout_ms, 420000);
    assert_int_equal(config.listen.count, 2);
    assert_string_equal(origin_of(&config, "session.idle_timeout"),
                        "environment SANDGLASS_SESSION_IDLE_TIMEOUT");
    unlink(path);
}

static void a_wrong_variable_is_named(void **state UNUSED)
{
    struct config config = { 0 };
    struct error err = { 0 };

    setenv("SANDGLASS_SESSION_IDLE_TIMEOUT", "later", 1);
    assert_int_equal(config_load(&config, NULL, &err), -1);
    assert_non_null(strstr(err.message, "the variable SANDGLASS_SESSION_IDLE_TIMEOUT"));
}

static void the_command_line_wins_and_is_remembered(void **state UNUSED)
{
    scoped(config_fini) struct config config = { 0 };
    struct error err = { 0 };

    load(&config, NULL);
    assert_int_equal(config_set(&config, "listen", "127.0.0.1:5", "command line", &err), 0);
    assert_int_equal(config.listen.count, 1);
    assert_string_equal(origin_of(&config, "listen"), "command line");
    assert_int_equal(config_set(&config, "sandbox.env.set", "A=1,B=2", "command line", &err), 0);
    assert_string_equal(config.sandbox.env_set.items[1].value, "2");
    assert_int_equal(config_set(&config, "sandbox.backend", "direct", "command line", &err), 0);
    assert_string_equal(config.sandbox.backend, "direct");
}

static void a_refused_override_changes_nothing(void **state UNUSED)
{
    scoped(config_fini) struct config config = { 0 };
    struct error err = { 0 };

    load(&config, NULL);
    assert_int_equal(config_set(&config, "pool.size", "many", "command line", &err), -1);
    assert_string_equal(err.message, "pool.size: \"many\" is not a whole number");
    assert_int_equal(config.pool_size, 4);
    assert_string_equal(origin_of(&config, "pool.size"), "default");
    assert_int_equal(config_set(&config, "pool.sise", "1", "command line", &err), -1);
    assert_non_null(strstr(err.message, "did you mean \"pool.size\"?"));
    assert_int_equal(config_set(&config, "sandbox.mounts", "/a:/b", "command line", &err), -1);
    assert_int_equal(config_set(&config, "sandbox.env.set", "A=1,B", "command line", &err), -1);
    assert_int_equal(config.sandbox.env_set.count, 0);
}

static void the_default_socket_follows_the_runtime_directory(void **state UNUSED)
{
    scoped(config_fini) struct config config = { 0 };
    struct error err = { 0 };

    load(&config, NULL);
    assert_int_equal(config_set(&config, "runtime_dir", "/run/other", "command line", &err), 0);
    assert_int_equal(config.listen.count, 1);
    assert_string_equal(config.listen.items[0], "unix:/run/other/sandglass.sock");
}

static void default_directories_depend_on_who_runs_it(void **state UNUSED)
{
    scoped(config_fini) struct config config = { 0 };

    load(&config, NULL);
    if (geteuid() == 0) {
        assert_string_equal(config.state_dir, "/var/lib/sandglass");
        assert_string_equal(config.runtime_dir, "/run/sandglass");
    } else {
        assert_true(str_ends_with(config.state_dir, "/sandglass"));
        assert_non_null(strstr(config.runtime_dir, "sandglass"));
    }
    assert_true(*config.instance);
}

static void flavors_are_found_by_name(void **state UNUSED)
{
    static const char text[] = "flavors: [{name: a}, {name: b}]";
    scoped(config_fini) struct config config = { 0 };

    assert_int_equal(config_load_text(&config, text, strlen(text), "test", NULL), 0);
    assert_string_equal(config_flavor_find(&config, "")->name, "a");
    assert_string_equal(config_flavor_find(&config, "b")->name, "b");
    assert_null(config_flavor_find(&config, "c"));
}

static void releasing_twice_is_fine(void **state UNUSED)
{
    struct config config = { 0 };

    config_fini(&config);
    load(&config, NULL);
    config_fini(&config);
    config_fini(&config);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, clear_environment, clear_environment)

static void assert_setting(const struct config *config, const char *key, const char *value,
                           const char *origin)
{
    const struct setting *row = setting_find(settings, key);

    assert_string_equal(*(char **)setting_field(row, (void *)config), value);
    assert_string_equal(origin_of(config, key), origin);
}

static void set(struct config *config, const char *key, const char *value)
{
    struct error err = { 0 };

    if (config_set(config, key, value, "command line", &err) < 0)
        fail_msg("%s", err.message);
}

/* By the field: it does not matter here which names settings accept. */
static void load_for_backend(struct config *config, const char *backend)
{
    load(config, NULL);
    free(config->sandbox.backend);
    config->sandbox.backend = xstrdup(backend);
    set(config, "pool.size", "3"); /* whatever is set, the rest is derived again */
}

static void the_engine_is_the_one_of_its_other_clients(void **state UNUSED)
{
    scoped(config_fini) struct config config = { 0 };

    setenv("DOCKER_HOST", "unix:///run/user/7/docker.sock", 1);
    load_for_backend(&config, "native");
    assert_setting(&config, "docker.host", "unix:///var/run/docker.sock", "default");
    config_fini(&config);
    load_for_backend(&config, "docker");
    assert_setting(&config, "docker.host", "unix:///run/user/7/docker.sock",
                   "environment DOCKER_HOST");
    set(&config, "docker.host", "unix:///x");
    assert_setting(&config, "docker.host", "unix:///x", "command line");
}

static void a_variable_of_ours_goes_before_the_engine_s(void **state UNUSED)
{
    scoped(config_fini) struct config config = { 0 };

    setenv("DOCKER_HOST", "unix:///a", 1);
    setenv("SANDGLASS_DOCKER_HOST", "unix:///b", 1);
    load_for_backend(&config, "gvisor");
    assert_setting(&config, "docker.host", "unix:///b", "environment SANDGLASS_DOCKER_HOST");
}

static void the_engine_s_certificates_are_found(void **state UNUSED)
{
    scoped(config_fini) struct config config = { 0 };

    setenv("DOCKER_CERT_PATH", "/certs/client", 1);
    setenv("DOCKER_HOST", "tcp://docker:2376", 1);
    load_for_backend(&config, "docker");
    assert_setting(&config, "docker.tls.ca", "/certs/client/ca.pem",
                   "environment DOCKER_CERT_PATH");
    assert_setting(&config, "docker.tls.cert", "/certs/client/cert.pem",
                   "environment DOCKER_CERT_PATH");
    assert_setting(&config, "docker.tls.key", "/certs/client/key.pem",
                   "environment DOCKER_CERT_PATH");
    set(&config, "docker.tls.ca", "/own/ca.pem");
    assert_setting(&config, "docker.tls.ca", "/own/ca.pem", "command line");
    assert_setting(&config, "docker.tls.cert", "", "default");
}

static void a_unix_socket_has_no_certificates(void **state UNUSED)
{
    scoped(config_fini) struct config config = { 0 };

    setenv("DOCKER_CERT_PATH", "/certs/client", 1);
    setenv("DOCKER_HOST", "tcp://docker:2376", 1);
    load_for_backend(&config, "docker");
    set(&config, "docker.host", "unix:///run/docker.sock");
    assert_setting(&config, "docker.tls.ca", "", "default");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_row_is_complete_and_its_default_is_valid),
        TEST(a_named_file_is_read_and_lines_are_remembered),
        TEST(the_variable_names_the_file),
        TEST(a_named_file_that_is_missing_is_an_error),
        TEST(the_users_own_file_is_found),
        TEST(without_a_file_the_defaults_hold),
        TEST(the_environment_wins_over_the_file),
        TEST(a_wrong_variable_is_named),
        TEST(the_command_line_wins_and_is_remembered),
        TEST(a_refused_override_changes_nothing),
        TEST(the_default_socket_follows_the_runtime_directory),
        TEST(default_directories_depend_on_who_runs_it),
        TEST(flavors_are_found_by_name),
        TEST(the_engine_is_the_one_of_its_other_clients),
        TEST(a_variable_of_ours_goes_before_the_engine_s),
        TEST(the_engine_s_certificates_are_found),
        TEST(a_unix_socket_has_no_certificates),
        TEST(releasing_twice_is_fine),
    };

    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
