/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The armed timers of a loop as a binary heap, with the next to expire at the top. */

#include "loop/loop.h"

struct timer_heap {
    struct timer **timers; /* owned; counted from 1, the timers themselves are borrowed */
    size_t count;
    size_t capacity;
};

void timer_heap_fini(struct timer_heap *heap);
struct timer *timer_heap_first(const struct timer_heap *heap); /* NULL when empty */

/* Inserts the timer, or moves it when its deadline or order have changed. */
void timer_heap_place(struct timer_heap *heap, struct timer *timer);
void timer_heap_remove(struct timer_heap *heap, struct timer *timer); /* it must be in the heap */
