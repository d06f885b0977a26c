/* SPDX-License-Identifier: Apache-2.0 */
    .section .rodata

    .global embedded_init
    .global embedded_init_end
    .balign 16
embedded_init:
    .incbin INIT_PATH
embedded_init_end:
    .byte 0

    .global embedded_launcher
    .global embedded_launcher_end
    .balign 16
embedded_launcher:
    .incbin LAUNCHER_PATH
embedded_launcher_end:
    .byte 0

    .section .note.GNU-stack, "", %progbits
