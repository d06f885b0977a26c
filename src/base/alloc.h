/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Small allocations do not fail: out of memory ends the process, and the store has the state.
 * Anything that a client can make grow is a `struct buffer` with a maximum instead.
 */

#include "base/macros.h"

#include <stddef.h>

void *xmalloc(size_t size) __attribute__((malloc, returns_nonnull));
void *xcalloc(size_t count, size_t size) __attribute__((malloc, returns_nonnull));
void *xrealloc(void *memory, size_t count, size_t size) __attribute__((returns_nonnull));
char *xstrdup(const char *text) __attribute__((malloc, returns_nonnull));
char *xstrndup(const char *text, size_t length) __attribute__((malloc, returns_nonnull));
char *xasprintf(const char *format, ...) PRINTF_LIKE(1, 2) __attribute__((returns_nonnull));

/* For failed allocations of libraries. */
_Noreturn void out_of_memory(void);

#define xnew(type) ((type *)xcalloc(1, sizeof(type)))
