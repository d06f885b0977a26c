/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Runs a filter of system calls as the kernel does. */

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static inline uint32_t program_load(const struct seccomp_data *data, uint32_t offset)
{
    uint32_t value;

    assert_true(offset + sizeof(value) <= sizeof(*data));
    memcpy(&value, (const char *)data + offset, sizeof(value));
    return value;
}

static inline bool program_jumps(uint16_t code, uint32_t a, uint32_t k)
{
    switch (BPF_OP(code)) {
    case BPF_JEQ:
        return a == k;
    case BPF_JGT:
        return a > k;
    case BPF_JGE:
        return a >= k;
    case BPF_JSET:
        return a & k;
    default:
        fail_msg("unknown jump %x", code);
        return false;
    }
}

/* What the call would get. */
static inline uint32_t program_run(const struct sock_filter *program, size_t length,
                                   const struct seccomp_data *data)
{
    uint32_t a = 0;

    for (size_t at = 0; at < length; at++) {
        const struct sock_filter *i = &program[at];

        if (i->code == (BPF_LD | BPF_W | BPF_ABS))
            a = program_load(data, i->k);
        else if (i->code == (BPF_ALU | BPF_AND | BPF_K))
            a &= i->k;
        else if (i->code == (BPF_JMP | BPF_JA))
            at += i->k;
        else if (BPF_CLASS(i->code) == BPF_JMP)
            at += program_jumps(i->code, a, i->k) ? i->jt : i->jf;
        else if (i->code == (BPF_RET | BPF_K))
            return i->k;
        else
            fail_msg("unknown instruction %x", i->code);
    }
    fail_msg("the program has no end");
    return 0;
}
