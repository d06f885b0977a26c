/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/registry.h"

#include "base/buffer.h"
#include "base/macros.h"
#include "config/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

struct waited {
    struct backend_op op;
    int calls;
};

static void on_done(struct backend_op *op)
{
    container_of(op, struct waited, op)->calls++;
}

static struct loop *loop;

static struct backend *open_none(void)
{
    struct error err = { 0 };
    struct backend *backend = backend_open("none", &(struct backend_options){ .loop = loop }, &err);

    assert_non_null(backend);
    return backend;
}

static int set_up(void **state)
{
    (void)state;
    loop = loop_new(&clock_system);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    loop_free(loop);
    return 0;
}

static void an_unknown_backend_is_refused_by_name(void **state)
{
    struct error err = { 0 };

    (void)state;
    assert_null(backend_open("qemu", &(struct backend_options){ .loop = loop }, &err));
    assert_int_equal(err.code, ERR_INVALID);
    assert_non_null(strstr(err.message, "qemu"));
    for (const struct backend_row *row = backend_rows; row->name; row++)
        assert_non_null(strstr(err.hint, row->name));
}

static void a_setting_accepts_exactly_the_backends_that_exist(void **state)
{
    struct config config;
    struct error err = { 0 };

    (void)state;
    assert_int_equal(config_load_text(&config, "", 0, "test", &err), 0);
    for (const struct backend_row *row = backend_rows; row->name; row++) {
        assert_int_equal(config_set(&config, "sandbox.backend", row->name, "test", &err), 0);
        assert_true(config_names_backend(&config, row->name));
        assert_true(strlen(row->summary) > 10);
    }
    assert_int_equal(config_set(&config, "sandbox.backend", "qemu", "test", &err), -1);
    for (const struct backend_row *row = backend_rows; row->name; row++)
        assert_non_null(strstr(err.message, row->name));
    config_fini(&config);
}

static void backends_of_the_launcher_do_not_open_without_it(void **state)
{
    static const char *const names[] = { "native", "direct" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        struct error err = { 0 };

        assert_null(backend_open(names[i], &(struct backend_options){ .loop = loop }, &err));
        assert_int_equal(err.code, ERR_UNAVAILABLE);
    }
}

static void none_refuses_everything_later_and_once(void **state)
{
    struct backend *backend = open_none();
    struct sandbox_spec spec = { .limits = { .memory_bytes = 64 << 20,
                                             .disk_bytes = 64 << 20,
                                             .cpu_millis = 1000,
                                             .pids = 8 } };
    struct waited create = { .op.done = on_done };
    struct waited list = { .op.done = on_done };
    struct waited destroy = { .op.done = on_done };
    struct waited connect = { .op.done = on_done };

    (void)state;
    id_make(spec.id, ID_SANDBOX);
    backend_create(backend, &spec, &create.op);
    backend_list(backend, &list.op);
    backend_destroy(backend, spec.id, &destroy.op);
    assert_int_equal(create.calls + list.calls + destroy.calls, 0);
    loop_turn(loop, 0);
    assert_int_equal(create.calls, 1);
    assert_int_equal(list.calls, 1);
    assert_int_equal(destroy.calls, 1);
    assert_string_equal(create.op.err.name, "sandboxes_disabled");
    assert_true(backend_connect(backend, spec.id, &connect.op));
    assert_string_equal(connect.op.err.name, "sandboxes_disabled");
    assert_int_equal(connect.calls, 0);
    backend_close(backend);
}

static void a_wrong_id_never_reaches_an_implementation(void **state)
{
    struct backend *backend = open_none();
    struct waited freeze = { .op.done = on_done };
    struct waited connect = { .op.done = on_done };

    (void)state;
    backend_freeze(backend, "../../etc", true, &freeze.op);
    loop_turn(loop, 0);
    assert_int_equal(freeze.calls, 1);
    assert_int_equal(freeze.op.err.code, ERR_INVALID);
    assert_true(backend_connect(backend, "sbx_x", &connect.op));
    assert_int_equal(connect.op.err.code, ERR_INVALID);
    backend_close(backend);
}

static void limits_and_names_are_checked_first(void **state)
{
    struct backend *backend = open_none();
    struct sandbox_spec spec = { .limits = { .memory_bytes = 64 << 20,
                                             .disk_bytes = 64 << 20,
                                             .cpu_millis = 1000,
                                             .pids = 0 } };
    struct waited create = { .op.done = on_done };

    (void)state;
    id_make(spec.id, ID_SANDBOX);
    backend_create(backend, &spec, &create.op);
    loop_turn(loop, 0);
    assert_int_equal(create.op.err.code, ERR_INVALID);
    spec.limits.pids = 8;
    spec.source.name = "../host";
    backend_create(backend, &spec, &create.op);
    loop_turn(loop, 0);
    assert_int_equal(create.op.err.code, ERR_INVALID);
    assert_non_null(strstr(create.op.err.message, "../host"));
    backend_close(backend);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_unknown_backend_is_refused_by_name),
        TEST(a_setting_accepts_exactly_the_backends_that_exist),
        TEST(backends_of_the_launcher_do_not_open_without_it),
        TEST(none_refuses_everything_later_and_once),
        TEST(a_wrong_id_never_reaches_an_implementation),
        TEST(limits_and_names_are_checked_first),
    };

    return cmocka_run_group_tests_name("backend/backend", tests, NULL, NULL);
}
