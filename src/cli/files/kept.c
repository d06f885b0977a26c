/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/files/kept.h"

#include "base/alloc.h"
#include "base/str.h"
#include "cli/files/transfer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool kept_applies(const struct error *err)
{
    return str_equal(err->name, "session_ended");
}

/* Without "./" before it and slashes behind it; "" is all of it. Allocated. */
static char *plain_path(const char *inside)
{
    size_t length;

    while (str_starts_with(inside, "./"))
        inside += strspn(inside + 2, "/") + 2;
    length = strlen(inside);
    while (length && inside[length - 1] == '/')
        length--;
    return length == 1 && *inside == '.' ? xstrdup("") : xstrndup(inside, length);
}

static const json_t *find_entry(const json_t *list, const char *path)
{
    const json_t *entry;
    size_t i;

    json_array_foreach(json_object_get(list, "files"), i,
                       entry) if (str_equal(field_text(entry, "path", ""), path)) return entry;
    return NULL;
}

static int copy_all(struct cli *cli, const char *session, const char *path, struct error *err)
{
    scoped(free) char *target = session_target(session, "/kept/archive");

    return path ? transfer_unpack(cli, target, path, err)
                : transfer_receive_into(cli, target, STDOUT_FILENO, err);
}

static int copy_file(struct cli *cli, const char *session, const char *inside, const char *path,
                     struct error *err)
{
    scoped(free) char *encoded = url_encode(inside);
    scoped(free) char *target = session_target(session, "/kept/file?path=%s", encoded);

    return path ? transfer_receive(cli, target, path, err)
                : transfer_receive_into(cli, target, STDOUT_FILENO, err);
}

int kept_copy_out(struct cli *cli, const char *session, const char *inside, const char *path,
                  struct error *err)
{
    scoped(free) char *plain = plain_path(inside);
    scoped(free) char *target = session_target(session, "/kept");
    scoped(reply_fini) struct reply reply = { 0 };
    const struct error ended = *err;
    const json_t *entry;
    int result;

    if (cli_call(cli, HTTP_GET, target, NULL, &reply, err) < 0) {
        if (!str_equal(err->name, "nothing_kept"))
            return -1;
        *err = ended;
        return error_hint(
            err, "no files were kept; a session with --keep-files keeps its files after its end");
    }
    entry = find_entry(reply.json, plain);
    if (*plain && !entry)
        return error_named(err, ERR_NOT_FOUND, "file_not_found",
                           "%s, and \"%s\" is not among the kept files", ended.message, plain);
    if (*plain && !str_equal(field_text(entry, "type", ""), "file"))
        return error_set(err, ERR_INVALID,
                         "%s: copy one of the kept files, or all of them with %s:.", ended.message,
                         session);
    result = *plain ? copy_file(cli, session, plain, path, err) : copy_all(cli, session, path, err);
    if (result == 0)
        cli_note("%s: copied from the files kept at %s", ended.message,
                 field_text(reply.json, "kept_at", "its end"));
    return result;
}
