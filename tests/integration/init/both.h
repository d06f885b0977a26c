/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Each test runs twice: with init as a plain child and, where namespaces can be made, as PID 1. */

#include "box.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static inline int start_box(void **state)
{
    enum box_mode mode = (enum box_mode)(uintptr_t)*state;

    *state = box_can_have(mode) ? box_new(mode, NULL, -1) : NULL;
    return 0;
}

static inline int start_listening_box(void **state)
{
    enum box_mode mode = (enum box_mode)(uintptr_t)*state;

    *state = box_can_have(mode) ? box_new_listening(mode) : NULL;
    return 0;
}

static inline int start_dialling_box(void **state)
{
    enum box_mode mode = (enum box_mode)(uintptr_t)*state;

    *state = box_can_have(mode) ? box_new_dialling(&(struct box_spawn){ .mode = mode }) : NULL;
    return 0;
}

static inline int stop_box(void **state)
{
    box_free(*state);
    return 0;
}

static inline struct box *the_box(void **state)
{
    if (!*state)
        skip();
    return *state;
}

/* clang-format off */
#define IN_BOTH(test)                                                                        \
    { #test " (direct)", test, start_box, stop_box, (void *)(uintptr_t)BOX_DIRECT },         \
    { #test " (namespace)", test, start_box, stop_box, (void *)(uintptr_t)BOX_NAMESPACE }
/* With a socket that init has made itself. */
#define IN_LISTENING(test)                                                                            \
    { #test " (direct, listening)", test, start_listening_box, stop_box, (void *)(uintptr_t)BOX_DIRECT }, \
    { #test " (namespace, listening)", test, start_listening_box, stop_box, (void *)(uintptr_t)BOX_NAMESPACE }
/* With connections that init makes itself. */
#define IN_DIALLING(test)                                                                             \
    { #test " (direct, dialling)", test, start_dialling_box, stop_box, (void *)(uintptr_t)BOX_DIRECT }, \
    { #test " (namespace, dialling)", test, start_dialling_box, stop_box, (void *)(uintptr_t)BOX_NAMESPACE }
#define IN_DIRECT(test) \
    { #test, test, start_box, stop_box, (void *)(uintptr_t)BOX_DIRECT }
/* clang-format on */
