#include "backend_contract.h"

#include "base/buffer.h"
#include "base/str.h"
#include "loop/process.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { WAIT_MS = 15000 };

static const struct backend_contract *contract;
static struct loop *loop;
static struct backend *backend;

static int open_backend(void **state)
{
    (void)state;
    backend = contract->open(&loop);
    return 0;
}

static int close_backend(void **state)
{
    (void)state;
    contract->close();
    return 0;
}

/* --- waiting -------------------------------------------------------------------------------- */

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* An emulated machine is given more time. */
static int64_t deadline_ms(void)
{
    const char *factor = getenv("SANDGLASS_TEST_PATIENCE");

    return now_ms() + WAIT_MS * (factor ? atoi(factor) : 1);
}

static void wait_until(const bool *flag)
{
    int64_t deadline = deadline_ms();

    while (!*flag) {
        if (now_ms() > deadline)
            fail_msg("it does not come");
        loop_turn(loop, 100);
    }
}

struct asked {
    struct backend_op op;
    bool answered;
};

static void on_answer(struct backend_op *op)
{
    struct asked *asked = container_of(op, struct asked, op);

    assert_false(asked->answered); /* once */
    asked->answered = true;
}

static struct asked question(void)
{
    return (struct asked){ .op.done = on_answer };
}

/* Never inside the call, always later. */
static enum error_code answer(struct asked *asked)
{
    assert_false(asked->answered);
    wait_until(&asked->answered);
    return asked->op.err.code;
}

static enum error_code create(const struct sandbox_spec *spec, struct asked *asked)
{
    *asked = question();
    backend_create(backend, spec, &asked->op);
    return answer(asked);
}

static enum error_code adopt(const struct backend_sandbox *sandbox, struct asked *asked)
{
    *asked = question();
    backend_adopt(backend, sandbox, &asked->op);
    return answer(asked);
}

static enum error_code destroy(const char *id)
{
    struct asked asked = question();

    backend_destroy(backend, id, &asked.op);
    return answer(&asked);
}

static enum error_code freeze(const char *id, bool frozen)
{
    struct asked asked = question();

    backend_freeze(backend, id, frozen, &asked.op);
    return answer(&asked);
}

static size_t count_listed(const char *id)
{
    struct asked asked = question();
    size_t count = 0;

    backend_list(backend, &asked.op);
    assert_int_equal(answer(&asked), ERR_NONE);
    for (size_t i = 0; i < asked.op.result.list.count; i++)
        count += !id || str_equal(asked.op.result.list.ids[i], id);
    free(asked.op.result.list.ids);
    return count;
}

static struct sandbox_spec sample(void)
{
    struct sandbox_spec spec = {
        .template_name = "host",
        .limits = { .memory_bytes = 256 << 20,
                    .disk_bytes = 64 << 20,
                    .cpu_millis = 1000,
                    .pids = 64 },
    };

    id_make(spec.id, ID_SANDBOX);
    return spec;
}

/* Made; the test destroys it. The pidfd is the caller's, or closed for NULL. */
static struct backend_sandbox make(int *out_pidfd)
{
    struct sandbox_spec spec = sample();
    struct asked asked;

    if (create(&spec, &asked) != ERR_NONE)
        fail_msg("create: %s", asked.op.err.message);
    assert_string_equal(asked.op.result.made.sandbox.id, spec.id);
    if (out_pidfd)
        *out_pidfd = asked.op.result.made.pidfd;
    else
        fd_close(asked.op.result.made.pidfd);
    return asked.op.result.made.sandbox;
}

/* --- the contract ----------------------------------------------------------------------------- */

static void a_made_sandbox_is_listed_and_can_be_connected_to(void **state)
{
    struct backend_sandbox sandbox = make(NULL);
    struct error err = { 0 };
    int fd = backend_connect(backend, sandbox.id, &err);

    (void)state;
    assert_true(fd >= 0);
    fd_close(fd);
    assert_int_equal(count_listed(sandbox.id), 1);
    assert_true(backend_is_whole(backend, sandbox.id));
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
}

static void an_id_is_not_made_twice(void **state)
{
    struct sandbox_spec spec = sample();
    struct asked first;
    struct asked second;

    (void)state;
    assert_int_equal(create(&spec, &first), ERR_NONE);
    assert_int_not_equal(create(&spec, &second), ERR_NONE);
    assert_int_equal(count_listed(spec.id), 1);
    fd_close(first.op.result.made.pidfd);
    assert_int_equal(adopt(&first.op.result.made.sandbox, &second), ERR_NONE);
    fd_close(second.op.result.made.pidfd);
    assert_int_equal(destroy(spec.id), ERR_NONE);
}

static void what_is_no_id_is_refused(void **state)
{
    (void)state;
    assert_int_equal(destroy("../etc"), ERR_INVALID);
    assert_int_equal(freeze("../etc", true), ERR_INVALID);
}

