/* SPDX-License-Identifier: Apache-2.0 */
/*
 * long sys_clone_call(unsigned long flags, void *stack_top, void (*entry)(void *), void *argument,
 *                     int *out_pid)
 *
 * The system call keeps all registers but rax, rcx and r11: entry and argument wait in r9 and r12.
 */
        .text
        .global sys_clone_call
        .type sys_clone_call, @function
sys_clone_call:
        push    %r12
        mov     %rdx, %r9
        mov     %rcx, %r12
        mov     %r8, %rdx
        xor     %r10d, %r10d
        xor     %r8d, %r8d
        mov     $56, %eax
        syscall
        test    %rax, %rax
        jnz     1f
        xor     %ebp, %ebp
        mov     %r12, %rdi
        call    *%r9
        hlt
1:      pop     %r12
        ret
        .size sys_clone_call, . - sys_clone_call
        .section .note.GNU-stack, "", @progbits
