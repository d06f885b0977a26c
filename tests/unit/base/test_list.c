/* SPDX-License-Identifier: Apache-2.0 */
#include "base/list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct item {
    struct list node;
    char letter;
};

static void assert_order(struct list *head, const char *expected)
{
    char text[16] = "";
    struct item *item;

    list_for_each (item, head, node)
        text[strlen(text)] = item->letter;
    assert_string_equal(text, expected);
}

static void items_stay_in_the_order_of_insertion(void **state UNUSED)
{
    struct list head = LIST_INIT(head);
    struct item a = { .letter = 'a' };
    struct item b = { .letter = 'b' };
    struct item c = { .letter = 'c' };

    assert_true(list_is_empty(&head));
    assert_null(list_first(&head, struct item, node));
    list_append(&head, &b.node);
    list_append(&head, &c.node);
    list_prepend(&head, &a.node);
    assert_order(&head, "abc");
    assert_ptr_equal(list_first(&head, struct item, node), &a);
    list_remove(&b.node);
    assert_order(&head, "ac");
    assert_false(list_is_linked(&b.node));
    list_remove(&b.node);
    list_insert_after(&a.node, &b.node);
    assert_order(&head, "abc");
}

static void a_zeroed_node_is_in_no_list(void **state UNUSED)
{
    struct item item = { 0 };

    assert_false(list_is_linked(&item.node));
    list_remove(&item.node);
}

static void the_current_item_may_be_freed_while_walking(void **state UNUSED)
{
    struct list head;
    struct item *item;
    struct item *following;
    unsigned count = 0;

    list_init(&head);
    for (int i = 0; i < 10; i++) {
        item = calloc(1, sizeof(*item));
        list_append(&head, &item->node);
    }
    list_for_each_safe (item, following, &head, node) {
        list_remove(&item->node);
        free(item);
        count++;
    }
    assert_int_equal(count, 10);
    assert_true(list_is_empty(&head));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_stay_in_the_order_of_insertion),
        cmocka_unit_test(a_zeroed_node_is_in_no_list),
        cmocka_unit_test(the_current_item_may_be_freed_while_walking),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
