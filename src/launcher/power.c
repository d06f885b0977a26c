/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/power.h"

#include "launcher/sys.h"

#include <string.h>

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

bool power_traces(void)
{
    return has_capabilities(SYS_PTRACE);
}

bool power_administers_networks(void)
{
    return has_capabilities(NET_ADMIN);
}
