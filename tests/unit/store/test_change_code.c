/* SPDX-License-Identifier: Apache-2.0 */
#include "store/change_code.h"

#include "base/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const struct execution_record execution = {
    .id = "exe_1",
    .session_id = "ses_1",
    .key = "mine",
    .request_json = "{\"argv\":[\"true\"]}",
    .state = "exited",
    .generation = UINT64_MAX,
    .timeout_ms = -1,
    .exit_code = -1,
    .signal = 9,
    .background = true,
    .stdout_bytes = 300,
    .cpu_us = INT64_MIN,
    .created = { 1750000000000000, -5 },
};

static struct buffer encode(enum store_table table, bool forget, const void *record)
{
    struct buffer out = BUFFER_INIT(1 << 20);
    struct change *change = change_new(table, forget, record);

    assert_int_equal(change_encode(change, &out), 0);
    free(change);
    return out;
}

static void a_change_comes_back_as_it_was(void **state)
{
    scoped(buffer_fini) struct buffer bytes = encode(STORE_EXECUTIONS, false, &execution);
    size_t used = 0;
    scoped(free) struct change *change = change_decode(bytes.data, bytes.length, &used);
    const struct execution_record *got;

    (void)state;
    assert_non_null(change);
    assert_int_equal(used, bytes.length);
    assert_int_equal(change->table, STORE_EXECUTIONS);
    assert_false(change->forget);
    got = (const void *)change->record;
    assert_string_equal(got->id, execution.id);
    assert_string_equal(got->session_id, execution.session_id);
    assert_string_equal(got->sandbox_id, "");
    assert_string_equal(got->key, execution.key);
    assert_string_equal(got->request_json, execution.request_json);
    assert_string_equal(got->state, execution.state);
    assert_string_equal(got->error, "");
    assert_true(got->generation == UINT64_MAX);
    assert_int_equal(got->timeout_ms, -1);
    assert_int_equal(got->exit_code, -1);
    assert_int_equal(got->signal, 9);
    assert_true(got->background);
    assert_int_equal(got->stdout_bytes, 300);
    assert_true(got->cpu_us == INT64_MIN);
    assert_memory_equal(&got->created, &execution.created, sizeof(got->created));
    assert_int_equal(got->ended.wall_us, 0);
}

static void what_is_not_set_takes_no_room(void **state)
{
    struct session_record session = { .id = "ses_1" };
    scoped(buffer_fini) struct buffer bytes = encode(STORE_SESSIONS, true, &session);
    size_t used = 0;
    scoped(free) struct change *change = change_decode(bytes.data, bytes.length, &used);

    (void)state;
    assert_true(bytes.length < 20);
    assert_true(change->forget);
    assert_null(((const struct session_record *)(const void *)change->record)->key);
}

static void a_field_of_a_newer_version_is_skipped(void **state)
{
    static const uint8_t number[] = { 100, 0x81, 0x01 };
    static const uint8_t text[] = { 0x80 | 101, 4, 'n', 'e', 'w', 0 };
    struct session_record session = { .id = "ses_1", .state = "open" };
    scoped(buffer_fini) struct buffer bytes = encode(STORE_SESSIONS, false, &session);
    struct change *change;
    size_t used = 0;

    (void)state;
    buffer_append(&bytes, number, sizeof(number));
    buffer_append(&bytes, text, sizeof(text));
    bytes.data[2] = (uint8_t)(bytes.data[2] + sizeof(number) + sizeof(text));
    change = change_decode(bytes.data, bytes.length, &used);
    assert_non_null(change);
    assert_int_equal(used, bytes.length);
    assert_string_equal(((const struct session_record *)(const void *)change->record)->state,
                        "open");
    free(change);
}

/* A log that a daemon of schema version 6 left behind: start time, slot, attempts, pid, creation. */
static void a_sandbox_of_an_older_log_has_a_handle(void **state)
{
    static const uint8_t numbers[] = { 7, 0xac, 0x02, 8, 6, 9, 4, 10, 0xce, 0x49, 11, 10, 12, 12 };
    struct sandbox_record sandbox = { .id = "sbx_1", .state = "ready" };
    scoped(buffer_fini) struct buffer bytes = encode(STORE_SANDBOXES, false, &sandbox);
    scoped(free) struct change *change = NULL;
    const struct sandbox_record *got;
    size_t used = 0;

    (void)state;
    buffer_append(&bytes, numbers, sizeof(numbers));
    bytes.data[2] = (uint8_t)(bytes.data[2] + sizeof(numbers));
    change = change_decode(bytes.data, bytes.length, &used);
    assert_non_null(change);
    got = (const void *)change->record;
    assert_string_equal(got->handle, "4711:150:3");
    assert_int_equal(got->attempts, 2);
    assert_int_equal(got->created.wall_us, 5);
    assert_int_equal(got->created.boot_us, 6);
}

