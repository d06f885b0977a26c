/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Small macros that every file may use. */

#include <stddef.h>

#define ARRAY_LENGTH(array) (sizeof(array) / sizeof((array)[0]))

#define container_of(pointer, type, member) \
    ((type *)((char *)(1 ? (pointer) : &((type *)0)->member) - offsetof(type, member)))

#define MIN(a, b)                          \
    ({                                     \
        __typeof__(a) min_a_ = (a);        \
        __typeof__(b) min_b_ = (b);        \
        min_a_ < min_b_ ? min_a_ : min_b_; \
    })

#define MAX(a, b)                          \
    ({                                     \
        __typeof__(a) max_a_ = (a);        \
        __typeof__(b) max_b_ = (b);        \
        max_a_ > max_b_ ? max_a_ : max_b_; \
    })

#define PRINTF_LIKE(format_at, args_at) __attribute__((format(printf, format_at, args_at)))
#define UNUSED __attribute__((unused))
