/* SPDX-License-Identifier: Apache-2.0 */
/* The text of network rules, as nft reads it. */

#include "launcher/network/network_rules.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static char text[RULES_TEXT_SIZE];
static const struct rules rules = { .instance = "a-b.c" };

static void format(const struct rules *given, const char *resolver, const char *addresses)
{
    assert_int_equal(rules_format_sandbox(given, resolver, addresses, text, sizeof(text)), 0);
}

static void the_table_of_the_host_has_the_name_of_the_instance(void **state UNUSED)
{
    assert_int_equal(rules_format_host(&rules, text, sizeof(text)), 0);
    assert_non_null(
        strstr(text, "delete table inet sandglass_a_b_c\ntable inet sandglass_a_b_c {"));
    assert_non_null(strstr(text, "iifname \"sbx*\" oifname \"sbx*\" drop"));
    assert_null(strchr(text, '%'));
    assert_int_equal(rules_format_host(&rules, text, 100), -1);
}

static void what_is_not_allowed_is_dropped_in_both_directions(void **state UNUSED)
{
    format(&rules, "", "");
    assert_non_null(strstr(text, "hook input priority 0; policy drop;"));
    assert_non_null(strstr(text, "hook output priority 0; policy drop;"));
    assert_non_null(strstr(text, "meta nfproto ipv6 drop"));
}

static void private_addresses_are_refused_unless_they_are_allowed(void **state UNUSED)
{
    struct rules open = rules;

    format(&rules, "", "");
    assert_non_null(strstr(text, "10.0.0.0/8"));
    assert_non_null(strstr(text, "192.168.0.0/16"));
    open.allow_private = true;
    format(&open, "", "");
    assert_null(strstr(text, "10.0.0.0/8"));
    /* Never the metadata of a cloud, loopback, or other sandboxes. */
    assert_non_null(strstr(text, "169.254.0.0/16"));
    assert_non_null(strstr(text, "127.0.0.0/8"));
    assert_non_null(strstr(text, "100.127.0.0/16"));
}

static void name_servers_come_before_refusals_and_the_hosts_own_not_at_all(void **state UNUSED)
{
    const char *server, *refusal;

    format(&rules, "nameserver 10.1.2.3\nnameserver 192.0.2.9\n", "192.0.2.9, ");
    server = strstr(text, "ip daddr 10.1.2.3 meta l4proto { tcp, udp } th dport 53 accept");
    refusal = strstr(text, "reject with");
    assert_true(server && refusal && server < refusal);
    assert_null(strstr(text, "ip daddr 192.0.2.9 meta"));
    assert_non_null(strstr(text, "ip daddr { 192.0.2.9,  } reject"));
}

static void a_text_that_does_not_fit_is_told(void **state UNUSED)
{
    assert_int_equal(rules_format_sandbox(&rules, "", "", text, 300), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_of_the_host_has_the_name_of_the_instance),
        cmocka_unit_test(what_is_not_allowed_is_dropped_in_both_directions),
        cmocka_unit_test(private_addresses_are_refused_unless_they_are_allowed),
        cmocka_unit_test(name_servers_come_before_refusals_and_the_hosts_own_not_at_all),
        cmocka_unit_test(a_text_that_does_not_fit_is_told),
    };

    return cmocka_run_group_tests_name("launcher/network_rules", tests, NULL, NULL);
}
