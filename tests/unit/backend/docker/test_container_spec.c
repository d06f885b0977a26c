/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON that asks an engine for a container, read back. */

#include "backend/docker/docker_private.h"

#include "base/scoped.h"
#include "base/str.h"
#include "config/config.h"
#include "wire/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SANDBOX "sbx_01234567890123456789012345"

/* What an order is made of; a test changes parts of it. */
struct sample {
    struct config config;
    struct docker_backend docker;
    struct sandbox_spec spec;
    struct image_facts facts;
    struct container_order order;
    json_t *body;
};

static void sample_init(struct sample *sample, const char *settings)
{
    struct error err = { 0 };
    char text[2048];

    *sample = (struct sample){ 0 };
    snprintf(text, sizeof(text), "instance: main\nsandbox.backend: docker\n%s", settings);
    if (config_load_text(&sample->config, text, strlen(text), "test", &err) < 0)
        fail_msg("%s", err.message);
    sample->docker.config = &sample->config;
    sample->docker.state_path = "/var/lib/sandglass";
    sample->docker.ops.name = "docker";
    sample->docker.base.ops = &sample->docker.ops;
    sample->docker.runtime = "";
    sample->docker.seccomp = (char *)"seccomp={}";
    sample->spec = (struct sandbox_spec){
        .id = SANDBOX,
        .limits = { .memory_bytes = 256 << 20, .cpu_millis = 1500, .pids = 64 },
        .session = "ses_1",
        .owner = "alice",
        .generation = 7,
    };
    sample->facts = (struct image_facts){ .user = "", .workdir = "" };
    sample->order = (struct container_order){ .docker = &sample->docker,
                                              .spec = &sample->spec,
                                              .image = "alpine:3",
                                              .facts = &sample->facts,
                                              .way = WAY_DOOR };
}

static void sample_fini(struct sample *sample)
{
    json_decref(sample->body);
    config_fini(&sample->config);
}

static void scoped_sample_fini(struct sample *sample)
{
    sample_fini(sample);
}

static json_t *write_body(struct sample *sample)
{
    scoped(free) char *text = container_spec_json(&sample->order);

    assert_non_null(text);
    json_decref(sample->body);
    sample->body = json_loads(text, 0, NULL);
    assert_non_null(sample->body);
    return sample->body;
}

static json_t *host_config(struct sample *sample)
{
    return json_object_get(write_body(sample), "HostConfig");
}

static void assert_text(const json_t *object, const char *key, const char *expected)
{
    assert_string_equal(json_text_at(object, key), expected);
}

static bool has_text(const json_t *array, const char *wanted)
{
    const json_t *item;
    size_t i;

    json_array_foreach(array, i, item)
    {
        if (str_equal(json_string_value(item), wanted))
            return true;
    }
    return false;
}

static const json_t *mount_at(const json_t *host, const char *target)
{
    const json_t *mount;
    size_t i;

    json_array_foreach(json_object_get(host, "Mounts"), i, mount)
    {
        if (str_equal(json_text_at(mount, "Target"), target))
            return mount;
    }
    return NULL;
}

/* --- how init is started ------------------------------------------------------------------------ */

static void an_init_on_this_kernel_has_a_door(void **state)
{
    scoped(sample_fini) struct sample sample;
    const json_t *host;
    const json_t *mount;

    (void)state;
    sample_init(&sample, "");
    host = host_config(&sample);
    assert_true(
        has_text(json_object_get(sample.body, "Cmd"), "--dial=/.sandglass/door/" SANDBOX ".sock"));
    assert_int_equal(json_array_size(json_object_get(sample.body, "Env")), 0);
    mount = mount_at(host, "/.sandglass/door");
    assert_text(mount, "Source", "/var/lib/sandglass/docker/doors/" SANDBOX);
    assert_true(json_is_true(json_object_get(mount, "ReadOnly")));
    mount = mount_at(host, "/.sandglass/bin");
    assert_text(mount, "Source", "/var/lib/sandglass/docker/bin");
    assert_true(json_is_true(json_object_get(mount, "ReadOnly")));
    assert_null(json_object_get(json_object_get(host, "Tmpfs"), "/.sandglass/run"));
    assert_false(has_text(json_object_get(sample.body, "Cmd"), "--attached"));
    assert_false(json_is_true(json_object_get(sample.body, "OpenStdin")));
}

