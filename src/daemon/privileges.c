/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/privileges.h"

#include "base/alloc.h"
#include "base/scoped.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Root with all that building walls takes. Root of a container mostly has less, and is then treated
 * as any user is. 1, 0, or -1 when that cannot be found out. */
static int has_power(struct error *err)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = { 0 };
    const uint32_t wanted = 1u << CAP_SYS_ADMIN | 1u << CAP_SETUID | 1u << CAP_SETGID |
                            1u << CAP_CHOWN;
    scoped(fd_close) int map = -1;
    char text[64] = "";

    if (geteuid() != 0 || syscall(SYS_capget, &header, sets) < 0 ||
        (sets[0].effective & wanted) != wanted)
        return 0;
    map = open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
    if (map < 0 || read(map, text, sizeof(text) - 1) <= 0) {
        error_sys(err, "find out whether root is in a user namespace: read /proc/self/uid_map");
        error_hint(err, "mount /proc: mount -t proc proc /proc");
        return -1;
    }
    /* Only the first user namespace maps all ids. */
    return strstr(text, "4294967295") != NULL;
}

int identity_find(const char *user, struct identity *out_identity, struct error *err)
{
    struct passwd *entry;
    int power = has_power(err);

    *out_identity = (struct identity){ .uid = geteuid(), .gid = getegid(), .name = user };
    if (power <= 0)
        return power;
    entry = getpwnam(user);
    out_identity->kind = entry && entry->pw_uid != 0 ? IDENTITY_NAMED : IDENTITY_FALLBACK;
    out_identity->uid = out_identity->kind == IDENTITY_NAMED ? entry->pw_uid : IDENTITY_FALLBACK_ID;
    out_identity->gid = out_identity->kind == IDENTITY_NAMED ? entry->pw_gid : IDENTITY_FALLBACK_ID;
    return 0;
}

static bool is_member(const struct identity *identity, gid_t group)
{
    int count = 0;
    scoped(free) gid_t *groups = NULL;

    (void)getgrouplist(identity->name, identity->gid, NULL, &count);
    groups = xcalloc((size_t)count, sizeof(*groups));
    if (getgrouplist(identity->name, identity->gid, groups, &count) < 0)
        return false;
    for (int i = 0; i < count; i++)
        if (groups[i] == group)
            return true;
    return false;
}

/* The group that has to be kept to connect to it; 0 when none helps or none is needed. */
static gid_t group_of_socket(const struct identity *identity, const char *path)
{
    const struct group *engine;
    struct stat status;

    if (stat(path, &status) == 0) {
        bool has_access = status.st_mode & S_IWOTH || status.st_uid == identity->uid;

        return !has_access && status.st_mode & S_IWGRP && S_ISSOCK(status.st_mode) ? status.st_gid
                                                                                   : 0;
    }
    engine = errno == ENOENT ? getgrnam("docker") : NULL;
    return engine ? engine->gr_gid : 0;
}

void identity_keep_group(struct identity *identity, const char *socket_path)
{
    gid_t group;

    if (identity->kind != IDENTITY_NAMED)
        return; /* its own user keeps all of them, the unassigned one has none */
    group = group_of_socket(identity, socket_path);
    identity->keeps_group = group != 0 && group != identity->gid && is_member(identity, group);
    identity->group = identity->keeps_group ? group : 0;
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

int process_check_files(struct error *err)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_max >= LEAST_OPEN_FILES)
        return 0;
    error_named(err, ERR_BACKEND, "too_few_files",
                "the limit of open files is %llu, and a daemon needs %d at least",
                (unsigned long long)files.rlim_max, LEAST_OPEN_FILES);
    return error_hint(err, "raise it: ulimit -Hn 65536, or LimitNOFILE=65536 in systemd");
}

int identity_assume(const struct identity *identity, struct error *err)
{
    if (identity->kind == IDENTITY_SELF)
        return 0;
    if (setgroups(identity->keeps_group ? 1 : 0, &identity->group) < 0 ||
        setresgid(identity->gid, identity->gid, identity->gid) < 0 ||
        setresuid(identity->uid, identity->uid, identity->uid) < 0)
        return error_sys(err, "become user %u", identity->uid);
    if (setuid(0) == 0 || geteuid() != identity->uid || getegid() != identity->gid)
        return error_set(err, ERR_INTERNAL, "user %u could become root again", identity->uid);

    /* Changing the user makes the process traceable again, or not, by a sysctl. */
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return 0;
}
