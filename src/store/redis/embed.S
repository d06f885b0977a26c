/* SPDX-License-Identifier: Apache-2.0 */
/* The scripts, as text in the program. */

    .section .rodata

    .global redis_open_script
redis_open_script:
    .incbin OPEN_PATH
    .byte 0

    .global redis_commit_script
redis_commit_script:
    .incbin COMMIT_PATH
    .byte 0

    .global redis_query_script
redis_query_script:
    .incbin QUERY_PATH
    .byte 0

    .global redis_sweep_script
redis_sweep_script:
    .incbin SWEEP_PATH
    .byte 0

    .global redis_renew_script
redis_renew_script:
    .incbin RENEW_PATH
    .byte 0

    .global redis_rehome_script
redis_rehome_script:
    .incbin REHOME_PATH
    .byte 0

    .section .note.GNU-stack, "", %progbits
