/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/share.h"

#include "base/alloc.h"
#include "base/str.h"
#include "cli/files/copy.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_directory(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* --- copies ---------------------------------------------------------------------------------- */

static int copy_one(struct cli *cli, const char *text, const char *session, struct error *err)
{
    const char *colon = access(text, F_OK) < 0 ? strrchr(text, ':') : NULL;
    scoped(free) char *path = colon ? xstrndup(text, (size_t)(colon - text)) : xstrdup(text);
    const char *inside = colon ? colon + 1 : is_directory(path) ? "." : "";

    if (copy_into(cli, path, session, inside, err) < 0)
        return error_wrap(err, "--copy %s", text);
    return 0;
}

int share_copy(struct cli *cli, const struct text_list *copies, const char *session,
               struct error *err)
{
    for (size_t i = 0; i < copies->count; i++)
        if (copy_one(cli, copies->items[i], session, err) < 0)
            return -1;
    return 0;
}
