/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/walls/landlock.h"

#include "base/landlock.h"
#include "launcher/sys.h"

#include <errno.h>
#include <sys/stat.h>

uint32_t landlock_abi(void)
{
    int version = landlock_version();

    return version > 0 ? (uint32_t)version : 0;
}

static int make_ruleset(uint32_t abi)
{
    return landlock_create(
        abi, (struct landlock_ruleset){ .files = ~(uint64_t)0,
                                        .scopes = LANDLOCK_ABSTRACT_SOCKETS | LANDLOCK_SIGNALS });
}

/* A missing path needs no rule. */
static int allow(int ruleset, uint32_t abi, const char *path, uint64_t rights)
{
    struct landlock_path rule = { .parent = open(path, O_PATH | O_CLOEXEC) };
    struct stat status;
    int result;

    if (rule.parent < 0)
        return errno == ENOENT || errno == EACCES ? 0 : -1;
    rule.rights = rights & landlock_file_rights(abi);
    if (fstat(rule.parent, &status) == 0 && !S_ISDIR(status.st_mode))
        rule.rights &= LANDLOCK_FILE_ONLY;
    result = landlock_add_path(ruleset, &rule);
    close(rule.parent);
    return result;
}

static int restrict_self(int ruleset)
{
    int result = landlock_restrict(ruleset);

    close(ruleset);
    return result;
}

int landlock_native(uint32_t abi)
{
    int ruleset = make_ruleset(abi);

    if (ruleset < 0)
        return -1;
    if (allow(ruleset, abi, "/", ~(uint64_t)LANDLOCK_DEVICES) < 0) {
        close(ruleset);
        return -1;
    }
    return restrict_self(ruleset);
}

static const struct {
    const char *path;
    uint64_t rights;
} direct_rules[] = {
    { "/usr", LANDLOCK_READ | LANDLOCK_EXECUTE },
    { "/bin", LANDLOCK_READ | LANDLOCK_EXECUTE },
    { "/sbin", LANDLOCK_READ | LANDLOCK_EXECUTE },
    { "/lib", LANDLOCK_READ | LANDLOCK_EXECUTE },
    { "/lib64", LANDLOCK_READ | LANDLOCK_EXECUTE },
    { "/lib32", LANDLOCK_READ | LANDLOCK_EXECUTE },
    { "/opt", LANDLOCK_READ | LANDLOCK_EXECUTE },
    { "/nix/store", LANDLOCK_READ | LANDLOCK_EXECUTE },
    { "/proc", LANDLOCK_READ },
    { "/sys/devices/system/cpu", LANDLOCK_READ },
    { "/etc/alternatives", LANDLOCK_READ | LANDLOCK_EXECUTE },
    { "/etc/bash.bashrc", LANDLOCK_READ },
    { "/etc/ca-certificates", LANDLOCK_READ },
    { "/etc/group", LANDLOCK_READ },
    { "/etc/hosts", LANDLOCK_READ },
    { "/etc/ld.so.cache", LANDLOCK_READ },
    { "/etc/ld.so.conf", LANDLOCK_READ },
    { "/etc/ld.so.conf.d", LANDLOCK_READ },
    { "/etc/locale.alias", LANDLOCK_READ },
    { "/etc/localtime", LANDLOCK_READ },
    { "/etc/mime.types", LANDLOCK_READ },
    { "/etc/nsswitch.conf", LANDLOCK_READ },
    { "/etc/os-release", LANDLOCK_READ },
    { "/etc/passwd", LANDLOCK_READ },
    { "/etc/profile", LANDLOCK_READ },
    { "/etc/profile.d", LANDLOCK_READ },
    { "/etc/protocols", LANDLOCK_READ },
    { "/etc/python3", LANDLOCK_READ },
    { "/etc/python3.11", LANDLOCK_READ },
    { "/etc/resolv.conf", LANDLOCK_READ },
    { "/etc/services", LANDLOCK_READ },
    { "/etc/ssl", LANDLOCK_READ },
    { "/etc/terminfo", LANDLOCK_READ },
    { "/etc/timezone", LANDLOCK_READ },
    { "/run/systemd/resolve", LANDLOCK_READ },
    { "/dev/null", LANDLOCK_READ_FILE | LANDLOCK_WRITE_FILE | LANDLOCK_IOCTL_DEVICE },
    { "/dev/zero", LANDLOCK_READ_FILE | LANDLOCK_WRITE_FILE },
    { "/dev/full", LANDLOCK_READ_FILE | LANDLOCK_WRITE_FILE },
    { "/dev/random", LANDLOCK_READ_FILE },
    { "/dev/urandom", LANDLOCK_READ_FILE },
    { "/dev/tty", LANDLOCK_READ_FILE | LANDLOCK_WRITE_FILE | LANDLOCK_IOCTL_DEVICE },
    { "/dev/ptmx", LANDLOCK_READ_FILE | LANDLOCK_WRITE_FILE | LANDLOCK_IOCTL_DEVICE },
    { "/dev/pts", LANDLOCK_READ | LANDLOCK_WRITE_FILE | LANDLOCK_IOCTL_DEVICE },
    { "/dev/fd", LANDLOCK_READ },
    { "../tmp", ~(uint64_t)LANDLOCK_DEVICES },
    { ".", ~(uint64_t)LANDLOCK_DEVICES },
};

int landlock_direct(uint32_t abi, bool has_own_id)
{
    const uint64_t memory_files = LANDLOCK_READ | LANDLOCK_WRITE_FILE | LANDLOCK_TRUNCATE |
                                  LANDLOCK_REMOVE_FILE | LANDLOCK_MAKE_FILE;
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
