#pragma once

/* What a helper sends through a pipe, gathered into larger pieces. It waits for the reader. */

#include "wire/protocol.h"

struct file_output {
    int fd;
    char *bytes; /* borrowed */
    size_t size;
    size_t filled;
    bool is_broken; /* nobody reads any more */
};

void file_output_flush(struct file_output *output);
void file_output_put(struct file_output *output, const void *bytes, size_t length);

/* A note; texts that are not there are NULL. */
void file_output_note(struct file_output *output, const struct protocol_note *note,
                      const char *path, const char *text, size_t text_length);

/* Whether somebody still reads, as far as that can be told without writing. */
bool file_output_is_wanted(struct file_output *output);