static void an_init_elsewhere_has_a_relay_and_a_key(void **state)
{
    scoped(sample_fini) struct sample sample;
    const json_t *host;

    (void)state;
    sample_init(&sample, "");
    sample.order.way = WAY_UPLOADED;
    sample.order.key = "00ff";
    host = host_config(&sample);
    assert_true(
        has_text(json_object_get(sample.body, "Cmd"), "--relay=/.sandglass/run/relay.sock"));
    assert_true(has_text(json_object_get(sample.body, "Cmd"), "--attached"));
    assert_true(json_is_true(json_object_get(sample.body, "OpenStdin")));
    assert_true(json_is_true(json_object_get(sample.body, "StdinOnce")));
    assert_true(has_text(json_object_get(sample.body, "Env"), "SANDGLASS_KEY=00ff"));
    assert_int_equal(json_array_size(json_object_get(host, "Mounts")), 0);
    assert_non_null(json_object_get(json_object_get(host, "Tmpfs"), "/.sandglass/run"));
}

static void nothing_of_the_image_or_the_engine_runs_beside_init(void **state)
{
    scoped(sample_fini) struct sample sample;
    const json_t *host;

    (void)state;
    sample_init(&sample, "");
    host = host_config(&sample);
    assert_true(has_text(json_object_get(sample.body, "Entrypoint"), DOCKER_INIT));
    assert_int_equal(json_array_size(json_object_get(sample.body, "Entrypoint")), 1);
    assert_true(
        has_text(json_object_get(json_object_get(sample.body, "Healthcheck"), "Test"), "NONE"));
    /* The first process has to be ours: the door takes connections of no other. */
    assert_true(json_is_false(json_object_get(host, "Init")));
    assert_text(json_object_get(host, "RestartPolicy"), "Name", "no");
    assert_text(json_object_get(host, "LogConfig"), "Type", "none");
}

/* --- what the image says -------------------------------------------------------------------------- */

static void users_and_directories_of_the_image_are_passed_to_init(void **state)
{
    static const char *const users[] = { "app", "1000", "1000:1000", "app:staff" };
    scoped(sample_fini) struct sample sample;
    const json_t *command;
    char argument[64];

    (void)state;
    sample_init(&sample, "");
    for (size_t i = 0; i < ARRAY_LENGTH(users); i++) {
        sample.facts = (struct image_facts){ .user = users[i], .workdir = "/srv/\"app\"\n" };
        command = json_object_get(write_body(&sample), "Cmd");
        snprintf(argument, sizeof(argument), "--user=%s", users[i]);
        assert_true(has_text(command, argument));
        assert_true(has_text(command, "--workspace=/srv/\"app\"\n"));
        assert_text(sample.body, "User", "0");
        assert_text(sample.body, "WorkingDir", "/");
    }
}

static void without_a_directory_of_the_image_there_is_a_workspace(void **state)
{
    static const char *const nowhere[] = { "", "/" };
    scoped(sample_fini) struct sample sample;
    const json_t *argument;
    size_t i;

    (void)state;
    sample_init(&sample, "");
    for (size_t row = 0; row < ARRAY_LENGTH(nowhere); row++) {
        sample.facts.workdir = nowhere[row];
        assert_true(
            has_text(json_object_get(write_body(&sample), "Cmd"), "--workspace=/workspace"));
        json_array_foreach(json_object_get(sample.body, "Cmd"), i, argument)
            assert_false(str_starts_with(json_string_value(argument), "--user="));
    }
}

/* --- files ------------------------------------------------------------------------------------------ */

