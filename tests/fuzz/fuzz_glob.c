/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of paths: whatever is taken for one can be matched, and a walk agrees with itself. */

#include "wire/glob.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const paths[] = { "a", ".a/b", "some/path/of/a.file", "x/y/x/y/x/y" };
    char pattern[512];
    size_t length = size < sizeof(pattern) ? size : sizeof(pattern) - 1;
    struct glob plain, hidden;

    memcpy(pattern, data, length);
    pattern[length] = 0;
    if (glob_parse(&plain, pattern, false) < 0)
        return 0;
    assert(glob_parse(&hidden, pattern, true) == 0);
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
        if (glob_match_path(&plain, paths[i]))
            assert(glob_match_path(&hidden, paths[i]));
    return 0;
}
