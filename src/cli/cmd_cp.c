/* sandglass cp: a file, or a tar of a directory, into a session or out of it. */

#include "base/alloc.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/transfer.h"

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

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
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

/* A whole directory, as a tar on stdin or stdout. */
static int copy_archive(struct cli *cli, const struct place *from, const struct place *to,
                        struct error *err)
{
    const struct place *inside = from->session ? from : to;
    scoped(free) char *encoded = url_encode(*inside->path ? inside->path : ".");
    scoped(free) char *target = session_target(inside->session, "/archive?path=%s", encoded);

    return from->session ? transfer_receive_into(cli, target, STDOUT_FILENO, err)
                         : transfer_send(cli, target, "application/x-tar", STDIN_FILENO, err);
}

static int copy_in(struct cli *cli, const struct place *from, const struct place *to,
                   struct error *err)
{
    scoped(fd_close) int fd = open(from->path, O_RDONLY | O_CLOEXEC);
    scoped(free) char *path = NULL;
    scoped(free) char *encoded = NULL;
    scoped(free) char *target = NULL;
    struct stat status;

    if (fd < 0 || fstat(fd, &status) < 0)
        return error_sys(err, "open %s", from->path);
    if (S_ISDIR(status.st_mode))
        return error_set(err, ERR_INVALID, "%s is a directory; cp copies single files", from->path);
    path = str_is_empty(to->path) || str_ends_with(to->path, "/")
               ? xasprintf("%s%s", to->path, base_name(from->path))
               : xstrdup(to->path);
    encoded = url_encode(path);
    target = session_target(to->session, "/files?path=%s&mode=%04o", encoded,
                            (unsigned)status.st_mode & 0777);
    return transfer_send(cli, target, "application/octet-stream", fd, err);
}

static int copy_out(struct cli *cli, const struct place *from, const struct place *to,
                    struct error *err)
{
    scoped(free) char *encoded = url_encode(from->path);
    scoped(free) char *target = session_target(from->session, "/files?path=%s", encoded);
    scoped(free) char *path = is_directory(to->path) ? path_join(to->path, base_name(from->path))
                                                     : xstrdup(to->path);

    return transfer_receive(cli, target, path, err);
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
        return cli_misuse(cli, "one of source and destination is SESSION:PATH");
    if (cli_connect(cli, &err) < 0)
        return cli_fail(cli, &err);
    if (is_stream(&from) || is_stream(&to))
        result = copy_archive(cli, &from, &to, &err);
    else
        result = from.session ? copy_out(cli, &from, &to, &err) : copy_in(cli, &from, &to, &err);
    if (result < 0)
        return cli_fail(cli, &err);
    return cli->json && !is_stream(&to) ? cli_print(cli, "{}\n", 3) : 0;
}

const struct command cmd_cp = {
    .name = "cp",
    .summary = "Copy a file or a tar into a session or out of it",
    .usage = "FILE|- SESSION:PATH | SESSION:PATH FILE|-",
    .details =
        "A relative PATH begins in the workspace; one that ends with a slash is a directory. "
        "The\ncopy replaces the destination in one step, with the mode of the source when it "
        "goes in.\nWith - a whole directory is a tar on stdin or stdout.",
    .sets = { COMMON_OPTIONS },
    .args_size = sizeof(struct cp_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_FILE,
    .run = cp_run,
};
