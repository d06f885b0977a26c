#include "launcher/landlock.h"

#include "launcher/sys.h"

#include <errno.h>
#include <sys/stat.h>

enum landlock_right {
    EXECUTE = 1 << 0,
    WRITE_FILE = 1 << 1,
    READ_FILE = 1 << 2,
    READ_DIR = 1 << 3,
    REMOVE_FILE = 1 << 5,
    MAKE_CHAR = 1 << 6,
    MAKE_FILE = 1 << 8,
    MAKE_BLOCK = 1 << 11,
    ALL_1 = (1 << 13) - 1,
    REFER = 1 << 13,
    TRUNCATE = 1 << 14,
    IOCTL_DEVICE = 1 << 15,
};

enum {
    READ = READ_FILE | READ_DIR,
    FILE_ONLY = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE
};

uint32_t landlock_abi(void)
{
    int version = sys_landlock_create(NULL, 0, 1);

    return version > 0 ? (uint32_t)version : 0;
}

static uint64_t rights_of(uint32_t abi)
{
    return ALL_1 | (abi >= 2 ? REFER : 0) | (abi >= 3 ? TRUNCATE : 0) |
           (abi >= 5 ? IOCTL_DEVICE : 0);
}

static int make_ruleset(uint32_t abi)
{
    struct sys_landlock_ruleset ruleset = {
        .access_fs = rights_of(abi), .scoped = abi >= 6 ? 3 : 0, /* abstract sockets and signals */
    };
    size_t size = abi >= 6 ? sizeof(ruleset) : abi >= 4 ? 16 : 8;

    return sys_landlock_create(&ruleset, size, 0);
}

/* What does not exist needs no rule. */
static int allow(int ruleset, uint32_t abi, const char *path, uint64_t rights)
{
    struct sys_landlock_path rule = { .parent = open(path, O_PATH | O_CLOEXEC) };
    struct stat status;
    int result;

    if (rule.parent < 0)
        return errno == ENOENT || errno == EACCES ? 0 : -1;
    rule.access = rights & rights_of(abi);
    if (fstat(rule.parent, &status) == 0 && !S_ISDIR(status.st_mode))
        rule.access &= FILE_ONLY;
    result = sys_landlock_add(ruleset, &rule);
    close(rule.parent);
    return result;
}

static int restrict_self(int ruleset)
{
    int result = sys_landlock_restrict(ruleset);

    close(ruleset);
    return result;
}

int landlock_native(uint32_t abi)
{
    int ruleset = make_ruleset(abi);

    if (ruleset < 0)
        return -1;
    if (allow(ruleset, abi, "/", ~(uint64_t)(MAKE_CHAR | MAKE_BLOCK)) < 0) {
        close(ruleset);
        return -1;
    }
    return restrict_self(ruleset);
}

static const struct {
    const char *path;
    uint64_t rights;
} direct_rules[] = {
    { "/usr", READ | EXECUTE },
    { "/bin", READ | EXECUTE },
    { "/sbin", READ | EXECUTE },
    { "/lib", READ | EXECUTE },
    { "/lib64", READ | EXECUTE },
    { "/lib32", READ | EXECUTE },
    { "/opt", READ | EXECUTE },
    { "/nix/store", READ | EXECUTE },
    { "/proc", READ },
    { "/sys/devices/system/cpu", READ },
    { "/etc/alternatives", READ | EXECUTE },
    { "/etc/bash.bashrc", READ },
    { "/etc/ca-certificates", READ },
    { "/etc/group", READ },
    { "/etc/hosts", READ },
    { "/etc/ld.so.cache", READ },
    { "/etc/ld.so.conf", READ },
    { "/etc/ld.so.conf.d", READ },
    { "/etc/locale.alias", READ },
    { "/etc/localtime", READ },
    { "/etc/mime.types", READ },
    { "/etc/nsswitch.conf", READ },
    { "/etc/os-release", READ },
    { "/etc/passwd", READ },
    { "/etc/profile", READ },
    { "/etc/profile.d", READ },
    { "/etc/protocols", READ },
    { "/etc/python3", READ },
    { "/etc/python3.11", READ },
    { "/etc/resolv.conf", READ },
    { "/etc/services", READ },
    { "/etc/ssl", READ },
    { "/etc/terminfo", READ },
    { "/etc/timezone", READ },
    { "/run/systemd/resolve", READ },
    { "/dev/null", READ_FILE | WRITE_FILE | IOCTL_DEVICE },
    { "/dev/zero", READ_FILE | WRITE_FILE },
    { "/dev/full", READ_FILE | WRITE_FILE },
    { "/dev/random", READ_FILE },
    { "/dev/urandom", READ_FILE },
    { "/dev/tty", READ_FILE | WRITE_FILE | IOCTL_DEVICE },
    { "/dev/ptmx", READ_FILE | WRITE_FILE | IOCTL_DEVICE },
    { "/dev/pts", READ | WRITE_FILE | IOCTL_DEVICE },
    { "/dev/fd", READ },
    { "../tmp", ~(uint64_t)(MAKE_CHAR | MAKE_BLOCK) },
    { ".", ~(uint64_t)(MAKE_CHAR | MAKE_BLOCK) },
};

int landlock_direct(uint32_t abi, bool has_own_id)
{
    const uint64_t memory_files = READ | WRITE_FILE | TRUNCATE | REMOVE_FILE | MAKE_FILE;
    int ruleset = make_ruleset(abi);

    if (ruleset < 0)
        return -1;
    if (has_own_id && allow(ruleset, abi, "/dev/shm", memory_files) < 0) {
        close(ruleset);
        return -1;
    }
    for (size_t i = 0; i < sizeof(direct_rules) / sizeof(direct_rules[0]); i++) {
        if (allow(ruleset, abi, direct_rules[i].path, direct_rules[i].rights) < 0) {
            close(ruleset);
            return -1;
        }
    }
    return restrict_self(ruleset);
}
