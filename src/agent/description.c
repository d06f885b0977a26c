/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/description.h"

#include <string.h>

/* The next text, which a NUL ends before `end`; NULL without one. */
static const char *take_text(const char **at, const char *end)
{
    const char *text = *at;
    const char *nul = text < end ? memchr(text, 0, (size_t)(end - text)) : NULL;

    if (!nul)
        return NULL;
    *at = nul + 1;
    return text;
}

bool file_description_read(const struct protocol_note_view *note,
                           struct file_description *out_description)
{
    struct file_description description = { .target_mode = (uint32_t)note->fixed.number };
    const char *at = note->text;
    const char *end = note->text + note->fixed.text_length;

    if (note->fixed.kind != NOTE_ENTRY || note->fixed.number > UINT32_MAX ||
        note->fixed.text_length < sizeof(description.stat))
        return false;
    memcpy(&description.stat, at, sizeof(description.stat));
    at += sizeof(description.stat);
    description.owner = take_text(&at, end);
    description.group = description.owner ? take_text(&at, end) : NULL;
    description.target = description.group ? take_text(&at, end) : NULL;
    if (!description.target || (at < end && end[-1] != '\0'))
        return false;
    description.attributes = at;
    description.end = end;
    *out_description = description;
    return true;
}

bool file_description_next(struct file_description *description, const char **out_name,
                           const char **out_value)
{
    const char *name = take_text(&description->attributes, description->end);
    const char *value = name ? take_text(&description->attributes, description->end) : NULL;

    if (!value)
        return false;
    *out_name = name;
    *out_value = value;
    return true;
}