static void a_restarted_daemon_adopts_it(void **state)
{
    struct backend_sandbox sandbox = make(NULL);
    struct asked asked;
    int fd;

    (void)state;
    backend = contract->restart();
    assert_int_equal(count_listed(sandbox.id), 1);
    assert_int_equal(adopt(&sandbox, &asked), ERR_NONE);
    assert_false(asked.op.result.made.frozen);
    fd_close(asked.op.result.made.pidfd);
    fd = backend_connect(backend, sandbox.id, &asked.op.err);
    assert_true(fd >= 0);
    fd_close(fd);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
}

/* The pid of a record may belong to another process by now. */
static void another_process_with_its_pid_is_not_adopted(void **state)
{
    struct backend_sandbox sandbox = make(NULL);
    struct backend_sandbox stale = sandbox;
    struct asked asked;

    (void)state;
    stale.start_time++;
    backend = contract->restart();
    assert_int_equal(adopt(&stale, &asked), ERR_GONE);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
}

static void an_unknown_one_is_gone(void **state)
{
    struct backend_sandbox never = { .pid = 1, .start_time = 1 };
    struct asked asked;
    struct error err = { 0 };

    (void)state;
    id_make(never.id, ID_SANDBOX);
    assert_int_equal(adopt(&never, &asked), ERR_GONE);
    never.pid = 0; /* a record that was damaged, or is of another backend */
    assert_int_equal(adopt(&never, &asked), ERR_GONE);
    never.pid = getpid();
    assert_int_equal(adopt(&never, &asked), ERR_GONE);
    assert_int_equal(backend_connect(backend, never.id, &err), -1);
    assert_int_equal(count_listed(never.id), 0);
}

static bool has_ended;

static void on_end(struct process *process)
{
    (void)process;
    has_ended = true;
}

/* Its remains are listed until it is destroyed. */
static void its_end_is_noticed_with_the_cause(void **state)
{
    struct process process = { 0 };
    int pidfd;
    struct backend_sandbox sandbox = make(&pidfd);
    struct asked asked;
    struct error err = { 0 };

    (void)state;
    has_ended = false;
    process_watch(&process, loop, pidfd, on_end);
    contract->kill(&sandbox);
    wait_until(&has_ended);
    if (process.exit.known)
        assert_int_equal(process.exit.signal, SIGKILL);
    assert_int_equal(adopt(&sandbox, &asked), ERR_GONE);
    assert_int_equal(backend_connect(backend, sandbox.id, &err), -1);
    assert_int_equal(err.code, ERR_GONE);
    assert_int_equal(count_listed(sandbox.id), 1);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
    assert_int_equal(count_listed(sandbox.id), 0);
}

static void destroying_twice_is_fine(void **state)
{
    struct backend_sandbox sandbox = make(NULL);
    struct asked asked;

    (void)state;
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
    assert_int_equal(adopt(&sandbox, &asked), ERR_GONE);
}

/* Both answer when it is gone. */
static void destroying_it_twice_at_once_is_fine(void **state)
{
    struct backend_sandbox sandbox = make(NULL);
    struct asked first = question();
    struct asked second = question();

    (void)state;
    backend_destroy(backend, sandbox.id, &first.op);
    backend_destroy(backend, sandbox.id, &second.op);
    assert_int_equal(answer(&first), ERR_NONE);
    wait_until(&second.answered);
    assert_int_equal(second.op.err.code, ERR_NONE);
    assert_int_equal(count_listed(sandbox.id), 0);
}

static void one_goes_and_the_others_stay(void **state)
{
    struct backend_sandbox sandboxes[3];
    struct asked asked;

    (void)state;
    for (unsigned i = 0; i < 3; i++)
        sandboxes[i] = make(NULL);
    assert_int_equal(count_listed(NULL), 3);
    assert_int_equal(destroy(sandboxes[1].id), ERR_NONE);
    assert_int_equal(count_listed(NULL), 2);
    for (unsigned i = 0; i < 3; i += 2) {
        assert_int_equal(adopt(&sandboxes[i], &asked), ERR_NONE);
        fd_close(asked.op.result.made.pidfd);
        assert_int_equal(destroy(sandboxes[i].id), ERR_NONE);
    }
    assert_int_equal(count_listed(NULL), 0);
}

static void assert_told(uint64_t told, uint64_t asked)
{
    if (told)
        assert_int_equal(told, asked);
}

