/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One daemon for each state directory: a lock on <state>/lock that lives as long as the descriptor,
 * however the process ends. The content of the file is for people only; a stale one means nothing.
 */

#include "base/error.h"

/*
 * The descriptor that holds the lock (close-on-exec; a child that is forked and does not exec has
 * to close it), or -1. When it is taken, the error is ERR_CONFLICT and names the holder.
 */
int store_lock(int state_dir_fd, struct error *err);

/* Releases the lock and closes the descriptor; -1 is fine. */
void store_unlock(int lock_fd);