/* The directory of the image is of the image, which is read-only then. */
static void a_read_only_image_has_its_workspace_in_memory(void **state)
{
    static const char *const paths[] = { "/workspace", "/tmp", "/var/tmp", "/run" };
    scoped(sample_fini) struct sample sample;
    const json_t *host;

    (void)state;
    sample_init(&sample, "docker.read_only: true\n");
    sample.facts.workdir = "/app";
    host = host_config(&sample);
    assert_true(json_is_true(json_object_get(host, "ReadonlyRootfs")));
    for (size_t i = 0; i < ARRAY_LENGTH(paths); i++)
        assert_non_null(strstr(json_text_at(json_object_get(host, "Tmpfs"), paths[i]), "nosuid"));
    assert_true(has_text(json_object_get(sample.body, "Cmd"), "--workspace=/workspace"));
    assert_true(has_text(json_object_get(sample.body, "Cmd"), "--home=/workspace"));
    assert_non_null(strstr(json_text_at(json_object_get(host, "Tmpfs"), "/workspace"),
                           "size=134217728,")); /* half of the memory */
    sample.spec.limits.disk_bytes = 1 << 20;
    assert_non_null(
        strstr(json_text_at(json_object_get(host_config(&sample), "Tmpfs"), "/workspace"),
               "size=1048576,"));
}

