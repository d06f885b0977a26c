#include "launcher/power.h"

#include "launcher/launcher.h"
#include "launcher/sys.h"
#include "launcher/walls/mounts.h"
#include "launcher/walls/native.h"

#include <sched.h>
#include <string.h>
#include <sys/wait.h>

/* Bits of capabilities. */
enum {
    CHOWN = 1 << 0,
    DAC_OVERRIDE = 1 << 1,
    FOWNER = 1 << 3,
    KILL = 1 << 5,
    SETGID = 1 << 6,
    SETUID = 1 << 7,
    NET_ADMIN = 1 << 12,
    SYS_PTRACE = 1 << 19,
    SYS_ADMIN = 1 << 21,
    SYS_RESOURCE = 1 << 24,
};

static bool has_capabilities(uint32_t wanted)
{
    struct {
        uint32_t version;
        int pid;
    } header = { .version = 0x20080522 };
    struct {
        uint32_t effective, permitted, inheritable;
    } sets[2] = { 0 };

    return geteuid() == 0 && syscall(SYS_capget, &header, sets) == 0 &&
           (sets[0].effective & wanted) == wanted;
}

/* Only the first user namespace maps all ids. */
static bool maps_all_ids(void)
{
    char text[64] = "";
    int fd = open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);

    if (fd >= 0) {
        (void)!read(fd, text, sizeof(text) - 1);
        close(fd);
    }
    return strstr(text, "4294967295") != NULL;
}

bool power_is_root(void)
{
    return has_capabilities(SYS_ADMIN | SETUID | SETGID | CHOWN) && maps_all_ids();
}

bool power_changes_ids(void)
{
    return has_capabilities(SETUID | SETGID | CHOWN | KILL | DAC_OVERRIDE | FOWNER) &&
           maps_all_ids();
}

bool power_has_resources(void)
{
    return has_capabilities(SYS_RESOURCE) && maps_all_ids();
}

/* --- native sandboxes ------------------------------------------------------------------------ */

/* The exit status of a child in a pid namespace of its own; -1 where there can be none. */
static int run_in_pid_namespace(int (*attempt)(void))
{
    pid_t child = fork();
    int status = 0;

    if (child == 0) {
        if (unshare(CLONE_NEWPID) < 0)
            _exit(errno);
        child = fork();
        if (child == 0)
            _exit(attempt());
        _exit(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)
                  ? WEXITSTATUS(status)
                  : EIO);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return EIO;
    return WEXITSTATUS(status);
}

static int attempt_procfs(void)
{
    static const struct mount_option none[] = { { 0 } };

    return mount_make("proc", none, 0) < 0 ? errno : 0;
}

int power_prove_native(struct launcher *launcher, struct fail *fail)
{
    int userns;
    int error;

    /* Namespaces of other ids are opened, and a network is set up from outside. */
    if (launcher->root && !has_capabilities(SYS_PTRACE))
        return fail_set(fail, "the capability SYS_PTRACE is missing", EPERM);
    if (launcher->root && !has_capabilities(NET_ADMIN))
        return fail_set(fail, "the capability NET_ADMIN is missing", EPERM);
    error = run_in_pid_namespace(attempt_procfs);
    if (error)
        return fail_set(fail, "mount /proc (the one here is masked)", error);
    userns = userns_make(launcher, 0, fail);
    if (userns < 0)
        return -1;
    close(userns);
    return 0;
}
