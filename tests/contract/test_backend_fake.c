/* SPDX-License-Identifier: Apache-2.0 */
/* The backend that the unit tests of the core believe in keeps the same contract as real ones. */

#include "backend_contract.h"

#include "base/clock.h"
#include "base/str.h"
#include "harness/fake_backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct loop *loop;
static struct backend *backend;

static struct backend *open_fake(struct loop **out_loop)
{
    loop = *out_loop = loop_new(&clock_system);
    backend = fake_backend_new(loop);
    return backend;
}

/* As a backend whose sandboxes are elsewhere. */
static struct backend *open_slow_fake(struct loop **out_loop)
{
    struct backend *slow = open_fake(out_loop);

    fake_backend_answer_later(slow);
    return slow;
}

static struct backend *restart_fake(void)
{
    fake_backend_drop(backend, true);
    return backend;
}

static void make_stale(struct backend_sandbox *sandbox)
{
    strcat(sandbox->handle, "?");
}

static void kill_fake(const struct backend_sandbox *sandbox)
{
    fake_backend_kill(backend, sandbox->id);
}

static void shut_down_fake(const struct backend_sandbox *sandbox)
{
    fake_backend_end(backend, sandbox->id, (struct backend_end){ .is_known = true });
}

static void exhaust_fake(const struct backend_sandbox *sandbox)
{
    fake_backend_set_oom_kills(backend, sandbox->id, 1);
}

static void make_fake_blind(void)
{
    fake_backend_refuse(backend, FAKE_ADOPT, 3, ERR_UNAVAILABLE);
}

static void close_fake(void)
{
    size_t left = fake_backend_count(backend);

    backend_close(backend);
    loop_free(loop);
    assert_int_equal(left, 0);
}

int main(int argc, char **argv)
{
    bool is_slow = argc == 2 && str_equal(argv[1], "slow");
    struct backend_contract fake = { .name = is_slow ? "backend/fake_slow" : "backend/fake",
                                     .open = is_slow ? open_slow_fake : open_fake,
                                     .restart = restart_fake,
                                     .make_stale = make_stale,
                                     .kill = kill_fake,
                                     .shut_down = shut_down_fake,
                                     .exhaust = exhaust_fake,
                                     .make_blind = make_fake_blind,
                                     .close = close_fake };

    return backend_contract_run(&fake);
}
