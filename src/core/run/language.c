/* SPDX-License-Identifier: Apache-2.0 */
#include "core/run/language.h"

#include "base/error.h"
#include "base/macros.h"
#include "base/str.h"
#include "core/run/drivers/drivers.h"

static const struct language languages[] = {
    { LANGUAGE_DEFAULT, "python3", "py", driver_python },
    { "bash", "bash", "sh", driver_bash },
    { "javascript", "node", "js", driver_node },
};

const struct language *language_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LENGTH(languages); i++) {
        if (str_equal(languages[i].name, name))
            return &languages[i];
    }
    return NULL;
}

const struct language *language_python(void)
{
    return &languages[0];
}

int language_check(const char *name, struct error *err)
{
    if (!name || language_find(name))
        return 0;
    error_named(err, ERR_INVALID, "unsupported_language",
                "language \"%.32s\" is not supported; known languages: " LANGUAGE_NAMES, name);
    return error_hint(err, "use argv to run any other interpreter that the template has");
}