static void limits_that_are_told_are_those_asked_for(void **state)
{
    struct sandbox_spec spec = sample();
    const struct sandbox_limits *told;
    scoped(buffer_fini) struct buffer report = BUFFER_INIT(64 * 1024);
    struct error err = { 0 };
    struct asked asked;

    (void)state;
    assert_int_equal(create(&spec, &asked), ERR_NONE);
    told = &asked.op.result.made.limits;
    assert_told(told->memory_bytes, spec.limits.memory_bytes);
    assert_told(told->disk_bytes, spec.limits.disk_bytes);
    assert_told(told->cpu_millis, spec.limits.cpu_millis);
    assert_told(told->pids, spec.limits.pids);
    fd_close(asked.op.result.made.pidfd);
    assert_int_equal(backend_report(backend, spec.id, &report, &err), 0);
    assert_int_equal(*buffer_text(&report), '{');
    assert_int_equal(destroy(spec.id), ERR_NONE);
}

/* What does not hold is not accepted, and what is accepted holds. */
static void a_limit_that_would_not_hold_is_refused(void **state)
{
    const struct sandbox_limits all = sample().limits;
    const struct sandbox_limits single[] = { { .memory_bytes = all.memory_bytes },
                                             { .cpu_millis = all.cpu_millis },
                                             { .pids = all.pids } };
    struct sandbox_limits holds = backend_limits_in_force(backend, &all);
    const bool in_force[] = { holds.memory_bytes, holds.cpu_millis, holds.pids };
    struct error err = { 0 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(single); i++)
        assert_int_equal(backend_check_limits(backend, &single[i], &err), in_force[i] ? 0 : -1);
}

static void limits_of_a_running_one_change(void **state)
{
    struct backend_sandbox sandbox = make(NULL);
    struct sandbox_limits wanted = sample().limits;
    struct sandbox_limits holds = backend_limits_in_force(backend, &wanted);
    struct asked asked = question();

    (void)state;
    wanted.memory_bytes *= 2;
    backend_update(backend, sandbox.id, &wanted, &asked.op);
    if (backend->ops->capabilities.limits && holds.memory_bytes)
        assert_int_equal(answer(&asked), ERR_NONE);
    else
        (void)answer(&asked);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
}

static void assert_adopted_as(const struct backend_sandbox *sandbox, bool frozen)
{
    struct asked asked;

    assert_int_equal(adopt(sandbox, &asked), ERR_NONE);
    assert_int_equal(asked.op.result.made.frozen, frozen);
    fd_close(asked.op.result.made.pidfd);
}

/* A daemon that comes later sees what it is, however often it was asked for. */
static void it_is_frozen_and_thawed(void **state)
{
    struct backend_sandbox sandbox;

    (void)state;
    if (!backend->ops->capabilities.freeze)
        return;
    sandbox = make(NULL);
    assert_int_equal(freeze(sandbox.id, true), ERR_NONE);
    assert_int_equal(freeze(sandbox.id, true), ERR_NONE);
    backend = contract->restart();
    assert_adopted_as(&sandbox, true);
    assert_int_equal(freeze(sandbox.id, false), ERR_NONE);
    assert_adopted_as(&sandbox, false);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
}

static void a_frozen_one_is_destroyed(void **state)
{
    struct backend_sandbox sandbox;

    (void)state;
    if (!backend->ops->capabilities.freeze)
        return;
    sandbox = make(NULL);
    assert_int_equal(freeze(sandbox.id, true), ERR_NONE);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
    assert_int_equal(count_listed(sandbox.id), 0);
}

static void its_usage_is_measured(void **state)
{
    struct backend_sandbox sandbox = make(NULL);
    struct asked asked = question();

    (void)state;
    if (backend->ops->capabilities.usage) {
        backend_inspect(backend, sandbox.id, &asked.op);
        assert_int_equal(answer(&asked), ERR_NONE);
        assert_int_equal(asked.op.result.usage.oom_kills, 0);
    }
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
}

/* --- the suite ------------------------------------------------------------------------------- */

#define TEST(function) cmocka_unit_test_setup_teardown(function, open_backend, close_backend)

int backend_contract_run(const struct backend_contract *subject)
{
    const struct CMUnitTest tests[] = {
        TEST(a_made_sandbox_is_listed_and_can_be_connected_to),
        TEST(an_id_is_not_made_twice),
        TEST(what_is_no_id_is_refused),
        TEST(a_restarted_daemon_adopts_it),
        TEST(another_process_with_its_pid_is_not_adopted),
        TEST(an_unknown_one_is_gone),
        TEST(its_end_is_noticed_with_the_cause),
        TEST(destroying_twice_is_fine),
        TEST(destroying_it_twice_at_once_is_fine),
        TEST(one_goes_and_the_others_stay),
        TEST(limits_that_are_told_are_those_asked_for),
        TEST(a_limit_that_would_not_hold_is_refused),
        TEST(limits_of_a_running_one_change),
        TEST(it_is_frozen_and_thawed),
        TEST(a_frozen_one_is_destroyed),
        TEST(its_usage_is_measured),
    };

    contract = subject;
    return _cmocka_run_group_tests(subject->name, tests, ARRAY_LENGTH(tests), NULL, NULL);
}
