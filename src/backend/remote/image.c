/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/remote/image.h"

#include "base/str.h"
#include "wire/image_ref.h"

#include <stdio.h>

const char *remote_image(const char *name, const char *standard, const char *backend,
                         const char *setting, struct error *err)
{
    struct image_ref ref;

    if (str_is_empty(name) || str_equal(name, "host"))
        name = standard;
    if (str_is_empty(name)) {
        error_named(err, ERR_INVALID, "template_unknown", "the backend %s has no default image",
                    backend);
        error_hint(err, "name an image as the template of the session, or set %s", setting);
        return NULL;
    }
    if (image_ref_parse(&ref, name, err) < 0) {
        error_wrap(err, "template \"%.100s\"", name);
        snprintf(err->name, sizeof(err->name), "template_unknown");
        err->code = ERR_INVALID;
        return NULL;
    }
    return name;
}
