/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/docker/docker_private.h"

#include "backend/embed.h"
#include "base/alloc.h"
#include "base/fd.h"
#include "base/scoped.h"
#include "wire/tar.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BIN DOCKER_DIRECTORY "/bin"
#define INIT_FILE BIN "/sandglass-init"

static size_t init_size(void)
{
    return (size_t)(embedded_init_end - embedded_init);
}

/* --- in the state directory ------------------------------------------------------------------- */

static bool is_current(int state_dir)
{
    scoped(fd_close) int fd = openat(state_dir, INIT_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    scoped(free) char *bytes = NULL;
    struct stat status;

    if (fd < 0 || fstat(fd, &status) < 0 || (size_t)status.st_size != init_size() ||
        (status.st_mode & 07777) != 0755)
        return false;
    bytes = xmalloc(init_size());
    return fd_read_at(fd, bytes, init_size(), 0) == init_size() &&
           memcmp(bytes, embedded_init, init_size()) == 0;
}

static int make_directory(int state_dir, const char *path, mode_t mode, struct error *err)
{
    if (mkdirat(state_dir, path, mode) < 0 && errno != EEXIST)
        return error_sys(err, "create %s", path);
    return 0;
}

/* Under another name first: containers of an earlier daemon have the old file mounted, and a crash
 * leaves no half of a new one. */
static int write_file(int state_dir, const char *path, const void *data, size_t size, mode_t mode,
                      struct error *err)
{
    scoped(free) char *new_path = xasprintf("%s.new", path);
    scoped(fd_close) int fd = -1;

    (void)unlinkat(state_dir, new_path, 0);
    fd = openat(state_dir, new_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0 || fd_write_all(fd, data, size) < 0 || fchmod(fd, mode) < 0 || fsync(fd) < 0 ||
        renameat(state_dir, new_path, state_dir, path) < 0)
        return error_sys(err, "write %s", path);
    return 0;
}

int init_file_make(int state_dir, struct error *err)
{
    if (make_directory(state_dir, DOCKER_DIRECTORY, 0711, err) < 0 ||
        make_directory(state_dir, BIN, 0755, err) < 0)
        return -1;
    return is_current(state_dir)
               ? 0
               : write_file(state_dir, INIT_FILE, embedded_init, init_size(), 0755, err);
}

int profile_file_make(int state_dir, const char *profile, struct error *err)
{
    if (make_directory(state_dir, DOCKER_DIRECTORY, 0711, err) < 0)
        return -1;
    return write_file(state_dir, DOCKER_PROFILE, profile, strlen(profile), 0644, err);
}

/* --- as an archive ---------------------------------------------------------------------------- */

enum { ENDING = 2 * TAR_BLOCK };

static char *write_member(char *at, enum tar_type type, const char *path, size_t size)
{
    const struct tar_member member = {
        .type = type, .mode = 0755, .size = size, .path = path, .link = ""
    };

    return at + tar_write_member(at, TAR_HEADER_SIZE, &member);
}

void *init_file_archive(size_t *out_length)
{
    char *archive = xcalloc(1, 3 * TAR_HEADER_SIZE + init_size() + TAR_BLOCK + ENDING);
    char *at = archive;

    at = write_member(at, TAR_DIRECTORY, (DOCKER_INSIDE) + 1, 0);
    at = write_member(at, TAR_DIRECTORY, (DOCKER_INSIDE "/bin") + 1, 0);
    at = write_member(at, TAR_FILE, (DOCKER_INIT) + 1, init_size());
    memcpy(at, embedded_init, init_size());
    at += init_size() + tar_padding(init_size()) + ENDING;
    *out_length = (size_t)(at - archive);
    return archive;
}
