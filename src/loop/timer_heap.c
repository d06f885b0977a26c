/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/timer_heap.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdlib.h>

enum { SMALLEST_CAPACITY = 32 };

static bool expires_before(const struct timer *a, const struct timer *b)
{
    return a->deadline_us != b->deadline_us ? a->deadline_us < b->deadline_us : a->order < b->order;
}

static void put_at(struct timer_heap *heap, size_t place, struct timer *timer)
{
    heap->timers[place] = timer;
    timer->place = place;
}

static void move_up(struct timer_heap *heap, struct timer *timer, size_t place)
{
    while (place > 1 && expires_before(timer, heap->timers[place / 2])) {
        put_at(heap, place, heap->timers[place / 2]);
        place /= 2;
    }
    put_at(heap, place, timer);
}

static void move_down(struct timer_heap *heap, struct timer *timer, size_t place)
{
    for (;;) {
        size_t child = place * 2;

        if (child > heap->count)
            break;
        if (child < heap->count && expires_before(heap->timers[child + 1], heap->timers[child]))
            child++;
        if (!expires_before(heap->timers[child], timer))
            break;
        put_at(heap, place, heap->timers[child]);
        place = child;
    }
    put_at(heap, place, timer);
}

static void restore_order(struct timer_heap *heap, struct timer *timer, size_t place)
{
    if (place > 1 && expires_before(timer, heap->timers[place / 2]))
        move_up(heap, timer, place);
    else
        move_down(heap, timer, place);
}

void timer_heap_fini(struct timer_heap *heap)
{
    free(heap->timers);
    *heap = (struct timer_heap){ 0 };
}

struct timer *timer_heap_first(const struct timer_heap *heap)
{
    return heap->count ? heap->timers[1] : NULL;
}

void timer_heap_place(struct timer_heap *heap, struct timer *timer)
{
    if (timer->place) {
        restore_order(heap, timer, timer->place);
        return;
    }
    if (heap->count + 1 >= heap->capacity) {
        heap->capacity = heap->capacity ? heap->capacity * 2 : SMALLEST_CAPACITY;
        heap->timers = xrealloc(heap->timers, heap->capacity, sizeof(struct timer *));
    }
    move_up(heap, timer, ++heap->count);
}

void timer_heap_remove(struct timer_heap *heap, struct timer *timer)
{
    size_t place = timer->place;
    struct timer *last = heap->timers[heap->count];

    assert(place && heap->timers[place] == timer);
    heap->count--;
    timer->place = 0;
    if (last != timer)
        restore_order(heap, last, place);
}
