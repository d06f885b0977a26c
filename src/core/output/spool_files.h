/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The files of an execution's output, below the state directory: output/ID.out, output/ID.err,
 * output/ID.order and output/ID.shown. Only spool_files.c makes and parses these names.
 */

#include "base/id.h"

#include <stdbool.h>

#define SPOOL_DIRECTORY "output"

enum { SPOOL_NAME_SIZE = ID_SIZE + 16 };

enum spool_file {
    SPOOL_STDOUT,
    SPOOL_STDERR,
    SPOOL_ORDER, /* see stream_order.h */
    SPOOL_SHOWN, /* see displays.h */
    SPOOL_FILES
};

void spool_file_name(char name[SPOOL_NAME_SIZE], const char *execution_id, enum spool_file file);

/* The execution that a file in SPOOL_DIRECTORY belongs to; false when it belongs to none. */
bool spool_file_owner(const char *file_name, char out_execution_id[ID_SIZE]);

/* Removes all files of the execution. Any thread may call this function. */
void spool_files_unlink(int state_dir, const char *execution_id);
