/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The system call filter of a sandbox, for init and everything below it: an allowlist with a check
 * of the architecture, made once at start. libseccomp knows the numbers of the calls; the program
 * is our own, because a tree over ranges is a quarter as long and is installed for every sandbox.
 * A call that is not on the list fails with EPERM; clone3 fails with ENOSYS, so that libc falls
 * back to clone, whose flags can be looked at.
 */

#include "base/error.h"

#include <stdbool.h>

enum seccomp_tier {
    SECCOMP_DEFAULT,
    SECCOMP_STRICT, /* without the calls that hand on pages of files */
};

struct seccomp_options {
    enum seccomp_tier tier;
    bool asks_limits; /* an init without a namespace identifies a peer by its limits */
    bool is_foreign;  /* for another kernel, whose core_pattern is unknown */
};

struct filter;

/* Adds the rules to an empty filter: the only list of them, for the program and for the profile of a
 * container engine. */
void seccomp_fill(struct filter *filter, const struct seccomp_options *options);

/* A descriptor of the program, sealed; the caller owns it. -1 on error. */
int seccomp_compile(const struct seccomp_options *options, struct error *err);

/* Whether a call of that name is allowed at all, perhaps with conditions: for tests and docs. */
bool seccomp_allows(const char *name);

/* The name of a call of this architecture, allocated; NULL when there is none. */
char *seccomp_name_of(int number);
