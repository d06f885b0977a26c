/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Landlock as the kernel has it. Headers of a host may be older than its kernel, so rights, scopes
 * and the forms of requests are named here. Each version adds some; see landlock_file_rights().
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif

enum landlock_file_right {
    LANDLOCK_EXECUTE = 1 << 0,
    LANDLOCK_WRITE_FILE = 1 << 1,
    LANDLOCK_READ_FILE = 1 << 2,
    LANDLOCK_READ_DIR = 1 << 3,
    LANDLOCK_REMOVE_FILE = 1 << 5,
    LANDLOCK_MAKE_CHAR = 1 << 6,
    LANDLOCK_MAKE_FILE = 1 << 8,
    LANDLOCK_MAKE_SOCKET = 1 << 9,
    LANDLOCK_MAKE_BLOCK = 1 << 11,
    LANDLOCK_FIRST_RIGHTS = (1 << 13) - 1, /* of version 1 */
    LANDLOCK_REFER = 1 << 13,              /* 2 */
    LANDLOCK_TRUNCATE = 1 << 14,           /* 3 */
    LANDLOCK_IOCTL_DEVICE = 1 << 15,       /* 5 */

    LANDLOCK_READ = LANDLOCK_READ_FILE | LANDLOCK_READ_DIR,
    LANDLOCK_DEVICES = LANDLOCK_MAKE_CHAR | LANDLOCK_MAKE_BLOCK,
    /* The rights that a rule for something other than a directory may have. */
    LANDLOCK_FILE_ONLY = LANDLOCK_EXECUTE | LANDLOCK_WRITE_FILE | LANDLOCK_READ_FILE |
                         LANDLOCK_TRUNCATE | LANDLOCK_IOCTL_DEVICE,
};

enum landlock_port_right { LANDLOCK_BIND = 1 << 0, LANDLOCK_CONNECT = 1 << 1 }; /* version 4 */
enum landlock_scope { LANDLOCK_ABSTRACT_SOCKETS = 1 << 0, LANDLOCK_SIGNALS = 1 << 1 }; /* 6 */

struct landlock_ruleset {
    uint64_t files, ports, scopes;
};

struct landlock_path {
    uint64_t rights;
    int32_t parent;
} __attribute__((packed));

struct landlock_port {
    uint64_t rights;
    uint64_t port;
};

/* The version that the kernel has; 0 or less without Landlock, and errno says why. */
static inline int landlock_version(void)
{
    return (int)syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, 1);
}

static inline uint64_t landlock_file_rights(uint32_t version)
{
    return LANDLOCK_FIRST_RIGHTS | (version >= 2 ? LANDLOCK_REFER : 0) |
           (version >= 3 ? LANDLOCK_TRUNCATE : 0) | (version >= 5 ? LANDLOCK_IOCTL_DEVICE : 0);
}

/* A descriptor of the ruleset, without the rights that an older kernel does not know. */
static inline int landlock_create(uint32_t version, struct landlock_ruleset ruleset)
{
    size_t size = version >= 6   ? sizeof(ruleset)
                  : version >= 4 ? offsetof(struct landlock_ruleset, scopes)
                                 : offsetof(struct landlock_ruleset, ports);

    ruleset.files &= landlock_file_rights(version);
    return (int)syscall(SYS_landlock_create_ruleset, &ruleset, size, 0);
}

static inline int landlock_add_path(int ruleset, const struct landlock_path *rule)
{
    return (int)syscall(SYS_landlock_add_rule, ruleset, 1, rule, 0);
}

static inline int landlock_add_port(int ruleset, const struct landlock_port *rule)
{
    return (int)syscall(SYS_landlock_add_rule, ruleset, 2, rule, 0);
}

/* Restricts this thread and its future children. */
static inline int landlock_restrict(int ruleset)
{
    return (int)syscall(SYS_landlock_restrict_self, ruleset, 0);
}
