/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The results of a helper, gathered into larger pieces and written to a pipe. Writing waits for the
 * reader. */

#include "wire/protocol.h"

struct file_output {
    int fd;
    char *bytes; /* borrowed */
    size_t size;
    size_t filled;
    bool is_broken; /* the reader is gone */
};

void file_output_flush(struct file_output *output);
void file_output_put(struct file_output *output, const void *bytes, size_t length);

/* A note; texts that are not there are NULL. */
void file_output_note(struct file_output *output, const struct protocol_note *note,
                      const char *path, const char *text, size_t text_length);

/* Whether the reader is still there, as far as that shows without writing. */
bool file_output_is_wanted(struct file_output *output);
