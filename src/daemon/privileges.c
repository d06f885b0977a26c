#include "daemon/privileges.h"

#include "base/scoped.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Outside the ranges that distributions give to people and to packages. */
enum { FALLBACK_ID = 62420 };

void identity_find(const char *user, struct identity *out_identity)
{
    struct passwd *entry;

    *out_identity = (struct identity){ .uid = geteuid(), .gid = getegid() };
    if (geteuid() != 0)
        return;
    entry = getpwnam(user);
    if (entry && entry->pw_uid != 0)
        *out_identity = (struct identity){ .uid = entry->pw_uid, .gid = entry->pw_gid };
    else
        *out_identity = (struct identity){ .uid = FALLBACK_ID, .gid = FALLBACK_ID };
}

static int compare_descriptors(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Everything above stderr, except the kept ones, which become close-on-exec. */
static void close_inherited(const int *keep, size_t count)
{
    int sorted[8];
    unsigned from = STDERR_FILENO + 1;
    size_t used = 0;

    for (size_t i = 0; i < count && used < ARRAY_LENGTH(sorted); i++)
        if (keep[i] > STDERR_FILENO)
            sorted[used++] = keep[i];
    qsort(sorted, used, sizeof(sorted[0]), compare_descriptors);
    for (size_t i = 0; i < used; i++) {
        if ((unsigned)sorted[i] > from)
            close_range(from, (unsigned)sorted[i] - 1, 0);
        fcntl(sorted[i], F_SETFD, FD_CLOEXEC);
        from = (unsigned)sorted[i] + 1;
    }
    close_range(from, ~0U, 0);
}

void process_harden(const int *keep, size_t count)
{
    struct rlimit files;

    close_inherited(keep, count);
    umask(077);
    prctl(PR_SET_DUMPABLE, 0);
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0 });
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

int identity_assume(const struct identity *identity, struct error *err)
{
    if (geteuid() != 0)
        return 0;
    if (setgroups(0, NULL) < 0 || setresgid(identity->gid, identity->gid, identity->gid) < 0 ||
        setresuid(identity->uid, identity->uid, identity->uid) < 0)
        return error_sys(err, "become user %u", identity->uid);
    if (setuid(0) == 0 || geteuid() != identity->uid || getegid() != identity->gid)
        return error_set(err, ERR_INTERNAL, "user %u could become root again", identity->uid);

    /* Changing the user makes the process traceable again, or not, by a sysctl. */
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return 0;
}

int directory_prepare(const char *path, unsigned mode, const struct identity *identity,
                      struct error *err)
{
    scoped(fd_close) int dir = -1;

    if (path_make_dirs(path, 0755, err) < 0)
        return -1;
    dir = open(path, O_DIRECTORY | O_NOFOLLOW | O_RDONLY | O_CLOEXEC);
    if (dir < 0)
        return error_sys(err, "open %s", path);
    if (geteuid() == 0 && fchown(dir, identity->uid, identity->gid) < 0)
        return error_sys(err, "give %s to user %u", path, identity->uid);
    if (fchmod(dir, mode) < 0)
        return error_sys(err, "set the mode of %s", path);
    return 0;
}