static void a_sandbox_without_a_process_has_no_handle(void **state)
{
    struct sandbox_record sandbox = { .id = "sbx_1", .state = "creating", .attempts = 3 };
    scoped(buffer_fini) struct buffer bytes = encode(STORE_SANDBOXES, false, &sandbox);
    size_t used = 0;
    scoped(free) struct change *change = change_decode(bytes.data, bytes.length, &used);
    const struct sandbox_record *got = (const void *)change->record;

    (void)state;
    assert_string_equal(got->handle, "");
    assert_int_equal(got->attempts, 3);
}

/* Whatever it is, nothing beyond it is read, which the sanitizers would tell. */
static void what_is_cut_off_or_changed_is_survived(void **state)
{
    scoped(buffer_fini) struct buffer bytes = encode(STORE_EXECUTIONS, false, &execution);

    (void)state;
    for (size_t length = 0; length < bytes.length; length++) {
        uint8_t *copy = xmalloc(length + 1);
        size_t used = 0;

        memcpy(copy, bytes.data, length);
        assert_null(change_decode(copy, length, &used));
        free(copy);
    }
    for (size_t bit = 0; bit < bytes.length * 8; bit++) {
        uint8_t *copy = xmalloc(bytes.length);
        size_t used = 0;

        memcpy(copy, bytes.data, bytes.length);
        copy[bit / 8] ^= (uint8_t)(1U << bit % 8);
        free(change_decode(copy, bytes.length, &used));
        free(copy);
    }
}

/* --- folding ------------------------------------------------------------------------------- */

static struct change *add_sandbox(struct change_queue *queue, const char *id, bool forget,
                                  uint64_t generation)
{
    struct sandbox_record record = { .state = "ready", .generation = generation };
    struct change *change;

    strcpy(record.id, id);
    change = change_new(STORE_SANDBOXES, forget, &record);
    change_queue_append(queue, change);
    return change;
}

static void of_several_puts_the_first_gets_what_the_last_says(void **state)
{
    struct change_queue queue = { 0 };
    struct change *first = add_sandbox(&queue, "sbx_1", false, 1);
    struct change *other = add_sandbox(&queue, "sbx_2", false, 1);
    struct change *second = add_sandbox(&queue, "sbx_1", false, 2);
    struct change *third = add_sandbox(&queue, "sbx_1", false, 3);

    (void)state;
    change_queue_fold(&queue);
    assert_ptr_equal(first->newest, third);
    assert_false(first->is_moot || other->is_moot);
    assert_true(second->is_moot && third->is_moot);
    assert_null(other->newest);
    change_queue_free(&queue);
}

static void a_forget_makes_earlier_puts_moot_and_not_later_ones(void **state)
{
    struct change_queue queue = { 0 };
    struct change *first = add_sandbox(&queue, "sbx_1", false, 1);
    struct change *forget = add_sandbox(&queue, "sbx_1", true, 0);
    struct change *again = add_sandbox(&queue, "sbx_1", false, 2);

    (void)state;
    change_queue_fold(&queue);
    assert_true(first->is_moot);
    assert_false(forget->is_moot || again->is_moot);
    change_queue_free(&queue);
}

/* It takes executions and events along that were put before. */
static void nothing_moves_across_a_forgotten_session(void **state)
{
    struct change_queue queue = { 0 };
    struct session_record session = { .id = "ses_1", .state = "open" };
    struct change *first = add_sandbox(&queue, "sbx_1", false, 1);
    struct change *second;

    (void)state;
    change_queue_append(&queue, change_new(STORE_SESSIONS, true, &session));
    second = add_sandbox(&queue, "sbx_1", false, 2);
    change_queue_fold(&queue);
    assert_null(first->newest);
    assert_false(first->is_moot || second->is_moot);
    change_queue_free(&queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_comes_back_as_it_was),
        cmocka_unit_test(what_is_not_set_takes_no_room),
        cmocka_unit_test(a_field_of_a_newer_version_is_skipped),
        cmocka_unit_test(a_sandbox_of_an_older_log_has_a_handle),
        cmocka_unit_test(a_sandbox_without_a_process_has_no_handle),
        cmocka_unit_test(what_is_cut_off_or_changed_is_survived),
        cmocka_unit_test(of_several_puts_the_first_gets_what_the_last_says),
        cmocka_unit_test(a_forget_makes_earlier_puts_moot_and_not_later_ones),
        cmocka_unit_test(nothing_moves_across_a_forgotten_session),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
