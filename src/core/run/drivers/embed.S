/* SPDX-License-Identifier: Apache-2.0 */
    .section .rodata

    .global driver_python
driver_python:
    .ascii "_sandglass_notebook = r'''"
    .incbin NOTEBOOK_PATH
    .ascii "'''\n"
    .incbin PYTHON_PATH
    .byte 0

    .global driver_bash
driver_bash:
    .incbin BASH_PATH
    .byte 0

    .global driver_node
driver_node:
    .incbin NODE_PATH
    .byte 0

    .global driver_zygote
driver_zygote:
    .incbin ZYGOTE_PATH
    .byte 0

    .section .note.GNU-stack, "", %progbits
