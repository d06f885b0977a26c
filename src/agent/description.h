/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The result of FILE_DESCRIBE. Init is not trusted: a malformed note is refused. */

#include "wire/protocol.h"

#include <stdbool.h>

struct file_description {
    struct protocol_stat stat;    /* of a symbolic link itself */
    uint32_t target_mode;         /* type and permissions behind a link; 0 when nothing is there */
    const char *owner, *group;    /* borrowed from the note, as all texts */
    const char *target;           /* of a link; "" for other files */
    const char *attributes, *end; /* private: the attributes not yet read */
};

/* Of a NOTE_ENTRY; false for anything that is not well-formed. */
bool file_description_read(const struct protocol_note_view *note,
                           struct file_description *out_description);

/* The next extended attribute; false behind the last. */
bool file_description_next(struct file_description *description, const char **out_name,
                           const char **out_value);
