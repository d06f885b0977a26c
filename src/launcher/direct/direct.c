/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/direct/direct.h"

#include "launcher/cgroup/oom.h"
#include "launcher/direct/kill.h"
#include "launcher/direct/shared.h"
#include "launcher/sys.h"
#include "launcher/walls/host.h"
#include "launcher/walls/landlock.h"
#include "wire/inside.h"

#include <grp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { USER_IN_RANGE = 1000, CAPABILITIES = 64 };

static gid_t direct_gid(const struct spawn *spawn)
{
    const struct launch_setup *setup = &spawn->spawner->context->setup;

    return setup->direct_gid ? setup->direct_gid : spawn->mark.uid;
}

static int make_directory(struct spawn *spawn, const char *name)
{
    if (mkdirat(spawn->dir, name, 0700) < 0)
        return -1;
    return spawn->spawner->context->changes_ids
               ? fchownat(spawn->dir, name, spawn->mark.uid, direct_gid(spawn), AT_SYMLINK_NOFOLLOW)
               : 0;
}

static int prepare(struct spawn *spawn)
{
    const struct launch_setup *setup = &spawn->spawner->context->setup;

    if (spawn->spawner->context->changes_ids)
        spawn->mark.uid = setup->direct_uid ? setup->direct_uid
                                            : setup->uid_base + spawn->mark.slot * LAUNCH_IDS_STEP +
                                                  USER_IN_RANGE;
    if (make_directory(spawn, "workspace") < 0)
        return fail_sys(&spawn->fail, "make workspace");
    if (make_directory(spawn, "tmp") < 0)
        return fail_sys(&spawn->fail, "make a directory for temporary files");
    return 0;
}

/* Raw system calls: libc would signal its other threads, and this child shares its parent's
 * memory. */
static int drop_root(struct spawn *spawn)
{
    uid_t uid = spawn->mark.uid;
    gid_t gid = direct_gid(spawn);

    for (int capability = 0; capability < CAPABILITIES; capability++)
        (void)prctl(PR_CAPBSET_DROP, capability);
    if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, gid, gid, gid) < 0 ||
        syscall(SYS_setresuid, uid, uid, uid) < 0)
        return fail_sys(&spawn->fail, "become another user");
    if (syscall(SYS_setresuid, 0, 0, 0) == 0)
        return fail_set(&spawn->fail, "become another user for good", EPERM);
    return 0;
}

static int mark_inside(void)
{
    struct rlimit limit;

    if (getrlimit(INSIDE_RESOURCE, &limit) < 0)
        return -1;
    limit.rlim_max = inside_limit(limit.rlim_max);
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(INSIDE_RESOURCE, &limit);
}

/* Where the child has changed its mount namespace, the descriptor of its directory still belongs to the
 * one before: a working directory that getcwd() knows has to be opened again in this one. */
static int enter_workspace(const struct spawn *spawn)
{
    int dir = spawn->spawner->mounts < 0 ? spawn->dir : host_reopen(spawn->dir);
    int result = dir < 0 ? -1 : fchdir(dir);

    if (dir >= 0 && dir != spawn->dir)
        close(dir);
    return result < 0 ? -1 : chdir("workspace");
}

static int direct_child(struct spawn *spawn)
{
    const char *const argv[] = { "sandglass-init", "--direct", spawn_relay_argument(spawn), NULL };
    const struct spawner *spawner = spawn->spawner;
    const struct context *context = spawner->context;
    bool has_own_id = kill_has_own_uid(context, &spawn->mark);

    if (spawner->mounts >= 0 && setns(spawner->mounts, CLONE_NEWNS) < 0)
        return fail_sys(&spawn->fail, "go back to the host's mounts");
    spawn_reset();
    oom_score_raise(&context->state);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (spawn_limit(spawner, &spawn->mark.limits) < 0 || mark_inside() < 0)
        return fail_sys(&spawn->fail, "set rlimits");
    if (enter_workspace(spawn) < 0)
        return fail_sys(&spawn->fail, "enter workspace");
    if (context->changes_ids && drop_root(spawn) < 0)
        return -1;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return fail_sys(&spawn->fail, "set no_new_privs");
    if (spawner->landlock_abi && landlock_direct(spawner->landlock_abi, has_own_id) < 0)
        return fail_sys(&spawn->fail, "restrict with landlock");
    if (!has_own_id && shared_forbid() < 0)
        return fail_sys(&spawn->fail, "forbid shared objects");
    return spawn_exec(spawn, argv);
}

int direct_start(struct spawn *spawn)
{
    return prepare(spawn) < 0 ? -1 : spawn_run(spawn, 0, direct_child);
}
