/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of /proc/net/tcp and tcp6. */

#include "init/files/ports.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define UNUSED __attribute__((unused))
#define REST " 00000000:00000000 00:00000000 00000000  1000        0 "

static bool parse(const char *line, uint32_t *port, uint64_t *inode)
{
    return ports_parse_line(line, strlen(line), port, inode);
}

static void a_listening_socket_is_taken(void **state UNUSED)
{
    uint32_t port;
    uint64_t inode;

    assert_true(parse("   0: 0100007F:1F90 00000000:0000 0A" REST "4711 1 0000000000000000 100 0 0",
                      &port, &inode));
    assert_int_equal(port, 8080);
    assert_int_equal(inode, 4711);
    assert_true(parse("  12: 00000000000000000000000001000000:0016 "
                      "00000000000000000000000000000000:0000 0A" REST "99",
                      &port, &inode));
    assert_int_equal(port, 22);
    assert_int_equal(inode, 99);
}

static void all_else_is_left_out(void **state UNUSED)
{
    static const char *const lines[] = {
        "",
        "\n",
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  "
        "timeout inode",
        "   0: 0100007F:1F90 0100007F:0016 01" REST "4711 1", /* connected */
        "   0: 0100007F:1F90 00000000:0000 0A" REST,          /* no inode */
        "   0: 0100007F:1F90 00000000:0000 0A" REST "47x",
        "   0: 0100007F:1F90 00000000:0000 0A" REST "99999999999999999999",
        "   0: 0100007F:0000 00000000:0000 0A" REST "4711",
        "   0: 0100007F:xxxx 00000000:0000 0A" REST "4711",
        "   0: 1F90 00000000:0000 0A" REST "4711",
    };
    uint32_t port;
    uint64_t inode;

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (parse(lines[i], &port, &inode))
            fail_msg("taken: %s", lines[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_listening_socket_is_taken),
        cmocka_unit_test(all_else_is_left_out),
    };

    return cmocka_run_group_tests_name("init/ports", tests, NULL, NULL);
}
