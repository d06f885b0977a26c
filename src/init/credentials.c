/* SPDX-License-Identifier: Apache-2.0 */
#include "init/credentials.h"

#include "init/init.h"
#include "init/sys.h"

#include <errno.h>
#include <sys/prctl.h>

enum { CAPABILITY_SETPCAP = 8, LAST_CAPABILITY = 63, SECCOMP_MODE_FILTER_ = 2 };

static int is_bounding(unsigned capability)
{
    return (int)sys(prctl, PR_CAPBSET_READ, capability, 0, 0, 0);
}

/* Each drop makes the kernel copy the credentials, even for a capability that is already dropped.
 * Returns the capabilities that could not be dropped. */
static uint64_t drop_bounding(uint64_t capabilities)
{
    uint64_t left = 0;

    for (; capabilities; capabilities &= capabilities - 1) {
        unsigned first = (unsigned)__builtin_ctzll(capabilities);

        if (sys(prctl, PR_CAPBSET_DROP, first, 0, 0, 0) < 0)
            left |= 1ull << first;
    }
    return left;
}

static int get_capabilities(struct sys_capability_data data[2])
{
    struct sys_capability_header header = { .version = SYS_CAPABILITY_VERSION };

    return (int)sys(capget, &header, data);
}

static int set_capabilities(const struct sys_capability_data data[2])
{
    struct sys_capability_header header = { .version = SYS_CAPABILITY_VERSION };

    return (int)sys(capset, &header, data);
}

uint64_t credentials_effective(void)
{
    struct sys_capability_data data[2] = { 0 };

    if (get_capabilities(data) < 0)
        return 0;
    return data[0].effective | (uint64_t)data[1].effective << 32;
}

static uint64_t read_bounding(void)
{
    uint64_t bounding = 0;

    for (unsigned i = 0; i <= LAST_CAPABILITY; i++) {
        int present = is_bounding(i);

        if (present < 0)
            break;
        bounding |= (uint64_t)present << i;
    }
    return bounding;
}

static void clear_inherited(void)
{
    struct sys_capability_data data[2];

    (void)sys(prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (!get_capabilities(data)) {
        data[0].inheritable = data[1].inheritable = 0;
        (void)set_capabilities(data);
    }
}

/* The bounding set limits only what an exec can gain. Init never executes anything itself, so it
 * drops these capabilities once for all processes that it starts. */
void credentials_prepare(void)
{
    uint64_t bounding;

    if (settings.prepared) {
        settings.keep_capabilities |= drop_bounding(1ull << CAPABILITY_SETPCAP);
        return;
    }
    bounding = read_bounding();
    clear_inherited();
    settings.keep_capabilities &= bounding;
    settings.keep_capabilities |= drop_bounding(bounding & ~settings.keep_capabilities);
}

void credentials_volunteer_for_the_oom_killer(void)
{
    int fd = sys_open_proc(settings.proc_fd, "self/oom_score_adj", O_WRONLY);

    if (fd < 0)
        return;
    (void)sys(write, fd, "500", 3);
    sys_close(fd);
}

void credentials_drop_bounding(void)
{
    if (settings.is_root)
        (void)drop_bounding(settings.keep_capabilities);
}

static bool is_own(const struct user *user)
{
    return user->unchanged ||
           (user->uid == (uint32_t)sys(geteuid) && user->gid == (uint32_t)sys(getegid));
}

/* A namespace made without privilege has no say over groups: then there are none to give up. */
static long set_groups(const struct user *user)
{
    long result = sys(setgroups, user->group_count, user->groups);

    return result == -EPERM && is_own(user) ? 0 : result;
}

int credentials_become(const struct user *user)
{
    long result;

    if (!settings.is_root)
        return is_own(user) ? 0 : -EPERM;
    if (user->unchanged)
        return 0;
    result = set_groups(user);
    if (!result)
        result = sys(setresgid, user->gid, user->gid, user->gid);
    if (!result)
        result = sys(setresuid, user->uid, user->uid, user->uid);
    return (int)result;
}

static long set_filter(void)
{
    struct sys_filter_program program = { settings.filter_length, settings.filter };

    return sys(prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER_, &program, 0, 0);
}

int credentials_seal(const struct user *user)
{
    long result = 0;

    if (user->uid)
        result = sys(prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (result < 0 || !settings.filter)
        return (int)result;
    result = set_filter();
    if (result == -EACCES) {
        (void)sys(prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        result = set_filter();
    }
    return (int)result;
}

/* gVisor has no ids of their own for files: the effective ones are taken. */
static int reach_files_by_effective(uint32_t uid, uint32_t gid)
{
    bool leaves_root = uid != 0;
    long result = leaves_root ? sys(setresgid, -1, gid, -1) : sys(setresuid, -1, uid, -1);

    if (!result)
        result = leaves_root ? sys(setresuid, -1, uid, -1) : sys(setresgid, -1, gid, -1);
    return (int)result;
}

int credentials_reach_files_as(uint32_t uid, uint32_t gid)
{
    if (sys(setfsgid, gid) == -ENOSYS)
        return reach_files_by_effective(uid, gid);
    (void)sys(setfsuid, uid);
    return (uint32_t)sys(setfsuid, -1) == uid && (uint32_t)sys(setfsgid, -1) == gid ? 0 : -EPERM;
}

/* Leaving uid 0 for files makes the kernel take the rights over files out of the effective set. The
 * others are dropped as well: a helper keeps the capabilities that a process of root has, and none
 * for another user, unless root does the work for that user. */
int credentials_act_for(const struct user *user, bool by_root)
{
    struct sys_capability_data data[2];
    uint64_t keep = user->uid && !by_root ? 0 : settings.keep_capabilities;
    long result;

    if (!settings.is_root)
        return is_own(user) ? 0 : -EPERM;
    if (!user->unchanged) {
        result = set_groups(user);
        if (result < 0)
            return (int)result;
        result = credentials_reach_files_as(user->uid, user->gid);
        if (result < 0)
            return (int)result;
    }
    result = get_capabilities(data);
    if (result < 0)
        return (int)result;
    data[0].permitted &= (uint32_t)keep;
    data[1].permitted &= (uint32_t)(keep >> 32);
    data[0].effective = data[0].permitted & (by_root ? UINT32_MAX : data[0].effective);
    data[1].effective = data[1].permitted & (by_root ? UINT32_MAX : data[1].effective);
    return set_capabilities(data);
}
