/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/walls/native.h"

#include "launcher/sys.h"
#include "launcher/walls/clone_ns.h"
#include "launcher/walls/ids.h"
#include "launcher/walls/landlock.h"
#include "launcher/walls/walls.h"

#include <sched.h>
#include <string.h>
#include <sys/prctl.h>

enum {
    CAP_CHOWN = 1 << 0,
    CAP_DAC_OVERRIDE = 1 << 1,
    CAP_FOWNER = 1 << 3,
    CAP_FSETID = 1 << 4,
    CAP_KILL = 1 << 5,
    CAP_SETGID = 1 << 6,
    CAP_SETUID = 1 << 7,
    CAP_SETPCAP = 1 << 8,
    CAP_NET_BIND_SERVICE = 1 << 10,
    CAP_SYS_CHROOT = 1 << 18,
    CAPABILITIES = 64,
    CAPABILITY_VERSION = 0x20080522,
};

#define CAP_SETFCAP (1u << 31)

/* Enough for root of the sandbox to install packages; init drops the others for its payload. */
#define PAYLOAD_CAPABILITIES                                                                       \
    (CAP_CHOWN | CAP_DAC_OVERRIDE | CAP_FOWNER | CAP_FSETID | CAP_KILL | CAP_SETGID | CAP_SETUID | \
     CAP_NET_BIND_SERVICE | CAP_SYS_CHROOT | CAP_SETFCAP)
#define INIT_CAPABILITIES (PAYLOAD_CAPABILITIES | CAP_SETPCAP)
#define PAYLOAD_ARGUMENT "--bounding=800404fb"

_Static_assert(PAYLOAD_CAPABILITIES == 0x800404fbu, "the argument of init says the same");

static int drop_capabilities(void)
{
    struct {
        uint32_t version;
        int pid;
    } header = { .version = CAPABILITY_VERSION };
    struct {
        uint32_t effective, permitted, inheritable;
    } sets[2] = { { .effective = INIT_CAPABILITIES, .permitted = INIT_CAPABILITIES } };

    for (unsigned i = 0; i < CAPABILITIES; i++) {
        if (i < 32 && INIT_CAPABILITIES >> i & 1)
            continue;
        if (prctl(PR_CAPBSET_DROP, i) < 0 && errno == EINVAL)
            break;
    }
    return (int)syscall(SYS_capset, &header, sets);
}

/* Root of the sandbox's own ids, or its only user where there is a single one. Raw system calls:
 * libc would signal its other threads, and this child shares its parent's memory. */
static int become_owner(struct spawn *spawn)
{
    if (setns(spawn->userns, CLONE_NEWUSER) < 0)
        return fail_sys(&spawn->fail, "enter the user namespace");
    if (ids_are_many(spawn->spawner->context) &&
        (syscall(SYS_setresgid, 0, 0, 0) < 0 ||
         (spawn->spawner->has_groups && syscall(SYS_setgroups, 0, NULL) < 0) ||
         syscall(SYS_setresuid, 0, 0, 0) < 0))
        return fail_sys(&spawn->fail, "become root of the sandbox");
    if (drop_capabilities() < 0)
        return fail_sys(&spawn->fail, "drop capabilities");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return fail_sys(&spawn->fail, "set no_new_privs");
    return 0;
}

static int native_child(struct spawn *spawn)
{
    const char *const argv[] = { "sandglass-init",
                                 "--prepared",
                                 PAYLOAD_ARGUMENT,
                                 "--user=user",
                                 spawn_relay_argument(spawn),
                                 NULL };
    const struct spawner *spawner = spawn->spawner;
    const char *hostname = spawner->context->setup.hostname;

    spawn_reset();
    /* A session of our own would only cost time (autogroup), and the launcher's has no terminal.
     * A direct init calls setsid() itself and therefore must not lead a process group. */
    (void)setpgid(0, 0);
    if (setns(spawn->netns, CLONE_NEWNET) < 0)
        return fail_sys(&spawn->fail, "enter the network namespace");
    /* After the cgroup was entered: it becomes the root of the new cgroup namespace. */
    if (unshare(SYS_CLONE_NEWCGROUP) < 0)
        return fail_sys(&spawn->fail, "make a cgroup namespace");
    if (sethostname(hostname, strlen(hostname)) < 0)
        return fail_sys(&spawn->fail, "set the host name");
    if (root_build(spawn) < 0)
        return -1;
    if (spawn_limit(spawner, &spawn->mark.limits) < 0)
        return fail_sys(&spawn->fail, "set rlimits");
    if (become_owner(spawn) < 0)
        return -1;
    if (spawner->landlock_abi && landlock_native(spawner->landlock_abi) < 0)
        return fail_sys(&spawn->fail, "restrict with landlock");
    return spawn_exec(spawn, argv);
}

int native_start(struct spawn *spawn)
{
    const uint64_t namespaces = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS;
    const struct launch_limits *limits = &spawn->mark.limits;
    struct walls *walls = spawn->walls;
    bool in_clone_ns;
    int result;

    if (spawn->mark.network == LAUNCH_NETWORK_OPEN &&
        network_attach(&walls->network, spawn->mark.slot, spawn->netns, &spawn->fail) < 0)
        return -1;
    if (disk_is_wanted(&walls->disks, limits)) {
        spawn->disk = disk_make(&walls->disks, spawn->dir, limits->disk_bytes,
                                native_inodes(&walls->disks, limits), &spawn->fail);
        if (spawn->disk < 0)
            return -1;
    }
    in_clone_ns = spawn->root >= 0 && clone_ns_enter(&walls->host);
    result = spawn_run(spawn, namespaces, native_child);
    if (in_clone_ns)
        clone_ns_leave(&walls->host);
    return result;
}
