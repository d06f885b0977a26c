#include "ground.h"

#include "base/buffer.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct outcome outcome;

static int open_ground(void **state)
{
    static struct ground ground;

    ground_open(&ground, "native", "");
    *state = &ground;
    return 0;
}

static int close_ground(void **state)
{
    ground_close(*state);
    return 0;
}

static void a_program_runs_as_the_user_at_home(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox = ground_sandbox(ground);

    ground_expect(ground, sandbox.id, "", "pwd; id -un; id -u; hostname",
                  "/home/user\nuser\n1000\nsandbox\n");
    ground_expect(ground, sandbox.id, "", "echo kept > file; cat file", "kept\n");
    ground_expect(ground, sandbox.id, "", "python3 -c 'print(6 * 7)'", "42\n");
    assert_int_equal(ground_destroy(ground, sandbox.id, NULL), 0);
    assert_false(process_exists(sandbox.pid));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_program_runs_as_the_user_at_home, open_ground,
                                        close_ground),
    };

    return cmocka_run_group_tests_name("native", tests, NULL, NULL);
}
