/* SPDX-License-Identifier: Apache-2.0 */
#include "store/record.h"

#include "base/alloc.h"
#include "store/memory/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static size_t field_size(enum field_kind kind)
{
    switch (kind) {
    case FIELD_ID:
        return ID_SIZE;
    case FIELD_TEXT:
    case FIELD_KEY:
        return sizeof(char *);
    case FIELD_I64:
    case FIELD_U64:
    case FIELD_BOOT:
        return 8;
    case FIELD_U32:
        return 4;
    case FIELD_INT:
        return sizeof(int);
    case FIELD_BOOL:
        return sizeof(bool);
    }
    return 0;
}

/* What no field covers can only be padding. */
static void every_part_of_a_record_is_a_field(void **state)
{
    (void)state;
    for (size_t t = 0; t < RECORD_TABLES; t++) {
        const struct record_type *type = &record_types[t];
        scoped(free) char *covered = xcalloc(type->size, 1);
        size_t gap = 0;

        for (size_t i = 0; i < type->field_count; i++)
            memset(covered + type->fields[i].offset, 1, field_size(type->fields[i].kind));
        for (size_t at = 0; at < type->size; at++) {
            gap = covered[at] ? 0 : gap + 1;
            assert_true(gap < 8);
        }
    }
}

static void the_boot_half_of_a_stamp_follows_its_wall_half(void **state)
{
    (void)state;
    for (size_t t = 0; t < RECORD_TABLES; t++) {
        const struct record_type *type = &record_types[t];

        for (size_t i = 0; i < type->field_count; i++) {
            if (type->fields[i].kind != FIELD_BOOT)
                continue;
            assert_true(type->has_stamps && i > 0);
            assert_int_equal(type->fields[i].offset,
                             type->fields[i - 1].offset + offsetof(struct stamp, boot_us));
        }
    }
}

static void a_copy_stands_alone(void **state)
{
    char owner[] = "ada";
    struct session_record record = { .id = "ses_1", .owner = owner, .key = "", .state = "open" };
    scoped(free) char *copy = record_copy(&record_types[STORE_SESSIONS], &record, 32);
    const struct session_record *session = (const void *)(copy + 32);

    (void)state;
    owner[0] = 'X';
    assert_string_equal(session->id, "ses_1");
    assert_string_equal(session->owner, "ada");
    assert_null(session->key);
    assert_string_equal(session->end_reason, "");
    assert_string_equal(session->state, "open");
}

static void only_filters_that_the_record_has_count(void **state)
{
    struct store_query query = { .id = "x", .owner = "", .key = "", .kind = "k", .state = "ended" };

    (void)state;
    assert_int_equal(record_filters(&record_types[STORE_SESSIONS], &query),
                     FILTER_ID | FILTER_OWNER | FILTER_ENDED);
    assert_int_equal(record_filters(&record_types[STORE_EVENTS], &query), FILTER_OWNER);
    assert_int_equal(record_filters(&record_types[STORE_DOCUMENTS], &query),
                     FILTER_ID | FILTER_OWNER | FILTER_KIND);
    query.state = "open";
    assert_int_equal(record_filters(&record_types[STORE_SANDBOXES], &query),
                     FILTER_ID | FILTER_STATE);
}

/* --- the hooks of the store in memory ------------------------------------------------------ */

static enum error_code last_code;

static void on_durable(struct store_ticket *ticket)
{
    last_code = ticket->err->code;
}

static void a_test_can_make_the_next_transaction_fail(void **state)
{
    struct simulated_clock clock;
    struct loop *loop;
    struct store *store;
    struct store_ticket ticket;
    struct session_record record = { .id = "ses_1", .state = "open" };

    (void)state;
    simulated_clock_init(&clock, 1, 1);
    loop = loop_new(&clock.clock);
    store = store_open_memory(&(struct store_options){ .loop = loop });
    store_memory_fail_next(store, ERR_NO_SPACE);
    store_put_session(store, &record);
    store_commit(store, &ticket, on_durable);
    loop_turn(loop, 0);
    assert_int_equal(last_code, ERR_NO_SPACE);
    assert_int_equal(store_memory_count(store, STORE_SESSIONS), 0);
    store_put_session(store, &record);
    store_commit(store, &ticket, on_durable);
    loop_turn(loop, 0);
    assert_int_equal(last_code, ERR_NONE);
    assert_int_equal(store_memory_count(store, STORE_SESSIONS), 1);
    store_close(store);
    loop_free(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_of_a_record_is_a_field),
        cmocka_unit_test(the_boot_half_of_a_stamp_follows_its_wall_half),
        cmocka_unit_test(a_copy_stands_alone),
        cmocka_unit_test(only_filters_that_the_record_has_count),
        cmocka_unit_test(a_test_can_make_the_next_transaction_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
