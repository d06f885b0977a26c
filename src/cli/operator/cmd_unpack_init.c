/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass unpack-init: init as a file, for templates of pods that Sandglass does not write itself. */

#include "backend/embed.h"
#include "base/alloc.h"
#include "base/fd.h"
#include "cli/commands.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define INIT_NAME "sandglass-init"

enum { INIT_MODE = 0555 };

struct unpack_args {
    struct common_args common;
};

/* Under another name first: a reader finds all of the program or the one that was there before. */
static int write_init(int dir, struct error *err)
{
    size_t size = (size_t)(embedded_init_end - embedded_init);
    scoped(fd_close) int fd = -1;

    (void)unlinkat(dir, INIT_NAME ".new", 0);
    fd = openat(dir, INIT_NAME ".new", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, INIT_MODE);
    if (fd < 0 || fd_write_all(fd, embedded_init, size) < 0 || fchmod(fd, INIT_MODE) < 0 ||
        renameat(dir, INIT_NAME ".new", dir, INIT_NAME) < 0)
        return error_sys(err, "write " INIT_NAME);
    return 0;
}

static int unpack_init(const char *directory, struct error *err)
{
    scoped(fd_close) int dir = open(directory, O_DIRECTORY | O_RDONLY | O_CLOEXEC);

    if (dir < 0)
        return error_sys(err, "open %s", directory);
    return write_init(dir, err) < 0 ? error_wrap(err, "%s", directory) : 0;
}

static int unpack_run(struct cli *cli, const void *args UNUSED, const struct option_result *given)
{
    struct error err;

    if (given->operands.count != 1)
        return cli_misuse(cli, "unpack-init takes one operand: a directory");
    return unpack_init(given->operands.items[0], &err) < 0 ? cli_fail(cli, &err) : 0;
}

const struct command cmd_unpack_init = {
    .name = "unpack-init",
    .summary = "Write sandglass-init into a directory",
    .usage = "DIRECTORY",
    .examples = "sandglass unpack-init /.sandglass/bin\n",
    .details =
        "Writes the program that runs inside every sandbox as DIRECTORY/sandglass-init. Init "
        "containers of a SandboxTemplate use it (kubernetes.kind: claim); a daemon brings "
        "init into its own sandboxes by itself.",
    .sets = { COMMON_OPTIONS },
    .args_size = sizeof(struct unpack_args),
    .plain_after = OPERANDS_MIXED,
    .run = unpack_run,
};
