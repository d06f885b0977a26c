/* SPDX-License-Identifier: Apache-2.0 */
#include "store/claims.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static void load(struct claims *claims, int number, int64_t expires_wall_us)
{
    char id[16];

    snprintf(id, sizeof(id), "%d", number);
    claims_load(claims, &(struct document_record){ .kind = "k",
                                                   .id = id,
                                                   .json = "{}",
                                                   .expires_wall_us = expires_wall_us,
                                                   .version = 1 });
}

static void on_done(struct store_claim *claim)
{
    assert_int_equal(claim->outcome, CLAIM_LOST);
}

/* As a transaction with a claim that is lost does. */
static void decide(struct claims *claims, int64_t now_wall_us)
{
    const struct document_record document = { .kind = "k", .id = "0", .json = "{}" };
    struct store_claim claim = { .done = on_done,
                                 .private.expected = 7,
                                 .private.change = change_new(STORE_DOCUMENTS, false, &document) };
    struct change_queue changes = { 0 };
    struct error err = { 0 };

    claims_add(claims, &claim);
    claims_decide(claims, now_wall_us, &changes);
    assert_null(changes.first);
    claims_end(claims, &err);
}

static void claims_are_forgotten_when_they_expire_in_whatever_order_they_came(void **state)
{
    static const int64_t expiries[] = { 0, 50, 10, 0, 30, 20, 50, 40 };
    struct claims claims = { 0 };

    (void)state;
    claims_init(&claims);
    for (size_t i = 0; i < ARRAY_LENGTH(expiries); i++)
        load(&claims, (int)i, expiries[i]);
    load(&claims, 2, 35); /* again, with another time */
    decide(&claims, 20);
    assert_int_equal(claims.by_id.count, 7);
    decide(&claims, 35);
    assert_int_equal(claims.by_id.count, 5);
    decide(&claims, 49);
    assert_int_equal(claims.by_id.count, 4);
    decide(&claims, 1000);
    assert_int_equal(claims.by_id.count, 2);
    claims_fini(&claims);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claims_are_forgotten_when_they_expire_in_whatever_order_they_came),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
