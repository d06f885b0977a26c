/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/confine.h"

#include "base/landlock.h"
#include "base/log.h"
#include "base/macros.h"
#include "daemon/confine_parts.h"

#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

const char *confinement_mode_name(const struct confinement *confinement)
{
    static const char *const names[] = {
        [CONFINE_AUTO] = "auto", [CONFINE_REQUIRED] = "required", [CONFINE_OFF] = "off"
    };

    return names[confinement->mode];
}

/* errno says why. */
static void miss(struct confinement *confinement, const char *what)
{
    size_t used = strlen(confinement->missing);
    const char *reason = errno == EOPNOTSUPP ? "not switched on at boot" : strerror(errno);

    snprintf(confinement->missing + used, sizeof(confinement->missing) - used, "%s%s (%s)",
             used ? ", " : "", what, reason);
}

void confine_probe(const struct config *config, struct confinement *out_confinement)
{
    int version = landlock_version();

    *out_confinement = (struct confinement){ .mode = config->daemon.confine };
    if (out_confinement->mode == CONFINE_OFF)
        return;
    out_confinement->landlock = version > 0 ? (unsigned)version : 0;
    if (version <= 0)
        miss(out_confinement, "landlock");
    out_confinement->seccomp = confine_calls_probe() == 0;
    if (!out_confinement->seccomp)
        miss(out_confinement, "seccomp");
}

static int check_required(const struct confinement *confinement, struct error *err)
{
    if (confinement->mode != CONFINE_REQUIRED || !confinement->missing[0])
        return 0;
    error_named(err, ERR_INVALID, "confinement_missing",
                "daemon.confine is required, and this host lacks %s", confinement->missing);
    return error_hint(err, "'sandglass doctor' shows how to enable it; with daemon.confine: auto "
                           "the daemon starts without it");
}

/* The filter comes last: it refuses nothing that Landlock needs, but its refusals are reported. */
int confine_apply(const struct config *config, struct confinement *out_confinement,
                  struct error *err)
{
    struct confinement confinement = { .mode = config->daemon.confine };
    int version;

    if (confinement.mode != CONFINE_OFF) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
            return error_sys(err, "daemon.confine: give up new privileges");
        version = confine_files(config);
        confinement.landlock = version > 0 ? (unsigned)version : 0;
        if (!confinement.landlock)
            miss(&confinement, "landlock");
        confinement.seccomp = confine_calls() == 0;
        if (!confinement.seccomp)
            miss(&confinement, "seccomp");
    }
    *out_confinement = confinement;
    return check_required(&confinement, err);
}

/* --- refused calls ------------------------------------------------------------------------- */

static void tell_refused(struct confine_watch *watch, int number)
{
    unsigned place = (unsigned)number % (ARRAY_LENGTH(watch->seen) * 64);
    char *name;

    if (watch->seen[place / 64] >> (place % 64) & 1)
        return;
    watch->seen[place / 64] |= (uint64_t)1 << (place % 64);
    name = seccomp_syscall_resolve_num_arch(seccomp_arch_native(), number);
    log_error("refused a system call that the daemon never makes: an attacker may control it",
              kv("call", name ? name : "unknown"), kv("number", number));
    free(name);
}

static void on_refused(struct io_watch *io, unsigned events UNUSED)
{
    struct confine_watch *watch = container_of(io, struct confine_watch, pipe);
    int numbers[64];
    ssize_t got = read(io->fd, numbers, sizeof(numbers));

    for (ssize_t i = 0; i < got / (ssize_t)sizeof(numbers[0]); i++)
        tell_refused(watch, numbers[i]);
}

void confine_watch_start(struct confine_watch *watch, struct loop *loop)
{
    if (confine_calls_pipe() >= 0)
        io_watch_start(&watch->pipe, loop, confine_calls_pipe(), IO_READ, on_refused);
}

void confine_watch_stop(struct confine_watch *watch)
{
    io_watch_stop(&watch->pipe);
}
