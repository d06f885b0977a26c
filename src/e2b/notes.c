/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "core/session_view.h"
#include "e2b/private.h"

#include <string.h>

static bool flag(const json_t *document, const char *name, bool fallback)
{
    const json_t *value = json_object_get(document, name);

    return json_is_boolean(value) ? json_is_true(value) : fallback;
}

void e2b_notes_read(struct e2b_notes *notes, const struct session *session)
{
    const char *text = session_face_json(session);
    json_t *document = text ? json_read(text, strlen(text), NULL) : NULL;
    json_t *own = json_object_get(document, "e2b");

    *notes = (struct e2b_notes){ .exists = json_is_object(own) };
    notes->document = json_incref(own);
    json_decref(document);
    notes->is_secure = flag(notes->document, "secure", true);
    notes->is_public = flag(notes->document, "public", false);
    notes->auto_resume = flag(notes->document, "auto_resume", false);
    notes->auto_pause = flag(notes->document, "auto_pause", false);
    notes->mask_host = json_string_value(json_object_get(notes->document, "mask_host"));
    notes->template_name = json_string_value(json_object_get(notes->document, "template"));
}

void e2b_notes_fini(struct e2b_notes *notes)
{
    json_decref(notes->document);
    *notes = (struct e2b_notes){ 0 };
}
