/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The user's terminal in raw mode. There is one, and it is put back as it was on every way out:
 * terminal_restore(), exit(), and signals that kill us by our own fault.
 */

#include "base/error.h"

#include <stdbool.h>

int terminal_make_raw(int fd, struct error *err);
void terminal_make_raw_again(void); /* after a stop and continue; nothing if it was not raw */
void terminal_restore(void);        /* safe at any time, also in a signal handler */

/* 0, or -1 when `fd` is no terminal or does not know its size. */
int terminal_size(int fd, unsigned *out_columns, unsigned *out_rows);
