/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/files/tree.h"

#include "base/macros.h"
#include "cli/files/tree_work.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TAR_BLOCK = 512, OPEN_DIRECTORIES = 32 };

static uint64_t counted_bytes; /* by count_entry(), which nftw() gives nothing to count in */

static int count_entry(const char *path UNUSED, const struct stat *status, int type,
                       struct FTW *where UNUSED)
{
    counted_bytes += TAR_BLOCK;
    if (type == FTW_F && S_ISREG(status->st_mode))
        counted_bytes += ((uint64_t)status->st_size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    return 0;
}

uint64_t tree_size(const char *path)
{
    counted_bytes = 0;
    return nftw(path, count_entry, OPEN_DIRECTORIES, FTW_PHYS) < 0 ? 0 : counted_bytes;
}

static int start(struct tree_child *child, bool writes, int (*work)(const char *, int),
                 const char *path, struct error *err)
{
    int ends[2];
    int inner;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_sys(err, "create a pipe");
    inner = writes ? ends[1] : ends[0];
    child->fd = writes ? ends[0] : ends[1];
    (void)fflush(NULL);
    child->pid = fork();
    if (child->pid == 0) {
        close(child->fd);
        _exit(work(path, inner) < 0 ? 1 : 0);
    }
    close(inner);
    if (child->pid > 0)
        return 0;
    close(child->fd);
    return error_sys(err, "start a process");
}

int tree_pack_start(struct tree_child *child, const char *path, struct error *err)
{
    return start(child, true, tree_pack, path, err);
}

int tree_unpack_start(struct tree_child *child, const char *path, struct error *err)
{
    return start(child, false, tree_unpack, path, err);
}

int tree_child_wait(struct tree_child *child, struct error *err)
{
    int status = 0;

    close(child->fd);
    child->fd = -1;
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    return error_set(err, ERR_INTERNAL, "the directory was not copied completely");
}
