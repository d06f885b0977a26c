/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The system call filter of native sandboxes (native/seccomp.h) as a profile of a container engine:
 * JSON for HostConfig.SecurityOpt, "seccomp=" and this text. Docker since 20.10.10 and Podman take
 * it; an earlier Docker ignores errnoRet, so that clone3 fails with EPERM and programs of a libc
 * that tries it first have no threads.
 *
 * A profile has no rules that refuse: the engine drops such rules, because refusing is its default.
 * So each rule allows, or gives another error, and no two rules of a call with different answers
 * apply to the same arguments: libseccomp, which compiles the profile, promises no order. A call
 * that is allowed unless some argument has a value gets a rule for each bit in which the argument
 * can differ. SCMP_CMP_NE would be one rule, but it compares 64 bits where the kernel reads 32.
 *
 * Differences from native, all of them stricter or without effect:
 * - A call through the entry of another architecture (32 bits, x32) ends the program; native
 *   refuses with EPERM.
 * - runc answers numbers behind the last one that it knows with ENOSYS; native with EPERM.
 * - A call that the engine's libseccomp does not know by name is refused, even if it is on the list.
 *
 * Init has no rights that programs lack: in native sandboxes too the filter holds for init. The
 * calls of the engine's runtime between installing the profile and starting init are on the list as
 * well. The rule for RLIMIT_CORE relies on the limit that the container starts with: it has to be
 * 1, soft and hard, which keeps dumps off whether the host writes or pipes them.
 *
 * gVisor's runsc ignores profiles (its sentry answers the calls), unless it has --oci-seccomp.
 */

struct seccomp_options;

/* The JSON text, allocated. */
char *seccomp_profile_new(const struct seccomp_options *options);
