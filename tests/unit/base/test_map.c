/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ITEMS = 2000 };

struct item {
    char key[16];
    bool in_map;
};

static void an_empty_map_has_nothing(void **state UNUSED)
{
    struct map map = { 0 };
    size_t position = 0;

    assert_null(map_get(&map, "a"));
    assert_null(map_remove(&map, "a"));
    assert_null(map_next(&map, &position));
    map_fini(&map);
    map_fini(&map);
}

static void putting_a_key_again_replaces_the_value(void **state UNUSED)
{
    struct map map = { 0 };
    int first = 1;
    int second = 2;

    map_put(&map, "a", &first);
    map_put(&map, "a", &second);
    map_put(&map, "", &first);
    assert_int_equal(map.count, 2);
    assert_ptr_equal(map_get(&map, "a"), &second);
    assert_ptr_equal(map_get(&map, ""), &first);
    assert_ptr_equal(map_remove(&map, "a"), &second);
    assert_null(map_get(&map, "a"));
    assert_int_equal(map.count, 1);
    map_fini(&map);
}

/* Random puts and removes against a flag for each key: runs of collisions close without holes. */
static void it_agrees_with_a_simple_model(void **state UNUSED)
{
    struct item *items = calloc(ITEMS, sizeof(*items));
    struct map map = { 0 };
    uint64_t random = 88172645463325252U;
    size_t count = 0;

    for (unsigned i = 0; i < ITEMS; i++)
        snprintf(items[i].key, sizeof(items[i].key), "key-%u", i);
    for (unsigned step = 0; step < 50000; step++) {
        struct item *item;

        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        item = &items[random % ITEMS];
        assert_ptr_equal(map_get(&map, item->key), item->in_map ? item : NULL);
        if (random >> 32 & 1) {
            map_put(&map, item->key, item);
            count += !item->in_map;
            item->in_map = true;
        } else {
            assert_ptr_equal(map_remove(&map, item->key), item->in_map ? item : NULL);
            count -= item->in_map;
            item->in_map = false;
        }
        assert_int_equal(map.count, count);
    }
    for (unsigned i = 0; i < ITEMS; i++)
        assert_ptr_equal(map_get(&map, items[i].key), items[i].in_map ? &items[i] : NULL);
    map_fini(&map);
    free(items);
}

static void walking_sees_every_entry_once(void **state UNUSED)
{
    struct item items[100] = { 0 };
    struct map map = { 0 };
    struct map_slot *slot;
    unsigned seen = 0;

    for (unsigned i = 0; i < ARRAY_LENGTH(items); i++) {
        snprintf(items[i].key, sizeof(items[i].key), "%u", i);
        map_put(&map, items[i].key, &items[i]);
    }
    map_for_each (slot, &map) {
        struct item *item = slot->value;

        assert_false(item->in_map);
        item->in_map = true;
        seen++;
    }
    assert_int_equal(seen, ARRAY_LENGTH(items));
    map_fini(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_map_has_nothing),
        cmocka_unit_test(putting_a_key_again_replaces_the_value),
        cmocka_unit_test(it_agrees_with_a_simple_model),
        cmocka_unit_test(walking_sees_every_entry_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
