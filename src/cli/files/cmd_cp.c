/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass cp: a file or a directory, into a session or out of it. */

#include "base/alloc.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/files/copy.h"
#include "cli/files/kept.h"
#include "cli/files/transfer.h"
#include "cli/files/tree.h"
#include "cli/session/resolve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct cp_args {
    struct common_args common;
};

/* SESSION:PATH or a path here. */
struct place {
    char *session; /* owned; NULL: here */
    char *path;    /* owned */
};

static void place_fini(struct place *place)
{
    free(place->session);
    free(place->path);
}

static inline void scoped_place_fini(struct place *place)
{
    place_fini(place);
}

/* A path here that has a colon in it is written with a slash before it: ./a:b */
static struct place place_parse(const char *text)
{
    bool by_key = str_starts_with(text, "key:");
    const char *colon = strchr(text + (by_key ? 4 : 0), ':');
    const char *slash = strchr(text, '/');

    if (!colon || (slash && slash < colon && !by_key) || colon == text)
        return (struct place){ .path = xstrdup(text) };
    return (struct place){ xstrndup(text, (size_t)(colon - text)), xstrdup(colon + 1) };
}

static int place_resolve(struct cli *cli, struct place *place, struct error *err)
{
    char *resolved;

    if (!place->session)
        return 0;
    resolved = session_resolve(cli, place->session, err);
    if (!resolved)
        return -1;
    free(place->session);
    place->session = resolved;
    return 0;
}

/* The last name of a path, allocated; slashes at its end do not count. */
static char *last_name(const char *path)
{
    size_t end = strlen(path);
    size_t start;

    while (end && path[end - 1] == '/')
        end--;
    for (start = end; start && path[start - 1] != '/';)
        start--;
    return xstrndup(path + start, end - start);
}

