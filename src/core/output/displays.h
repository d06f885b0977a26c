/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Displays of a context's runs that are too large for its events: pictures above all.
 *
 * All displays of one execution are in one file, output/ID.shown, which counts as its output and goes
 * with it. A display is found by its SHA-256; the same bytes are kept once. The file is a row of
 * entries, each a header of fixed size and its bytes. An entry that a crash has cut short is the last
 * one, is not found, and is overwritten by the next.
 */

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum {
    DISPLAY_HASH_SIZE = 65,
    DISPLAY_TYPE_SIZE = 64,
    DISPLAY_MAXIMUM = 4 * 1024 * 1024,   /* of one */
    DISPLAYS_MAXIMUM = 32 * 1024 * 1024, /* of an execution, with their headers */
};

/* Where a display is in the file. */
struct display_place {
    uint64_t offset, length;
    char type[DISPLAY_TYPE_SIZE]; /* its media type */
};

/* Keeps the bytes, unless they are there already. *out_grown is by how much the file has grown.
 * ERR_TOO_LARGE when the bytes, or the file with them, would be too large; ERR_INVALID when the type
 * is none. */
int display_keep(int state_dir, const char *execution_id, const char *type, const void *data,
                 size_t length, char out_hash[DISPLAY_HASH_SIZE], uint64_t *out_grown,
                 struct error *err);

/* Takes the last display away again, by which the file had grown so much. */
void display_drop(int state_dir, const char *execution_id, uint64_t grown);

/* The descriptor of the file, which the caller closes; -1 without such a display. */
int display_open(int state_dir, const char *execution_id, const char *hash,
                 struct display_place *out_place);
