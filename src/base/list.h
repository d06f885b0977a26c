/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Intrusive doubly linked list: the node is a field of the object, the head is a node too. */

#include "base/macros.h"

#include <stdbool.h>

struct list {
    struct list *next;
    struct list *previous;
};

#define LIST_INIT(head)  \
    {                    \
        &(head), &(head) \
    }

static inline void list_init(struct list *head)
{
    head->next = head->previous = head;
}

static inline bool list_is_empty(const struct list *head)
{
    return head->next == head;
}

/* A node that was list_init()ed or removed is in no list. A zeroed node counts as being in none. */
static inline bool list_is_linked(const struct list *node)
{
    return node->next && node->next != node;
}

static inline void list_insert_after(struct list *place, struct list *node)
{
    node->previous = place;
    node->next = place->next;
    place->next->previous = node;
    place->next = node;
}

static inline void list_append(struct list *head, struct list *node)
{
    list_insert_after(head->previous, node);
}

static inline void list_prepend(struct list *head, struct list *node)
{
    list_insert_after(head, node);
}

/* Removing a node that is in no list does nothing. */
static inline void list_remove(struct list *node)
{
    if (!node->next)
        return;
    node->previous->next = node->next;
    node->next->previous = node->previous;
    list_init(node);
}

/* To the end of the other list, in their order. */
static inline void list_move_all(struct list *from, struct list *to)
{
    while (!list_is_empty(from)) {
        struct list *node = from->next;

        list_remove(node);
        list_append(to, node);
    }
}

#define list_entry(node, type, member) container_of(node, type, member)

#define list_first(head, type, member) \
    (list_is_empty(head) ? NULL : list_entry((head)->next, type, member))

#define list_last(head, type, member) \
    (list_is_empty(head) ? NULL : list_entry((head)->previous, type, member))

#define list_for_each(item, head, member)                                                     \
    for (item = list_entry((head)->next, __typeof__(*item), member); &item->member != (head); \
         item = list_entry(item->member.next, __typeof__(*item), member))

/* The current item may be removed or freed in the body. */
#define list_for_each_safe(item, following, head, member)                     \
    for (item = list_entry((head)->next, __typeof__(*item), member),          \
        following = list_entry(item->member.next, __typeof__(*item), member); \
         &item->member != (head);                                             \
         item = following, following = list_entry(item->member.next, __typeof__(*item), member))