static bool is_directory(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static bool is_stream(const struct place *place)
{
    return !place->session && str_equal(place->path, "-");
}

static char *archive_target(const struct place *place, const char *path)
{
    scoped(free) char *encoded = url_encode(*path ? path : ".");

    return session_target(place->session, "/archive?path=%s", encoded);
}

/* --- in -------------------------------------------------------------------------------------- */

/* Reports the entries that the sandbox has refused. */
static void tell_refused(const struct buffer *answer)
{
    struct error ignored;
    json_t *document = reply_parse(answer->data, answer->length, &ignored);
    const json_t *refused = document ? json_object_get(document, "refused") : NULL;
    const json_t *item;
    size_t i;

    json_array_foreach(refused, i, item)
        cli_note("refused: %s: %s", field_text(item, "path", "?"), field_text(item, "reason", "?"));
    json_decref(document);
}

static int send_archive(struct cli *cli, const struct place *to, const char *path, int fd,
                        uint64_t expected, struct error *err)
{
    scoped(free) char *target = archive_target(to, path);
    scoped(buffer_fini) struct buffer answer = { 0 };
    int result = transfer_send(cli, target, "application/x-tar", fd, expected, &answer, err);

    if (result == 0)
        tell_refused(&answer);
    return result;
}

/* Where a copy of `from` goes: into a directory if the path says so, else to the path itself. */
static char *path_inside(const struct place *from, const struct place *to)
{
    scoped(free) char *name = last_name(from->path);

    return str_is_empty(to->path) || str_ends_with(to->path, "/")
               ? xasprintf("%s%s", to->path, name)
               : xstrdup(to->path);
}

static int copy_directory_in(struct cli *cli, const struct place *from, const struct place *to,
                             struct error *err)
{
    scoped(free) char *path = path_inside(from, to);
    uint64_t expected = !cli->json && isatty(STDERR_FILENO) ? tree_size(from->path) : 0;
    struct tree_child child;
    struct error child_err;
    int result;

    if (tree_pack_start(&child, from->path, err) < 0)
        return -1;
    result = send_archive(cli, to, path, child.fd, expected, err);
    if (tree_child_wait(&child, &child_err) < 0 && result == 0) {
        *err = child_err;
        return -1;
    }
    return result;
}

static int copy_in(struct cli *cli, const struct place *from, const struct place *to,
                   struct error *err)
{
    scoped(fd_close) int fd = -1;
    scoped(free) char *path = path_inside(from, to);
    scoped(free) char *encoded = url_encode(path);
    scoped(free) char *target = NULL;
    struct stat status;

    if (is_stream(from))
        return send_archive(cli, to, to->path, STDIN_FILENO, 0, err);
    if (is_directory(from->path))
        return copy_directory_in(cli, from, to, err);
    fd = open(from->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0)
        return error_sys(err, "open %s", from->path);
    target = session_target(to->session, "/files?path=%s&mode=%04o", encoded,
                            (unsigned)status.st_mode & 0777);
    return transfer_send(cli, target, "application/octet-stream", fd, 0, NULL, err);
}

int copy_into(struct cli *cli, const char *path, const char *session, const char *inside,
              struct error *err)
{
    scoped(place_fini) struct place from = { .path = xstrdup(path) };
    scoped(place_fini) struct place to = { xstrdup(session), xstrdup(inside) };

    return cli_connect(cli, err) < 0 ? -1 : copy_in(cli, &from, &to, err);
}

/* --- out ------------------------------------------------------------------------------------- */

/* Only the daemon knows what a path inside is. */
static int is_directory_inside(struct cli *cli, const struct place *from, bool *out_is,
                               struct error *err)
{
    scoped(free) char *encoded = url_encode(*from->path ? from->path : ".");
    scoped(free) char *target = session_target(from->session, "/files/stat?path=%s", encoded);
    scoped(reply_fini) struct reply reply = { 0 };

    if (cli_call(cli, HTTP_GET, target, NULL, &reply, err) < 0)
        return -1;
    *out_is = str_equal(field_text(reply.json, "type", ""), "directory");
    return 0;
}

static int copy_live_out(struct cli *cli, const struct place *from, const struct place *to,
                         const char *path, struct error *err)
{
    scoped(free) char *encoded = url_encode(from->path);
    scoped(free) char *target = session_target(from->session, "/files?path=%s", encoded);
    scoped(free) char *archive = archive_target(from, from->path);
    bool is_tree = false;

    if (is_directory_inside(cli, from, &is_tree, err) < 0)
        return -1;
    if (is_stream(to))
        return transfer_receive_into(cli, is_tree ? archive : target, STDOUT_FILENO, err);
    return is_tree ? transfer_unpack(cli, archive, path, err)
                   : transfer_receive(cli, target, path, err);
}

static int copy_out(struct cli *cli, const struct place *from, const struct place *to,
                    struct error *err)
{
    scoped(free) char *name = last_name(from->path);
    scoped(free) char *path = is_directory(to->path) ? path_join(to->path, name)
                                                     : xstrdup(to->path);

    if (copy_live_out(cli, from, to, path, err) == 0)
        return 0;
    return kept_applies(err)
               ? kept_copy_out(cli, from->session, from->path, is_stream(to) ? NULL : path, err)
               : -1;
}

static int cp_run(struct cli *cli, const void *args UNUSED, const struct option_result *given)
{
    scoped(place_fini) struct place from = { 0 };
    scoped(place_fini) struct place to = { 0 };
    struct error err;
    int result;

    if (given->operands.count != 2)
        return cli_misuse(cli, "cp needs a source and a destination");
    from = place_parse(given->operands.items[0]);
    to = place_parse(given->operands.items[1]);
    if (!from.session == !to.session)
        return cli_misuse(cli, "either the source or the destination must be SESSION:PATH");
    if (cli_connect(cli, &err) < 0 || place_resolve(cli, &from, &err) < 0 ||
        place_resolve(cli, &to, &err) < 0)
        return cli_fail(cli, &err);
    result = from.session ? copy_out(cli, &from, &to, &err) : copy_in(cli, &from, &to, &err);
    if (result < 0)
        return cli_fail(cli, &err);
    return cli->json && !is_stream(&to) ? cli_print(cli, "{}\n", 3) : 0;
}

const struct command cmd_cp = {
    .name = "cp",
    .summary = "Copy files and directories into a session or out of it",
    .usage = "FILE|DIR|- SESSION:PATH | SESSION:PATH FILE|DIR|-",
    .examples = "sandglass cp data.csv notes:\n"
                "sandglass cp notes:results ./results\n"
                "sandglass cp notes:. - > workspace.tar\n",
    .details = "A relative PATH starts in the workspace; a trailing slash makes it a directory to "
               "copy into.\nA file replaces the destination atomically; a copy into a session "
               "keeps the mode of the\nsource. The contents of a directory are merged into the "
               "destination; members that lead out\nof it are refused and listed. With - a "
               "directory is a tar archive on stdin or stdout, and a\nfile is written to stdout as "
               "it is.\nThe kept files (--keep-files) of an ended session can be copied out: one "
               "of them, or all\nwith SESSION:.",
    .sets = { COMMON_OPTIONS },
    .args_size = sizeof(struct cp_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_PLACE,
    .run = cp_run,
};
