/* The backend that the unit tests of the core believe in keeps the same contract as real ones. */

#include "backend_contract.h"

#include "base/clock.h"
#include "harness/fake_backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct loop *loop;
static struct backend *backend;

static struct backend *open_fake(struct loop **out_loop)
{
    loop = *out_loop = loop_new(&clock_system);
    backend = fake_backend_new(loop);
    return backend;
}

static struct backend *restart_fake(void)
{
    fake_backend_drop(backend, true);
    return backend;
}

static void kill_fake(const struct backend_sandbox *sandbox)
{
    fake_backend_kill(backend, sandbox->id);
}

static void close_fake(void)
{
    size_t left = fake_backend_count(backend);

    backend_close(backend);
    loop_free(loop);
    assert_int_equal(left, 0);
}

int main(void)
{
    return backend_contract_run(&(struct backend_contract){ .name = "backend/fake",
                                                            .open = open_fake,
                                                            .restart = restart_fake,
                                                            .kill = kill_fake,
                                                            .close = close_fake });
}
