#include "backend/backend.h"

#include "base/buffer.h"
#include "base/macros.h"

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
    struct error err = { 0 };

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
    assert_int_equal(backend_connect(backend, spec.id, &err), -1);
    assert_string_equal(err.name, "sandboxes_disabled");
    backend_close(backend);
}

static void a_wrong_id_never_reaches_an_implementation(void **state)
{
    struct backend *backend = open_none();
    struct waited freeze = { .op.done = on_done };
    struct error err = { 0 };

    (void)state;
    backend_freeze(backend, "../../etc", true, &freeze.op);
    loop_turn(loop, 0);
    assert_int_equal(freeze.calls, 1);
    assert_int_equal(freeze.op.err.code, ERR_INVALID);
    assert_int_equal(backend_connect(backend, "sbx_x", &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
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
    spec.template_name = "../host";
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
        TEST(backends_of_the_launcher_do_not_open_without_it),
        TEST(none_refuses_everything_later_and_once),
        TEST(a_wrong_id_never_reaches_an_implementation),
        TEST(limits_and_names_are_checked_first),
    };

    return cmocka_run_group_tests_name("backend/backend", tests, NULL, NULL);
}