static void files_are_limited_by_a_storage_driver_that_can(void **state)
{
    static const struct {
        const char *settings;
        bool driver_limits;
        const char *size;
    } cases[] = {
        { "", false, "" },
        { "", true, "1048576" },
        { "docker.disk: storage\n", false, "1048576" },
        { "docker.disk: none\n", true, "" },
        { "docker.read_only: true\n", true, "" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        scoped(sample_fini) struct sample sample;

        sample_init(&sample, cases[i].settings);
        sample.docker.facts.limits_storage = cases[i].driver_limits;
        sample.spec.limits.disk_bytes = 1 << 20;
        assert_string_equal(
            json_text_at(json_object_get(host_config(&sample), "StorageOpt"), "size"),
            cases[i].size);
    }
}

static void mounts_of_the_settings_are_added(void **state)
{
    scoped(sample_fini) struct sample sample;
    const json_t *host;

    (void)state;
    sample_init(&sample, "sandbox.mounts:\n"
                         "  - {host_path: /srv/data, path: /data, read_only: true}\n"
                         "  - {host_path: /srv/out, path: /out, read_only: false}\n");
    host = host_config(&sample);
    assert_int_equal(json_array_size(json_object_get(host, "Mounts")), 4);
    assert_text(mount_at(host, "/data"), "Source", "/srv/data");
    assert_true(json_is_true(json_object_get(mount_at(host, "/data"), "ReadOnly")));
    assert_true(json_is_false(json_object_get(mount_at(host, "/out"), "ReadOnly")));
}

/* --- walls ------------------------------------------------------------------------------------------ */

static void all_but_a_few_privileges_are_dropped(void **state)
{
    scoped(sample_fini) struct sample sample;
    const json_t *host;

    (void)state;
    sample_init(&sample, "");
    host = host_config(&sample);
    assert_true(has_text(json_object_get(host, "CapDrop"), "ALL"));
    assert_false(has_text(json_object_get(host, "CapAdd"), "SYS_ADMIN"));
    assert_true(has_text(json_object_get(host, "SecurityOpt"), "no-new-privileges:true"));
    assert_true(has_text(json_object_get(host, "SecurityOpt"), "seccomp={}"));
    assert_null(json_object_get(host, "Privileged"));
    assert_null(json_object_get(host, "Runtime"));
    sample.docker.is_gvisor = true;
    sample.docker.runtime = "runsc";
    sample.docker.seccomp = NULL;
    host = host_config(&sample);
    assert_text(host, "Runtime", "runsc");
    assert_int_equal(json_array_size(json_object_get(host, "SecurityOpt")), 1);
}

static void a_sandbox_has_a_network_only_when_it_is_open(void **state)
{
    scoped(sample_fini) struct sample sample;

    (void)state;
    sample_init(&sample, "docker.network: bridge\n");
    assert_text(host_config(&sample), "NetworkMode", "none");
    sample.spec.network.mode = NETWORK_OPEN;
    assert_text(host_config(&sample), "NetworkMode", "bridge");
}

static json_int_t limit(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

/* Init, its relay and the pump are processes too; a sentry has many threads. */
static void limits_leave_room_for_what_is_not_of_the_sandbox(void **state)
{
    scoped(sample_fini) struct sample sample;
    const json_t *host;

    (void)state;
    sample_init(&sample, "");
    host = host_config(&sample);
    assert_int_equal(limit(host, "Memory"), 256 << 20);
    assert_int_equal(limit(host, "MemorySwap"), 256 << 20);
    assert_int_equal(limit(host, "CpuQuota"), 150000);
    assert_int_equal(limit(host, "CpuPeriod"), 100000);
    assert_int_equal(limit(host, "PidsLimit"), 65);
    sample.order.way = WAY_MOUNTED;
    assert_int_equal(limit(host_config(&sample), "PidsLimit"), 67);
    sample.docker.is_gvisor = true;
    assert_int_equal(limit(host_config(&sample), "PidsLimit"), 8 * 64 + 512);
    sample.spec.limits.pids = UINT32_MAX;
    assert_int_equal(limit(host_config(&sample), "PidsLimit"), 8 * (json_int_t)UINT32_MAX + 512);
}

static void an_update_has_the_limits_and_nothing_else(void **state)
{
    scoped(sample_fini) struct sample sample;
    scoped(free) char *text = NULL;
    scoped(json_decref) json_t *body = NULL;

    (void)state;
    sample_init(&sample, "");
    text = container_limits_json(&sample.docker, &sample.spec.limits, true);
    body = json_loads(text, 0, NULL);
    assert_int_equal(json_object_size(body), 5);
    assert_int_equal(limit(body, "PidsLimit"), 67);
}

/* --- labels ------------------------------------------------------------------------------------------ */

static void labels_tell_whose_it_is_whatever_the_name(void **state)
{
    static const char *const owners[] = { "alice", "a \"quoted\" \\ name", "two\nlines", "Жанна",
                                          "" };
    scoped(sample_fini) struct sample sample;
    const json_t *labels;

    (void)state;
    sample_init(&sample, "");
    for (size_t i = 0; i < ARRAY_LENGTH(owners); i++) {
        sample.spec.owner = owners[i];
        labels = json_object_get(write_body(&sample), "Labels");
        assert_text(labels, "sandglass.owner", owners[i]);
        assert_text(labels, "sandglass", "1");
        assert_text(labels, LABEL_INSTANCE, "main");
        assert_text(labels, LABEL_SANDBOX, SANDBOX);
        assert_text(labels, LABEL_BACKEND, "docker");
        assert_text(labels, "sandglass.session", "ses_1");
        assert_text(labels, "sandglass.generation", "7");
    }
}

/* Whatever a name is made of, the engine gets JSON. */
static void an_owner_that_is_no_text_is_still_json(void **state)
{
    scoped(sample_fini) struct sample sample;

    (void)state;
    sample_init(&sample, "");
    sample.spec.owner = "\xff\xfe";
    (void)write_body(&sample);
}

static void a_member_of_a_pool_is_of_no_session(void **state)
{
    scoped(sample_fini) struct sample sample;
    const json_t *labels;

    (void)state;
    sample_init(&sample, "");
    sample.spec.session = sample.spec.owner = "";
    labels = json_object_get(write_body(&sample), "Labels");
    assert_null(json_object_get(labels, "sandglass.session"));
    sample.spec.session = sample.spec.owner = NULL;
    labels = json_object_get(write_body(&sample), "Labels");
    assert_null(json_object_get(labels, "sandglass.owner"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_init_on_this_kernel_has_a_door),
        cmocka_unit_test(an_init_elsewhere_has_a_relay_and_a_key),
        cmocka_unit_test(nothing_of_the_image_or_the_engine_runs_beside_init),
        cmocka_unit_test(users_and_directories_of_the_image_are_passed_to_init),
        cmocka_unit_test(without_a_directory_of_the_image_there_is_a_workspace),
        cmocka_unit_test(a_read_only_image_has_its_workspace_in_memory),
        cmocka_unit_test(files_are_limited_by_a_storage_driver_that_can),
        cmocka_unit_test(mounts_of_the_settings_are_added),
        cmocka_unit_test(all_but_a_few_privileges_are_dropped),
        cmocka_unit_test(a_sandbox_has_a_network_only_when_it_is_open),
        cmocka_unit_test(limits_leave_room_for_what_is_not_of_the_sandbox),
        cmocka_unit_test(an_update_has_the_limits_and_nothing_else),
        cmocka_unit_test(labels_tell_whose_it_is_whatever_the_name),
        cmocka_unit_test(an_owner_that_is_no_text_is_still_json),
        cmocka_unit_test(a_member_of_a_pool_is_of_no_session),
    };

    return cmocka_run_group_tests_name("docker/container_spec", tests, NULL, NULL);
}
