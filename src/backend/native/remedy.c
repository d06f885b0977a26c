/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/native/remedy.h"

#include "base/macros.h"
#include "base/scoped.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

/* By the words of the step; see launcher/power.c. */
static const struct {
    const char *step;
    const char *remedy;
} steps[] = {
    { "map the user",
      "root may map itself only with the capability SETFCAP: run it as another user "
      "(--user 1000), or with --cap-add SETFCAP" },
    { "capability", "run the container with --privileged, or with --cap-add SYS_ADMIN "
                    "--cap-add SYS_PTRACE --cap-add NET_ADMIN" },
    { "/proc", "run the container with --security-opt systempaths=unconfined (Podman: unmask=ALL, "
               "Kubernetes: procMount: Unmasked), or with --privileged" },
};

/* Settings of the kernel that forbid user namespaces. */
static const struct {
    const char *path;
    const char *value;
    const char *remedy;
} settings[] = {
    { "/proc/sys/kernel/unprivileged_userns_clone", "0",
      "sysctl -w kernel.unprivileged_userns_clone=1" },
    { "/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000" },
    { "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1",
      "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile that "
      "allows userns" },
};

static bool file_says(const char *path, const char *value)
{
    scoped(fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    char text[16] = "";

    if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
        return false;
    text[strcspn(text, "\n")] = '\0';
    return strcmp(text, value) == 0;
}

const char *native_remedy(const char *missing)
{
    for (size_t i = 0; i < ARRAY_LENGTH(steps); i++) {
        if (strstr(missing, steps[i].step))
            return steps[i].remedy;
    }
    for (size_t i = 0; i < ARRAY_LENGTH(settings); i++) {
        if (file_says(settings[i].path, settings[i].value))
            return settings[i].remedy;
    }
    return "in a container: allow unshare, setns, chroot, clone and mount in its seccomp "
           "profile (--security-opt seccomp=unconfined), or run it with --privileged";
}
